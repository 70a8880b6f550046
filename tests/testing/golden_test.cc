#include "tests/testing/golden.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace beamd::testing {
namespace {

TEST(Golden, AcceptsWhatTheFileHolds) { ExpectGolden("testing/two_lines.txt", "one\ntwo\n"); }

TEST(Golden, NamesTheFileThatDiffers) {
  if (std::getenv("BEAMD_UPDATE_GOLDENS") != nullptr) GTEST_SKIP() << "would write the fault";
  EXPECT_NONFATAL_FAILURE(ExpectGolden("testing/two_lines.txt", "one\n"), "two_lines.txt");
}

TEST(Golden, NamesTheFileThatIsMissing) {
  if (std::getenv("BEAMD_UPDATE_GOLDENS") != nullptr) GTEST_SKIP() << "would write the file";
  EXPECT_NONFATAL_FAILURE(ExpectGolden("testing/absent.txt", ""), "no file");
}

}  // namespace
}  // namespace beamd::testing
