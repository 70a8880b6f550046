// Memory as the system counts it, which says nothing where freed memory is kept aside.
#include <fstream>

#include "devices/cpu/device.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

int64_t ResidentPages() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

TEST(CpuDevice, LoadingAndUnloadingLeaksNothing) {
  const auto device = OpenCpuDevice();
  ASSERT_TRUE(device.ok()) << device.status();
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 8, true, true);
  const UOp x = p.Load(out, p.Int(0), 8);
  p.Store(out, p.Int(0), p.Alu(Op::kExp2, x));
  const auto generator = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(generator.ok()) << generator.status();
  const auto image = (*generator)->Generate(p.Finish());
  ASSERT_TRUE(image.ok()) << image.status();
  const auto load = [&](int times) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE((*device)->Load(*image).ok());
  };
  load(2000);
  const int64_t before = ResidentPages();
  load(20000);
  // 512 pages are 2 MiB: a hundred bytes a load.
  EXPECT_LT(ResidentPages() - before, 512);
}

}  // namespace
}  // namespace beamd
