#include "client/cc/local_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace beamd {
namespace {

std::string Fresh(const std::string& name) {
  std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

int64_t FilesOf(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

TEST(LocalFile, TakesThePlaceOfTheOldAndItsMode) {
  const std::string folder = Fresh("place"), path = folder + "/lock";
  ASSERT_TRUE(WriteLocalFile(path, "old").ok());
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(WriteLocalFile(path, "new").ok());
  EXPECT_EQ(*ReadLocalFile(path), "new");
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640u);
  EXPECT_EQ(FilesOf(folder), 1);
}

// A limit of a file's size stands for a full disk.
TEST(LocalFile, AnOldOneOutlivesADiskWithoutRoom) {
  const std::string folder = Fresh("full"), path = folder + "/lock";
  ASSERT_TRUE(WriteLocalFile(path, "old").ok());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteLocalFile(path, std::string(100000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("can't write " + path + ":"), absl::string_view::npos) << status;
  EXPECT_EQ(*ReadLocalFile(path), "old");
  EXPECT_EQ(FilesOf(folder), 1);
}

TEST(LocalFile, DevicesAndLinksAreWrittenToNotReplaced) {
  EXPECT_TRUE(WriteLocalFile("/dev/null", "x").ok());
  EXPECT_EQ(WriteLocalFile("/dev/full", "x").code(), absl::StatusCode::kFailedPrecondition);
  const std::string folder = Fresh("link");
  ASSERT_TRUE(WriteLocalFile(folder + "/file", "old").ok());
  std::filesystem::create_symlink("file", folder + "/link");
  ASSERT_TRUE(WriteLocalFile(folder + "/link", "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link"));
  EXPECT_EQ(*ReadLocalFile(folder + "/file"), "new");
}

}  // namespace
}  // namespace beamd
