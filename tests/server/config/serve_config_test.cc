#include "server/config/serve_config.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

std::string Written(const std::string& name, const std::string& text) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

std::string FaultsOf(const std::vector<std::string>& args) {
  return std::string(LoadServeConfig(args).status().message());
}

TEST(ServeConfig, IsOkAsItComes) {
  const auto config = LoadServeConfig({"--store=/s"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listen, "127.0.0.1:7070");
  EXPECT_GT(config->buffer_bytes, 0);
}

TEST(ServeConfig, FlagsOverrideTheFile) {
  const std::string path = Written("override.textproto", "store: \"/f\" jobs: 4 queue: 9");
  const auto config = LoadServeConfig({"--jobs=2", "--config", path});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store, "/f");
  EXPECT_EQ(config->jobs, 2);
  EXPECT_EQ(config->queue, 9);
}

TEST(ServeConfig, NamesEveryFaultAtOnce) {
  const std::string path = Written("faults.textproto", "jobs: 0\nwhat: 1\n");
  const std::string faults = FaultsOf(
      {"--config", path, "--widht=2", "--log_level=loud", "--graph_rank=33",
       "--devices=cpu:0,cuda:1,cpu:0", "--run_timeout=0s", "--weights==2", "--session_lease=2h",
       "--listen=nowhere", "--tls_cert=/nonexistent", "extra", "--timing_cores=100000"});
  for (const char* fault :
       {"no flag --widht=2", "faults.textproto:2:", "serve wants --store", "--jobs must be",
        "no log level loud", "--devices names cpu:0 twice", "--run_timeout must be above 0",
        "--session_lease can't be above", "--weights wants NAME=WEIGHT",
        "--graph_rank must be 1 to 32, not 33", "--listen wants HOST:PORT",
        "--tls_cert: can't read /nonexistent", "--tls_cert and --tls_key go together"}) {
    EXPECT_THAT(faults, HasSubstr(fault));
  }
}

TEST(ServeConfig, WantsProtectionBeforeItIsOpen) {
  const std::string pem = Written("x.pem", "-----BEGIN CERTIFICATE-----\n");
  const std::string access = Written("access", "any reader\n");
  const std::vector<std::string> open = {"--store=/s", "--listen=0.0.0.0:7070"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), open.begin(), open.end());
    return FaultsOf(more);
  };
  EXPECT_THAT(with({}), HasSubstr("--insecure"));
  EXPECT_THAT(with({"--access_file=" + access}), HasSubstr("--insecure"));
  EXPECT_THAT(with({"--tls_cert=" + pem, "--tls_key=" + pem}), HasSubstr("--insecure"));
  EXPECT_EQ(with({"--tls_cert=" + pem, "--tls_key=" + pem, "--access_file=" + access}), "");
  EXPECT_EQ(with({"--insecure"}), "");
  EXPECT_THAT(FaultsOf({"--store=/s", "--http_listen=:9090"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(FaultsOf({"--store=/s", "--http_listen=0.0.0.0:9090"}), HasSubstr("--http_public"));
}

TEST(ServeConfig, NamesFaultsOfTheAccessFile) {
  EXPECT_THAT(FaultsOf({"--store=/s", "--access_file=" + Written("bad", "x king\n")}),
              HasSubstr("line 1:"));
}

TEST(IsLoopback, IsByAddressNotByName) {
  for (const char* here : {"127.0.0.1:0", "127.8.9.10:1", "[::1]:7070", "localhost:7070"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "127.example.com:1", "127.0.0.256:1", ":1",
                           "10.0.0.7:1", "127.0.0.1.evil.example:1", "host:1"}) {
    EXPECT_FALSE(IsLoopback(open)) << open;
  }
}

}  // namespace
}  // namespace beamd
