// Code for GPUs: what it says of a kernel, and that LLVM has an instruction for all that a program
// may ask. What the code computes is the emulator's to show.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/tensor_core.h"
#include "engine/llvm/codegen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TargetCaps Gpu(const std::string& arch) {
  const bool cuda = absl::StartsWith(arch, "sm_");
  TargetCaps caps = CorpusTarget(cuda ? TargetKind::kCuda : TargetKind::kHip);
  caps.arch = arch;
  if (absl::StartsWith(arch, "gfx9")) caps.wave_size = 64;
  return caps;
}

constexpr const char* kArchs[] = {"sm_75",  "sm_80",  "sm_89",  "sm_90",   "sm_100",
                                  "sm_120", "gfx90a", "gfx942", "gfx1100", "gfx1201"};

// The text that `dump` names; fails the test where there is no code.
std::string Text(const TargetCaps& caps, const LinearProgram& program, const std::string& dump) {
  const auto generator = CodeGenerator::Create(caps);
  EXPECT_TRUE(generator.ok()) << generator.status();
  if (!generator.ok()) return "";
  std::string text;
  const auto image = (*generator)->Generate(program, dump, &text);
  EXPECT_TRUE(image.ok()) << caps.arch << ": " << image.status();
  return text;
}

std::string Assembly(const std::string& arch, const LinearProgram& program) {
  return Text(Gpu(arch), program, "asm");
}

// out[i] = a[i] + b[i], four at a time, 256 work-items a group.
LinearProgram AddVectors(ProgramBuilder& p, Scalar scalar, bool written_too = false) {
  const UOp out = p.Buffer(scalar, 1 << 20, false, true);
  const UOp a = p.Buffer(scalar, 1 << 20, true, written_too);
  const UOp b = p.Buffer(scalar, 1 << 20, true, false);
  const UOp group = p.Special("g0", 1024);
  const UOp item = p.Special("l0", 256);
  const UOp index =
      p.Alu(Op::kMul, p.Alu(Op::kAdd, p.Alu(Op::kMul, group, p.Int(256)), item), p.Int(4));
  const UOp x = p.Load(a, index, 4, nullptr, 4);
  const UOp y = p.Load(b, index, 4, nullptr, 4);
  p.Store(out, index, p.Alu(Op::kAdd, x, y), nullptr, 4);
  return p.Finish();
}

TEST(GpuCode, APtxKernelSaysItsLaunchAndReadsThroughTheReadOnlyCache) {
  ProgramBuilder p;
  const std::string text = Assembly("sm_80", AddVectors(p, Scalar::kFloat32));
  EXPECT_THAT(text, HasSubstr(".visible .entry kernel("));
  EXPECT_THAT(text, HasSubstr(".reqntid 256, 1, 1"));
  EXPECT_THAT(text, HasSubstr(".target sm_80"));
  EXPECT_THAT(text, HasSubstr("ld.global.nc.v4.b32"));
  EXPECT_THAT(text, HasSubstr("st.global.v4.b32"));
  EXPECT_THAT(text, Not(HasSubstr("cvta")));
  ProgramBuilder q;
  const std::string written = Assembly("sm_80", AddVectors(q, Scalar::kFloat32, true));
  EXPECT_THAT(written, ContainsRegex("ld\\.global\\.v4\\.b32"));
}

TEST(GpuCode, ThePtxVersionIsTheTargets) {
  TargetCaps caps = Gpu("sm_80");
  ProgramBuilder p;
  const LinearProgram program = AddVectors(p, Scalar::kFloat32);
  EXPECT_THAT(Text(caps, program, "asm"), HasSubstr(".version 7.0"));
  caps.features = "+ptx84";
  EXPECT_THAT(Text(caps, program, "asm"), HasSubstr(".version 8.4"));
}

TEST(GpuCode, AddressesTakeConstantsAndThirtyTwoBits) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 1 << 20, true, true);
  const UOp item = p.Special("l0", 256);
  const UOp next = p.Alu(Op::kAdd, p.Alu(Op::kMod, item, p.Int(100)), p.Int(12));
  p.Store(out, item, p.Load(out, next));
  const std::string text = Assembly("sm_90", p.Finish());
  EXPECT_THAT(text, HasSubstr("+48]"));
  EXPECT_THAT(text, Not(HasSubstr("mul.hi.u64")));
}

// Every work-item stores, all wait, each reads its neighbour's. A group of several waves: LLVM
// leaves out the barrier of one.
LinearProgram Exchange(ProgramBuilder& p) {
  const UOp out = p.Buffer(Scalar::kFloat32, 256, true, true);
  const UOp shared = p.Shared(Scalar::kFloat32, 256);
  const UOp item = p.Special("l0", 256);
  p.Store(shared, item, p.Load(out, item));
  p.Barrier();
  p.Store(out, item, p.Load(shared, p.Alu(Op::kXor, item, p.Int(1))));
  return p.Finish();
}

TEST(GpuCode, WorkItemsShareMemoryAndWait) {
  ProgramBuilder p;
  const LinearProgram program = Exchange(p);
  const std::string ptx = Assembly("sm_80", program);
  EXPECT_THAT(ptx, HasSubstr(".shared .align 16 .b8 shared0[1024]"));
  EXPECT_THAT(ptx, HasSubstr("bar.sync"));
  const std::string ir = Text(Gpu("sm_80"), program, "opt");
  EXPECT_THAT(ir, HasSubstr("addrspace(3) global [256 x float] poison, align 16"));
  // The barrier alone doesn't wait for LDS, and needn't empty a cache of global memory.
  for (const char* arch : {"gfx90a", "gfx1100"}) {
    const std::string text = Assembly(arch, program);
    EXPECT_THAT(text, ContainsRegex("s_waitcnt[^\n]*lgkmcnt\\(0\\)\n\ts_barrier")) << arch;
    EXPECT_THAT(text, Not(HasSubstr("buffer_gl0_inv"))) << arch;
  }
  const std::string gfx12 = Assembly("gfx1201", program);
  EXPECT_THAT(gfx12, ContainsRegex("s_wait_dscnt 0x0\n\ts_barrier_signal"));
  EXPECT_THAT(gfx12, Not(HasSubstr("global_inv")));
}

TEST(GpuCode, ACodeObjectSaysItsLaunch) {
  for (const int version : {4, 5}) {
    TargetCaps caps = Gpu("gfx1100");
    caps.code_object_version = version;
    ProgramBuilder p;
    const std::string text = Text(caps, AddVectors(p, Scalar::kFloat32), "asm");
    EXPECT_THAT(text, HasSubstr(absl::StrCat(".amdhsa_code_object_version ", version)));
    EXPECT_THAT(text, HasSubstr(".max_flat_workgroup_size: 256"));
    EXPECT_THAT(text, HasSubstr(".kernarg_segment_size: 24"));
    EXPECT_THAT(text, HasSubstr(".wavefront_size: 32"));
    EXPECT_THAT(text, ContainsRegex(".reqd_workgroup_size:\n *- *256\n *- *1\n *- *1"));
    EXPECT_THAT(text, HasSubstr("global_load_b128"));
    EXPECT_THAT(text, HasSubstr(".amdhsa_user_sgpr_dispatch_ptr 0"));
  }
  ProgramBuilder q;
  EXPECT_THAT(Assembly("gfx90a", AddVectors(q, Scalar::kFloat32)),
              HasSubstr(".wavefront_size: 64"));
}

TEST(GpuCode, GroupsPastAVariableExtentLeave) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 100, false, true);
  const UOp n = p.Variable("n", 1, 100);
  const UOp group = p.Special("g0", n);
  p.Store(out, group, n);
  const LinearProgram program = p.Finish();
  EXPECT_EQ(program.image.global_size[0], 100);
  EXPECT_THAT(Text(Gpu("sm_80"), program, "opt"), HasSubstr("icmp ult i32"));
  EXPECT_THAT(Assembly("sm_80", program), HasSubstr("setp."));
  EXPECT_THAT(Assembly("gfx1100", program), HasSubstr("s_cbranch"));
}

// A module that another program reads: bitcode, for the triple, with the launch's bounds.
TEST(GpuCode, BitcodeIsTheModule) {
  TargetCaps caps = Gpu("sm_80");
  caps.code_form = CodeForm::kBitcode;
  ProgramBuilder p;
  const auto generator = CodeGenerator::Create(caps);
  ASSERT_TRUE(generator.ok()) << generator.status();
  const auto image = (*generator)->Generate(AddVectors(p, Scalar::kFloat32));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->kind, TargetKind::kCuda);
  EXPECT_EQ(image->code.substr(0, 4), "BC\xC0\xDE");
}

// Reads past its bound are zero: of a block of zeroes in global memory.
LinearProgram Guarded(ProgramBuilder& p) {
  const UOp out = p.Buffer(Scalar::kFloat32, 256, false, true);
  const UOp in = p.Buffer(Scalar::kFloat32, 100, true, false);
  const UOp item = p.Special("l0", 256);
  p.Store(out, item, p.Load(in, item, 1, p.Alu(Op::kCmpLt, item, p.Int(100))));
  return p.Finish();
}

TEST(GpuCode, CodeDoesntDependOnWhatWasCompiledBefore) {
  for (const char* arch : {"sm_80", "gfx1100"}) {
    const auto used = CodeGenerator::Create(Gpu(arch));
    ASSERT_TRUE(used.ok());
    for (int i = 0; i < 10; ++i) {
      ProgramBuilder p, q, r;
      const auto fresh = CodeGenerator::Create(Gpu(arch));
      ASSERT_TRUE(fresh.ok());
      ASSERT_TRUE((*used)->Generate(Exchange(p)).ok());
      const auto first = (*used)->Generate(Guarded(q));
      const auto again = (*fresh)->Generate(Guarded(r));
      ASSERT_TRUE(first.ok()) << first.status();
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(first->code, again->code);
    }
  }
}

TEST(GpuCode, ShortFloatsAreTheTargetsOwnWhereTheyRoundOnce) {
  ProgramBuilder p, q;
  const LinearProgram halves = AddVectors(p, Scalar::kFloat16);
  EXPECT_THAT(Assembly("sm_75", halves), HasSubstr("add.rn.f16x2"));
  EXPECT_THAT(Assembly("gfx1100", halves), HasSubstr("v_pk_add_f16"));
  const LinearProgram brains = AddVectors(q, Scalar::kBFloat16);
  EXPECT_THAT(Assembly("sm_90", brains), HasSubstr("add.rn.bf16x2"));
  EXPECT_THAT(Assembly("sm_80", brains), HasSubstr("fma.rn.bf16x2"));
  EXPECT_THAT(Assembly("sm_75", brains), HasSubstr("add.rn.f32"));
}

// A kernel an op and type, scalar and in vectors: everything selects, for every GPU.
TEST(GpuCode, EveryOperationSelects) {
  constexpr Scalar kScalars[] = {
      Scalar::kBool,     Scalar::kInt8,    Scalar::kUint8,  Scalar::kInt16,  Scalar::kUint16,
      Scalar::kInt32,    Scalar::kUint32,  Scalar::kInt64,  Scalar::kUint64, Scalar::kFloat16,
      Scalar::kBFloat16, Scalar::kFloat32, Scalar::kFloat64};
  constexpr Op kOps[] = {Op::kNeg, Op::kRecip, Op::kSqrt,     Op::kExp2,   Op::kLog2, Op::kSin,
                         Op::kAdd, Op::kSub,   Op::kMul,      Op::kFdiv,   Op::kIdiv, Op::kMod,
                         Op::kMax, Op::kCmpLt, Op::kCmpNe,    Op::kXor,    Op::kOr,   Op::kAnd,
                         Op::kShl, Op::kShr,   Op::kThreefry, Op::kMulAcc, Op::kWhere};
  for (const char* arch : kArchs) {
    const auto generator = CodeGenerator::Create(Gpu(arch));
    ASSERT_TRUE(generator.ok()) << generator.status();
    for (const Scalar s : kScalars) {
      // All ops that the type has, and casts to every other, in one kernel.
      const bool first = arch == absl::string_view("sm_80") || arch == absl::string_view("gfx1100");
      for (const int lanes : first ? std::vector<int>{1, 4} : std::vector<int>{2}) {
        ProgramBuilder p;
        const UOp in = p.Buffer(s, 1024, true, false);
        const UOp item = p.Special("l0", 32);
        const UOp at = p.Alu(Op::kMul, item, p.Int(lanes));
        std::vector<UOp> x;
        for (int i = 0; i < 3; ++i) {
          x.push_back(p.Load(in, p.Alu(Op::kAdd, at, p.Int(128 * i)), lanes, nullptr, lanes));
        }
        const UOp less = p.Alu(Op::kCmpLt, x[0], x[1]);
        for (const Op op : kOps) {
          const bool real = IsFloat(s), boolean = s == Scalar::kBool;
          if ((OpSet(Op::kRecip) | Op::kSqrt | Op::kExp2 | Op::kLog2 | Op::kSin | Op::kFdiv)
                  .Has(op) &&
              !real)
            continue;
          if ((OpSet(Op::kXor) | Op::kOr | Op::kAnd | Op::kShl | Op::kShr | Op::kIdiv | Op::kMod)
                  .Has(op) &&
              real)
            continue;
          if (op == Op::kThreefry && s != Scalar::kUint64) continue;
          if (boolean && op == Op::kNeg) continue;
          std::vector<UOp> src(x.begin(), x.begin() + 1);
          if (op == Op::kWhere) src = {less, x[0], x[1]};
          if (op == Op::kMulAcc) src = x;
          if (kBinary.Has(op)) src = {x[0], x[1]};
          const Scalar result = kComparison.Has(op) ? Scalar::kBool : s;
          const UOp out = p.Buffer(result, 1024, false, true);
          p.Store(out, at, p.Append(p.graph().Make(op, DType(result, lanes), src)), nullptr, lanes);
        }
        for (const Scalar to : kScalars) {
          const UOp out = p.Buffer(to, 1024, false, true);
          p.Store(out, at, p.Add(Op::kCast, DType(to, lanes), {x[0]}), nullptr, lanes);
        }
        const auto image = (*generator)->Generate(p.Finish());
        EXPECT_TRUE(image.ok()) << arch << " " << Name(s) << " x" << lanes << ": "
                                << image.status();
      }
    }
  }
}

TEST(GpuCode, MasksReachEveryKindOfMemory) {
  for (const char* arch : kArchs) {
    const auto generator = CodeGenerator::Create(Gpu(arch));
    ASSERT_TRUE(generator.ok()) << generator.status();
    ProgramBuilder p;
    const UOp out = p.Buffer(Scalar::kFloat16, 1024, true, true);
    const UOp shared = p.Shared(Scalar::kFloat16, 1024);
    const UOp item = p.Special("l0", 128);
    const UOp at = p.Alu(Op::kMul, item, p.Int(4));
    const UOp near = p.Alu(Op::kCmpLt, item, p.Int(100));
    const UOp lanes = p.Add(Op::kVectorize, DType(Scalar::kBool, 4),
                            {near, p.Alu(Op::kCmpLt, item, p.Int(99)), near, near});
    const UOp one = p.Load(out, at, 4, near, 4);
    const UOp each = p.Load(out, at, 4, lanes, 4);
    p.Store(shared, at, p.Alu(Op::kAdd, one, each), near, 4);
    p.Barrier();
    const UOp back = p.Load(shared, at, 4, near, 4);
    const UOp again = p.Load(shared, at, 4, lanes, 4);
    p.Store(out, at, p.Alu(Op::kAdd, back, again), lanes, 4);
    const auto image = (*generator)->Generate(p.Finish());
    EXPECT_TRUE(image.ok()) << arch << ": " << image.status();
  }
}

struct Product {
  const char* arch;
  int core;     // of TensorCoresOf
  int x, y, z;  // elements that a work-item holds
  const char* instruction;
};

TEST(GpuCode, TensorCoresAreInstructions) {
  constexpr Product kProducts[] = {
      {"sm_80", 0, 8, 4, 4, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
      {"sm_90", 1, 8, 4, 4, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
      {"gfx1100", 0, 16, 16, 8, "v_wmma_f32_16x16x16_f16"},
      {"gfx1100", 1, 16, 16, 8, "v_wmma_f16_16x16x16_f16"},
  };
  for (const Product& product : kProducts) {
    const TargetCaps caps = Gpu(product.arch);
    const TensorCore& core = TensorCoresOf(caps)[product.core];
    ProgramBuilder p;
    const UOp out = p.Buffer(core.out, 1024, true, true);
    const UOp a = p.Buffer(core.in, 1024, true, false);
    const UOp item = p.Special("l0", 32);
    const auto load = [&](UOp buffer, int lanes) {
      return p.Load(buffer, p.Alu(Op::kMul, item, p.Int(lanes)), lanes, nullptr, lanes);
    };
    const UOp z = load(out, product.z);
    const UOp sum = p.Add(Op::kWmma, z.dtype(), {load(a, product.x), load(a, product.y), z},
                          Arg::Int(product.core));
    p.Store(out, p.Alu(Op::kMul, item, p.Int(product.z)), sum, nullptr, product.z);
    EXPECT_THAT(Text(caps, p.Finish(), "asm"), HasSubstr(product.instruction));
  }
}

TEST(GpuCode, AnUnknownTensorCoreIsRefused) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 1024, true, true);
  const UOp x = p.Load(out, p.Int(0), 4, nullptr, 4);
  p.Store(out, p.Int(0), p.Add(Op::kWmma, x.dtype(), {x, x, x}, Arg::Int(50)), nullptr, 4);
  const auto generator = CodeGenerator::Create(Gpu("sm_80"));
  ASSERT_TRUE(generator.ok());
  EXPECT_EQ((*generator)->Generate(p.Finish()).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(GpuCode, RefusesBeforeLlvmSeesIt) {
  TargetCaps caps = Gpu("sm_40");
  EXPECT_EQ(CodeGenerator::Create(caps).status().code(), absl::StatusCode::kUnimplemented);
  caps = Gpu("sm_120");
  caps.features = "+ptx84";
  const absl::Status old = CodeGenerator::Create(caps).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(old.message(), HasSubstr("PTX 8.4 has no sm_120"));
  caps = Gpu("gfx90a");
  caps.wave_size = 32;
  EXPECT_EQ(CodeGenerator::Create(caps).status().code(), absl::StatusCode::kFailedPrecondition);

  const auto generator = CodeGenerator::Create(Gpu("sm_80"));
  ASSERT_TRUE(generator.ok());
  ProgramBuilder large;
  large.Special("l0", 512);
  large.Special("l1", 4);
  EXPECT_EQ((*generator)->Generate(large.Finish()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ProgramBuilder shared;
  shared.Shared(Scalar::kFloat64, 10'000);
  EXPECT_EQ((*generator)->Generate(shared.Finish()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace beamd
