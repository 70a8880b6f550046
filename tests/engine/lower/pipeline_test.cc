#include "engine/lower/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
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

TEST(Lower, AGpusImageSaysHowManyGroupsOfWhichSizeAndWhatTheyShare) {
  const TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  UOpGraph source, graph;
  Kernel kernel = Kernel::Create(ParseText(TextOf("RowSum"), source).value(), caps).value();
  ASSERT_TRUE(kernel.ApplyAll({{OptOp::kLocal, 0, 4}, {OptOp::kGroupTop, 0, 16}}).ok());
  const LinearProgram program = Lower(kernel, graph, {}).value();
  EXPECT_THAT(program.image.global_size, ::testing::ElementsAre(3, 1, 1));
  EXPECT_EQ(program.image.local_size[0] * program.image.local_size[1], 64);
  EXPECT_EQ(program.image.shared_bytes, 64 * 4);
  EXPECT_EQ(program.image.slices, 1);
}

TEST(Lower, WhatAGpuCannotLaunchIsResourceExhausted) {
  TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  UOpGraph source, first, second;
  Kernel kernel = Kernel::Create(ParseText(TextOf("RowSum"), source).value(), caps).value();
  ASSERT_TRUE(kernel.ApplyAll({{OptOp::kLocal, 0, 4}, {OptOp::kGroupTop, 0, 16}}).ok());
  caps.local_max = {{32, 32, 32}};
  EXPECT_THAT(Lower(kernel, first, {}).status().message(), ::testing::HasSubstr("work-group"));
  caps.local_max = {{64, 64, 64}};
  caps.shared_bytes = 255;
  const absl::Status status = Lower(kernel, second, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("256 bytes of shared memory"));
}

TEST(Lower, NoLocalsFillGroupsWithWorkItems) {
  const TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  UOpGraph source, graph;
  Kernel kernel = Kernel::Create(ParseText(TextOf("Transpose"), source).value(), caps).value();
  ASSERT_TRUE(kernel.Apply({OptOp::kNoLocals, std::nullopt, std::nullopt}).ok());
  const KernelImage image = Lower(kernel, graph, {}).value().image;
  EXPECT_THAT(image.global_size, ::testing::ElementsAre(1, 16, 1));
  EXPECT_THAT(image.local_size, ::testing::ElementsAre(24, 1, 1));
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
