#include "client/beamctl/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/beamctl/picture.h"
#include "engine/base/error_detail.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"
#include "tests/engine/tensor/random_graph.h"

namespace beamd {
namespace {

using ::beamd::testing::RandomGraph;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Graph Message(absl::string_view text) {
  UOpGraph graph;
  return ToProto(ParseText(text, graph).value());
}

// The same product of three pairs of matrices, the third copied to another device first.
constexpr absl::string_view kThreeProducts = R"(%0 = BUFFER float32 slot 0 shape (16,1,8)
%1 = EXPAND float32 (%0) ints (16,4,8)
%2 = BUFFER float32 slot 1 shape (1,4,8)
%3 = EXPAND float32 (%2) ints (16,4,8)
%4 = MUL float32 (%1, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (2)
%6 = BUFFER float32 slot 2 shape (1,4,8)
%7 = EXPAND float32 (%6) ints (16,4,8)
%8 = MUL float32 (%1, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = COPY float32 (%0) "cpu:1"
%11 = EXPAND float32 (%10) ints (16,4,8)
%12 = BUFFER float32 slot 3 shape (1,4,8) device "cpu:1"
%13 = EXPAND float32 (%12) ints (16,4,8)
%14 = MUL float32 (%11, %13)
%15 = REDUCE_AXIS float32 (%14) ADD axes (2)
%16 = SINK void (%5, %9, %15)
)";

constexpr absl::string_view kKernel = R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12) strides (1) offset 0]
%2 = LOAD float32 (%0, %1)
%3 = NEG float32 (%2)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4)
)";

TEST(ScheduleModel, CountsEqualKernelsAsOne) {
  const absl::StatusOr<std::unique_ptr<Model>> model =
      ScheduleModel(Message(kThreeProducts), *TargetOfKind(""));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->kernels.size(), 1);
  const ModelKernel& kernel = (*model)->kernels[0];
  EXPECT_EQ(kernel.uses, 3);
  EXPECT_EQ(kernel.hash, KernelHash(kernel.ast).Hex());
  EXPECT_EQ(kernel.cost.operations, 2 * 16 * 4 * 8);
  EXPECT_FALSE(kernel.opts.empty());
  EXPECT_EQ((*model)->schedule.items.size(), 4);
  EXPECT_EQ((*model)->tensors.outputs.size(), 3);
}

TEST(ScheduleModel, RefusesWhatIsNoTensorGraph) {
  const absl::StatusOr<TargetCaps> caps = TargetOfKind("cuda");
  const absl::Status kernel = ScheduleModel(Message(kKernel), *caps).status();
  EXPECT_TRUE(absl::IsInvalidArgument(kernel));
  EXPECT_EQ(GetErrorDetail(kernel)->reason, "KERNEL");
  const absl::Status broken = ScheduleModel(Message("%0 = BUFFER float32 slot 0 shape (4)\n"
                                                    "%1 = REDUCE_AXIS float32 (%0) ADD axes (1)"),
                                            *caps)
                                  .status();
  EXPECT_EQ(GetErrorDetail(broken)->node, 1);
  EXPECT_FALSE(TargetOfKind("tpu").ok());
}

TEST(ScheduleModel, RefusesAGraphThatEndsInWhatIsThereAlready) {
  constexpr absl::string_view kText = "%0 = BUFFER float32 slot 0 shape (4)\n";
  const absl::Status status = ScheduleModel(Message(kText), *TargetOfKind("")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(GetErrorDetail(status)->reason, "NO_SINK");
  EXPECT_EQ(GetErrorDetail(status)->node, 0);
  // One value needs no SINK.
  const absl::StatusOr<std::unique_ptr<Model>> model =
      ScheduleModel(Message(absl::StrCat(kText, "%1 = NEG float32 (%0)\n")), *TargetOfKind(""));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->kernels.size(), 1);
}

TEST(ScheduleModel, MakesKernelsThatADaemonTakes) {
  int kernels = 0;
  for (uint32_t seed = 5000; seed < 5400; ++seed) {
    UOpGraph graph;
    const UOp root = RandomGraph(seed, graph).Root();
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToText(root)));
    const absl::StatusOr<std::unique_ptr<Model>> model =
        ScheduleModel(ToProto(root), *TargetOfKind("cpu"));
    if (absl::IsFailedPrecondition(model.status())) continue;  // what is read is overwritten
    ASSERT_TRUE(model.ok()) << model.status();
    for (const ModelKernel& kernel : (*model)->kernels) {
      UOpGraph other;
      const absl::StatusOr<UOp> taken = KernelFromProto(ToProto(kernel.ast), other);
      ASSERT_TRUE(taken.ok()) << taken.status() << "\n" << ToText(kernel.ast);
      EXPECT_EQ(KernelHash(*taken).Hex(), kernel.hash);
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 300);
}

// Changes that often leave a tensor graph: other types throughout, other ops, sources, sizes, values.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void Change(v1::Graph& graph) {
    constexpr v1::Scalar kFloats[] = {v1::SCALAR_FLOAT16, v1::SCALAR_BFLOAT16, v1::SCALAR_FLOAT32,
                                      v1::SCALAR_FLOAT64};
    constexpr v1::Scalar kInts[] = {v1::SCALAR_INT8,   v1::SCALAR_UINT8, v1::SCALAR_INT32,
                                    v1::SCALAR_UINT32, v1::SCALAR_INT64, v1::SCALAR_UINT64};
    const v1::Scalar to_float = kFloats[Below(4)], to_int = kInts[Below(6)];
    for (v1::Node& node : *graph.mutable_nodes()) {
      if (node.dtype().scalar() == v1::SCALAR_FLOAT32) node.mutable_dtype()->set_scalar(to_float);
      if (node.dtype().scalar() == v1::SCALAR_INT32) node.mutable_dtype()->set_scalar(to_int);
    }
    for (unsigned changes = Below(3); changes > 0; --changes) {
      ChangeNode(*graph.mutable_nodes(Below(graph.nodes_size())));
    }
  }

 private:
  int Below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  void ChangeNode(v1::Node& node) {
    if (node.has_int_arg())
      return node.set_int_arg(std::numeric_limits<int64_t>::min() >> Below(64));
    if (node.has_float_arg()) return node.set_float_arg(std::exp2(Below(2100) - 1050));
    if (Below(3) == 0 && !node.src().empty()) {
      return node.set_src(Below(node.src_size()), Below(static_cast<int>(node.src(0)) + 1));
    }
    if (node.has_reduce_arg()) {
      return node.mutable_reduce_arg()->set_op(Below(2) == 0 ? v1::OP_MUL : v1::OP_MAX);
    }
    if (node.has_ints_arg() && Below(2) == 0 && !node.ints_arg().values().empty()) {
      v1::IntList& ints = *node.mutable_ints_arg();
      return ints.set_values(Below(ints.values_size()), Below(5));
    }
    const v1::Op op = static_cast<v1::Op>(20 + Below(70));
    if (v1::Op_IsValid(op)) node.set_op(op);
  }

  std::mt19937 random_;
};

// Whatever a client sends is refused, or becomes kernels that a daemon takes.
TEST(ScheduleModel, TakesOrRefusesWhatIsChanged) {
  int refused = 0, scheduled = 0;
  Mutator mutator(23);
  for (uint32_t seed = 6000; seed < 6150; ++seed) {
    UOpGraph graph;
    const v1::Graph whole = ToProto(RandomGraph(seed, graph).Root());
    for (int round = 0; round < 20; ++round) {
      v1::Graph message = whole;
      mutator.Change(message);
      const absl::StatusOr<std::unique_ptr<Model>> model =
          ScheduleModel(message, *TargetOfKind("cpu"));
      if (!model.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(model.status()) ||
                    absl::IsFailedPrecondition(model.status()))
            << model.status();
        ++refused;
        continue;
      }
      ++scheduled;
      for (const ModelKernel& kernel : (*model)->kernels) {
        UOpGraph other;
        const absl::StatusOr<UOp> taken = KernelFromProto(ToProto(kernel.ast), other);
        ASSERT_TRUE(taken.ok()) << taken.status() << "\n"
                                << TensorText(message).value_or("") << ToText(kernel.ast);
      }
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(scheduled, 1000);
}

TEST(TensorText, TellsShapesThatArgumentsDoNot) {
  const absl::StatusOr<std::string> text = TensorText(Message(kThreeProducts));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("%4 = MUL float32 (%1, %3)  # (16,4,8)\n"),
                           HasSubstr("%0 = BUFFER float32 slot 0 shape (16,1,8)\n"),
                           HasSubstr("%16 = SINK void (%5, %9, %15)\n")));
  UOpGraph graph;
  EXPECT_EQ(ToText(ParseText(*text, graph).value()), kThreeProducts);
}

TEST(Draw, DrawsTensorsKernelsAndSchedules) {
  const v1::Graph products = Message(kThreeProducts), kernel = Message(kKernel);
  EXPECT_THAT(*Draw(products, PictureOf::kTensors),
              AllOf(HasSubstr("digraph \"tensors\""), HasSubstr("MUL float32\\n(16,4,8)")));
  EXPECT_THAT(*Draw(products, PictureOf::kKernels),
              AllOf(HasSubstr("subgraph cluster_0"), HasSubstr("used 3"),
                    Not(HasSubstr("subgraph cluster_1"))));
  EXPECT_THAT(*Draw(products, PictureOf::kSchedule),
              AllOf(HasSubstr("copy"), HasSubstr("128 float32\\ncpu:1\\ninternal")));
  EXPECT_THAT(*Draw(kernel, PictureOf::kKernels), HasSubstr("STORE void"));
  EXPECT_EQ(GetErrorDetail(Draw(kernel, PictureOf::kTensors).status())->reason, "KERNEL");
  EXPECT_EQ(GetErrorDetail(Draw(kernel, PictureOf::kSchedule).status())->reason, "KERNEL");
}

}  // namespace
}  // namespace beamd
