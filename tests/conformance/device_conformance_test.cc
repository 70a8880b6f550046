// What every driver must do: runs over each device that this binary's drivers find, and over the
// emulated GPUs. A driver without a device is skipped with its reason.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "devices/device.h"
#include "devices/registry.h"
#include "engine/llvm/codegen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

using ::testing::Not;

constexpr int64_t kRows = 8;
constexpr int64_t kColumns = 64;

class DeviceConformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = OpenDevice(GetParam());
    if (!device.ok()) GTEST_SKIP() << GetParam() << " doesn't open: " << device.status();
    device_ = *std::move(device);
    auto generator = CodeGenerator::Create(device_->caps());
    if (!generator.ok()) GTEST_SKIP() << "no code for " << GetParam() << ": " << generator.status();
    generator_ = *std::move(generator);
  }

  bool gpu() const { return device_->caps().kind != TargetKind::kCpu; }
  // Of AddImage: a GPU takes a launch whole.
  int64_t slices() const { return gpu() ? 1 : kRows; }

  // b[i, j] = a[i, j] + b[i, j] + n for rows i of [begin, end); on a GPU a group a row.
  KernelImage AddImage() {
    ProgramBuilder p;
    const UOp a = p.Buffer(Scalar::kInt32, kRows * kColumns, true, false);
    const UOp b = p.Buffer(Scalar::kInt32, kRows * kColumns, true, true);
    const UOp n = p.Variable("n", 0, 1000);
    const UOp i = gpu() ? p.Special("g0", kRows) : p.Range(kRows);
    const UOp row = p.Alu(Op::kMul, i, p.Int(kColumns));
    const UOp j = gpu() ? p.Special("l0", kColumns) : p.Range(kColumns);
    const UOp at = p.Alu(Op::kAdd, row, j);
    const UOp sum = p.Alu(Op::kAdd, p.Load(a, at), p.Load(b, at));
    p.Store(b, at, p.Alu(Op::kAdd, sum, n));
    if (!gpu()) {
      p.End(j);
      p.End(i);
    }
    return Generate(gpu() ? p.Finish() : p.Finish(i, kRows));
  }

  KernelImage Generate(const LinearProgram& program) {
    auto image = generator_->Generate(program);
    EXPECT_TRUE(image.ok()) << image.status();
    return image.ok() ? *std::move(image) : KernelImage();
  }

  std::unique_ptr<Buffer> Filled(int64_t elements, int32_t value) {
    auto buffer = device_->Allocate(elements * sizeof(int32_t));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    const std::string bytes = Bytes(std::vector<int32_t>(elements, value));
    EXPECT_TRUE((*buffer)->Write(0, std::as_bytes(std::span(bytes))).ok());
    return *std::move(buffer);
  }

  static std::vector<int32_t> Content(const Buffer& buffer) {
    std::string bytes(buffer.size_bytes(), 0);
    EXPECT_TRUE(buffer.Read(0, std::as_writable_bytes(std::span(bytes))).ok());
    return FromBytes<int32_t>(bytes);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<CodeGenerator> generator_;
};

TEST_P(DeviceConformance, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_THAT(info.vendor, Not(""));
  EXPECT_THAT(info.model, Not(""));
  EXPECT_EQ(info.arch, device_->caps().arch);
  EXPECT_GE(info.units, 1);
  EXPECT_GE(info.memory_bytes, 1 << 20);
  EXPECT_GE(info.cache_bytes, 1);
}

TEST_P(DeviceConformance, BuffersAreAlignedAndKeepTheirBytes) {
  for (const size_t size : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    auto buffer = device_->Allocate(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_GE((*buffer)->size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->mapped()) % 64, 0);
    const std::string last = "z";
    EXPECT_TRUE((*buffer)->Write(size - 1, std::as_bytes(std::span(last))).ok());
    std::string read(1, 0);
    EXPECT_TRUE((*buffer)->Read(size - 1, std::as_writable_bytes(std::span(read))).ok());
    EXPECT_EQ(read, last);
  }
}

TEST_P(DeviceConformance, RefusesBytesOutsideABuffer) {
  auto buffer = device_->Allocate(8);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::string nine(9, 0);
  const auto bytes = std::as_writable_bytes(std::span(nine));
  EXPECT_EQ((*buffer)->Write(0, bytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*buffer)->Read(~size_t{0}, bytes.first(2)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE((*buffer)->Read(8, bytes.first(0)).ok());
}

TEST_P(DeviceConformance, TooMuchMemoryIsAnAnswer) {
  EXPECT_EQ(device_->Allocate(size_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceConformance, RunsSlicesWithVariablesAndRepeats) {
  auto exe = device_->Load(AddImage());
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto a = Filled(kRows * kColumns, 10);
  const auto b = Filled(kRows * kColumns, 1);
  Buffer* const buffers[] = {a.get(), b.get()};
  const int64_t n = 100;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  launch.begin = gpu() ? 0 : 2;
  launch.end = gpu() ? 1 : 5;
  launch.repeats = 3;
  const auto time = device_->Run(**exe, launch);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_GT(*time, absl::ZeroDuration());
  EXPECT_LT(*time, absl::Seconds(1));
  const int64_t first = gpu() ? 0 : 2, last = gpu() ? kRows : 5;
  const std::vector<int32_t> content = Content(*b);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      ASSERT_EQ(content[i * kColumns + j], i >= first && i < last ? 1 + 3 * 110 : 1)
          << i << ", " << j;
    }
  }
  for (const int32_t v : Content(*a)) ASSERT_EQ(v, 10);
}

TEST_P(DeviceConformance, RefusesLaunchesThatDoNotFit) {
  auto exe = device_->Load(AddImage());
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto a = Filled(kRows * kColumns, 0);
  const auto b = Filled(kRows * kColumns, 0);
  const auto small = Filled(kRows * kColumns - 1, 0);
  Buffer* const buffers[] = {a.get(), b.get()};
  Buffer* const too_small[] = {a.get(), small.get()};
  const int64_t n = 1, high = 1001;
  Launch good;
  good.buffers = buffers;
  good.variables = {&n, 1};
  good.end = slices();
  EXPECT_TRUE(device_->Run(**exe, good).ok());
  std::vector<Launch> bad(7, good);
  bad[0].buffers = good.buffers.first(1);
  bad[1].buffers = too_small;
  bad[2].variables = {};
  bad[3].variables = {&high, 1};
  bad[4].end = slices() + 1;
  bad[5].begin = -1;
  bad[6].repeats = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(device_->Run(**exe, bad[i]).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST_P(DeviceConformance, RefusesBrokenImages) {
  KernelImage image = AddImage();
  KernelImage renamed = image;
  renamed.entry = "elsewhere";
  EXPECT_EQ(device_->Load(renamed).status().code(), absl::StatusCode::kInvalidArgument);
  KernelImage garbage = image;
  garbage.code = "no object";
  EXPECT_EQ(device_->Load(garbage).status().code(), absl::StatusCode::kInvalidArgument);
  KernelImage cut = image;
  cut.code.resize(cut.code.size() / 2);
  EXPECT_EQ(device_->Load(cut).status().code(), absl::StatusCode::kInvalidArgument);
  KernelImage foreign = image;
  foreign.kind = image.kind == TargetKind::kCpu ? TargetKind::kCuda : TargetKind::kCpu;
  EXPECT_EQ(device_->Load(foreign).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device_->Load(image).ok());
}

TEST_P(DeviceConformance, HoldsManyExecutablesOfOneName) {
  const KernelImage image = AddImage();
  std::vector<std::unique_ptr<Executable>> all;
  for (int i = 0; i < 50; ++i) {
    auto exe = device_->Load(image);
    ASSERT_TRUE(exe.ok()) << exe.status();
    all.push_back(*std::move(exe));
  }
  all.erase(all.begin(), all.begin() + 49);
  const auto a = Filled(kRows * kColumns, 1);
  const auto b = Filled(kRows * kColumns, 1);
  Buffer* const buffers[] = {a.get(), b.get()};
  const int64_t n = 0;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  ASSERT_TRUE(device_->Run(*all[0], launch).ok());
  EXPECT_EQ(Content(*b)[0], 2);
}

TEST_P(DeviceConformance, ReplaysAPreparedLaunchOnOtherArguments) {
  auto exe = device_->Load(AddImage());
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto a = Filled(kRows * kColumns, 5);
  const auto b = Filled(kRows * kColumns + 16, 0);
  Buffer* const buffers[] = {a.get(), b.get()};
  int64_t n = 1;
  Launch launch;
  launch.buffers = buffers;
  launch.variables = {&n, 1};
  launch.end = slices();
  const auto prepared = device_->Prepare(**exe, launch);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  n = 1000;  // It has its own.
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE((*prepared)->SetBuffer(1, *b, 64).ok());
  ASSERT_TRUE((*prepared)->SetVariable(0, 2).ok());
  ASSERT_TRUE((*prepared)->Start().ok());
  ASSERT_TRUE(device_->Wait().ok());
  const std::vector<int32_t> content = Content(*b);
  EXPECT_EQ(content.front(), 6);
  EXPECT_EQ(content[16], 13);
  EXPECT_EQ(content.back(), 7);
  EXPECT_EQ((*prepared)->SetBuffer(1, *b, 32).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*prepared)->SetBuffer(1, *b, 128).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*prepared)->SetVariable(0, 1001).code(), absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<absl::Duration> took = (*prepared)->Run();
  ASSERT_TRUE(took.ok()) << took.status();
  EXPECT_GT(*took, absl::ZeroDuration());
  EXPECT_EQ(Content(*b)[16], 20);
  launch.repeats = 2;
  EXPECT_EQ(device_->Prepare(**exe, launch).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, WindowsShareMemory) {
  const auto whole = Filled(1 << 20, 0);
  const auto window = device_->View(*whole, 4096, 1 << 21);
  ASSERT_TRUE(window.ok()) << window.status();
  const std::string ones(1 << 21, 1);
  ASSERT_TRUE((*window)->Write(0, std::as_bytes(std::span(ones))).ok());
  const std::vector<int32_t> content = Content(*whole);
  EXPECT_EQ(content[1023], 0);
  EXPECT_EQ(content[1024], 0x01010101);
  EXPECT_EQ(content[1024 + (1 << 19) - 1], 0x01010101);
  EXPECT_EQ(content[1024 + (1 << 19)], 0);
  EXPECT_EQ(device_->View(*whole, 4, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->View(*whole, 64, 1 << 22).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_P(DeviceConformance, AGroupSharesMemoryBetweenBarriers) {
  if (!gpu()) GTEST_SKIP() << "a CPU's kernel has no work-groups";
  constexpr int64_t kItems = 96, kGroups = 3;
  // Each group turns its stretch of the buffer around.
  ProgramBuilder p;
  const UOp a = p.Buffer(Scalar::kInt32, kItems * kGroups, true, false);
  const UOp b = p.Buffer(Scalar::kInt32, kItems * kGroups, false, true);
  const UOp shared = p.Shared(Scalar::kInt32, kItems);
  const UOp item = p.Special("l0", kItems);
  const UOp base = p.Alu(Op::kMul, p.Special("g1", kGroups), p.Int(kItems));
  p.Store(shared, item, p.Load(a, p.Alu(Op::kAdd, base, item)));
  p.Barrier();
  const UOp other = p.Alu(Op::kSub, p.Int(kItems - 1), item);
  p.Store(b, p.Alu(Op::kAdd, base, item), p.Load(shared, other));
  const KernelImage image = Generate(p.Finish());
  EXPECT_GE(image.shared_bytes, kItems * 4);
  auto exe = device_->Load(image);
  ASSERT_TRUE(exe.ok()) << exe.status();
  const auto in = Filled(kItems * kGroups, 0), out = Filled(kItems * kGroups, 0);
  std::vector<int32_t> values(kItems * kGroups);
  std::iota(values.begin(), values.end(), 0);
  const std::string bytes = Bytes(values);
  ASSERT_TRUE(in->Write(0, std::as_bytes(std::span(bytes))).ok());
  Buffer* const buffers[] = {in.get(), out.get()};
  Launch launch;
  launch.buffers = buffers;
  const auto time = device_->Run(**exe, launch);
  ASSERT_TRUE(time.ok()) << time.status();
  for (int64_t i = 0; i < kGroups; ++i) {
    std::reverse(values.begin() + i * kItems, values.begin() + (i + 1) * kItems);
  }
  EXPECT_EQ(Content(*out), values);
}

TEST_P(DeviceConformance, FlushingKeepsContent) {
  const auto small = Filled(1000, 7);
  const auto large = Filled(4 << 20, 9);
  Buffer* const one[] = {small.get()};
  Buffer* const both[] = {small.get(), large.get()};
  EXPECT_TRUE(device_->FlushCache(one).ok());
  EXPECT_TRUE(device_->FlushCache(both).ok());
  EXPECT_EQ(Content(*small), std::vector<int32_t>(1000, 7));
  EXPECT_EQ(Content(*large), std::vector<int32_t>(4 << 20, 9));
}

std::vector<std::string> Devices() {
  std::vector<std::string> names = {"emu:sm_80", "emu:gfx1100"};
  for (const DriverState& driver : DriverStates()) {
    names.insert(names.end(), driver.devices.begin(), driver.devices.end());
    if (driver.devices.empty()) names.push_back(driver.name + ":0");
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, DeviceConformance, ::testing::ValuesIn(Devices()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return absl::StrReplaceAll(info.param, {{":", "_"}});
                         });

TEST(Registry, KnowsNoOtherDevice) {
  for (const char* name : {"", "cpu", "cpu:", "cpu:1", "cpu:-1", "tpu:0", "cpu:0:0"}) {
    EXPECT_EQ(OpenDevice(name).status().code(), absl::StatusCode::kNotFound) << name;
  }
}

}  // namespace
}  // namespace beamd
