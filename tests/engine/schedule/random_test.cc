// Random tensor graphs: their schedule computes, kernel by kernel with the reference evaluator, what
// each node by itself does.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/schedule/schedule.h"
#include "engine/tensor/graph.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/text.h"
#include "engine/uop/verify.h"
#include "tests/engine/tensor/naive_graph.h"
#include "tests/engine/tensor/random_graph.h"

namespace beamd {
namespace {

using ::beamd::testing::Content;
using ::beamd::testing::NaiveOutputs;
using ::beamd::testing::NaiveValue;
using ::beamd::testing::RandomGraph;

// The memory of every buffer that a schedule knows.
class Memory {
 public:
  std::string& of(const TensorBuffer& buffer) {
    const auto [it, fresh] = bytes_.try_emplace(&buffer);
    if (fresh) it->second.assign(static_cast<size_t>(buffer.size_bytes()), '\0');
    return it->second;
  }
  void Fill(const TensorBuffer& buffer, const std::vector<double>& values) {
    std::string& bytes = of(buffer);
    for (size_t i = 0; i < values.size(); ++i) Store(buffer.dtype, values[i], bytes, i);
  }
  static void Store(Scalar dtype, double value, std::string& bytes, size_t i) {
    char* at = bytes.data() + i * static_cast<size_t>(SizeBytes(dtype));
    if (IsFloat(dtype)) {
      StoreFloat(value, dtype, at);
    } else {
      StoreInt(static_cast<int64_t>(value), dtype, at);
    }
  }
  static double Load(Scalar dtype, const std::string& bytes, size_t i) {
    const char* at = bytes.data() + i * static_cast<size_t>(SizeBytes(dtype));
    return IsFloat(dtype) ? LoadFloat(at, dtype) : static_cast<double>(LoadInt(at, dtype));
  }

 private:
  absl::node_hash_map<const TensorBuffer*, std::string> bytes_;  // which stay where they are
};

void RunKernel(const ScheduleItem& item, Memory& memory) {
  ASSERT_TRUE(VerifyKernel(item.ast).ok()) << VerifyKernel(item.ast) << "\n" << ToText(item.ast);
  EvalInputs inputs;
  for (size_t slot = 0; slot < item.buffers.size(); ++slot) {
    const TensorBuffer& buffer = *item.buffers[slot];
    inputs.buffers[slot] = {memory.of(buffer).data(), buffer.size_elements, buffer.dtype};
  }
  absl::StatusOr<Evaluator> evaluator = Evaluator::Create(item.ast, inputs);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status() << "\n" << ToText(item.ast);
  std::vector<std::vector<EvalValue>> results(item.buffers.size());
  for (size_t slot = 0; slot < item.buffers.size(); ++slot) {
    if (!item.written[slot]) continue;
    absl::StatusOr<std::vector<EvalValue>> values = evaluator->EvaluateAll(slot);
    ASSERT_TRUE(values.ok()) << values.status() << "\n" << ToText(item.ast);
    results[slot] = *std::move(values);
  }
  for (size_t slot = 0; slot < results.size(); ++slot) {
    const Scalar dtype = item.buffers[slot]->dtype;
    for (size_t i = 0; i < results[slot].size(); ++i) {
      const EvalValue& v = results[slot][i];
      Memory::Store(dtype, IsFloat(dtype) ? v.real : static_cast<double>(v.integer),
                    memory.of(*item.buffers[slot]), i);
    }
  }
}

// Of a value whose base is computed.
NaiveValue Read(const LazyBuffer& value, Memory& memory) {
  NaiveValue read;
  for (const SInt& size : value.shape()) read.shape.push_back(size.number());
  UOpGraph graph;
  const ViewIndex index = ViewIndex::Create(value.st().ToUOp(graph), {}).value();
  const LazyBuffer base = value.base();
  std::vector<int64_t> at(read.shape.size());
  for (int64_t left = value.size().number(); left > 0; --left) {
    const std::optional<int64_t> element = index.Index(at);
    if (base.op() == Op::kConst) {
      read.elements.push_back(element ? base.const_value().as_float() : 0);
    } else {
      read.elements.push_back(
          element ? Memory::Load(value.dtype(), memory.of(*base.buffer()), *element) : 0);
    }
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < read.shape[i]) break;
      at[i] = 0;
    }
  }
  return read;
}

// Adds to `compared` how many outputs could be.
void CompareWithNaive(UOp root, int& compared) {
  LazyContext context;
  const absl::StatusOr<GraphTensors> tensors = TensorsFromGraph(context, root);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  std::vector<LazyBuffer> outputs;
  for (const Tensor& output : tensors->outputs) outputs.push_back(output.lazydata());
  const absl::StatusOr<Schedule> schedule = CreateSchedule(outputs);
  const std::vector<UOp> nodes = Toposort(root);
  const bool assigns = std::ranges::any_of(nodes, [](UOp u) { return u.is(Op::kAssign); });
  // What is read is overwritten.
  if (assigns && absl::IsFailedPrecondition(schedule.status())) return;
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  Memory memory;
  for (const auto& [id, tensor] : tensors->buffers) {
    const LazyBuffer base = tensor.lazydata().base();
    if (base.op() != Op::kBuffer) continue;
    memory.Fill(*base.buffer(), Content(base.dtype(), id, base.size().number()));
  }
  for (const ScheduleItem& item : schedule->items) {
    if (item.kind == ScheduleItem::Kind::kKernel) {
      ASSERT_NO_FATAL_FAILURE(RunKernel(item, memory));
      continue;
    }
    const int64_t offset =
        item.kind == ScheduleItem::Kind::kView ? item.buffers[0]->offset_bytes : 0;
    memory.of(*item.buffers[0]) = memory.of(*item.buffers[1])
                                      .substr(static_cast<size_t>(offset),
                                              static_cast<size_t>(item.buffers[0]->size_bytes()));
  }
  const std::vector<NaiveValue> want = NaiveOutputs(root, [](UOp u, int64_t count) {
    return u.is(Op::kEmpty) ? std::vector<double>(count)
                            : Content(u.scalar(), u.data<BufferArg>().id, count);
  });
  for (size_t i = 0; i < outputs.size(); ++i) {
    // A view of memory is what that holds when it is read, which an ASSIGN changes.
    if (outputs[i].is_realized() && assigns) continue;
    const NaiveValue got = Read(outputs[i], memory);
    ASSERT_EQ(got.shape, want[i].shape);
    for (size_t k = 0; k < want[i].elements.size(); ++k) {
      const double g = got.elements[k], w = want[i].elements[k];
      const bool equal = g == w || (std::isnan(g) && std::isnan(w)) ||
                         std::abs(g - w) <= 1e-4 * std::abs(w) || std::abs(w) > 1e37;
      ASSERT_TRUE(equal) << "output " << i << " element " << k << ": " << g << ", not " << w;
    }
    ++compared;
  }
}

TEST(Schedule, OfRandomGraphsComputesWhatTheyMean) {
  int compared = 0;
  for (uint32_t seed = 20000; seed < 20800; ++seed) {
    UOpGraph graph;
    const UOp root = RandomGraph(seed, graph).Root();
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToText(root)));
    ASSERT_NO_FATAL_FAILURE(CompareWithNaive(root, compared));
  }
  EXPECT_GT(compared, 1000);
}

// Integers of one element and of four, sums of the one and copies of the other, and chains long
// enough to be stored, of which several are outputs: kernels that could need each other.
UOp Tangle(uint32_t seed, UOpGraph& graph) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t n) { return random() % n; };
  struct Value {
    UOp node;
    bool wide;
    int64_t most;  // how many times an element of the buffer it may be
  };
  const auto ints = [&](int64_t n) { return graph.Intern(IntsArg{{{n, -1}}}); };
  std::vector<Value> values;
  BufferArg buffer{.id = 0};
  buffer.shape.push_back({4, -1});
  const Arg four = graph.Intern(std::move(buffer));
  values.push_back({graph.Make(Op::kBuffer, Scalar::kInt32, {}, four), true, 1});
  const size_t count = 5 + draw(12);
  constexpr int64_t kMost = 1 << 20;
  while (values.size() < count) {
    const Value x = values[draw(values.size())];
    switch (draw(x.most > kMost ? 2 : 5)) {
      case 0:
        values.push_back({graph.Make(Op::kNeg, Scalar::kInt32, {x.node}), x.wide, x.most});
        break;
      case 1: {
        UOp node = x.node;
        for (int i = 0; i < 35; ++i) node = graph.Make(Op::kNeg, Scalar::kInt32, {node});
        values.push_back({node, x.wide, x.most});
        break;
      }
      case 2: {
        const Value y = values[draw(values.size())];
        if (y.wide != x.wide || y.most > kMost) break;
        values.push_back(
            {graph.Make(Op::kAdd, Scalar::kInt32, {x.node, y.node}), x.wide, x.most + y.most});
        break;
      }
      default:
        if (x.wide) {
          const Arg sum = graph.Intern(ReduceArg{.op = Op::kAdd, .axes = {0}});
          values.push_back(
              {graph.Make(Op::kReduceAxis, Scalar::kInt32, {x.node}, sum), false, 4 * x.most});
        } else {
          values.push_back(
              {graph.Make(Op::kExpand, Scalar::kInt32, {x.node}, ints(4)), true, x.most});
        }
    }
  }
  std::vector<UOp> outputs = {values.back().node};
  for (size_t i = 1; i + 1 < values.size(); ++i) {
    if (draw(3) == 0) outputs.push_back(values[i].node);
  }
  return graph.Make(Op::kSink, DType(), outputs);
}

TEST(Schedule, KernelsDoNotNeedEachOther) {
  int compared = 0;
  for (uint32_t seed = 9000; seed < 12000; ++seed) {
    UOpGraph graph;
    const UOp root = Tangle(seed, graph);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToText(root)));
    ASSERT_NO_FATAL_FAILURE(CompareWithNaive(root, compared));
  }
  EXPECT_GT(compared, 9000);
}

}  // namespace
}  // namespace beamd
