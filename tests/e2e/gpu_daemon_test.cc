// The daemon on a machine with GPUs: their drivers are the fake ones of devices/fake.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cc/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::MatmulKernel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuDaemonTest : public ::testing::Test {
 protected:
  ~GpuDaemonTest() override {
    for (const char* name : {"BEAMD_FAKE_ERRORS", "BEAMD_FAKE_DEVICES", "BEAMD_FAKE_BUSY"})
      unsetenv(name);
  }

  v1::ListDevicesResponse Start(const std::vector<std::string>& flags = {}) {
    daemon_ = std::make_unique<Daemon>("server/beamd", FreshDirectory() + "/store", flags);
    client_ = Client::Create(daemon_->address());
    absl::StatusOr<v1::ListDevicesResponse> devices = client_->ListDevices();
    EXPECT_TRUE(devices.ok()) << devices.status();
    return devices.ok() ? *devices : v1::ListDevicesResponse();
  }

  static std::vector<std::string> Ids(const v1::ListDevicesResponse& response) {
    std::vector<std::string> ids;
    for (const v1::Device& device : response.devices()) ids.push_back(device.id());
    return ids;
  }

  static std::map<std::string, std::string> Whys(const v1::ListDevicesResponse& response) {
    std::map<std::string, std::string> whys;
    for (const v1::Driver& driver : response.drivers()) whys[driver.name()] = driver.why();
    return whys;
  }

  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(GpuDaemonTest, StartsARunnerForEachDeviceThatItsDriversHave) {
  setenv("BEAMD_FAKE_DEVICES", "2", 1);
  const v1::ListDevicesResponse devices = Start();
  EXPECT_THAT(Ids(devices), ElementsAre("cpu:0", "cuda:0", "cuda:1", "hip:0", "hip:1"));
  for (const v1::Device& device : devices.devices()) {
    EXPECT_EQ(device.state(), v1::DEVICE_STATE_READY) << device.id();
  }
  for (const auto& [driver, why] : Whys(devices)) EXPECT_EQ(why, "") << driver;
  const v1::Environment& cuda = devices.devices(1).environment();
  EXPECT_EQ(cuda.kind(), "emulated-cuda");
  EXPECT_EQ(cuda.vendor(), "NVIDIA");
  EXPECT_EQ(cuda.model(), "Fake CUDA GPU");
  EXPECT_EQ(cuda.arch(), "sm_80");
  EXPECT_EQ(cuda.units(), 4);
  EXPECT_EQ(cuda.memory_bytes(), uint64_t{4} << 30);
  EXPECT_EQ(cuda.clock_limit_mhz(), 1980);
  EXPECT_EQ(cuda.memory_clock_limit_mhz(), 2619);
  EXPECT_THAT(cuda.driver(), HasSubstr("CUDA 12.4"));
  const v1::Environment& hip = devices.devices(3).environment();
  EXPECT_EQ(hip.kind(), "emulated-hip");
  EXPECT_EQ(hip.arch(), "gfx1100");
  EXPECT_THAT(hip.driver(), HasSubstr("HIP 6.0"));
}

TEST_F(GpuDaemonTest, SaysWhyADriverHasNoDevice) {
  setenv("BEAMD_FAKE_ERRORS", "cuInit:0=34,hipGetDeviceCount:0=100", 1);
  const v1::ListDevicesResponse devices = Start();
  EXPECT_THAT(Ids(devices), ElementsAre("cpu:0"));
  std::map<std::string, std::string> whys = Whys(devices);
  EXPECT_EQ(whys["cpu"], "");
  EXPECT_THAT(whys["cuda"], HasSubstr("cuInit: 34"));
  EXPECT_THAT(whys["hip"], HasSubstr("hipGetDeviceCount: 100"));
}

TEST_F(GpuDaemonTest, ADeviceWhoseRunnerDoesNotStartIsListedWithItsReason) {
  setenv("BEAMD_FAKE_ERRORS", "cuDevicePrimaryCtxRetain:0=46", 1);
  const v1::ListDevicesResponse devices = Start({"--devices=cpu:0,cuda:0,hip:7"});
  ASSERT_THAT(Ids(devices), ElementsAre("cpu:0", "cuda:0", "hip:7"));
  EXPECT_EQ(devices.devices(1).state(), v1::DEVICE_STATE_FAILED);
  EXPECT_THAT(devices.devices(1).why(), HasSubstr("cuDevicePrimaryCtxRetain: 46"));
  EXPECT_EQ(devices.devices(2).state(), v1::DEVICE_STATE_FAILED);
  EXPECT_THAT(devices.devices(2).why(), HasSubstr("no device \"hip:7\""));
}

TEST_F(GpuDaemonTest, AKindAndAnArchitectureFindADevice) {
  Start();
  const auto error = [&](const std::string& kind, const std::string& arch) {
    v1::LookupRequest request;
    v1::LookupQuery& query = *request.add_queries();
    *query.mutable_graph() = AddKernel(64);
    query.mutable_device()->set_kind(kind);
    query.mutable_device()->set_arch(arch);
    const absl::StatusOr<v1::LookupResponse> response = client_->Lookup(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->answers(0).error().reason() : "";
  };
  EXPECT_THAT(error("emulated-cuda", ""), IsEmpty());
  EXPECT_THAT(error("emulated-cuda", "sm_80"), IsEmpty());
  EXPECT_THAT(error("", "gfx1100"), IsEmpty());
  EXPECT_EQ(error("emulated-cuda", "sm_90"), "NO_SUCH_DEVICE");
  EXPECT_EQ(error("emulated-cuda", "gfx1100"), "NO_SUCH_DEVICE");
  EXPECT_EQ(error("cuda", ""), "NO_SUCH_DEVICE");
}

TEST_F(GpuDaemonTest, TunesAndVerifiesOnAGpu) {
  Start();
  for (const std::string kind : {"emulated-cuda", "emulated-hip"}) {
    v1::TuneRequest request;
    *request.mutable_graph() = AddKernel(1024);
    request.mutable_search()->set_width(1);
    request.mutable_device()->set_kind(kind);
    CallOptions options;
    options.deadline = absl::Now() + absl::Seconds(200);
    const absl::StatusOr<v1::TuneResult> result = client_->Tune(
        request, [](const v1::TuneEvent&) { return true; }, options);
    ASSERT_TRUE(result.ok()) << result.status();
    const v1::Record& record = result->record();
    EXPECT_EQ(record.environment().kind(), kind);
    EXPECT_TRUE(record.verification().verified());
    EXPECT_GT(record.best_s(), 0);
    EXPECT_GT(record.timed(), 1);
    EXPECT_EQ(record.failures().count("run_crash"), 0);
  }
  const absl::StatusOr<v1::ListDevicesResponse> devices = client_->ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->devices(1).condition().clock_mhz(), 1395);
  EXPECT_EQ(devices->devices(1).condition().temperature_celsius(), 41);
}

TEST_F(GpuDaemonTest, TimesAgainWhatAForeignProcessDisturbed) {
  setenv("BEAMD_FAKE_BUSY", "4-7", 1);
  Start({"--devices=cuda:0"});
  v1::TuneRequest request;
  *request.mutable_graph() = AddKernel(1024);
  request.mutable_search()->set_width(1);
  CallOptions options;
  options.deadline = absl::Now() + absl::Seconds(200);
  const absl::StatusOr<v1::TuneResult> result = client_->Tune(
      request, [](const v1::TuneEvent&) { return true; }, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->record().spoiled(), 1);
  EXPECT_LE(result->record().spoiled(), 4);
}

TEST_F(GpuDaemonTest, AnAnswerWithFactorsRoundedToTf32IsRightWhereThatIsAllowed) {
  Start({"--devices=cuda:0"});
  v1::TuneRequest request;
  *request.mutable_graph() = MatmulKernel(64);
  request.mutable_search()->set_width(0);
  request.mutable_search()->set_allow_tf32(true);
  CallOptions options;
  options.deadline = absl::Now() + absl::Seconds(200);
  const absl::StatusOr<v1::TuneResult> result = client_->Tune(
      request, [](const v1::TuneEvent&) { return true; }, options);
  ASSERT_TRUE(result.ok()) << result.status();
  const v1::Record& record = result->record();
  ASSERT_FALSE(record.hc_opts().empty());
  EXPECT_EQ(record.hc_opts(0).op(), v1::OPT_OP_TC);
  EXPECT_TRUE(record.verification().verified());
  EXPECT_EQ(record.failures().count("wrong_answer"), 0);
}

}  // namespace
}  // namespace beamd
