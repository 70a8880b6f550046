#include "tests/testing/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace beamd::testing {
namespace {

// Where tests/golden lies: Bazel starts a test at the root of its runfiles.
constexpr std::string_view kGoldenFolder = "tests/golden";

}  // namespace

void ExpectGolden(std::string_view relative_path, std::string_view actual) {
  ExpectFile((std::filesystem::path(kGoldenFolder) / relative_path).string(), actual);
}

void ExpectFile(std::string_view name, std::string_view actual) {
  const std::filesystem::path path(name);
  if (const char* workspace = std::getenv("BEAMD_UPDATE_GOLDENS"); workspace != nullptr) {
    const std::filesystem::path target = std::filesystem::path(workspace) / path;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream file(target, std::ios::binary | std::ios::trunc);
    file << actual;
    file.flush();
    EXPECT_TRUE(file.good()) << "can't write " << target;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ADD_FAILURE() << "no file " << path << "; `bazel run //tests:update_goldens` writes it";
    return;
  }
  const std::string expected(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(expected, actual) << path << "; `bazel run //tests:update_goldens`, then read the diff";
}

}  // namespace beamd::testing
