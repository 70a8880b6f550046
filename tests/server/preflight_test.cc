#include "server/preflight.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PreflightTest : public ::testing::Test {
 protected:
  // A socket's path has room for 107 bytes, less than a test's own folder may take.
  PreflightTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~PreflightTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string FaultsOf(const ServeConfig& config) {
    return absl::StrJoin(CheckFiles(config), "\n");
  }

  std::string folder_ = "/tmp/beamd-preflight-XXXXXX";
};

TEST_F(PreflightTest, MakesAndChangesNothing) {
  std::ofstream(Path("audit")) << "a line\n";
  ServeConfig config;
  config.audit_file = Path("audit");
  config.spans_file = Path("spans");
  config.capture = Path("capture");
  config.log_file = Path("log");
  config.unix_socket = Path("socket");
  config.store = Path("store");
  EXPECT_THAT(CheckFiles(config), IsEmpty());
  std::ifstream in(Path("audit"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "a line\n");
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(file.path().filename(), "audit");
  }
}

TEST_F(PreflightTest, NamesAllThatCantBeAppendedTo) {
  std::ofstream(Path("file")) << "x";
  ServeConfig config;
  config.audit_file = folder_;
  config.spans_file = Path("none/spans");
  config.log_file = Path("file/log");
  config.capture = "/proc/nothing-is-made-here";
  config.unix_socket = Path("none/socket");
  config.store = Path("file");
  config.tls_cert = Path("file");
  config.tls_key = Path("file");
  const std::string faults = FaultsOf(config);
  for (const char* fault :
       {"--audit_file can't be appended to: ", "--spans_file can't be appended to: ",
        "--log_file can't be appended to: ", "--unix_socket can't be made: ",
        "--store can't be written: ", "is no directory", "TLS: ", "holds no PEM certificate"}) {
    EXPECT_THAT(faults, HasSubstr(fault));
  }
}

TEST_F(PreflightTest, FoldersThatArentThereAreFaultsOfTheirFlags) {
  const std::string none = Path("none");
  ServeConfig config;
  config.audit_file = config.spans_file = config.log_file = config.capture = none + "/file";
  config.unix_socket = none + "/socket";
  const std::vector<std::string> faults = CheckPaths(config);
  ASSERT_EQ(faults.size(), 5U);
  for (const std::string& fault : faults) {
    EXPECT_THAT(fault, HasSubstr(": " + none + ": No such file or directory"));
  }
  EXPECT_THAT(absl::StrJoin(faults, "\n"), HasSubstr("--log_file can't be appended to: "));
  EXPECT_FALSE(std::filesystem::exists(none));
}

TEST_F(PreflightTest, AStoreBelowAFileCantBeMade) {
  std::ofstream(Path("file")) << "x";
  ServeConfig config;
  config.store = Path("file/store");
  EXPECT_THAT(FaultsOf(config), HasSubstr("--store can't be written: "));
  config.store = Path("new/folders/store");
  EXPECT_THAT(CheckFiles(config), IsEmpty());
  // From the folder that it is started in, as serving makes them.
  for (const char* store : {"store_of_preflight_test", "new/folders/store", "./store"}) {
    config.store = store;
    EXPECT_THAT(CheckFiles(config), IsEmpty()) << store;
  }
}

TEST_F(PreflightTest, KnowsPathsThatNoSocketCanHave) {
  std::ofstream(Path("file")) << "x";
  ServeConfig config;
  config.unix_socket = Path("file");
  EXPECT_THAT(FaultsOf(config), HasSubstr("is no socket"));
  config.unix_socket = Path(std::string(200, 'x'));
  EXPECT_THAT(FaultsOf(config), HasSubstr("over 107 bytes"));
}

TEST_F(PreflightTest, WaitsForNoReaderOfAPipe) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ServeConfig config;
  config.audit_file = Path("pipe");
  EXPECT_THAT(CheckFiles(config), IsEmpty());
}

TEST(FitDescriptors, LowersWhatSessionsGetToWhatThereIsRoomFor) {
  ServeConfig config;
  const ServeConfig before = config;
  EXPECT_EQ(FitDescriptors(1 << 20, config), "");
  EXPECT_EQ(FitDescriptors(2 * before.sessions_buffers + 384, config), "");
  EXPECT_EQ(config.sessions_buffers, before.sessions_buffers);
  EXPECT_EQ(config.session_buffers, before.session_buffers);
  // A quarter is for the store and children, half of the rest for connections.
  const std::string line = FitDescriptors(1024, config);
  EXPECT_EQ(config.sessions_buffers, 384);
  EXPECT_EQ(config.session_buffers, 192);
  EXPECT_EQ(line,
            "of 1024 descriptors sessions get 384 for their buffers, one session at most 192, not "
            "the 16384 of --sessions_buffers and the 4096 of --session_buffers: those want a hard "
            "limit of 33152 (LimitNOFILE= of its unit, ulimit -Hn)");
  EXPECT_EQ(FitDescriptors(1024, config), "");
}

TEST(FitDescriptors, LeavesSmallLimitsAlone) {
  ServeConfig config;
  config.sessions_buffers = 300;
  config.session_buffers = 300;
  EXPECT_EQ(FitDescriptors(1024, config), "");
  EXPECT_EQ(config.session_buffers, 300);
  EXPECT_THAT(FitDescriptors(1, config), HasSubstr("sessions get 1 "));
  EXPECT_EQ(config.session_buffers, 1);
}

}  // namespace
}  // namespace beamd
