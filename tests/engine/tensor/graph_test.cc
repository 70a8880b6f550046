#include "engine/tensor/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/shape/verify_tensor.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"
#include "tests/engine/tensor/naive_graph.h"
#include "tests/engine/tensor/random_graph.h"

namespace beamd {
namespace {

using ::beamd::testing::Content;
using ::beamd::testing::NaiveOutputs;
using ::beamd::testing::NaiveValue;
using ::beamd::testing::RandomGraph;
using ::testing::HasSubstr;

// Text to tensors and back to text.
std::string ThereAndBack(LazyContext& context, absl::string_view text) {
  UOpGraph graph;
  const absl::StatusOr<GraphTensors> tensors =
      TensorsFromGraph(context, ParseText(text, graph).value());
  if (!tensors.ok()) return std::string(tensors.status().message());
  UOpGraph other;
  const absl::StatusOr<TensorGraph> back = GraphFromTensors(tensors->outputs, other);
  if (!back.ok()) return std::string(back.status().message());
  EXPECT_TRUE(VerifyTensorGraph(back->root).ok()) << VerifyTensorGraph(back->root).status();
  return ToText(back->root);
}
std::string ThereAndBack(absl::string_view text) {
  LazyContext context;
  return ThereAndBack(context, text);
}

TEST(TensorGraph, ComesBackAsWritten) {
  constexpr absl::string_view kText = R"(%0 = BUFFER float32 slot 0 shape (4,3)
%1 = RESHAPE float32 (%0) ints (4,3,1)
%2 = EXPAND float32 (%1) ints (4,3,2)
%3 = BUFFER float32 slot 1 shape (3,2)
%4 = RESHAPE float32 (%3) ints (1,3,2)
%5 = EXPAND float32 (%4) ints (4,3,2)
%6 = MUL float32 (%2, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = RESHAPE float32 (%7) ints (4,2)
%9 = PERMUTE float32 (%8) ints (1,0)
%10 = CONTIGUOUS float32 (%9)
%11 = CAST int32 (%10)
%12 = COPY int32 (%11) "cpu:1"
%13 = CONST int32 7
%14 = RESHAPE int32 (%13) ints (1,1)
%15 = EXPAND int32 (%14) ints (2,4)
%16 = ADD int32 (%12, %15)
%17 = SINK void (%16, %8)
)";
  EXPECT_EQ(ThereAndBack(kText), kText);
}

TEST(TensorGraph, KeepsVariablesAndTheirValues) {
  constexpr absl::string_view kText = R"(%0 = BUFFER float32 slot 0 shape (8,4)
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = CONST int32 5
%3 = BIND int32 (%1, %2)
%4 = CAST int64 (%3)
%5 = SHRINK float32 (%0, %4) ints (0,$1,0,4)
%6 = REDUCE_AXIS float32 (%5) MAX axes (0)
%7 = CAST float32 (%3)
%8 = RESHAPE float32 (%7) ints (1,1)
%9 = EXPAND float32 (%8) ints (1,4)
%10 = MUL float32 (%6, %9)
%11 = SINK void (%10)
)";
  LazyContext context;
  EXPECT_EQ(ThereAndBack(context, kText), kText);
  EXPECT_EQ(context.bindings().at("n"), 5);
}

TEST(TensorGraph, AssignsToViewsOfBuffers) {
  constexpr absl::string_view kText = R"(%0 = BUFFER float32 slot 0 shape (4,4)
%1 = BUFFER float32 slot 1 shape (1,4)
%2 = ASSIGN float32 (%0, %1) view[shape (1,4) strides (0,1) offset 8]
%3 = SHRINK float32 (%2) ints (2,3,0,4)
%4 = SINK void (%3, %2)
)";
  EXPECT_EQ(ThereAndBack(kText), kText);
  // The target as movements gives the same.
  EXPECT_EQ(ThereAndBack(R"(%0 = BUFFER float32 slot 0 shape (4,4)
%1 = SHRINK float32 (%0) ints (2,3,0,4)
%2 = BUFFER float32 slot 1 shape (1,4)
%3 = ASSIGN float32 (%1, %2)
)"),
            R"(%0 = BUFFER float32 slot 0 shape (4,4)
%1 = BUFFER float32 slot 1 shape (1,4)
%2 = ASSIGN float32 (%0, %1) view[shape (1,4) strides (0,1) offset 8]
%3 = SHRINK float32 (%2) ints (2,3,0,4)
%4 = SINK void (%3)
)");
}

TEST(TensorGraph, TakesTheTensorsOfItsBuffers) {
  LazyContext context;
  UOpGraph graph;
  const UOp root =
      ParseText("%0 = BUFFER float32 slot 7 shape (2,3)\n%1 = NEG float32 (%0)", graph).value();
  const Tensor given = Tensor::Empty(context, {2, 3});
  const absl::StatusOr<GraphTensors> tensors = TensorsFromGraph(context, root, {{7, given}});
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->outputs[0].lazydata().srcs()[0], given.lazydata());
  EXPECT_TRUE(tensors->buffers.at(7).is(given));
  for (const Tensor& other :
       {Tensor::Empty(context, {3, 2}), Tensor::Empty(context, {2, 3}, {.dtype = Scalar::kInt32}),
        Tensor::Empty(context, {2, 3}, {.device = "cpu:1"}), Tensor()}) {
    const absl::Status status = TensorsFromGraph(context, root, {{7, other}}).status();
    EXPECT_THAT(status.message(), HasSubstr("node 0 (BUFFER): "));
    EXPECT_EQ(GetErrorDetail(status)->reason, "BUFFER");
  }
}

TEST(TensorGraph, AssignsToWhatHasMemoryOnly) {
  LazyContext context;
  UOpGraph graph;
  const UOp root = ParseText(
                       "%0 = BUFFER float32 slot 0 shape (2)\n%1 = CONST float32 1.0\n"
                       "%2 = RESHAPE float32 (%1) ints (1)\n%3 = EXPAND float32 (%2) ints (2)\n"
                       "%4 = ASSIGN float32 (%0, %3)",
                       graph)
                       .value();
  EXPECT_TRUE(TensorsFromGraph(context, root).ok());
  const Tensor unrealised = Tensor(Tensor::Empty(context, {2}).lazydata().Alu(Op::kSqrt));
  const absl::Status status = TensorsFromGraph(context, root, {{0, unrealised}}).status();
  EXPECT_EQ(GetErrorDetail(status)->reason, "NOT_REALIZED");
  EXPECT_EQ(GetErrorDetail(status)->node, 4);
}

TEST(TensorGraph, TellsFailedTensorsAndNone) {
  UOpGraph graph;
  EXPECT_TRUE(absl::IsInvalidArgument(GraphFromTensors({}, graph).status()));
  const Tensor failed = Tensor::Failed(absl::InvalidArgumentError("Add: no"));
  EXPECT_EQ(GraphFromTensors(std::span(&failed, 1), graph).status().message(), "Add: no");
}

TEST(TensorGraph, IsAsDeepAsItLikes) {
  LazyContext context;
  LazyBuffer x = Tensor::Empty(context, {4}).lazydata();
  for (int i = 0; i < 9000; ++i) x = x.Alu(Op::kSin).Alu(Op::kAdd, x);
  UOpGraph graph;
  const Tensor output(x);
  const absl::StatusOr<TensorGraph> deep = GraphFromTensors(std::span(&output, 1), graph);
  ASSERT_TRUE(deep.ok()) << deep.status();
  EXPECT_EQ(Toposort(deep->root).size(), 18002);
  const auto read = TensorsFromGraph(context, deep->root, {{0, Tensor(deep->buffers[0])}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->outputs[0].lazydata(), x);
}

// ---- random graphs ----

void ExpectEqual(const std::vector<NaiveValue>& got, const std::vector<NaiveValue>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].shape, want[i].shape);
    ASSERT_EQ(got[i].elements.size(), want[i].elements.size());
    for (size_t k = 0; k < want[i].elements.size(); ++k) {
      const double g = got[i].elements[k], w = want[i].elements[k];
      const bool equal =
          g == w || (std::isnan(g) && std::isnan(w)) || std::abs(g - w) <= 1e-6 * std::abs(w);
      EXPECT_TRUE(equal) << "output " << i << " element " << k << ": " << g << ", not " << w;
      if (!equal) return;
    }
  }
}

TEST(TensorGraph, RandomOnesComputeTheSameAfterBothWays) {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    UOpGraph graph, other, again;
    const UOp root = RandomGraph(seed, graph).Root();
    LazyContext context;
    const absl::StatusOr<GraphTensors> tensors = TensorsFromGraph(context, root);
    ASSERT_TRUE(tensors.ok()) << tensors.status() << "\n" << ToText(root);
    const absl::StatusOr<TensorGraph> back = GraphFromTensors(tensors->outputs, other);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToText(root);
    // What an EMPTY holds is unknown; here it is nothing.
    const auto first = [](UOp u, int64_t count) {
      return u.is(Op::kEmpty) ? std::vector<double>(count)
                              : Content(u.scalar(), u.data<BufferArg>().id, count);
    };
    const auto content = [&](const TensorGraph& of, UOp u, int64_t count) {
      for (const auto& [id, tensor] : tensors->buffers) {
        if (tensor.lazydata() == of.buffers[u.data<BufferArg>().id]) {
          return Content(u.scalar(), id, count);
        }
      }
      return std::vector<double>(count);
    };
    const auto second = [&](UOp u, int64_t count) { return content(*back, u, count); };
    ASSERT_NO_FATAL_FAILURE(
        ExpectEqual(NaiveOutputs(back->root, second), NaiveOutputs(root, first)))
        << ToText(root) << "became\n"
        << ToText(back->root);
    // And a second time.
    absl::flat_hash_map<uint64_t, Tensor> inputs;
    for (size_t id = 0; id < back->buffers.size(); ++id) inputs[id] = Tensor(back->buffers[id]);
    const auto read = TensorsFromGraph(context, back->root, inputs);
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << ToText(back->root);
    const auto twice = GraphFromTensors(read->outputs, again);
    ASSERT_TRUE(twice.ok()) << twice.status();
    const auto third = [&](UOp u, int64_t count) { return content(*twice, u, count); };
    ASSERT_NO_FATAL_FAILURE(
        ExpectEqual(NaiveOutputs(twice->root, third), NaiveOutputs(root, first)))
        << ToText(back->root) << "became\n"
        << ToText(twice->root);
    if (HasFailure()) return;
  }
}

// Damage that verification takes is no danger to what makes tensors of it.
TEST(TensorGraph, DamagedOnesAreRefusedOrMadeTensors) {
  std::mt19937 random(22);
  int refused = 0, made = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    UOpGraph graph;
    const std::string bytes = ToProto(RandomGraph(seed, graph).Root()).SerializeAsString();
    for (int round = 0; round < 300; ++round) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 24);
      const absl::StatusOr<v1::Graph> message = GraphFromBytes(damaged);
      if (!message.ok()) continue;
      UOpGraph other;
      std::vector<UOp> nodes;
      const absl::StatusOr<UOp> root = FromProto(*message, other, {}, &nodes);
      if (!root.ok()) continue;
      LazyContext context;
      const absl::StatusOr<GraphTensors> tensors = TensorsFromGraph(context, *root, {}, nodes);
      if (!tensors.ok()) {
        EXPECT_TRUE(GetErrorDetail(tensors.status())->node) << tensors.status();
        ++refused;
        continue;
      }
      ++made;
      UOpGraph back;
      EXPECT_TRUE(GraphFromTensors(tensors->outputs, back).ok());
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(made, 1000);
}

}  // namespace
}  // namespace beamd
