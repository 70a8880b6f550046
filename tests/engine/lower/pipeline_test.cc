#include "engine/lower/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/lower/lowered.h"

namespace beamd {
namespace {

using ::beamd::testing::Applied;
using ::beamd::testing::TextOf;
using ::beamd::testing::Upcast;

TEST(Lower, RunsEveryPassThatItNamesInThatOrder) {
  UOpGraph source, graph;
  std::vector<std::pair<absl::string_view, absl::Duration>> timings;
  LowerOptions options;
  options.timings = &timings;
  ASSERT_TRUE(Lower(Applied(TextOf("Arange"), source, {}), graph, options).ok());
  std::vector<absl::string_view> names;
  names.reserve(timings.size());
  for (const auto& [name, unused] : timings) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAreArray(LowerPassNames()));
}

TEST(Lower, DumpsAnyPass) {
  std::vector<std::string> texts;
  for (const absl::string_view pass : LowerPassNames()) {
    UOpGraph source, graph;
    std::string text;
    LowerOptions options;
    options.dump = std::string(pass);
    options.dump_text = &text;
    ASSERT_TRUE(Lower(Applied(TextOf("PaddedWindows"), source, {}), graph, options).ok());
    EXPECT_FALSE(text.empty()) << pass;
    texts.push_back(text);
  }
  EXPECT_THAT(texts.front(), ::testing::HasSubstr("REDUCE_AXIS"));
  EXPECT_THAT(texts.back(), ::testing::HasSubstr("ENDLOOP"));
}

TEST(Lower, TheImageSaysWhatALaunchNeeds) {
  UOpGraph source, graph;
  const KernelImage image = Lower(Applied(TextOf("InPlace"), source, {}), graph, {}).value().image;
  ASSERT_EQ(image.buffers.size(), 2u);
  EXPECT_EQ(image.buffers[0].slot, 0);
  EXPECT_EQ(image.buffers[0].size_elements, 96);
  EXPECT_TRUE(image.buffers[0].read);
  EXPECT_TRUE(image.buffers[0].written);
  EXPECT_EQ(image.buffers[1].size_elements, 12);
  EXPECT_TRUE(image.buffers[1].read);
  EXPECT_FALSE(image.buffers[1].written);
  EXPECT_EQ(image.bytes, (96 + 12) * 4);
  EXPECT_EQ(image.slices, 8);
}

TEST(Lower, ASymbolicOutermostAxisHasItsMostSlices) {
  UOpGraph source, graph;
  const KernelImage image =
      Lower(Applied(TextOf("SymbolicRows"), source, {}), graph, {}).value().image;
  // Rows of 16 follow each other: they are one axis.
  EXPECT_EQ(image.slices, 9 * 16);
  ASSERT_EQ(image.variables.size(), 1u);
  EXPECT_EQ(image.variables[0].name, "n");
  EXPECT_EQ(image.variables[0].min, 1);
  EXPECT_EQ(image.variables[0].max, 9);
}

TEST(Lower, WithoutElementsThereIsNothingToLaunch) {
  for (const absl::string_view name : {"NoColumns", "NoRows"}) {
    UOpGraph source, graph;
    EXPECT_EQ(Lower(Applied(TextOf(name), source, {}), graph, {}).value().image.slices, 0) << name;
  }
}

TEST(Lower, TensorCoresAreUnimplemented) {
  const TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  UOpGraph source, graph;
  const UOp sink = ParseText(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16,8,1) strides (8,1,0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (16,8,16) strides (16,0,1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = DEFINE_GLOBAL global float16* slot 2
%6 = VIEW void view[shape (16,8,16) strides (0,1,8) offset 0]
%7 = LOAD float16 (%5, %6)
%8 = MUL float16 (%4, %7)
%9 = CAST float32 (%8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (2)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))",
                             source)
                       .value();
  Kernel kernel = Kernel::Create(sink, caps).value();
  ASSERT_TRUE(kernel.Apply({OptOp::kTc, 0, 0}).ok());
  const absl::Status status = Lower(kernel, graph, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("tensor cores"));
}

TEST(Lower, OverMaxUopsIsResourceExhausted) {
  UOpGraph source;
  const Kernel kernel = Applied(TextOf("IntegerMatmul"), source, {Upcast(0, 4)});
  UOpGraph first, second, third;
  const int64_t count = Lower(kernel, first, {}).value().image.uop_count;
  LowerOptions options;
  options.max_uops = count + 1;
  EXPECT_TRUE(Lower(kernel, second, options).ok());
  options.max_uops = count;
  EXPECT_EQ(Lower(kernel, third, options).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace beamd
