#include "devices/cpu/device.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

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

TEST(CpuDevice, TimeThatOthersHadTheCoreIsNotTheKernels) {
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
  launch.repeats = 300000;  // some tens of milliseconds
  cpu_set_t all, one;
  CPU_ZERO(&all);
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  const int core = sched_getcpu();
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(core), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const auto time = [&] {
    std::vector<absl::Duration> took;
    for (int i = 0; i < 7; ++i) took.push_back(*(*device)->Run(**exe, launch));
    std::sort(took.begin(), took.end());
    return took[took.size() / 2];
  };
  time();
  const absl::Duration alone = time();
  // On the same core as this thread, whose place they inherit.
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  const absl::Duration beside = time();
  stop = true;
  for (std::thread& other : others) other.join();
  sched_setaffinity(0, sizeof(all), &all);
  EXPECT_LT(beside, alone * 2) << "a fifth of a core looked like a slow kernel";
}

TEST(CpuBuffer, WindowsShareItsMemory) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto whole = (*device)->Allocate(256);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto window = (*device)->View(**whole, 64, 128);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ((*window)->size_bytes(), 128);
  const std::byte written[] = {std::byte{7}, std::byte{8}};
  ASSERT_TRUE((*window)->Write(3, written).ok());
  std::byte read[2] = {};
  ASSERT_TRUE((*whole)->Read(67, read).ok());
  EXPECT_EQ(read[1], std::byte{8});
  EXPECT_TRUE(absl::IsOutOfRange((*window)->Write(127, written)));
  // A window of a window.
  const auto inner = (*device)->View(**window, 64, 64);
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_EQ((*inner)->mapped(), static_cast<std::byte*>((*whole)->mapped()) + 128);
}

TEST(CpuBuffer, RefusesWindowsThatStickOutOrBreakTheAlignment) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto whole = (*device)->Allocate(256);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(absl::IsOutOfRange((*device)->View(**whole, 192, 65).status()));
  EXPECT_TRUE(absl::IsOutOfRange((*device)->View(**whole, 320, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*device)->View(**whole, 4, 8).status()));
  EXPECT_TRUE((*device)->View(**whole, 256, 0).ok());
}

TEST(CpuDevice, ReplaysAPreparedLaunchOnOtherBuffers) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto exe = (*device)->Load(Doubling());
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto first = (*device)->Allocate(256), second = (*device)->Allocate(64 + 256);
  ASSERT_TRUE(first.ok() && second.ok());
  for (Buffer* b : {first->get(), second->get()}) std::memset(b->mapped(), 0, b->size_bytes());
  Buffer* const buffers[] = {first->get()};
  Launch launch;
  launch.buffers = buffers;
  launch.end = 8;
  const auto prepared = (*device)->Prepare(**exe, launch);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE((*prepared)->SetBuffer(0, **second, 64).ok());
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE((*device)->Wait().ok());
  // x + 2^x of zeros.
  EXPECT_EQ(static_cast<float*>((*first)->mapped())[63], 1.0f);
  EXPECT_EQ(static_cast<float*>((*second)->mapped())[15], 0.0f);
  EXPECT_EQ(static_cast<float*>((*second)->mapped())[16], 1.0f);

  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetBuffer(0, **second, 128)));
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetBuffer(0, **second, 32)));
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetBuffer(1, **second, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument((*prepared)->SetVariable(0, 1)));
  launch.end = 4;
  EXPECT_TRUE(absl::IsInvalidArgument((*device)->Prepare(**exe, launch).status()));
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
