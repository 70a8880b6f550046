#include "devices/cpu/device.h"

#include "absl/status/status.h"
#include "devices/scratch.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

KernelImage Doubling() {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 64, true, true);
  const UOp i = p.Range(8);
  const UOp at = p.Alu(Op::kMul, i, p.Int(8));
  const UOp x = p.Load(out, at, 8, nullptr, 8);
  p.Store(out, at, p.Alu(Op::kAdd, x, p.Alu(Op::kExp2, x)), nullptr, 8);
  p.End(i);
  const auto generator = CodeGenerator::Create(HostCaps());
  return *(*generator)->Generate(p.Finish(i, 8));
}

TEST(CpuDevice, IsWhatCodeIsGeneratedFor) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->caps(), HostCaps());
  EXPECT_EQ((*device)->info().features, HostCaps().features);
}

TEST(CpuDevice, TimesGrowWithTheWork) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto exe = (*device)->Load(Doubling());
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto buffer = (*device)->Allocate(256);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  Buffer* const buffers[] = {buffer->get()};
  Launch launch;
  launch.buffers = buffers;
  launch.end = 8;
  const auto time = [&](int64_t repeats) {
    launch.repeats = repeats;
    absl::Duration least = absl::InfiniteDuration();
    for (int i = 0; i < 20; ++i) least = std::min(least, *(*device)->Run(**exe, launch));
    return least;
  };
  const absl::Duration few = time(1000), many = time(10000);
  EXPECT_GT(many, few * 5);
  EXPECT_LT(many, few * 20);
}

TEST(ScratchBuffers, AreRefusedWhereTheDeviceHasLessMemory) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  // Each alone fits.
  const int64_t elements = (*device)->info().memory_bytes / 4 * 3 / 4;
  const KernelImage::Buffer out{.slot = 0, .scalar = Scalar::kFloat32, .size_elements = elements};
  const KernelImage::Buffer in{.slot = 1, .scalar = Scalar::kFloat32, .size_elements = elements};
  const KernelImage::Buffer both[] = {out, in};
  EXPECT_TRUE(absl::IsResourceExhausted(ScratchBuffers::Create(**device, both, 0).status()));
}

}  // namespace
}  // namespace beamd
