// CUDA's and HIP's devices on the fake drivers: one suite, run for each.
#include "devices/device.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "devices/measure.h"
#include "devices/registry.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/llvm/kernel_image.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/devices/gpu/fake_driver.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Vendor {
  const char* name;
  const char* library;
  TargetKind kind;
  // Entry points, and of them those that give something back and so have nobody to tell.
  std::vector<std::string> entries;
  std::vector<std::string> releasing;
};

const Vendor kCuda = {"cuda",
                      "libcuda.so.1",
                      TargetKind::kCuda,
                      {
#define CUDA_ENTRY(name, ...) #name,
#include "devices/cuda/api.def"
#undef CUDA_ENTRY
                      },
                      {"cuDevicePrimaryCtxRelease_v2", "cuMemFree_v2", "cuMemFreeHost",
                       "cuModuleUnload", "cuEventDestroy_v2"}};

const Vendor kHip = {"hip",
                     "libamdhip64.so.6",
                     TargetKind::kHip,
                     {
#define HIP_ENTRY(result, name, ...) #name,
#include "devices/hip/api.def"
#undef HIP_ENTRY
                         "hipGetDevicePropertiesR0600"},
                     {"hipFree", "hipHostFree", "hipModuleUnload", "hipEventDestroy"}};

// out[i] = in[i] + n for every work-item of the grid.
int AddKernel(const unsigned* groups, const unsigned* items, void** parameters) {
  const auto* const in = *static_cast<int32_t**>(parameters[0]);
  auto* const out = *static_cast<int32_t**>(parameters[1]);
  const int64_t n = *static_cast<int64_t*>(parameters[2]);
  for (unsigned i = 0; i < groups[0] * items[0]; ++i) out[i] += in[i] + static_cast<int32_t>(n);
  return 0;
}

int IllegalAccess(const unsigned*, const unsigned*, void**) { return 700; }

class GpuDeviceTest : public ::testing::TestWithParam<Vendor> {
 protected:
  GpuDeviceTest() : fake_(GetParam().library) {
    fake_.Reset();
    fake_.Define("add", AddKernel);
    fake_.Define("illegal", IllegalAccess);
  }
  ~GpuDeviceTest() override {
    for (const char* name :
         {"BEAMD_FAKE_DEVICES", "BEAMD_FAKE_VERSION", "BEAMD_FAKE_ARCH", "BEAMD_FAKE_FOREIGN",
          "BEAMD_FAKE_BUSY", "BEAMD_FAKE_HOT", "BEAMD_FAKE_CONTAINER"}) {
      unsetenv(name);
    }
    fake_.Reset();
  }

  std::string DeviceName() const { return std::string(GetParam().name) + ":0"; }
  absl::StatusOr<std::unique_ptr<Device>> Open() { return OpenDevice(DeviceName()); }

  DriverState State() const {
    for (DriverState& state : DriverStates()) {
      if (state.name == GetParam().name) return state;
    }
    return {};
  }

  static KernelImage Image(const std::string& kernel) {
    KernelImage image;
    image.kind = GetParam().kind;
    image.code = "host:" + kernel;
    image.entry = "kernel";
    image.buffers = {
        {.slot = 0, .scalar = Scalar::kInt32, .size_elements = 64, .read = true},
        {.slot = 1, .scalar = Scalar::kInt32, .size_elements = 64, .read = true, .written = true}};
    image.variables = {{.name = "n", .min = 0, .max = 100}};
    image.global_size = {4, 1, 1};
    image.local_size = {16, 1, 1};
    return image;
  }

  static absl::Status Write(Buffer& buffer, size_t offset, const std::vector<int32_t>& values) {
    return buffer.Write(offset, std::as_bytes(std::span(values)));
  }

  static std::vector<int32_t> Read(const Buffer& buffer, size_t offset, size_t count) {
    std::vector<int32_t> values(count);
    const absl::Status status = buffer.Read(offset, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  // All that a device can do, once.
  absl::Status Everything() {
    BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, Open());
    constexpr size_t kLarge = size_t{9} << 20;
    BEAMD_ASSIGN_OR_RETURN(const auto in, device->Allocate(kLarge));
    BEAMD_ASSIGN_OR_RETURN(const auto out, device->Allocate(64 * sizeof(int32_t)));
    BEAMD_RETURN_IF_ERROR(Write(*in, 0, std::vector<int32_t>(kLarge / sizeof(int32_t), 1)));
    BEAMD_RETURN_IF_ERROR(Write(*out, 0, std::vector<int32_t>(64, 0)));
    BEAMD_ASSIGN_OR_RETURN(const auto exe, device->Load(Image("add")));
    Buffer* const buffers[] = {in.get(), out.get()};
    const int64_t n = 2;
    Launch launch;
    launch.buffers = buffers;
    launch.variables = {&n, 1};
    BEAMD_RETURN_IF_ERROR(device->FlushCache(buffers));
    BEAMD_RETURN_IF_ERROR(device->Run(*exe, launch).status());
    BEAMD_ASSIGN_OR_RETURN(const auto prepared, device->Prepare(*exe, launch));
    BEAMD_RETURN_IF_ERROR(prepared->Start());
    BEAMD_RETURN_IF_ERROR(device->Wait());
    BEAMD_RETURN_IF_ERROR(prepared->Run().status());
    BEAMD_RETURN_IF_ERROR(device->FreeMemory().status());
    std::vector<int32_t> values(kLarge / sizeof(int32_t));
    BEAMD_RETURN_IF_ERROR(in->Read(0, std::as_writable_bytes(std::span(values))));
    values.resize(64);
    BEAMD_RETURN_IF_ERROR(out->Read(0, std::as_writable_bytes(std::span(values))));
    return values == std::vector<int32_t>(64, 9) ? absl::OkStatus() : absl::DataLossError("wrong");
  }

  FakeDriver fake_;
};

TEST_P(GpuDeviceTest, DoesEverythingAndGivesItAllBack) {
  const int64_t before = fake_.alive();
  EXPECT_EQ(Everything(), absl::OkStatus());
  EXPECT_EQ(fake_.alive(), before);
}

TEST_P(GpuDeviceTest, SaysWhatItIs) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceInfo& info = (*device)->info();
  const TargetCaps& caps = (*device)->caps();
  EXPECT_EQ(caps.kind, GetParam().kind);
  EXPECT_EQ(caps.code_form, CodeForm::kBitcode);
  EXPECT_EQ(info.arch, caps.arch);
  EXPECT_EQ(info.units, 4);
  EXPECT_EQ(info.memory_bytes, int64_t{4} << 30);
  EXPECT_EQ(info.cache_bytes, 1 << 20);
  EXPECT_EQ(caps.wave_size, 32);
  EXPECT_EQ(*caps.local_max,
            (std::array<int64_t, 3>{1024, 1024, caps.kind == TargetKind::kCuda ? 64 : 1024}));
  if (GetParam().kind == TargetKind::kCuda) {
    EXPECT_EQ(caps.arch, "sm_80");
    EXPECT_EQ(caps.features, "+ptx84");
    EXPECT_EQ(caps.shared_bytes, 49152);
    EXPECT_EQ(info.driver, "550.54.15 (CUDA 12.4)");
    EXPECT_EQ(info.clock_limit_mhz, 1980);
    EXPECT_EQ(info.memory_clock_limit_mhz, 2619);
  } else {
    EXPECT_EQ(caps.arch, "gfx1100");
    EXPECT_EQ(caps.code_object_version, 5);
    EXPECT_EQ(caps.shared_bytes, 65536);
    EXPECT_EQ(info.driver, "HIP 6.0.0");
    EXPECT_EQ(info.clock_limit_mhz, 2482);
    EXPECT_EQ(info.memory_clock_limit_mhz, 1249);
  }
}

TEST_P(GpuDeviceTest, TellsItsConditionAndWhoElseComputes) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  auto condition = (*device)->Condition();
  ASSERT_TRUE(condition.ok()) << condition.status();
  const bool cuda = GetParam().kind == TargetKind::kCuda;
  EXPECT_EQ(condition->clock_mhz, cuda ? 1395 : 2304);
  EXPECT_EQ(condition->memory_clock_mhz, cuda ? 1215 : 1124);
  EXPECT_EQ(condition->temperature_celsius, cuda ? 41 : 43);
  EXPECT_EQ(condition->foreign_processes, 0);
  for (const char* const foreign : {"2", "100"}) {
    setenv("BEAMD_FAKE_FOREIGN", foreign, 1);
    condition = (*device)->Condition();
    ASSERT_TRUE(condition.ok()) << condition.status();
    EXPECT_EQ(condition->foreign_processes, std::atoi(foreign));
  }
}

TEST_P(GpuDeviceTest, SeesWhatDisturbsIt) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_FALSE((*device)->Disturbed());
  // A process that has the GPU open and does nothing there disturbs nobody.
  setenv("BEAMD_FAKE_FOREIGN", "2", 1);
  EXPECT_FALSE((*device)->Disturbed());
  setenv("BEAMD_FAKE_BUSY", "1-1000000", 1);
  EXPECT_TRUE((*device)->Disturbed());
  unsetenv("BEAMD_FAKE_BUSY");
  EXPECT_FALSE((*device)->Disturbed());
  // Where process ids mean nothing.
  setenv("BEAMD_FAKE_CONTAINER", "1", 1);
  EXPECT_FALSE((*device)->Disturbed());
  setenv("BEAMD_FAKE_BUSY", "1-1", 1);
  EXPECT_TRUE((*device)->Disturbed());
  EXPECT_FALSE((*device)->Disturbed());
  setenv("BEAMD_FAKE_HOT", "1", 1);
  EXPECT_TRUE((*device)->Disturbed());
}

// What a foreign process makes slow isn't recorded.
TEST_P(GpuDeviceTest, ABatchThatAForeignProcessJoinedIsTimedAgain) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  static int launches;
  launches = 0;
  // Others come with the second launch, and are there when the device is asked twice.
  fake_.Define("watched", [](const unsigned*, const unsigned*, void**) {
    if (++launches == 2) setenv("BEAMD_FAKE_BUSY", "1-2", 1);
    return 0;
  });
  const KernelImage image = Image("watched");
  const auto exe = (*device)->Load(image);
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto in = (*device)->Allocate(256), out = (*device)->Allocate(256);
  ASSERT_TRUE(in.ok() && out.ok());
  Buffer* const buffers[] = {in->get(), out->get()};
  const Loaded loaded{exe->get(), &image};
  MeasureOptions options;
  options.clear_cache = true;  // a launch a sample
  const auto measured = Measure(**device, {&loaded, 1}, buffers, options);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->spoiled, 2);
  EXPECT_EQ(measured->seconds[0].size(), 3u);
  // A warm-up and three samples, twice.
  EXPECT_EQ(launches, 8);
}

TEST_P(GpuDeviceTest, LaunchesWithBuffersVariablesAndRepeats) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto exe = (*device)->Load(Image("add"));
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto in = (*device)->Allocate(256), out = (*device)->Allocate(256);
  ASSERT_TRUE(in.ok() && out.ok());
  ASSERT_TRUE(Write(**in, 0, std::vector<int32_t>(64, 5)).ok());
  ASSERT_TRUE(Write(**out, 0, std::vector<int32_t>(64, 0)).ok());
  Buffer* const buffers[] = {in->get(), out->get()};
  const int64_t n = 7;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  launch.repeats = 3;
  const auto time = (*device)->Run(**exe, launch);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_GE(*time, absl::ZeroDuration());
  EXPECT_EQ(Read(**out, 0, 64), std::vector<int32_t>(64, 36));
  // No slice, no launch.
  launch.end = 0;
  ASSERT_TRUE((*device)->Run(**exe, launch).ok());
  EXPECT_EQ(Read(**out, 0, 1)[0], 36);
}

TEST_P(GpuDeviceTest, ReplaysAPreparedLaunchOnOtherArguments) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto exe = (*device)->Load(Image("add"));
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto in = (*device)->Allocate(256), out = (*device)->Allocate(64 + 256);
  ASSERT_TRUE(in.ok() && out.ok());
  ASSERT_TRUE(Write(**in, 0, std::vector<int32_t>(64, 1)).ok());
  ASSERT_TRUE(Write(**out, 0, std::vector<int32_t>(80, 0)).ok());
  Buffer* const buffers[] = {in->get(), out->get()};
  const int64_t n = 0;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  const auto prepared = (*device)->Prepare(**exe, launch);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE((*prepared)->SetBuffer(1, **out, 64).ok());
  ASSERT_TRUE((*prepared)->SetVariable(0, 9).ok());
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE((*device)->Wait().ok());
  EXPECT_EQ(Read(**out, 0, 1)[0], 1);
  EXPECT_EQ(Read(**out, 64, 1)[0], 11);
  EXPECT_EQ(Read(**out, 256, 1)[0], 10);
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetBuffer(1, **out, 128)));
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetBuffer(2, **out, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetVariable(0, 101)));
}

TEST_P(GpuDeviceTest, TransfersOfAnySizeKeepTheirBytes) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  constexpr size_t kBytes = (size_t{13} << 20) + 12;
  const auto buffer = (*device)->Allocate(kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  for (const size_t count : {size_t{1}, size_t{1} << 16, size_t{1} << 20, (size_t{3} << 20) + 1}) {
    std::vector<int32_t> values(count);
    std::iota(values.begin(), values.end(), static_cast<int32_t>(count));
    ASSERT_TRUE(Write(**buffer, 8, values).ok());
    EXPECT_EQ(Read(**buffer, 8, count), values);
  }
  const auto window = (*device)->View(**buffer, 64, 128);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(Read(**window, 0, 32), Read(**buffer, 64, 32));
  EXPECT_TRUE(absl::IsOutOfRange((*device)->View(**buffer, 64, kBytes).status()));
}

TEST_P(GpuDeviceTest, DoesWithoutPinnedMemory) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  fake_.Fail(GetParam().kind == TargetKind::kCuda ? "cuMemAllocHost_v2" : "hipHostMalloc", 0, 2);
  const auto buffer = (*device)->Allocate(size_t{9} << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::vector<int32_t> values(2 << 20, 3);
  ASSERT_TRUE(Write(**buffer, 0, values).ok());
  EXPECT_EQ(Read(**buffer, 0, values.size()), values);
}

TEST_P(GpuDeviceTest, FullMemoryIsAnAnswer) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(absl::IsResourceExhausted((*device)->Allocate(size_t{1} << 60).status()));
  const auto most = (*device)->Allocate(size_t{3} << 30);
  ASSERT_TRUE(most.ok()) << most.status();
  const absl::Status full = (*device)->Allocate(size_t{3} << 30).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  const std::optional<ErrorDetail> detail = GetErrorDetail(full);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, "DEVICE_MEMORY");
  EXPECT_EQ(detail->limit, int64_t{1} << 30);
  EXPECT_EQ(detail->value, int64_t{3} << 30);
  EXPECT_TRUE((*device)->Allocate(1).ok());
}

TEST_P(GpuDeviceTest, RefusesLaunchesLargerThanTheDevice) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  std::vector<KernelImage> bad(5, Image("add"));
  bad[0].local_size = {1025, 1, 1};
  bad[1].local_size = {64, 32, 1};
  bad[2].global_size = {1, 65536, 1};
  bad[3].shared_bytes = 65537;
  bad[4].kind = TargetKind::kCpu;
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument((*device)->Load(bad[i]).status())) << i;
  }
  bad[0] = Image("no such kernel");
  const absl::Status status = (*device)->Load(bad[0]).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  if (GetParam().kind == TargetKind::kCuda) {
    EXPECT_THAT(status.message(), HasSubstr("the test has no kernel"));  // the JIT's log
  }
}

TEST_P(GpuDeviceTest, AnIllegalAccessLosesTheDeviceUntilItIsOpenedAnew) {
  const int64_t before = fake_.alive();
  {
    const auto device = Open();
    ASSERT_TRUE(device.ok()) << device.status();
    const auto buffer = (*device)->Allocate(256);
    const auto exe = (*device)->Load(Image("illegal"));
    const auto good = (*device)->Load(Image("add"));
    ASSERT_TRUE(buffer.ok() && exe.ok() && good.ok());
    Buffer* const buffers[] = {buffer->get(), buffer->get()};
    const int64_t n = 0;
    Launch launch;
    launch.buffers = buffers;
    launch.variables = {&n, 1};
    const absl::Status status = (*device)->Run(**exe, launch).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(": 700 "));
    fake_.Reset();  // The object stays dead however the driver fares.
    const absl::Status later[] = {
        (*device)->Allocate(1).status(),         (*device)->Load(Image("add")).status(),
        (*device)->Run(**good, launch).status(), (*device)->Wait(),
        (*device)->FlushCache(buffers),          Write(**buffer, 0, {1})};
    for (const absl::Status& one : later) {
      EXPECT_TRUE(absl::IsUnavailable(one)) << one;
      EXPECT_THAT(one.message(), HasSubstr("the device is lost"));
    }
  }
  EXPECT_EQ(fake_.alive(), before);
  fake_.Define("add", AddKernel);
  EXPECT_EQ(Everything(), absl::OkStatus());
}

TEST_P(GpuDeviceTest, EveryFailureOfEveryEntryPointIsAnAnswerAndLeaksNothing) {
  ASSERT_EQ(Everything(), absl::OkStatus());
  const int64_t before = fake_.alive();
  for (const std::string& entry : GetParam().entries) {
    if (entry.find("GetError") != std::string::npos) continue;  // called for the others' failures
    const auto& releasing = GetParam().releasing;
    const bool releases = std::count(releasing.begin(), releasing.end(), entry) > 0;
    const bool pinned = entry == "cuMemAllocHost_v2" || entry == "hipHostMalloc";
    fake_.Fail(entry, -1, 0);  // counts alone
    ASSERT_EQ(Everything(), absl::OkStatus());
    const int64_t calls = fake_.calls(entry);
    ASSERT_GT(calls, 0) << entry;
    for (int64_t call = 1; call <= calls; ++call) {
      for (const int code : {2, 700}) {
        fake_.Fail(entry, static_cast<int>(call), code);
        const absl::Status status = Everything();
        if (releases) {
          EXPECT_EQ(status, absl::OkStatus()) << entry << " " << call;
          continue;
        }
        EXPECT_EQ(fake_.alive(), before) << entry << " " << call;
        const bool enters = entry == "cuCtxSetCurrent" || entry == "hipSetDevice";
        if (enters && status.ok()) continue;  // it was before giving something back
        if (pinned) {                         // the transfer takes the long way
          EXPECT_EQ(status, absl::OkStatus()) << entry << " " << call;
          continue;
        }
        EXPECT_EQ(status.code(),
                  code == 2 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable)
            << entry << " " << call << ": " << status;
        EXPECT_THAT(status.message(),
                    HasSubstr(entry == "hipGetDevicePropertiesR0600" ? "properties" : entry));
      }
    }
    fake_.Fail(entry, -1, 0);
    if (releases) break;  // it did leak, by order: what follows would count that
  }
}

TEST_P(GpuDeviceTest, SeveralDevicesAreEachTheirOwn) {
  setenv("BEAMD_FAKE_DEVICES", "2", 1);
  const std::string name = GetParam().name;
  EXPECT_THAT(State().devices, ElementsAre(name + ":0", name + ":1"));
  const auto first = OpenDevice(name + ":0"), second = OpenDevice(name + ":1");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(absl::IsNotFound(OpenDevice(name + ":2").status()));
  const auto buffer = (*first)->Allocate(256);
  const auto own = (*second)->Allocate(256);
  const auto exe = (*second)->Load(Image("add"));
  ASSERT_TRUE(buffer.ok() && own.ok() && exe.ok());
  Buffer* const buffers[] = {buffer->get(), own->get()};
  const int64_t n = 0;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  EXPECT_TRUE(absl::IsInvalidArgument((*second)->Run(**exe, launch).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*first)->Run(**exe, launch).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*second)->View(**buffer, 0, 1).status()));
}

TEST_P(GpuDeviceTest, SaysWhyThereIsNoDevice) {
  const bool cuda = GetParam().kind == TargetKind::kCuda;
  const std::string init = cuda ? "cuInit" : "hipInit";
  const auto why = [&] {
    const DriverState state = State();
    EXPECT_THAT(state.devices, IsEmpty());
    EXPECT_TRUE(absl::IsUnavailable(state.status)) << state.status;
    EXPECT_EQ(Open().status(), state.status);
    return std::string(state.status.message());
  };
  fake_.Fail(init, 0, 34);
  EXPECT_THAT(why(), HasSubstr(init + ": 34"));
  fake_.Fail(init, 0, 100);
  EXPECT_THAT(why(), HasSubstr(init + ": 100"));
  fake_.Fail(init, -1, 0);
  setenv("BEAMD_FAKE_DEVICES", "0", 1);
  EXPECT_THAT(why(), HasSubstr("knows no GPU"));
  unsetenv("BEAMD_FAKE_DEVICES");
  setenv("BEAMD_FAKE_VERSION", cuda ? "10020" : "40300000", 1);
  EXPECT_THAT(why(), HasSubstr("too old"));
  unsetenv("BEAMD_FAKE_VERSION");
  EXPECT_TRUE(Open().ok());
}

TEST_P(GpuDeviceTest, RefusesAGpuThatNoCodeIsGeneratedFor) {
  const bool cuda = GetParam().kind == TargetKind::kCuda;
  setenv("BEAMD_FAKE_ARCH", cuda ? "sm_35" : "R600", 1);
  EXPECT_TRUE(absl::IsUnavailable(Open().status())) << Open().status();
  if (cuda) {  // a GPU newer than its driver
    setenv("BEAMD_FAKE_ARCH", "sm_90", 1);
    setenv("BEAMD_FAKE_VERSION", "11070", 1);
    EXPECT_THAT(Open().status().message(), HasSubstr("too old"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuDeviceTest, ::testing::Values(kCuda, kHip),
                         [](const ::testing::TestParamInfo<Vendor>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace beamd
