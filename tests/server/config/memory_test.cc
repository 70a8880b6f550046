#include "server/config/memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace beamd {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

class MemoryBytesTest : public ::testing::Test {
 protected:
  MemoryBytesTest() { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  const std::string root_ = ::testing::TempDir() + "/memory";
  const int64_t machine_ = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
};

TEST_F(MemoryBytesTest, WithoutGroupsItIsTheMachines) { EXPECT_EQ(MemoryBytes(root_), machine_); }

TEST_F(MemoryBytesTest, TheLeastOfAGroupAndThoseAboveItCounts) {
  Write("/proc/self/cgroup", "0::/pods/one");
  Write("/sys/fs/cgroup/pods/one/memory.max", "max");
  EXPECT_EQ(MemoryBytes(root_), machine_);
  Write("/sys/fs/cgroup/pods/memory.max", std::to_string(700 * kMegabyte));
  EXPECT_EQ(MemoryBytes(root_), 700 * kMegabyte);
  Write("/sys/fs/cgroup/pods/one/memory.max", std::to_string(300 * kMegabyte));
  EXPECT_EQ(MemoryBytes(root_), 300 * kMegabyte);
}

TEST_F(MemoryBytesTest, AContainersOwnGroupIsTheRootThatItSees) {
  Write("/proc/self/cgroup", "0::/../machine.slice/one");
  Write("/sys/fs/cgroup/memory.max", std::to_string(200 * kMegabyte));
  EXPECT_EQ(MemoryBytes(root_), 200 * kMegabyte);
}

TEST_F(MemoryBytesTest, TheOlderHierarchyCountsToo) {
  Write("/proc/self/cgroup", "9:cpu:/x\n7:memory:/docker/one");
  // No limit, as it spells it.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(MemoryBytes(root_), machine_);
  Write("/sys/fs/cgroup/memory/docker/one/memory.limit_in_bytes", std::to_string(kMegabyte));
  EXPECT_EQ(MemoryBytes(root_), kMegabyte);
}

}  // namespace
}  // namespace beamd
