#pragma once

#include <string_view>

namespace beamd::testing {

// Fails the running test if the file tests/golden/`relative_path` doesn't hold exactly `actual`.
// Under `bazel run //tests:update_goldens` writes the file instead, folders included.
// A test that calls this has the tag "golden" and `data = ["//tests/golden"]`.
void ExpectGolden(std::string_view relative_path, std::string_view actual);
// The same of a file that isn't among the goldens: `name` is from the root, and `data` of the test.
void ExpectFile(std::string_view name, std::string_view actual);

}  // namespace beamd::testing
