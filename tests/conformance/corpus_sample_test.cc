#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <tuple>

#include "tests/conformance/check.h"
#include "tests/conformance/excepted.h"
#include "tests/testing/corpus.h"

namespace beamd::conformance {
namespace {

struct Case {
  const char* name;
  absl::StatusOr<Tally> (*check)(const CheckInput&);
  double minimum;
  int sample, gpu_sample;  // kernels
};

class CorpusSample : public ::testing::TestWithParam<std::tuple<Case, TargetKind>> {};

TEST_P(CorpusSample, AgreesWithTheRelease) {
  const auto& [check, target] = GetParam();
  const std::optional<std::string> dir = testing::CorpusDir();
  if (!dir) GTEST_SKIP() << "BEAMD_CORPUS isn't set";
  static const absl::StatusOr<Recorded> recorded = Recorded::Open(*dir);
  if (absl::IsNotFound(recorded.status())) GTEST_SKIP() << recorded.status().message();
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  absl::StatusOr<Excepted> excepted = ParseExcepted(kExcepted);
  ASSERT_TRUE(excepted.ok()) << excepted.status();
  const absl::StatusOr<Tally> tally =
      check.check({.recorded = &*recorded,
                   .target = target,
                   .excepted = (*excepted)[check.name],
                   .sample = target == TargetKind::kCpu ? check.sample : check.gpu_sample,
                   .seed = 20});
  if (absl::IsNotFound(tally.status())) GTEST_SKIP() << tally.status().message();
  ASSERT_TRUE(tally.ok()) << tally.status();
  EXPECT_GE(tally->Ratio(), check.minimum);
  for (const auto& [id, why] : tally->differences) {
    std::printf("%s: %s\n", id.c_str(), why.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Checks, CorpusSample,
    ::testing::Combine(::testing::Values(Case{"hc", CheckHeuristics, 0.99, 200, 200},
                                         Case{"actions", CheckActions, 0.99, 200, 200},
                                         Case{"walks", CheckWalks, 0.99, 200, 200},
                                         Case{"lower", CheckLowering, 1, 200, 200},
                                         Case{"numeric", CheckNumeric, 0.995, 60, 400},
                                         Case{"tensor_cores", CheckTensorCores, 1, 4, 4},
                                         Case{"build", CheckBuild, 1, 30, 30}),
                       ::testing::Values(TargetKind::kCpu, TargetKind::kCuda, TargetKind::kHip)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             std::string(TargetName(std::get<1>(info.param)));
    });

}  // namespace
}  // namespace beamd::conformance
