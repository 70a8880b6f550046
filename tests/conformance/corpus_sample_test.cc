#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>

#include "tests/conformance/check.h"
#include "tests/conformance/excepted.h"
#include "tests/testing/corpus.h"

namespace beamd::conformance {
namespace {

struct Case {
  const char* name;
  absl::StatusOr<Tally> (*check)(const CheckInput&);
  double minimum;
  int sample;
};

class CorpusSample : public ::testing::TestWithParam<Case> {};

TEST_P(CorpusSample, AgreesWithTheRelease) {
  const std::optional<std::string> dir = testing::CorpusDir();
  if (!dir) GTEST_SKIP() << "BEAMD_CORPUS isn't set";
  static const absl::StatusOr<Recorded> recorded = Recorded::Open(*dir);
  if (absl::IsNotFound(recorded.status())) GTEST_SKIP() << recorded.status().message();
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  absl::StatusOr<Excepted> excepted = ParseExcepted(kExcepted);
  ASSERT_TRUE(excepted.ok()) << excepted.status();
  for (TargetKind target : {TargetKind::kCpu, TargetKind::kCuda, TargetKind::kHip}) {
    // Values on a GPU are the emulator's, at a thousandth of its speed.
    constexpr int kEmulated = 16;
    const bool emulated =
        target != TargetKind::kCpu && absl::string_view(GetParam().name) == "numeric";
    const absl::StatusOr<Tally> tally =
        GetParam().check({.recorded = &*recorded,
                          .target = target,
                          .excepted = (*excepted)[GetParam().name],
                          .sample = emulated ? kEmulated : GetParam().sample,
                          .seed = 20});
    if (absl::IsNotFound(tally.status())) continue;
    ASSERT_TRUE(tally.ok()) << tally.status();
    EXPECT_GE(tally->Ratio(), GetParam().minimum) << TargetName(target);
    for (const auto& [id, why] : tally->differences) {
      std::printf("%s %s: %s\n", std::string(TargetName(target)).c_str(), id.c_str(), why.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checks, CorpusSample,
                         ::testing::Values(Case{"hc", CheckHeuristics, 0.99, 200},
                                           Case{"actions", CheckActions, 0.99, 200},
                                           Case{"walks", CheckWalks, 0.99, 200},
                                           Case{"lower", CheckLowering, 1, 200},
                                           Case{"numeric", CheckNumeric, 0.99, 60},
                                           Case{"tensor_cores", CheckTensorCores, 1, 4},
                                           Case{"build", CheckBuild, 1, 30}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace beamd::conformance
