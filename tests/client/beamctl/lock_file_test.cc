#include "client/beamctl/lock_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

const std::string kA(64, 'a'), kB(64, 'b');

TEST(LockFile, IsSortedAndReadsBack) {
  const Lock lock = {{kB, {2, "UPCAST(0, 4) NOLOCALS"}}, {kA, {1, "-"}}};
  const std::string text = LockText(lock);
  EXPECT_EQ(text, "# beamd lock 1\n" + kA + " 1 -\n" + kB + " 2 UPCAST(0, 4) NOLOCALS\n");
  EXPECT_EQ(*ParseLock(text), lock);
  EXPECT_EQ(*ParseLock(LockText({})), Lock());
}

TEST(LockFile, NamesTheLineThatIsNone) {
  for (const std::string& line :
       {std::string("abc 1 -"), kA + " x -", kA + " 0 -", kA + " 1", kA + " 1 -\n" + kA + " 1 -"}) {
    const absl::Status status = ParseLock("# beamd lock 1\n" + line + "\n").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line ")) << line;
  }
  EXPECT_FALSE(ParseLock("").ok());
  EXPECT_FALSE(ParseLock("# beamd lock 2\n").ok());
}

}  // namespace
}  // namespace beamd
