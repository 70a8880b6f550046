// A crash inside LLVM costs one candidate. What it leaves behind is leaked, so leaks aren't looked
// for.
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

// 64-bit code for a CPU without 64-bit mode: LLVM aborts, at first and again, and the process
// lives.
TEST(CodeGenerator, SurvivesWhatLlvmCannotCompile) {
  TargetCaps crippled;
  crippled.arch = "x86-64";
  crippled.features = "-64bit-mode";
  const auto generator = CodeGenerator::Create(crippled);
  ASSERT_TRUE(generator.ok()) << generator.status();
  const auto good = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(good.ok()) << good.status();
  for (int i = 0; i < 3; ++i) {
    ProgramBuilder p;
    const UOp out = p.Buffer(Scalar::kFloat32, 8, true, true);
    const UOp x = p.Load(out, p.Int(0), 8);
    p.Store(out, p.Int(0), p.Alu(Op::kSqrt, x));
    const LinearProgram program = p.Finish();
    const absl::Status status = (*generator)->Generate(program).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("LLVM crashed"));
    EXPECT_TRUE((*good)->Generate(program).ok());
  }
}

}  // namespace
}  // namespace beamd
