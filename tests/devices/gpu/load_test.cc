// Libraries that aren't drivers, and code objects that aren't whole.
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "devices/cuda/api.h"
#include "devices/cuda/nvml.h"
#include "devices/gpu/packed_image.h"
#include "devices/gpu/status.h"
#include "devices/hip/amd_smi.h"
#include "devices/hip/api.h"
#include "devices/hip/device.h"
#include "engine/llvm/kernel_image.h"
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

TEST(PackedImage, HoldsAllThatALaunchNeeds) {
  KernelImage image;
  image.kind = TargetKind::kHip;
  image.code = std::string("B\0C", 3);
  image.entry = "kernel";
  image.buffers = {{.slot = 3, .scalar = Scalar::kFloat16, .size_elements = 7, .written = true}};
  image.variables = {{.name = "n", .min = -1, .max = 9}};
  image.global_size = {4, 5, 6};
  image.local_size = {32, 2, 1};
  image.shared_bytes = 128;
  std::string packed = PackImage(image);
  const auto back = UnpackImage(packed.data());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->Hash(), image.Hash());
  EXPECT_EQ(back->code, image.code);
  EXPECT_EQ(back->shared_bytes, 128);
  packed[8 + 8 + 8] = 'x';  // the code is as long as that says
  EXPECT_TRUE(absl::IsInvalidArgument(UnpackImage(packed.data()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(UnpackImage("PTX, or an ELF file").status()));
}

}  // namespace
}  // namespace beamd
