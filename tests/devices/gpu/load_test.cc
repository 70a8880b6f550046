// Libraries that aren't drivers, and code objects that aren't whole.
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "devices/cuda/api.h"
#include "devices/cuda/nvml.h"
#include "devices/gpu/device.h"
#include "devices/gpu/status.h"
#include "devices/hip/amd_smi.h"
#include "devices/hip/api.h"
#include "devices/hip/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

TEST(DriverLibrary, IsUnavailableWhereItIsMissing) {
  const char* const nothing = "libnothing.so.1";
  const absl::Status all[] = {CudaApi::Load(nothing).status(), HipApi::Load({&nothing, 1}).status(),
                              Nvml::Open(nothing).status(), AmdSmi::Open(nothing).status()};
  for (const absl::Status& status : all) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("libnothing.so.1: cannot open"));
  }
}

TEST(DriverLibrary, IsUnavailableWhereItLacksAnEntryPoint) {
  const char* const other = "libm.so.6";
  const absl::Status all[] = {CudaApi::Load(other).status(), HipApi::Load({&other, 1}).status(),
                              Nvml::Open(other).status(), AmdSmi::Open(other).status()};
  for (const absl::Status& status : all) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("too old: libm.so.6 has no"));
  }
}

TEST(GpuStatus, TellsLostContextsFromRefusedWork) {
  EXPECT_TRUE(GpuStatus(0, "f", "", "").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(GpuStatus(2, "f", "", "")));
  EXPECT_TRUE(absl::IsInvalidArgument(GpuStatus(218, "f", "", "")));
  EXPECT_TRUE(absl::IsInternal(GpuStatus(12345, "f", "", "")));
  for (const int lost : {700, 702, 709, 710, 715, 716, 718, 719, 999}) {
    EXPECT_TRUE(absl::IsUnavailable(GpuStatus(lost, "f", "", ""))) << lost;
  }
  EXPECT_EQ(GpuStatus(700, "cuStreamSynchronize", "NAME", "text").message(),
            "cuStreamSynchronize: 700 NAME: text");
}

TEST(CheckCodeObject, RefusesWhatIsNotAWholeFile) {
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCodeObject("")));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCodeObject(std::string(200, 'x'))));
  // A header and one segment of ten bytes behind it.
  std::string file(64 + 56 + 10, '\0');
  std::memcpy(file.data(), "\177ELF\2\1\1", 7);
  const auto put = [&](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(file.data() + at, &value, bytes);
  };
  put(32, 64, 8);       // e_phoff
  put(54, 56, 2);       // e_phentsize
  put(56, 1, 2);        // e_phnum
  put(64 + 8, 120, 8);  // p_offset
  put(64 + 32, 10, 8);  // p_filesz
  EXPECT_EQ(CheckCodeObject(file), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCodeObject(file.substr(0, file.size() - 1))));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCodeObject(file.substr(0, 100))));
  put(64 + 32, ~uint64_t{0}, 8);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCodeObject(file)));
}

TEST(WrapBitcode, SaysHowLongTheCodeIs) {
  const std::string wrapped = WrapBitcode("abcde");
  ASSERT_EQ(wrapped.size(), 28);
  uint32_t header[5];
  std::memcpy(header, wrapped.data(), sizeof(header));
  EXPECT_EQ(header[0], 0x0B17C0DE);
  EXPECT_EQ(header[2], 20);
  EXPECT_EQ(header[3], 5);
  EXPECT_EQ(wrapped.substr(20, 5), "abcde");
}

}  // namespace
}  // namespace beamd
