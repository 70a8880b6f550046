#include "engine/uop/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

// A sum over axis 1 of twice what slot 1 holds.
constexpr absl::string_view kSum =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1 size 12
%3 = VIEW void view[shape (4,3) strides (3,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = CONST float32 2.0
%6 = MUL float32 (%4, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8)
)";

absl::Status Verify(absl::string_view text) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  if (!root.ok()) return absl::InternalError(root.status().message());
  return VerifyKernel(*root);
}
absl::Status VerifySumWith(
    const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) {
  for (const auto& [from, to] : changes) {
    EXPECT_THAT(std::string(kSum), HasSubstr(std::string(from)));
  }
  return Verify(absl::StrReplaceAll(kSum, changes));
}
std::string Reason(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail ? detail->reason : "none";
}

TEST(VerifyKernel, AcceptsASum) { EXPECT_TRUE(Verify(kSum).ok()) << Verify(kSum); }

TEST(VerifyKernel, WantsASinkOfStores) {
  EXPECT_THAT(Verify("%0 = CONST float32 1.0").message(), HasSubstr("the root is no SINK"));
  EXPECT_THAT(Verify("%0 = CONST float32 1.0\n%1 = SINK void (%0)").message(),
              HasSubstr("node 1 (SINK): source 0 is no STORE"));
  EXPECT_THAT(Verify("%0 = SINK void").message(), HasSubstr("has 0 sources, needs 1"));
}

TEST(VerifyKernel, RefusesOptimisedKernels) {
  EXPECT_EQ(Reason(VerifySumWith({{"SINK void (%8)",
                                   "SINK void (%8) kernel local_dims 0 upcasted 0 "
                                   "dont_use_locals false"}})),
            "WRONG_ARG");
  EXPECT_EQ(Reason(VerifySumWith({{"DEFINE_GLOBAL global float32* slot 1 size 12",
                                   "DEFINE_LOCAL local float32* \"t\""}})),
            "OP");
}

TEST(VerifyKernel, RefusesVectors) {
  const absl::Status status = VerifySumWith({{"global float32*", "global float32x4*"},
                                             {"LOAD float32", "LOAD float32x4"},
                                             {"CONST float32", "CONST float32x4"},
                                             {"MUL float32", "MUL float32x4"},
                                             {"REDUCE_AXIS float32", "REDUCE_AXIS float32x4"}});
  EXPECT_EQ(Reason(status), "LANES");
}

TEST(VerifyKernel, ShapesMustFit) {
  EXPECT_EQ(Reason(VerifySumWith({{"shape (4,1) strides (1,0)", "shape (4,2) strides (1,4)"}})),
            "SHAPE");
  EXPECT_EQ(Reason(VerifySumWith({{"shape (4,1) strides (1,0)", "shape (4) strides (1)"}})),
            "SHAPE");
  EXPECT_THAT(VerifySumWith({{"axes (1)", "axes (2)"}}).message(),
              HasSubstr("node 7 (REDUCE_AXIS): there is no axis 2"));
  EXPECT_THAT(VerifySumWith({{"(%4, %5)", "(%5, %5)"}}).message(),
              HasSubstr("(REDUCE_AXIS): reduces a value without a shape"));
}

TEST(VerifyKernel, AxesAreOneOrTheKernels) {
  // A second reduction, of another length.
  const absl::Status status = Verify(
      absl::StrReplaceAll(kSum, {{"%8 = STORE void (%0, %1, %7)",
                                  "%20 = VIEW void view[shape (4,2) strides (2,1) offset 0]\n"
                                  "%21 = LOAD float32 (%2, %20)\n"
                                  "%22 = REDUCE_AXIS float32 (%21) ADD axes (1)\n"
                                  "%23 = ADD float32 (%7, %22)\n"
                                  "%8 = STORE void (%0, %1, %23)"}}));
  EXPECT_EQ(Reason(status), "SHAPE");
  EXPECT_THAT(status.message(), HasSubstr("axis 1 of (4,2) is neither 1 nor that of (4,3)"));
}

TEST(VerifyKernel, SlotsAndVariablesHaveOneDefinition) {
  EXPECT_EQ(Reason(VerifySumWith({{"slot 1 size 12", "slot 0 size 12"}})), "SLOT");
  constexpr absl::string_view kTwo =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_VAR int32 var "n" 1..8
%3 = DEFINE_VAR int32 var "n" 1..9
%4 = ADD int32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5)
)";
  EXPECT_EQ(Reason(Verify(kTwo)), "VARIABLE");
  EXPECT_TRUE(
      Verify(absl::StrReplaceAll(
                 kTwo, {{"1..9", "1..8"}, {"%4 = ADD int32 (%2, %3)", "%4 = ADD int32 (%2, %2)"}}))
          .ok());
}

TEST(VerifyKernel, RefusesAnIndexOutsideItsBuffer) {
  const absl::Status above = VerifySumWith({{"size 12", "size 11"}});
  EXPECT_EQ(Reason(above), "INDEX_OUT_OF_BUFFER");
  EXPECT_EQ(above.message(), "node 4 (LOAD): index 11 leaves the buffer in slot 1 of 11 elements");
  EXPECT_EQ(GetErrorDetail(above)->limit, 10);
  EXPECT_EQ(GetErrorDetail(above)->value, 11);
  EXPECT_EQ(GetErrorDetail(above)->node, 4);
  EXPECT_EQ(Reason(VerifySumWith({{"strides (3,1) offset 0", "strides (3,1) offset -1"}})),
            "INDEX_OUT_OF_BUFFER");
  EXPECT_EQ(Reason(VerifySumWith({{"strides (3,1) offset 0", "strides (3,-1) offset 0"}})),
            "INDEX_OUT_OF_BUFFER");
}

TEST(VerifyKernel, MaskedPointsDoNotCount) {
  EXPECT_TRUE(
      VerifySumWith({{"strides (3,1) offset 0", "strides (3,1) offset -1 mask (0:4,1:3)"}}).ok());
  EXPECT_TRUE(
      VerifySumWith({{"strides (3,1) offset 0", "strides (3,1) offset 99 mask (2:2,0:3)"}}).ok());
}

TEST(VerifyKernel, EnumeratesWhatBoundsCannotDecide) {
  // Bounds of the inner view reach from 0 to 12; the points that the outer one reads stay below.
  constexpr absl::string_view kChain =
      "view[shape (4,4) strides (4,1) offset 0] view[shape (4,3) strides (5,0) offset 0]";
  EXPECT_TRUE(
      VerifySumWith({{"view[shape (4,3) strides (3,1) offset 0]", kChain}, {"size 12", "size 16"}})
          .ok());
  const absl::Status status =
      VerifySumWith({{"view[shape (4,3) strides (3,1) offset 0]", kChain}, {"size 12", "size 15"}});
  EXPECT_EQ(Reason(status), "INDEX_OUT_OF_BUFFER");
  EXPECT_EQ(GetErrorDetail(status)->value, 15);
}

TEST(VerifyKernel, RefusesAnIndexThatLeavesAnInnerView) {
  EXPECT_EQ(
      Reason(VerifySumWith(
          {{"view[shape (4,3) strides (3,1) offset 0]",
            "view[shape (4,2) strides (2,1) offset 0] view[shape (4,3) strides (2,1) offset 0]"}})),
      "INDEX_OUT_OF_VIEW");
}

constexpr absl::string_view kSymbolic =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = CONST int32 -1
%3 = ADD int32 (%1, %2)
%4 = VIEW void (%1) view[shape ($0) strides (1) offset 0]
%5 = DEFINE_GLOBAL global float32* slot 1 size 16
%6 = VIEW void (%1, %3) view[shape ($0) strides (1) offset $1]
%7 = LOAD float32 (%5, %6)
%8 = STORE void (%0, %4, %7)
%9 = SINK void (%8)
)";

TEST(VerifyKernel, TriesEveryValueOfTheVariables) {
  EXPECT_TRUE(Verify(kSymbolic).ok()) << Verify(kSymbolic);
  EXPECT_TRUE(Verify(absl::StrReplaceAll(kSymbolic, {{"size 16", "size 15"}})).ok());
  const absl::Status outside = Verify(absl::StrReplaceAll(kSymbolic, {{"size 16", "size 14"}}));
  EXPECT_EQ(Reason(outside), "INDEX_OUT_OF_BUFFER");
  EXPECT_EQ(GetErrorDetail(outside)->value, 14);
  EXPECT_EQ(Reason(Verify(absl::StrReplaceAll(kSymbolic, {{"\"n\" 1..8", "\"n\" -1..8"}}))),
            "NEGATIVE_SIZE");
}

TEST(VerifyKernel, SizesSpeltDifferentlyAreTheSame) {
  const std::string text = absl::StrReplaceAll(
      kSymbolic, {{"%6 = VIEW void (%1, %3)",
                   "%20 = CONST int32 1\n%21 = ADD int32 (%3, %20)\n%6 = VIEW void (%21, %3)"}});
  EXPECT_TRUE(Verify(text).ok()) << Verify(text);
  EXPECT_EQ(
      Reason(Verify(absl::StrReplaceAll(text, {{"%20 = CONST int32 1", "%20 = CONST int32 2"}}))),
      "SHAPE");
}

TEST(VerifyKernel, SizesHoldNoLoads) {
  EXPECT_EQ(Reason(Verify(absl::StrReplaceAll(
                kSymbolic, {{"%5 = DEFINE_GLOBAL global float32* slot 1 size 16",
                             "%5 = DEFINE_GLOBAL global float32* slot 1 size 16\n"
                             "%30 = DEFINE_GLOBAL global int32* slot 2\n"
                             "%31 = VIEW void view[shape (1) strides (0) offset 0]\n"
                             "%32 = LOAD int32 (%30, %31)"},
                            {"%6 = VIEW void (%1, %3)", "%6 = VIEW void (%1, %32)"}}))),
            "SYMBOLIC");
}

TEST(VerifyKernel, ZeroSizesAreFine) {
  EXPECT_TRUE(VerifySumWith({{"shape (4,1) strides (1,0)", "shape (0,1) strides (1,0)"},
                             {"shape (4,3) strides (3,1)", "shape (0,3) strides (3,1)"}})
                  .ok());
  EXPECT_TRUE(VerifySumWith({{"shape (4,3) strides (3,1)", "shape (4,0) strides (3,1)"}}).ok());
}

// Adds to slot 0 what it holds, read through `view`.
std::string InPlace(absl::string_view stored, absl::string_view loaded) {
  return absl::StrCat("%0 = DEFINE_GLOBAL global float32* slot 0\n%1 = VIEW void ", stored,
                      "\n%2 = VIEW void ", loaded,
                      "\n%3 = LOAD float32 (%0, %2)\n%4 = ADD float32 (%3, %3)\n"
                      "%5 = ASSIGN float32 (%0, %4)\n%6 = STORE void (%0, %1, %5)\n"
                      "%7 = SINK void (%6)\n");
}

TEST(VerifyKernel, LoadsOfWhatItStoresMustBeTheSamePoints) {
  constexpr absl::string_view kRow = "view[shape (4) strides (1) offset 0]";
  EXPECT_TRUE(Verify(InPlace(kRow, kRow)).ok());
  EXPECT_TRUE(Verify(InPlace(kRow, "view[shape (4) strides (1) offset 4]")).ok());
  EXPECT_TRUE(Verify(InPlace(kRow, "view[shape (4) strides (1) offset 0 mask (1:3)]")).ok());
  EXPECT_TRUE(Verify(InPlace("view[shape (4) strides (2) offset 0]",
                             "view[shape (4) strides (2) offset 1]"))
                  .ok());
  const absl::Status flipped = Verify(InPlace(kRow, "view[shape (4) strides (-1) offset 3]"));
  EXPECT_EQ(Reason(flipped), "LOADS_WHAT_ANOTHER_POINT_STORES");
  EXPECT_THAT(flipped.message(), HasSubstr("node 3 (LOAD): reads element 3 of slot 0"));
  EXPECT_EQ(Reason(Verify(InPlace(kRow, "view[shape (4) strides (1) offset 1]"))),
            "LOADS_WHAT_ANOTHER_POINT_STORES");
  // What isn't stored at its own point is stored by none here.
  EXPECT_TRUE(Verify(InPlace("view[shape (4) strides (1) offset 0 mask (0:2)]", kRow)).ok());
}

TEST(VerifyKernel, ReductionsOverWhatIsStoredAreRefused) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (3,1) strides (1,0) offset 0]
%2 = VIEW void view[shape (3,3) strides (0,1) offset 0]
%3 = LOAD float32 (%0, %2)
%4 = REDUCE_AXIS float32 (%3) ADD axes (1)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5)
)";
  EXPECT_EQ(Reason(Verify(kText)), "LOADS_WHAT_ANOTHER_POINT_STORES");
  // Each row sums one element, its own.
  EXPECT_TRUE(Verify(absl::StrReplaceAll(kText, {{"strides (0,1)", "strides (1,0)"}})).ok());
}

TEST(VerifyKernel, ASlotIsStoredOnce) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = CONST float32 1.0
%3 = STORE void (%0, %1, %2)
%4 = VIEW void view[shape (4) strides (1) offset 2]
%5 = STORE void (%0, %4, %2)
%6 = SINK void (%3, %5)
)";
  EXPECT_EQ(Reason(Verify(kText)), "STORED_TWICE");
}

TEST(VerifyKernel, ImagesHoldFourValuesATexel) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16) strides (1) offset 0]
%2 = DEFINE_GLOBAL image(1,4,4) float16 slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4)
)";
  EXPECT_TRUE(Verify(kText).ok()) << Verify(kText);
  EXPECT_EQ(Reason(Verify(absl::StrReplaceAll(kText, {{"image(1,4,4)", "image(1,3,4)"}}))),
            "INDEX_OUT_OF_BUFFER");
}

TEST(VerifyKernel, AnImageIsOfItsSidesAndOfFloats) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16) strides (1) offset 0]
%2 = DEFINE_GLOBAL image(2,2,4) float16 slot 1 size 16
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4)
)";
  EXPECT_TRUE(Verify(kText).ok()) << Verify(kText);
  const auto reason = [&](absl::string_view instead) {
    return Reason(
        Verify(absl::StrReplaceAll(kText, {{"image(2,2,4) float16 slot 1 size 16", instead}})));
  };
  EXPECT_EQ(reason("image(2,2,4) float16 slot 1 size 17"), "IMAGE");
  EXPECT_EQ(reason("image(2,2,4) float16 slot 1 size 15"), "IMAGE");
  EXPECT_EQ(reason("image(2,2,4) float64 slot 1"), "DTYPE");
  EXPECT_EQ(reason("image(2,2,4) float16x4 slot 1"), "LANES");
  // Its values are float32.
  EXPECT_EQ(Reason(Verify(absl::StrReplaceAll(kText, {{"LOAD float32", "LOAD float16"}}))),
            "DTYPE");
}

TEST(VerifyKernel, NamesNodesAsTheMessageNumbersThem) {
  UOpGraph text_graph, graph;
  v1::Graph message = ToProto(ParseText(kSum, text_graph).value());
  message.mutable_nodes(2)->mutable_buffer_arg()->set_size_elements(3);
  // The constant first, and what follows a place later.
  v1::Graph moved;
  moved.set_version(1);
  *moved.add_nodes() = message.nodes(5);
  for (int i = 0; i < message.nodes_size(); ++i) {
    if (i == 5) continue;
    v1::Node& n = *moved.add_nodes();
    n = message.nodes(i);
    for (uint32_t& s : *n.mutable_src()) s = s == 5 ? 0 : s < 5 ? s + 1 : s;
  }
  const absl::Status status = KernelFromProto(moved, graph).status();
  EXPECT_THAT(status.message(), HasSubstr("node 5 (LOAD): index 11 leaves"));
}

TEST(VerifyKernel, EndsSoonOnGraphsMadeToTakeLong) {
  // 2,000 loads, each of a chain of views that only enumerating would decide.
  std::string text =
      "%0 = DEFINE_GLOBAL global float32* slot 0\n"
      "%1 = DEFINE_GLOBAL global float32* slot 1 size 1\n"
      "%2 = VIEW void view[shape (1000,1000) strides (1000,1) offset 0]\n"
      "%3 = CONST float32 0.0\n";
  std::string last = "%3";
  int next = 4;
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&text, "%", next,
                    " = VIEW void view[shape (1000,1000,1000) strides (1,-1,0) offset 0] "
                    "view[shape (1000,1000) strides (1001000,1) offset 0 mask (",
                    i / 100, ":1000,0:", 900 + i % 100, ")]\n%", next + 1, " = LOAD float32 (%1, %",
                    next, ")\n%", next + 2, " = ADD float32 (%", next + 1, ", ", last, ")\n");
    last = absl::StrCat("%", next + 2);
    next += 3;
  }
  absl::StrAppend(&text, "%", next, " = STORE void (%0, %2, ", last, ")\n%", next + 1,
                  " = SINK void (%", next, ")\n");
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Verify(text);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace beamd
