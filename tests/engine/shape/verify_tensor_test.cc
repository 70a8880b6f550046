#include "engine/shape/verify_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/base/error_detail.h"
#include "engine/uop/tensor_hash.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

// Every movement and placement once: a row of n products, padded, cut, turned, and kept elsewhere.
constexpr absl::string_view kTour =
    R"(%0 = DEFINE_VAR int32 var "n" 1..8
%1 = BUFFER float32 (%0) slot 7 shape ($0,3) device "cpu:0"
%2 = CONST int32 3
%3 = MUL int32 (%0, %2)
%4 = RESHAPE float32 (%1, %3) ints ($1)
%5 = PAD float32 (%4) ints (1,2)
%6 = SHRINK float32 (%5, %3) ints (1,$1)
%7 = CONST int32 1
%8 = SUB int32 (%3, %7)
%9 = RESHAPE float32 (%6, %8) ints ($1,1)
%10 = EXPAND float32 (%9, %8) ints ($1,5)
%11 = PERMUTE float32 (%10) ints (1,0)
%12 = FLIP float32 (%11) ints (1)
%13 = CONST float32 2.0
%14 = RESHAPE float32 (%13) ints (1,1)
%15 = EXPAND float32 (%14, %8) ints (5,$1)
%16 = MUL float32 (%12, %15)
%17 = REDUCE_AXIS float32 (%16) ADD axes (0)
%18 = CONTIGUOUS float32 (%17)
%19 = COPY float32 (%18) "cpu:1"
%20 = CAST float16 (%19)
%21 = BITCAST uint16 (%20)
%22 = SINK void (%21, %17)
)";

// Two rows of a cache, the second written.
constexpr absl::string_view kAssign =
    R"(%0 = BUFFER float32 slot 0 size 8 shape (2,4)
%1 = SHRINK float32 (%0) ints (1,2,0,4)
%2 = RESHAPE float32 (%1) ints (4)
%3 = EMPTY float32 slot 0 shape (4)
%4 = ASSIGN float32 (%2, %3)
%5 = SINK void (%4)
)";

absl::StatusOr<TensorGraphInfo> Verify(absl::string_view text) {
  // The graph outlives what is asked of the information.
  static std::vector<std::unique_ptr<UOpGraph>> graphs;
  UOpGraph& graph = *graphs.emplace_back(std::make_unique<UOpGraph>());
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  if (!root.ok()) return absl::InternalError(root.status().message());
  return VerifyTensorGraph(*root);
}

// The status of `text` with changes, each of which has to apply.
absl::Status VerifyWith(
    absl::string_view text,
    const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) {
  for (const auto& [from, to] : changes) {
    EXPECT_THAT(std::string(text), HasSubstr(std::string(from)));
  }
  return Verify(absl::StrReplaceAll(text, changes)).status();
}

// "node reason field" of an InvalidArgument.
std::string Told(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail) return "no detail";
  return absl::StrCat(detail->node.value_or(-1), " ", detail->reason, " ", detail->field);
}
std::string ToldOf(absl::string_view text) { return Told(Verify(text).status()); }

TEST(VerifyTensorGraph, FindsShapesAndDevices) {
  const absl::StatusOr<TensorGraphInfo> info = Verify(kTour);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto shape = [&](int i) {
    std::vector<std::string> sizes;
    for (const SInt& size : info->shape(info->nodes()[i])) sizes.push_back(ToString(size));
    return absl::StrJoin(sizes, " ");
  };
  EXPECT_EQ(shape(0), "");
  EXPECT_EQ(shape(1), "n 3");
  EXPECT_EQ(shape(5), "((n*3)+3)");
  EXPECT_EQ(shape(6), "((n*3)+-1)");
  EXPECT_EQ(shape(11), "5 ((n*3)+-1)");
  EXPECT_EQ(shape(17), "1 ((n*3)+-1)");
  EXPECT_EQ(info->device(info->nodes()[18]), "cpu:0");
  EXPECT_EQ(info->device(info->nodes()[21]), "cpu:1");
  EXPECT_EQ(info->device(info->nodes()[15]), "");
}

TEST(VerifyTensorGraph, TakesAValueAsARootToo) {
  EXPECT_TRUE(Verify("%0 = CONST float32 1.0").ok());
  EXPECT_TRUE(Verify("%0 = BUFFER int8 slot 0 shape (0,3)").ok());
}

TEST(VerifyTensorGraph, RefusesOpsOfKernelsAndOfTheLowering) {
  EXPECT_EQ(ToldOf("%0 = VIEW void view[shape (2) strides (1) offset 0]"), "0 OP op");
  EXPECT_EQ(ToldOf("%0 = DEFINE_GLOBAL global float32* slot 0"), "0 OP op");
  EXPECT_EQ(ToldOf("%0 = CONST int32 4\n%1 = RANGE int32 (%0) range global 0 stage 0"), "1 OP op");
  EXPECT_EQ(ToldOf("%0 = CONST float32x4 1.0"), "0 LANES dtype.lanes");
  EXPECT_EQ(ToldOf("%0 = CONST float32 1.0\n%1 = SINK void (%0)\n%2 = SINK void (%1)"),
            "1 SINK op");
  EXPECT_EQ(ToldOf("%0 = CONST float32 1.0\n%1 = SINK void (%0) kernel local_dims 0 upcasted 0 "
                   "dont_use_locals false"),
            "1 SINK kernel_info");
}

TEST(VerifyTensorGraph, ShapesMustFit) {
  EXPECT_EQ(Told(VerifyWith(kTour, {{"ints (5,$1)", "ints (6,$1)"}})), "16 SHAPE src[1]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"(%6, %8) ints ($1,1)", "(%6, %8) ints ($1,2)"}})),
            "9 SHAPE ints_arg");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"(%9, %8) ints ($1,5)", "(%9, %3) ints ($1,5)"}})),
            "10 SHAPE ints_arg.values[0]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"(%9, %8) ints ($1,5)", "(%9, %8) ints ($1)"}})),
            "10 RANK ints_arg");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"ints (1,0)", "ints (1,1)"}})), "11 AXES ints_arg.values[1]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"ints (1,0)", "ints (1,2)"}})), "11 AXES ints_arg.values[1]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"ints (1,0)", "ints (0)"}})), "11 RANK ints_arg");
  EXPECT_EQ(
      Told(VerifyWith(kTour, {{"FLIP float32 (%11) ints (1)", "FLIP float32 (%11) ints (-1)"}})),
      "12 AXES ints_arg.values[0]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"ADD axes (0)", "ADD axes (0,2)"}})),
            "17 AXES reduce_arg.axes[1]");
  EXPECT_EQ(
      Told(VerifyWith(kTour, {{"PAD float32 (%4) ints (1,2)", "PAD float32 (%4) ints (1,-1)"}})),
      "5 NEGATIVE_SIZE ints_arg.values[1]");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"PAD float32 (%4) ints (1,2)", "PAD float32 (%4) ints (1)"}})),
            "5 RANK ints_arg");
  EXPECT_EQ(Told(VerifyWith(kTour, {{"(%5, %3) ints (1,$1)", "(%5, %3) ints (4,$1)"}})),
            "6 AXES ints_arg.values[0]");
}

TEST(VerifyTensorGraph, WhatIsNotProvenOfAVariableIsRefused) {
  // n may be 8, and the buffer has 7 rows.
  EXPECT_EQ(ToldOf(R"(%0 = DEFINE_VAR int32 var "n" 1..8
%1 = BUFFER float32 slot 0 shape (7)
%2 = SHRINK float32 (%1, %0) ints (0,$1))"),
            "2 AXES ints_arg.values[0]");
  EXPECT_TRUE(Verify(R"(%0 = DEFINE_VAR int32 var "n" 1..7
%1 = BUFFER float32 slot 0 shape (7)
%2 = SHRINK float32 (%1, %0) ints (0,$1))")
                  .ok());
  EXPECT_EQ(
      ToldOf("%0 = DEFINE_VAR int32 var \"n\" -1..7\n%1 = BUFFER float32 (%0) slot 0 shape ($0)"),
      "1 NEGATIVE_SIZE buffer_arg.shape[0]");
}

TEST(VerifyTensorGraph, SizesAreArithmeticOverVariables) {
  EXPECT_EQ(ToldOf("%0 = BUFFER int32 slot 0\n%1 = BUFFER float32 (%0) slot 1 shape ($0)"),
            "1 SYMBOLIC src[0]");
  EXPECT_EQ(ToldOf("%0 = BUFFER int32 slot 0 shape (4)\n%1 = RESHAPE int32 (%0) ints ($0)"),
            "1 SYMBOLIC ints_arg");
  EXPECT_EQ(ToldOf("%0 = BUFFER int32 slot 0 shape (4)\n%1 = FLIP int32 (%0) ints ($0)"),
            "1 SYMBOLIC ints_arg.symbolic");
  EXPECT_EQ(ToldOf("%0 = CONST int32 4\n%1 = BUFFER int32 (%0) slot 0 shape (4)"),
            "1 ARITY src[0]");
  std::string deep = "%0 = DEFINE_VAR int32 var \"n\" 1..2\n%1 = DEFINE_VAR int32 var \"m\" 1..2\n";
  for (int i = 2; i < 70; ++i) absl::StrAppend(&deep, "%", i, " = MAX int32 (%", i - 1, ", %0)\n");
  EXPECT_EQ(ToldOf(absl::StrCat(deep, "%70 = BUFFER float32 (%69) slot 0 shape ($0)")),
            "70 SYMBOLIC src[0]");
}

TEST(VerifyTensorGraph, NothingIsTooLarge) {
  EXPECT_EQ(ToldOf("%0 = BUFFER bool slot 0 shape (1048576,1048576)"),
            "0 TOO_MANY_ELEMENTS buffer_arg.shape");
  EXPECT_TRUE(Verify("%0 = BUFFER bool slot 0 shape (1048576,1048575)").ok());
  EXPECT_EQ(ToldOf("%0 = CONST bool true\n%1 = RESHAPE bool (%0) ints (1,1)\n"
                   "%2 = EXPAND bool (%1) ints (4611686018427387904,4)"),
            "2 TOO_MANY_ELEMENTS ints_arg");
  EXPECT_EQ(ToldOf("%0 = CONST bool true\n%1 = RESHAPE bool (%0) ints (1)\n"
                   "%2 = PAD bool (%1) ints (9223372036854775807,9223372036854775807)"),
            "2 TOO_MANY_ELEMENTS ints_arg.values[0]");
  std::string ones = "1";
  for (int i = 0; i < 32; ++i) ones += ",1";
  EXPECT_EQ(ToldOf(absl::StrCat("%0 = CONST bool true\n%1 = RESHAPE bool (%0) ints (", ones, ")")),
            "1 RANK ints_arg");
  UOpGraph graph;
  const UOp root = ParseText(kAssign, graph).value();
  EXPECT_EQ(Told(VerifyTensorGraph(root, {}, {.max_nodes = 5}).status()), "5 TOO_MANY_NODES nodes");
}

TEST(VerifyTensorGraph, BuffersHaveOneDescription) {
  EXPECT_EQ(ToldOf("%0 = BUFFER int32 slot 0 shape (4)\n%1 = BUFFER int32 slot 0 shape (2,2)\n"
                   "%2 = SINK void (%0, %1)"),
            "1 BUFFER buffer_arg");
  // An EMPTY's ids are its own.
  EXPECT_TRUE(Verify("%0 = BUFFER int32 slot 0 shape (4)\n%1 = EMPTY int32 slot 0 shape (2,2)\n"
                     "%2 = SINK void (%0, %1)")
                  .ok());
  EXPECT_EQ(ToldOf("%0 = BUFFER int32 slot 0 size 5 shape (4)"), "0 SIZE buffer_arg.size_elements");
}

TEST(VerifyTensorGraph, VariablesHaveOneDescriptionAndOneValue) {
  EXPECT_EQ(ToldOf("%0 = DEFINE_VAR int32 var \"n\" 1..8\n%1 = DEFINE_VAR int32 var \"n\" 1..9\n"
                   "%2 = ADD int32 (%0, %1)"),
            "1 VARIABLE var_arg");
  EXPECT_EQ(ToldOf("%0 = DEFINE_VAR int32 var \"n\" 1..8\n%1 = CONST int32 9\n"
                   "%2 = BIND int32 (%0, %1)"),
            "2 BOUNDS src[1]");
  EXPECT_EQ(ToldOf("%0 = DEFINE_VAR int32 var \"n\" 1..8\n%1 = CONST int32 7\n"
                   "%2 = BIND int32 (%0, %1)\n%3 = CONST int32 6\n%4 = BIND int32 (%0, %3)\n"
                   "%5 = ADD int32 (%2, %4)"),
            "4 VARIABLE src[1]");
  // As a size it stands for the variable, with all its values.
  const auto info = Verify(
      "%0 = DEFINE_VAR int32 var \"n\" 1..8\n%1 = CONST int32 7\n"
      "%2 = BIND int32 (%0, %1)\n%3 = BUFFER int8 (%2) slot 0 shape ($0)");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->shape(info->nodes()[3])[0].max(), 8);
  EXPECT_EQ(info->binds().size(), 1);
}

TEST(VerifyTensorGraph, ValuesLieOnOneDevice) {
  constexpr absl::string_view kTwo =
      "%0 = BUFFER int32 slot 0 shape (4) device \"cpu:0\"\n%1 = BUFFER int32 slot 1 shape (4)\n"
      "%2 = ADD int32 (%0, %1)";
  EXPECT_EQ(ToldOf(kTwo), "2 DEVICE src[1]");
  UOpGraph graph;
  EXPECT_TRUE(VerifyTensorGraph(ParseText(kTwo, graph).value(), {}, {}, "cpu:0").ok());
  EXPECT_EQ(Told(VerifyWith(kTour, {{"\"cpu:1\"", "\"\""}})), "19 DEVICE device_arg");
}

TEST(VerifyTensorGraph, AssignsToBuffersOnly) {
  EXPECT_TRUE(Verify(kAssign).ok()) << Verify(kAssign).status();
  EXPECT_EQ(Told(VerifyWith(kAssign, {{"RESHAPE float32 (%1) ints (4)", "CONTIGUOUS float32 (%1)"},
                                      {"shape (4)", "shape (1,4)"}})),
            "4 BUFFER src[0]");
  EXPECT_EQ(Told(VerifyWith(kAssign, {{"ints (4)", "ints (2,2)"}})), "4 SHAPE src[1]");
  EXPECT_EQ(Told(VerifyWith(
                kAssign, {{"SINK void (%4)", "ASSIGN float32 (%0, %0)\n%6 = SINK void (%4, %5)"}})),
            "5 ASSIGNED_TWICE src[0]");
  // A client's kernel assigns to pointers, a tensor graph to values.
  EXPECT_EQ(ToldOf("%0 = DEFINE_GLOBAL global float32* slot 0\n%1 = CONST float32 1.0\n"
                   "%2 = ASSIGN float32 (%0, %1)"),
            "0 OP op");
}

TEST(VerifyTensorGraph, AssignsToEachElementOfAViewOnce) {
  const auto assign = [](absl::string_view view) {
    return absl::StrCat(
        "%0 = BUFFER int8 slot 0 shape (4,4)\n%1 = EMPTY int8 slot 0 shape (2,3)\n"
        "%2 = ASSIGN int8 (%0, %1) ",
        view);
  };
  const auto info = Verify(assign("view[shape (2,3) strides (4,1) offset 9]"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->shape(info->nodes()[2]), Shape({4, 4}));
  EXPECT_TRUE(Verify(assign("view[shape (2,3) strides (1,-4) offset 9]")).ok());
  EXPECT_EQ(ToldOf(assign("view[shape (2,3) strides (4,1) offset 10]")),
            "2 INDEX_OUT_OF_BUFFER view_arg");
  EXPECT_EQ(ToldOf(assign("view[shape (2,3) strides (1,-4) offset 7]")),
            "2 INDEX_OUT_OF_BUFFER view_arg");
  EXPECT_EQ(ToldOf(assign("view[shape (2,3) strides (2,1) offset 0]")), "2 OVERLAP view_arg");
  EXPECT_EQ(ToldOf(assign("view[shape (2,3) strides (3,0) offset 0]")), "2 OVERLAP view_arg");
  EXPECT_EQ(ToldOf(assign("view[shape (3,2) strides (4,1) offset 0]")), "2 SHAPE src[1]");
  EXPECT_EQ(ToldOf(assign("view[shape (2,3) strides (4,1) offset 0 mask (0:1,0:3)]")),
            "2 VIEW view_arg");
}

TEST(VerifyTensorGraph, AssignsWhereAVariableSays) {
  const auto assign = [](int max) {
    return absl::StrCat(R"(%0 = BUFFER float32 slot 0 shape (8,4)
%1 = BUFFER float32 slot 1 shape (1,4)
%2 = CONST int32 4
%3 = DEFINE_VAR int32 var "position" 0..)",
                        max, R"(
%4 = MUL int32 (%3, %2)
%5 = ASSIGN float32 (%0, %1, %4) view[shape (1,4) strides (4,1) offset $2])");
  };
  EXPECT_TRUE(Verify(assign(7)).ok()) << Verify(assign(7)).status();
  EXPECT_EQ(Told(Verify(assign(8)).status()), "5 INDEX_OUT_OF_BUFFER view_arg");
}

TEST(VerifyTensorGraph, NamesNodesAsTheClientWroteThem) {
  // The same constant twice, and then a shape that doesn't fit.
  const v1::Graph message = GraphFromJson(R"({"nodes":[
    {"op":"OP_CONST","dtype":{"scalar":"SCALAR_INT32"},"intArg":"1"},
    {"op":"OP_CONST","dtype":{"scalar":"SCALAR_INT32"},"intArg":"1"},
    {"op":"OP_BUFFER","dtype":{"scalar":"SCALAR_INT32"},"bufferArg":{"id":"3","shape":{"values":["2"]}}},
    {"op":"OP_ADD","dtype":{"scalar":"SCALAR_INT32"},"src":[2,1]},
    {"op":"OP_ADD","dtype":{"scalar":"SCALAR_INT32"},"src":[3,0]}]})")
                                .value();
  UOpGraph graph;
  std::vector<UOp> nodes;
  const UOp root = FromProto(message, graph, {}, &nodes).value();
  const absl::Status status = VerifyTensorGraph(root, nodes).status();
  EXPECT_EQ(Told(status), "3 SHAPE src[1]");
  EXPECT_EQ(status.message(), "node 3 (ADD): source 1 has shape (), source 0 has (2)");
}

TEST(TensorGraph, IsTheSameAfterTextAndWire) {
  for (const absl::string_view text : {kTour, kAssign}) {
    UOpGraph graph;
    const UOp root = ParseText(text, graph).value();
    EXPECT_EQ(ParseText(ToText(root), graph).value(), root);
    const v1::Graph message = ToProto(root);
    UOpGraph other;
    const absl::StatusOr<UOp> read = FromProto(GraphFromJson(GraphToJson(message)).value(), other);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToText(*read), ToText(root));
    EXPECT_EQ(ToProto(*read).SerializeAsString(), message.SerializeAsString());
    EXPECT_TRUE(VerifyTensorGraph(*read).ok());
  }
}

TEST(TensorGraphHash, IsOfStructure) {
  const auto hash = [](absl::string_view text) {
    UOpGraph graph;
    return TensorGraphHash(ParseText(text, graph).value()).Hex();
  };
  const auto with = [&](absl::string_view text, absl::string_view from, absl::string_view to) {
    return hash(absl::StrReplaceAll(text, {{from, to}}));
  };
  EXPECT_NE(hash(kTour), hash(kAssign));
  // Another buffer's handle, a stated size, the order of sizes.
  EXPECT_EQ(with(kTour, "slot 7", "slot 9"), hash(kTour));
  EXPECT_EQ(with(kAssign, "slot 0 size 8", "slot 12"), hash(kAssign));
  constexpr absl::string_view kSizes =
      "%0 = DEFINE_VAR int32 var \"n\" 1..8\n%1 = DEFINE_VAR int32 var \"m\" 1..8\n"
      "%2 = BUFFER bool (%0, %1) slot 0 shape ($0,$1)\n%3 = FLIP bool (%2) ints (0,1)";
  EXPECT_EQ(with(kSizes, "(%0, %1) slot 0 shape ($0,$1)", "(%1, %0) slot 0 shape ($1,$0)"),
            hash(kSizes));
  EXPECT_EQ(with(kSizes, "ints (0,1)", "ints (1,0)"), hash(kSizes));
  // What it computes.
  EXPECT_NE(with(kSizes, "shape ($0,$1)", "shape ($1,$0)"), hash(kSizes));
  EXPECT_NE(with(kTour, "CONST float32 2.0", "CONST float32 3.0"), hash(kTour));
  EXPECT_NE(with(kTour, "PAD float32 (%4) ints (1,2)", "PAD float32 (%4) ints (2,1)"), hash(kTour));
  EXPECT_NE(with(kTour, "1..8", "1..7"), hash(kTour));
  // One buffer twice is another graph than two buffers.
  constexpr absl::string_view kPair =
      "%0 = BUFFER bool slot 0 shape (2)\n%1 = BUFFER bool slot 1 shape (2)\n"
      "%2 = XOR bool (%0, %1)";
  EXPECT_EQ(with(kPair, "slot 1", "slot 4"), hash(kPair));
  EXPECT_NE(with(kPair, "slot 1", "slot 0"), hash(kPair));
}

// Bytes of valid graphs with random damage: each is refused as a client's mistake or is a graph
// like any other.
TEST(VerifyTensorGraph, RefusesDamageOrTakesIt) {
  std::mt19937 random(21);
  int refused = 0, accepted = 0;
  for (const absl::string_view text : {kTour, kAssign}) {
    UOpGraph graph;
    const std::string bytes = ToProto(ParseText(text, graph).value()).SerializeAsString();
    for (int round = 0; round < 30000; ++round) {
      std::string damaged = bytes;
      for (unsigned hits = 1 + random() % 2; hits > 0; --hits) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      const absl::StatusOr<v1::Graph> message = GraphFromBytes(damaged);
      if (!message.ok()) continue;
      UOpGraph other;
      std::vector<UOp> nodes;
      const absl::StatusOr<UOp> root = FromProto(*message, other, {}, &nodes);
      const absl::Status status =
          root.ok() ? VerifyTensorGraph(*root, nodes).status() : root.status();
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        EXPECT_TRUE(GetErrorDetail(status)) << status;
        ++refused;
        continue;
      }
      ++accepted;
      EXPECT_EQ(ParseText(ToText(*root), other).value(), *root);
      UOpGraph again;
      const UOp read = FromProto(ToProto(*root), again).value();
      EXPECT_EQ(ToText(read), ToText(*root));
      EXPECT_EQ(TensorGraphHash(read), TensorGraphHash(*root));
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 500);
}

}  // namespace
}  // namespace beamd
