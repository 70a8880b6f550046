#include "server/auth/access.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

std::string Line(absl::string_view token, absl::string_view name, absl::string_view role) {
  return absl::StrCat("token:", name, " ", role, " ", HashBytes(token).Hex(), "\n");
}

TEST(Access, KnowsTokensByTheirHash) {
  const auto access = Access::Parse(Line("secret", "ci", "submitter"));
  ASSERT_TRUE(access.ok()) << access.status();
  const auto found = access->Find({.token = "secret"});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->name, "ci");
  EXPECT_EQ(found->role, Role::kSubmitter);
}

TEST(Access, RefusesAnUnknownTokenWhateverElseIsShown) {
  const auto access = Access::Parse(Line("secret", "ci", "admin") + "cert:lab admin\nuid:7 admin");
  ASSERT_TRUE(access.ok());
  for (const char* token : {"", "Secret", "secret ", "guess"}) {
    const auto found =
        access->Find({.token = token, .certificate_names = {"lab"}, .uid = uint32_t{7}});
    EXPECT_EQ(found.status().code(), absl::StatusCode::kUnauthenticated) << token;
  }
}

TEST(Access, KnowsCertificatesAndLocalUsers) {
  const auto access = Access::Parse("cert:lab.example importer  # the lab\n\nuid:1000 admin\n");
  ASSERT_TRUE(access.ok()) << access.status();
  const auto cert = access->Find({.certificate_names = {"other", "lab.example"}});
  ASSERT_TRUE(cert.ok());
  EXPECT_EQ(cert->name, "lab.example");
  EXPECT_EQ(cert->role, Role::kImporter);
  EXPECT_EQ(access->Find({.uid = uint32_t{1000}})->name, "uid:1000");
  EXPECT_TRUE(absl::IsUnauthenticated(access->Find({.uid = uint32_t{1001}}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(access->Find({.host = "127.0.0.1"}).status()));
}

TEST(Access, AnyIsForThoseWhoProvedWhoTheyAre) {
  const auto access = Access::Parse("any reader");
  ASSERT_TRUE(access.ok());
  EXPECT_EQ(access->Find({.certificate_names = {"new.example"}})->name, "new.example");
  EXPECT_EQ(access->Find({.uid = uint32_t{5}})->role, Role::kReader);
  EXPECT_TRUE(absl::IsUnauthenticated(access->Find({.host = "10.0.0.1"}).status()));
}

TEST(Access, NamesEveryFaultOfTheFile) {
  const auto access = Access::Parse(
      "token:ci submitter abc\n"
      "cert:a reader\ncert:a admin\n"
      "uid:root admin\n"
      "somebody admin\n"
      "cert:b king\n");
  ASSERT_FALSE(access.ok());
  for (const char* line : {"line 1:", "line 3:", "line 4:", "line 5:", "line 6:"}) {
    EXPECT_THAT(std::string(access.status().message()), HasSubstr(line));
  }
}

TEST(Access, MakesTokensThatItKnows) {
  const auto made = MakeToken("ci", Role::kReader);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->token.size(), 64u);
  const auto access = Access::Parse(made->line);
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->Find({.token = made->token})->name, "ci");
  EXPECT_NE(MakeToken("ci", Role::kReader)->token, made->token);
  EXPECT_FALSE(MakeToken("a b", Role::kReader).ok());
}

TEST(HostOfPeer, LeavesThePortOut) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.7:40312"), "10.0.0.7");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:40312"), "::1");
  EXPECT_EQ(HostOfPeer("ipv6:[fe80::1%25eth0]:1"), "fe80::1%eth0");
  EXPECT_EQ(HostOfPeer("unix:"), "local");
}

}  // namespace
}  // namespace beamd
