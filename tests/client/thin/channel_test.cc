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

}  // namespace
}  // namespace beamd
