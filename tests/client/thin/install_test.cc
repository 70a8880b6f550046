// The installed library, outside of Bazel: a compiler, pkg-config, and a program that computes.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/thin/fake_executor.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::FakeExecutor;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;

TEST(InstalledClient, CompilesAndComputes) {
  const std::string directory = FreshDirectory(), prefix = absl::StrCat(directory, "/with space");
  const Ran installed =
      RunProcess({"/bin/bash", "deploy/install_client.sh", prefix, "client/thin/beamd-client.tar"});
  ASSERT_EQ(installed.status, 0) << installed.err;
  // An installed tree may be moved.
  const std::string moved = absl::StrCat(directory, "/moved");
  ASSERT_EQ(RunProcess({"/bin/mv", prefix, moved}).status, 0);
  const std::string program = absl::StrCat(moved, "/program");
  const Ran compiled = RunProcess(
      {"/bin/bash", "-c",
       absl::StrCat("set -e; export PKG_CONFIG_PATH=", moved, "/lib/pkgconfig; cp ",
                    "tests/client/thin/installed_program.cc ", moved, "/program.cc; cd ", moved,
                    "; g++ -std=c++20 -Wall -Werror $(pkg-config --cflags beamd-client) "
                    "-o program program.cc $(pkg-config --libs beamd-client); "
                    "pkg-config --modversion beamd-client")});
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_EQ(compiled.out, "0.1\n");
  FakeExecutor server;
  const Ran ran = RunProcess({program, server.address()});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "134; 12 12 14 14\n");
  const Ran alone = RunProcess({program, "127.0.0.1:1"});
  EXPECT_EQ(alone.status, 1);
  EXPECT_TRUE(alone.out.find("UNAVAILABLE") != std::string::npos ||
              alone.out.find("DEADLINE_EXCEEDED") != std::string::npos)
      << alone.out;
}

}  // namespace
}  // namespace beamd
