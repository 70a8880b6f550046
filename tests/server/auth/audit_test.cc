#include "server/auth/audit.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace beamd {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

AuditEntry Entry(absl::string_view principal) {
  return {.at = absl::FromUnixSeconds(0),
          .principal = principal,
          .host = "local",
          .method = "Tuner.Tune",
          .code = "OK",
          .trace = "0af7"};
}

TEST(Audit, WritesALineAnEntryAndOnlyAppends) {
  const std::string path = ::testing::TempDir() + "audit_lines";
  std::remove(path.c_str());
  for (int round = 0; round < 2; ++round) {
    const auto audit = Audit::Open(path);
    ASSERT_TRUE(audit.ok()) << audit.status();
    EXPECT_TRUE((*audit)->Write(Entry("a\"b")).ok());
  }
  const std::string line =
      R"({"time":"1970-01-01T00:00:00+00:00","principal":"a\"b","host":"local",)"
      R"("method":"Tuner.Tune","code":"OK","trace":"0af7","object":{}})"
      "\n";
  EXPECT_EQ(ReadFile(path), line + line);
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(Audit, NamesWhatWasActedOnAndWhyNot) {
  const std::string path = ::testing::TempDir() + "audit_objects";
  std::remove(path.c_str());
  const auto audit = Audit::Open(path);
  ASSERT_TRUE(audit.ok());
  AuditEntry entry = Entry("a");
  entry.code = "PERMISSION_DENIED";
  entry.reason = "ROLE";
  SetNamed(entry.object, "job", "4711");
  SetNamed(entry.object, "device", "cpu:0\n");
  SetNamed(entry.object, "job", "4712");
  SetNamed(entry.object, "key", "");
  ASSERT_TRUE((*audit)->Write(entry).ok());
  EXPECT_NE(ReadFile(path).find(R"("trace":"0af7","reason":"ROLE","object":)"
                                R"({"job":"4712","device":"cpu:0\u000a"}})"
                                "\n"),
            std::string::npos)
      << ReadFile(path);
}

// A line that the disk cut off spoils none after it.
TEST(Audit, EndsALineThatWasCutOff) {
  const std::string path = ::testing::TempDir() + "audit_torn";
  std::remove(path.c_str());
  const auto audit = Audit::Open(path);
  ASSERT_TRUE(audit.ok());
  // Without the handler the signal would end the process; then writes end where the limit is.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{.rlim_cur = 50, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status torn = (*audit)->Write(Entry("torn"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(torn.ok());
  ASSERT_TRUE((*audit)->Write(Entry("whole")).ok());
  EXPECT_EQ((*audit)->failed_writes(), 1);
  const std::string text = ReadFile(path);
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\n'), 50u);
  EXPECT_EQ(text.find("{\"time\"", 51), 51u);
}

TEST(Audit, BeginsANewFileWhereTheOldWasMoved) {
  const std::string path = ::testing::TempDir() + "audit_moved";
  std::remove(path.c_str());
  const auto audit = Audit::Open(path);
  ASSERT_TRUE(audit.ok());
  ASSERT_TRUE((*audit)->Write(Entry("old")).ok());
  ASSERT_EQ(std::rename(path.c_str(), (path + ".1").c_str()), 0);
  ASSERT_TRUE((*audit)->Write(Entry("still old")).ok());
  ASSERT_TRUE((*audit)->Reopen().ok());
  ASSERT_TRUE((*audit)->Write(Entry("new")).ok());
  EXPECT_NE(ReadFile(path + ".1").find("still old"), std::string::npos);
  EXPECT_EQ(ReadFile(path).find("old"), std::string::npos);
}

TEST(Audit, SaysWhereItCantBe) {
  EXPECT_FALSE(Audit::Open("/nonexistent/audit").ok());
  const auto full = Audit::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ((*full)->failed_writes(), 0);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE((*full)->Write(Entry("a")).ok());
  EXPECT_EQ((*full)->failed_writes(), 2);
}

}  // namespace
}  // namespace beamd
