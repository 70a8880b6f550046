#include "server/auth/secret.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(Secret, HasAsManyBytesAsAskedForAndIsNeverTheSame) {
  std::set<std::string> seen;
  for (const size_t bytes : {size_t{16}, size_t{32}, size_t{1000}}) {
    for (int i = 0; i < 10; ++i) {
      const absl::StatusOr<std::string> secret = NewSecret(bytes);
      ASSERT_TRUE(secret.ok()) << secret.status();
      EXPECT_EQ(secret->size(), 2 * bytes);
      EXPECT_EQ(secret->find_first_not_of("0123456789abcdef"), std::string::npos);
      EXPECT_TRUE(seen.insert(*secret).second);
      // Its last bytes were filled in too.
      EXPECT_NE(secret->substr(secret->size() - 16), std::string(16, '0'));
    }
  }
}

}  // namespace
}  // namespace beamd
