// Planted faults are reported.
#include "tests/testing/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/kernel/kernel.h"
#include "engine/lower/pipeline.h"
#include "engine/uop/text.h"

namespace beamd::testing {
namespace {

using ::testing::HasSubstr;

// Sums over axis 1 of maxima over axis 2, four work-items along that: a loop that fills shared
// memory in every turn.
constexpr char kKernel[] = R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (6,1,1) strides (1,0,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (6,8,12) strides (96,12,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) MAX axes (2)
%6 = REDUCE_AXIS int32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))";

class InterpreterTest : public ::testing::Test {
 protected:
  InterpreterTest() {
    Kernel kernel = Kernel::Create(ParseText(kKernel, source_).value(), caps_).value();
    EXPECT_TRUE(kernel.Apply({OptOp::kGroup, 1, 4}).ok());
    program_ = Lower(kernel, graph_, {}).value();
  }

  absl::Status Run() {
    std::vector<std::string> buffers;
    for (const KernelImage::Buffer& b : program_.image.buffers) {
      buffers.emplace_back(b.size_elements * SizeBytes(b.scalar), '\1');
    }
    return Interpret(program_, caps_, buffers, {});
  }
  void DropBarrier(size_t which) {
    std::erase_if(program_.ops, [&](UOp u) { return u.is(Op::kBarrier) && which-- == 0; });
  }

  const TargetCaps caps_ = CorpusTarget(TargetKind::kCuda);
  UOpGraph source_, graph_;
  LinearProgram program_;
};

TEST_F(InterpreterTest, RunsWhatIsRight) { EXPECT_TRUE(Run().ok()) << Run(); }

TEST_F(InterpreterTest, ReportsReadsThatDoNotWaitForTheirStores) {
  DropBarrier(0);
  EXPECT_TRUE(absl::IsDataLoss(Run())) << Run();
}

TEST_F(InterpreterTest, ReportsStoresThatDoNotWaitForTheLastTurnsReads) {
  DropBarrier(1);
  EXPECT_TRUE(absl::IsDataLoss(Run())) << Run();
}

TEST_F(InterpreterTest, ReportsASecondGroupAtTheSameElement) {
  program_.image.global_size[1] = 2;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("slot 0"));
}

TEST_F(InterpreterTest, ReportsALaunchLargerThanTheKernel) {
  program_.image.global_size[0] = 7;
  EXPECT_THAT(Run().message(), HasSubstr("larger than the extent"));
}

TEST_F(InterpreterTest, ReportsAccessesOutsideOfABuffer) {
  for (KernelImage::Buffer& b : program_.image.buffers) {
    if (b.slot == 1) --b.size_elements;
  }
  EXPECT_TRUE(absl::IsOutOfRange(Run())) << Run();
}

TEST_F(InterpreterTest, ReportsAnAlignmentThatDoesNotHold) {
  for (int32_t& alignment : program_.index_alignment) alignment = 2;
  EXPECT_THAT(Run().message(), HasSubstr("less aligned"));
}

TEST_F(InterpreterTest, ReportsWhatNobodyHasWritten) {
  std::erase_if(program_.ops,
                [](UOp u) { return u.is(Op::kStore) && u.src(0).src(0).is(Op::kDefineLocal); });
  EXPECT_THAT(Run().message(), HasSubstr("nobody has written"));
}

}  // namespace
}  // namespace beamd::testing
