#include "engine/tensor/graph_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/schedule/schedule.h"
#include "engine/tensor/graph.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"
#include "tests/engine/tensor/naive_graph.h"
#include "tests/engine/tensor/random_graph.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

using ::beamd::testing::LazyRuntime;
using ::beamd::testing::NaiveOutputs;
using ::beamd::testing::NaiveValue;
using ::beamd::testing::RandomGraph;
using ::testing::ElementsAre;
using ::testing::IsNan;

using Contents = absl::flat_hash_map<uint64_t, std::vector<double>>;

// The sum of what stands in `text`'s last node, differentiated with respect to buffers 0, 1, ...;
// what the buffers hold is given in their order.
std::vector<std::vector<double>> Gradients(absl::string_view text,
                                           const std::vector<std::vector<double>>& contents) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  EXPECT_TRUE(root.ok()) << root.status();
  std::vector<uint64_t> wanted(contents.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  const absl::StatusOr<UOp> gradients = GradientGraph(*root, wanted);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  if (!gradients.ok()) return {};
  const absl::Status verified = VerifyTensorGraph(*gradients).status();
  EXPECT_TRUE(verified.ok()) << verified;
  std::vector<std::vector<double>> found;
  const std::vector<NaiveValue> outputs =
      NaiveOutputs(*gradients, [&](UOp u, int64_t) { return contents[u.data<BufferArg>().id]; });
  for (size_t i = outputs.size() - contents.size(); i < outputs.size(); ++i) {
    found.push_back(outputs[i].elements);
  }
  return found;
}

// Of sum(op(x, ...)), the buffers being vectors.
std::vector<std::vector<double>> OfOp(const std::string& op,
                                      const std::vector<std::vector<double>>& contents) {
  std::string text, sources;
  const size_t count = contents[0].size();
  for (size_t i = 0; i < contents.size(); ++i) {
    absl::StrAppend(&text, "%", i, " = BUFFER float32 slot ", i, " shape (", count, ")\n");
    absl::StrAppend(&sources, i > 0 ? ", %" : "%", i);
  }
  const size_t at = contents.size();
  absl::StrAppend(&text, "%", at, " = ", op, " float32 (", sources, ")\n%", at + 1,
                  " = REDUCE_AXIS float32 (%", at, ") ADD axes (0)\n");
  return Gradients(text, contents);
}

TEST(GraphGradient, OfEachOpIsAutogradsAtEdgesToo) {
  constexpr double kInf = INFINITY;
  EXPECT_THAT(OfOp("RECIP", {{2, 0}})[0], ElementsAre(-0.25, -kInf));
  EXPECT_THAT(OfOp("SQRT", {{4, 0}})[0], ElementsAre(0.25, kInf));
  EXPECT_THAT(OfOp("LOG2", {{4, 0}})[0],
              ElementsAre(::testing::DoubleNear(0.25 / std::log(2), 1e-7), kInf));
  EXPECT_THAT(OfOp("EXP2", {{1}})[0], ElementsAre(::testing::DoubleNear(2 * std::log(2), 1e-7)));
  EXPECT_THAT(OfOp("SIN", {{0}})[0], ElementsAre(::testing::DoubleNear(1, 1e-7)));
  EXPECT_THAT(OfOp("NEG", {{3}})[0], ElementsAre(-1));
  EXPECT_THAT(OfOp("FDIV", {{6, 0}, {3, 0}}),
              ElementsAre(ElementsAre(1.0 / 3, kInf), ElementsAre(-2.0 / 3, IsNan())));
  EXPECT_THAT(OfOp("MULACC", {{2}, {3}, {4}}),
              ElementsAre(ElementsAre(3), ElementsAre(2), ElementsAre(1)));
  // Ties share; a NaN is passed on to both.
  EXPECT_THAT(OfOp("MAX", {{1, 2, 2, NAN}, {2, 1, 2, 0}}),
              ElementsAre(ElementsAre(0, 1, 0.5, 0.5), ElementsAre(1, 0, 0.5, 0.5)));
}

TEST(GraphGradient, OfAMaximumWithZeroIsThatOfRelu) {
  EXPECT_THAT(Gradients(R"(%0 = BUFFER float32 slot 0 shape (4)
%1 = CONST float32 0.0
%2 = RESHAPE float32 (%1) ints (1)
%3 = EXPAND float32 (%2) ints (4)
%4 = MAX float32 (%3, %0)
%5 = REDUCE_AXIS float32 (%4) ADD axes (0)
)",
                        {{-1, 0, 1, NAN}})[0],
              ElementsAre(0, 0, 1, 0));
}

TEST(GraphGradient, OfReductionsFollowsTheTable) {
  const auto of = [](const std::string& op, const std::vector<double>& x) {
    return Gradients(absl::StrCat("%0 = BUFFER float32 slot 0 shape (", x.size(),
                                  ")\n%1 = REDUCE_AXIS float32 (%0) ", op, " axes (0)"),
                     {x})[0];
  };
  EXPECT_THAT(of("ADD", {1, 2}), ElementsAre(1, 1));
  EXPECT_THAT(of("MUL", {2, 3, 4}), ElementsAre(12, 8, 6));
  EXPECT_THAT(of("MUL", {2, 0}), ElementsAre(0, IsNan()));
  EXPECT_THAT(of("MAX", {1, 5, 5, 2}), ElementsAre(0, 0.5, 0.5, 0));
}

TEST(GraphGradient, GoesThroughNothingThatIsNoFloat) {
  // x * float(int(x)) + where(x < 1, x, 0): the cast and the comparison are constants.
  EXPECT_THAT(Gradients(R"(%0 = BUFFER float32 slot 0 shape (2)
%1 = CAST int32 (%0)
%2 = CAST float32 (%1)
%3 = MUL float32 (%0, %2)
%4 = CONST float32 1.0
%5 = RESHAPE float32 (%4) ints (1)
%6 = EXPAND float32 (%5) ints (2)
%7 = CMPLT bool (%0, %6)
%8 = NEG float32 (%6)
%9 = WHERE float32 (%7, %0, %8)
%10 = ADD float32 (%3, %9)
%11 = REDUCE_AXIS float32 (%10) ADD axes (0)
)",
                        {{0.5, 2.5}})[0],
              ElementsAre(1, 2));
  UOpGraph graph;
  const UOp bits = ParseText(R"(%0 = BUFFER float32 slot 0 shape ()
%1 = BITCAST int32 (%0)
%2 = BITCAST float32 (%1)
)",
                             graph)
                       .value();
  EXPECT_EQ(ToText(GradientGraph(bits, std::vector<uint64_t>{0}).value()),
            R"(%0 = BUFFER float32 slot 0
%1 = BITCAST int32 (%0)
%2 = BITCAST float32 (%1)
%3 = CONST float32 0.0
%4 = SINK void (%2, %3)
)");
}

TEST(GraphGradient, IsZeroWhereNothingDependsOnTheBuffer) {
  EXPECT_THAT(Gradients(R"(%0 = BUFFER float32 slot 0 shape (1)
%1 = BUFFER float32 slot 1 shape (2,3)
%2 = SINK void (%0, %1)
)",
                        {{5}, {1, 2, 3, 4, 5, 6}}),
              ElementsAre(ElementsAre(1), ElementsAre(0, 0, 0, 0, 0, 0)));
}

TEST(GraphGradient, OfWhatIsAssignedToIsOfWhatItHeldBefore) {
  // Rows 1 of a (3,2) buffer are written over by 3 * b; the loss weighs what stands there then.
  EXPECT_THAT(Gradients(R"(%0 = BUFFER float32 slot 0 shape (3,2)
%1 = BUFFER float32 slot 1 shape (1,2)
%2 = ADD float32 (%1, %1)
%3 = ASSIGN float32 (%0, %2) view[shape (1,2) strides (0,1) offset 2]
%4 = MUL float32 (%3, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (0,1)
)",
                        {{1, 2, 3, 4, 5, 6}, {7, 8}}),
              ElementsAre(ElementsAre(2, 4, 0, 0, 10, 12), ElementsAre(56, 64)));
  // All of it: nothing is left of what it held, but other nodes read that.
  EXPECT_THAT(Gradients(R"(%0 = BUFFER float32 slot 0 shape (1)
%1 = BUFFER float32 slot 1 shape (1)
%2 = ASSIGN float32 (%0, %1)
%3 = MUL float32 (%2, %0)
%4 = SINK void (%3, %2)
)",
                        {{2}, {3}}),
              ElementsAre(ElementsAre(3), ElementsAre(2)));
}

TEST(GraphGradient, NamesWhatHasNone) {
  const auto refused = [](absl::string_view text, std::vector<uint64_t> wanted) {
    UOpGraph graph;
    const absl::Status status = GradientGraph(ParseText(text, graph).value(), wanted).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail());
    return absl::StrCat(detail.reason, " ", detail.field, " ", detail.node.value_or(-1));
  };
  constexpr absl::string_view kScalar = R"(%0 = BUFFER float32 slot 0 shape (1)
%1 = BUFFER int32 slot 1 shape (1)
%2 = CAST float32 (%1)
%3 = ADD float32 (%0, %2)
)";
  EXPECT_EQ(refused(kScalar, {1}), "BUFFER_DTYPE gradients[0] 1");
  EXPECT_EQ(refused(kScalar, {0, 2}), "BUFFER gradients[1] -1");
  EXPECT_EQ(refused(kScalar, {0, 0}), "DUPLICATE gradients[1] -1");
  EXPECT_EQ(refused("%0 = BUFFER float32 slot 0 shape (2)\n%1 = NEG float32 (%0)", {0}),
            "OUTPUT_SHAPE  1");
  EXPECT_EQ(refused("%0 = BUFFER int32 slot 0 shape ()\n%1 = NEG int32 (%0)", {0}),
            "OUTPUT_DTYPE dtype 1");
  EXPECT_EQ(refused(R"(%0 = BUFFER float32 slot 0 shape (1)
%1 = RESHAPE float32 (%0) ints ()
%2 = NEG float32 (%0)
%3 = ASSIGN float32 (%0, %2)
%4 = SINK void (%1, %3)
)",
                    {0}),
            "OUTPUT_ASSIGNED  1");
  // What is no graph at all.
  EXPECT_EQ(
      refused("%0 = BUFFER float32 slot 0 shape (1)\n%1 = RESHAPE float32 (%0) ints (2)", {0}),
      "SHAPE ints_arg 1");
}

// ---- random graphs against central differences ----

double Number(uint64_t seed) {
  return 0.3 + std::fmod(static_cast<double>(seed) * 0.6180339887498949, 1.0) * 1.7;
}

constexpr uint64_t kWeights = 1000;

struct Counted {
  int compared = 0, kinks = 0, graphs = 0;
};

// sum(w * output 0 of `root`), w a buffer of its own; null where that output is no float.
UOp Weighted(UOp root) {
  UOpGraph& graph = root.graph();
  const UOp value = root.src(0);
  const absl::StatusOr<TensorGraphInfo> info = VerifyTensorGraph(root);
  EXPECT_TRUE(info.ok()) << info.status();
  if (!info.ok() || !IsFloat(value.scalar())) return {};
  BufferArg weights{.id = kWeights};
  std::vector<int32_t> axes;
  for (const SInt& size : info->shape(value)) {
    axes.push_back(static_cast<int32_t>(axes.size()));
    weights.shape.push_back({size.number(), -1});
  }
  const UOp w = graph.Make(Op::kBuffer, value.dtype(), {}, graph.Intern(std::move(weights)));
  const UOp product = graph.Make(Op::kMul, value.dtype(), {value, w});
  if (axes.empty()) return product;
  return graph.Make(Op::kReduceAxis, value.dtype(), {product},
                    graph.Intern(ReduceArg{Op::kAdd, axes}));
}

void CompareWithDifferences(uint32_t seed, Counted& counted) {
  UOpGraph graph;
  const UOp root = Weighted(RandomGraph(seed, graph, /*all_ops=*/true).Root());
  if (!root) return;
  Contents contents;
  std::vector<uint64_t> wanted;
  const auto memory = [&](UOp u, int64_t count) {
    if (u.is(Op::kEmpty)) return std::vector<double>(count);
    const uint64_t id = u.data<BufferArg>().id;
    std::vector<double>& content = contents[id];
    if (content.empty()) {
      for (int64_t i = 0; i < count; ++i) {
        const double v = Number(seed * 131 + id * 17 + i);
        content.push_back(IsFloat(u.scalar()) ? v : std::floor(v));
      }
      if (IsFloat(u.scalar()) && id != kWeights && count > 0) wanted.push_back(id);
    }
    return content;
  };
  const std::function<std::vector<double>(UOp, int64_t)> read = memory;
  // Its gradient divides by what may be 0, as the table says.
  const bool product = std::ranges::any_of(Toposort(root), [](UOp u) {
    return u.is(Op::kReduceAxis) && u.data<ReduceArg>().op == Op::kMul;
  });
  const double here = NaiveOutputs(root, read)[0].elements[0];
  if (!std::isfinite(here) || std::abs(here) > 1e6) return;
  const absl::StatusOr<UOp> gradients = GradientGraph(root, wanted);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const absl::Status verified = VerifyTensorGraph(*gradients).status();
  ASSERT_TRUE(verified.ok()) << verified << "\n" << ToText(*gradients);
  const std::vector<NaiveValue> found = NaiveOutputs(*gradients, read);
  ++counted.graphs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<double>& content = contents[wanted[i]];
    for (size_t k = 0; k < content.size(); k += 1 + content.size() / 4) {
      const double kept = content[k];
      const auto difference = [&](double step) {
        content[k] = kept + step;
        const double above = NaiveOutputs(root, read)[0].elements[0];
        content[k] = kept - step;
        const double below = NaiveOutputs(root, read)[0].elements[0];
        content[k] = kept;
        return (above - below) / (2 * step);
      };
      const double want = difference(1e-5), again = difference(3e-5);
      const double tolerance = 1e-5 * (1 + std::abs(want) + std::abs(here));
      const double got = found[1 + i].elements[k];
      // At a kink, or next to one, no difference says what is right.
      if (!std::isfinite(want) || std::abs(want) > 1e6 || std::abs(want - again) > tolerance ||
          (product && std::isnan(got))) {
        ++counted.kinks;
        continue;
      }
      ++counted.compared;
      ASSERT_NEAR(got, want, tolerance)
          << "seed " << seed << " buffer " << wanted[i] << " element " << k << "\n"
          << ToText(root);
    }
  }
}

TEST(GraphGradient, OfRandomGraphsIsTheirDifference) {
  Counted counted;
  for (uint32_t seed = 0; seed < 6000; ++seed) {
    CompareWithDifferences(seed, counted);
    if (HasFailure()) return;
  }
  RecordProperty("graphs", counted.graphs);
  RecordProperty("compared", counted.compared);
  EXPECT_GT(counted.graphs, 1000);
  EXPECT_GT(counted.compared, 3000);
  EXPECT_LT(counted.kinks, counted.compared / 4);
}

// What verification takes has gradients, or is told why not.
TEST(GraphGradient, OfDamagedGraphsIsAGraphOrAnError) {
  std::mt19937 random(5);
  int refused = 0, made = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    UOpGraph graph;
    const UOp root = Weighted(RandomGraph(seed, graph, /*all_ops=*/true).Root());
    if (!root) continue;
    const std::string bytes = ToProto(root).SerializeAsString();
    for (int round = 0; round < 200; ++round) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 24);
      const absl::StatusOr<v1::Graph> message = GraphFromBytes(damaged);
      if (!message.ok()) continue;
      UOpGraph other;
      std::vector<UOp> nodes;
      const absl::StatusOr<UOp> read = FromProto(*message, other, {}, &nodes);
      if (!read.ok()) continue;
      std::vector<uint64_t> wanted;
      for (const UOp u : nodes) {
        const bool is_new = u.is(Op::kBuffer) && IsFloat(u.scalar()) &&
                            std::ranges::find(wanted, u.data<BufferArg>().id) == wanted.end();
        if (is_new) wanted.push_back(u.data<BufferArg>().id);
      }
      const absl::StatusOr<UOp> gradients = GradientGraph(*read, wanted, nodes);
      if (!gradients.ok()) {
        EXPECT_TRUE(GetErrorDetail(gradients.status())) << gradients.status();
        ++refused;
        continue;
      }
      ++made;
      const absl::Status verified = VerifyTensorGraph(*gradients).status();
      EXPECT_TRUE(verified.ok()) << verified << "\n" << ToText(*gradients);
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(made, 300);
}

// ---- symbolic sizes ----

// The same program with the size `n` a variable that has the value 5, and with the number 5.
std::string Attention(bool symbolic) {
  const std::string n = symbolic ? "$1" : "5";
  const std::string by = symbolic ? ", %2" : "";
  return absl::StrCat(R"(%0 = DEFINE_VAR int32 var "n" 1..8
%1 = CONST int32 5
%2 = BIND int32 (%0, %1)
%3 = BUFFER float32 slot 0 shape (8,4)
%4 = SHRINK float32 (%3)",
                      by, R"() ints (0,)", n, R"(,0,4)
%5 = BUFFER float32 slot 1 shape (1,4)
%6 = EXPAND float32 (%5)",
                      by, ") ints (", n, R"(,4)
%7 = MUL float32 (%4, %6)
%8 = REDUCE_AXIS float32 (%7) ADD axes (1)
%9 = EXP2 float32 (%8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (0)
%11 = EXPAND float32 (%10)",
                      by, ") ints (", n, R"(,1)
%12 = FDIV float32 (%9, %11)
%13 = PAD float32 (%12) ints (1,2,0,0)
%14 = SHRINK float32 (%13)",
                      by, ") ints (1,", symbolic ? "$1" : "5", R"(,0,1)
%15 = REDUCE_AXIS float32 (%14) MAX axes (0)
%16 = CAST float32 (%2)
%17 = RESHAPE float32 (%16) ints (1,1)
%18 = MUL float32 (%15, %17)
)");
}

TEST(GraphGradient, KnowsSymbolicSizes) {
  std::vector<std::vector<float>> found[2];
  for (const bool symbolic : {false, true}) {
    LazyRuntime lazy;
    UOpGraph graph;
    const absl::StatusOr<UOp> root = ParseText(Attention(symbolic), graph);
    ASSERT_TRUE(root.ok()) << root.status();
    const absl::StatusOr<UOp> gradients = GradientGraph(*root, std::vector<uint64_t>{0, 1});
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    std::vector<float> keys;
    keys.reserve(32);
    for (int i = 0; i < 32; ++i) keys.push_back(static_cast<float>(Number(i)));
    const Tensor k(lazy.From<float>(keys, {8, 4}));
    const Tensor q(lazy.From<float>({0.5, -1, 0.25, 2}, {1, 4}));
    const absl::StatusOr<GraphTensors> tensors =
        TensorsFromGraph(lazy.context, *gradients, {{0, k}, {1, q}});
    ASSERT_TRUE(tensors.ok()) << tensors.status() << "\n" << ToText(*gradients);
    for (const Tensor& output : tensors->outputs) {
      found[symbolic].push_back(lazy.Values<float>(output.lazydata()));
    }
  }
  ASSERT_EQ(found[0].size(), 3);
  EXPECT_EQ(found[0][1].size(), 32);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(found[0][i].size(), found[1][i].size());
    for (size_t k = 0; k < found[0][i].size(); ++k) {
      EXPECT_NEAR(found[0][i][k], found[1][i][k], 1e-6 * (1 + std::abs(found[0][i][k])));
    }
  }
  EXPECT_NE(found[0][1][0], 0);
  EXPECT_EQ(found[0][1][31], 0);
}

// ---- against engine/autograd ----

Tensor Formula(LazyContext& context, const Shape& shape, int salt) {
  std::vector<float> values;
  for (int64_t i = Prod(shape).number(); i > 0; --i) {
    values.push_back(static_cast<float>((Number(i * 7 + salt) - 1.15) / 2));
  }
  return Tensor::From(context, values, shape);
}

int Kernels(const std::vector<Tensor>& tensors) {
  std::vector<LazyBuffer> roots;
  roots.reserve(tensors.size());
  for (const Tensor& t : tensors) roots.push_back(t.lazydata());
  const absl::StatusOr<Schedule> schedule = CreateSchedule(roots);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? schedule->kernel_count() : -1;
}

// The loss of tensors of `shapes` and its gradients, by autograd and by the loss' graph: the same
// values, from about as many kernels.
void CompareWithAutograd(const std::vector<Shape>& shapes,
                         const std::function<Tensor(const std::vector<Tensor>&)>& loss_of) {
  LazyRuntime lazy;
  std::vector<Tensor> leaves;
  for (const Shape& shape : shapes) {
    leaves.push_back(Formula(lazy.context, shape, static_cast<int>(leaves.size())));
    leaves.back().set_requires_grad(true);
    ASSERT_TRUE(leaves.back().Realize().ok());
  }
  const Tensor loss = loss_of(leaves);
  ASSERT_TRUE(loss.ok()) << loss.status();
  UOpGraph graph;
  const absl::StatusOr<TensorGraph> sent = GraphFromTensors(std::span(&loss, 1), graph);
  ASSERT_TRUE(sent.ok()) << sent.status();
  std::vector<uint64_t> wanted;
  for (const Tensor& leaf : leaves) {
    const auto at = std::ranges::find(sent->buffers, leaf.lazydata().base());
    ASSERT_NE(at, sent->buffers.end());
    wanted.push_back(at - sent->buffers.begin());
  }
  const absl::StatusOr<UOp> gradients = GradientGraph(sent->root, wanted);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  absl::flat_hash_map<uint64_t, Tensor> inputs;
  for (const LazyBuffer& buffer : sent->buffers) inputs.emplace(inputs.size(), Tensor(buffer));
  const absl::StatusOr<GraphTensors> received = TensorsFromGraph(lazy.context, *gradients, inputs);
  ASSERT_TRUE(received.ok()) << received.status();

  const absl::Status backward = loss.Backward({}, /*retain_graph=*/true);
  ASSERT_TRUE(backward.ok()) << backward;
  std::vector<Tensor> by_autograd = {loss};
  for (const Tensor& leaf : leaves) by_autograd.push_back(leaf.grad());
  // A softmax' maximum, which autograd detaches, is differentiated here: two or three kernels.
  const int ours = Kernels(received->outputs), autograds = Kernels(by_autograd);
  EXPECT_LE(ours, autograds + 3) << "autograd's are " << autograds;
  for (size_t i = 0; i < by_autograd.size(); ++i) {
    const std::vector<float> got = lazy.Values<float>(received->outputs[i].lazydata());
    const std::vector<float> want = lazy.Values<float>(by_autograd[i].lazydata());
    ASSERT_EQ(got.size(), want.size());
    float most = 0;
    for (const float w : want) most = std::max(most, std::abs(w));
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[k], want[k], 2e-5 * most) << "output " << i << " element " << k;
    }
  }
}

Tensor Labels(const Tensor& like, int64_t count, int classes) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(static_cast<int32_t>(i * 3 % classes));
  return Tensor::From(like.context(), labels, {count});
}

TEST(GraphGradient, OfAnMlpIsAutogradsFromAsManyKernels) {
  CompareWithAutograd({{16, 20}, {20, 32}, {32}, {32, 10}, {10}}, [](const auto& t) {
    const Tensor hidden = (t[0].Matmul(t[1]) + t[2]).Relu();
    return (hidden.Matmul(t[3]) + t[4]).SparseCategoricalCrossentropy(Labels(t[0], 16, 10));
  });
}

TEST(GraphGradient, OfAConvolutionIsAutogradsFromAsManyKernels) {
  CompareWithAutograd({{4, 3, 10, 10}, {8, 3, 3, 3}, {8}, {4, 8, 3, 3}}, [](const auto& t) {
    const Tensor wide = t[0].Conv2d(t[1], t[2], 1, 1, 1, 1).Relu().MaxPool2d();
    return wide.Conv2d(t[3]).Tanh().Flatten(1).SparseCategoricalCrossentropy(Labels(t[0], 4, 36));
  });
}

TEST(GraphGradient, OfAttentionIsAutogradsFromAsManyKernels) {
  CompareWithAutograd({{2, 6, 8}, {2, 6, 8}, {2, 6, 8}}, [](const auto& t) {
    return t[0]
        .ScaledDotProductAttention(t[1], t[2], Tensor(), 0, /*is_causal=*/true)
        .Layernorm()
        .Gelu()
        .Square()
        .Sum();
  });
}

}  // namespace
}  // namespace beamd
