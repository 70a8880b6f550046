#include "client/thin/channel.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace beamd {
namespace {

absl::Status With(const Credentials& credentials) {
  return MakeChannel("127.0.0.1:1", credentials).status();
}

TEST(Channel, AFolderIsNoFileOfCredentials) {
  EXPECT_EQ(With({.token_file = "/"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(With({.tls_ca = "/"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(With({.token_file = "/nowhere"}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Channel, ATokenIsOneWordOfPrintableCharacters) {
  const std::string path = ::testing::TempDir() + "/token";
  for (const std::string& text : {std::string("a b"), std::string("\x01\x02"), std::string(" \n"),
                                  std::string("abc\0d", 5), std::string("schl\xc3\xbcssel")}) {
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(With({.token_file = path}).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  std::ofstream(path, std::ios::binary) << "abc123-_.~+/=\n";
  EXPECT_TRUE(With({.token_file = path}).ok());
}

TEST(Channel, ATokenGoesInClearToThisMachineAlone) {
  const std::string path = ::testing::TempDir() + "/word";
  std::ofstream(path) << "abc123\n";
  for (const char* here :
       {"127.0.0.1:1", "127.8.9.1:1", "127.0.0.1", "localhost:1", "[::1]:1", "unix:/run/beamd"}) {
    EXPECT_TRUE(MakeChannel(here, {.token_file = path}).ok()) << here;
  }
  for (const char* elsewhere : {"127.example.com:1", "127.0.0.1.example.com:1", "127.0.0:1",
                                "127.0.0.256:1", "128.0.0.1:1", "localhost.example.com:1"}) {
    EXPECT_EQ(MakeChannel(elsewhere, {.token_file = path}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << elsewhere;
  }
}

}  // namespace
}  // namespace beamd
