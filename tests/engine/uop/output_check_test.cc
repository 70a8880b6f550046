#include "engine/uop/output_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/uop/text.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 40000;

// out[i] = in[i] + in[i], compared as the test leaves `got`.
class OutputCheckTest : public ::testing::Test {
 protected:
  OutputCheckTest() : in_(kElements), got_(kElements), initial_(kElements) {
    for (int64_t i = 0; i < kElements; ++i) {
      in_[i] = static_cast<float>(i) + 0.5F;
      got_[i] = 2 * in_[i];
    }
    reference_ = got_;
  }

  absl::StatusOr<OutputCheck> Check(const OutputCheckOptions& options, bool with_reference) {
    constexpr absl::string_view kDouble =
        R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (40000) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = ADD float32 (%3, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5)
)";
    UOpGraph graph;
    EvalInputs inputs;
    inputs.buffers[0] = {initial_.data(), kElements, Scalar::kFloat32};
    inputs.buffers[1] = {in_.data(), kElements, Scalar::kFloat32};
    const OutputResult output{.slot = 0,
                              .scalar = Scalar::kFloat32,
                              .elements = kElements,
                              .got = got_.data(),
                              .reference = with_reference ? reference_.data() : nullptr};
    return CheckOutputs(ParseText(kDouble, graph).value(), inputs, {&output, 1}, options);
  }

  // Too little work for every element.
  static OutputCheckOptions Sampling() { return {.work = 1000}; }

  std::vector<float> in_, got_, reference_, initial_;
};

TEST_F(OutputCheckTest, LooksAtEveryElementWhereThatIsCheap) {
  absl::StatusOr<OutputCheck> check = Check({}, false);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->equal) << check->detail;
  EXPECT_TRUE(check->complete);
  EXPECT_EQ(check->checked, kElements);
  EXPECT_EQ(check->evaluated, kElements);
  for (const int64_t wrong : {int64_t{0}, int64_t{16384}, int64_t{20001}, kElements - 1}) {
    const float right = got_[wrong];
    got_[wrong] = -1;
    check = Check({}, false);
    EXPECT_FALSE(check->equal);
    EXPECT_THAT(check->detail, HasSubstr(absl::StrCat("element ", wrong, ":")));
    got_[wrong] = right;
  }
}

TEST_F(OutputCheckTest, SaysThatItOnlySampled) {
  const absl::StatusOr<OutputCheck> check = Check(Sampling(), false);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->equal) << check->detail;
  EXPECT_FALSE(check->complete);
  EXPECT_GT(check->evaluated, 0);
  EXPECT_LT(check->checked, kElements);
}

TEST_F(OutputCheckTest, AReferenceTellsWhereElseToLook) {
  absl::StatusOr<OutputCheck> check = Check(Sampling(), true);
  EXPECT_TRUE(check->equal) << check->detail;
  EXPECT_TRUE(check->complete);
  EXPECT_EQ(check->checked, kElements);
  got_[12345] += 1;
  check = Check(Sampling(), true);
  EXPECT_FALSE(check->equal);
  EXPECT_THAT(check->detail, HasSubstr("element 12345:"));
  // Where it is the reference that is wrong, the evaluator says so.
  reference_[12345] = got_[12345];
  got_[12345] -= 1;
  EXPECT_TRUE(Check(Sampling(), true)->equal);
}

}  // namespace
}  // namespace beamd
