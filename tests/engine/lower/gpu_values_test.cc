// Lowering for GPUs keeps what a kernel computes: interpreted under random legal opts, with all
// work-items of a group in step, every element of every output is what the evaluator says, and no
// two work-items race.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/kernel/tensor_core.h"
#include "engine/lower/pipeline.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/output_check.h"
#include "engine/uop/text.h"
#include "engine/uop/verify.h"
#include "tests/engine/lower/kernels.h"
#include "tests/testing/interpreter.h"
#include "tests/testing/walk.h"

namespace beamd {
namespace {

using ::beamd::testing::Interpret;
using ::beamd::testing::kSmallKernels;
using ::beamd::testing::RandomWalk;
using ::beamd::testing::SmallKernel;

constexpr int kWalks = 24;
// What an interpreted launch may compute.
constexpr double kMostOps = 1e6;
constexpr int kMostSteps = 5;
constexpr uint64_t kSeed = 11;

struct Target {
  const char* name;
  TargetCaps caps;
};

// The corpus's two, and one so small that axes share dimensions and are spread over several.
std::vector<Target> Targets() {
  std::vector<Target> targets = {{"cuda", CorpusTarget(TargetKind::kCuda)},
                                 {"hip", CorpusTarget(TargetKind::kHip)},
                                 {"small", CorpusTarget(TargetKind::kCuda)}};
  targets[2].caps.global_max = {{7, 5, 40}};
  targets[2].caps.local_max = {{64, 4, 2}};
  return targets;
}

// Seeded content: numbers that neither overflow nor vanish, and the odd floats if the kernel wants
// them.
std::string Content(const KernelImage::Buffer& b, bool odd_floats, std::mt19937& random) {
  std::string bytes(b.size_elements * SizeBytes(b.scalar), '\0');
  const double odd[] = {std::numeric_limits<double>::quiet_NaN(), -0.0, 0.0,
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity()};
  for (int64_t i = 0; i < b.size_elements; ++i) {
    char* at = &bytes[i * SizeBytes(b.scalar)];
    if (!IsFloat(b.scalar)) {
      StoreInt(WrapInt(static_cast<int32_t>(random()), b.scalar), b.scalar, at);
    } else if (odd_floats && b.read && random() % 7 == 0) {
      StoreFloat(odd[random() % std::size(odd)], b.scalar, at);
    } else {
      StoreFloat(static_cast<double>(random() % 4001) / 1000 - 2, b.scalar, at);
    }
  }
  return bytes;
}

absl::Status Check(UOp sink, const LinearProgram& program, const TargetCaps& caps, bool odd_floats,
                   const std::vector<int64_t>& variables) {
  std::mt19937 random(kSeed);
  std::vector<std::string> initial, got;
  EvalInputs inputs;
  const std::vector<KernelImage::Buffer>& buffers = program.image.buffers;
  for (const KernelImage::Buffer& b : buffers) {
    initial.push_back(Content(b, odd_floats, random));
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    inputs.buffers[static_cast<uint64_t>(buffers[i].slot)] = {
        initial[i].data(), buffers[i].size_elements, buffers[i].scalar};
  }
  for (size_t v = 0; v < variables.size(); ++v) {
    inputs.variables[program.image.variables[v].name] = variables[v];
  }
  got = initial;
  BEAMD_RETURN_IF_ERROR(Interpret(program, caps, got, variables));
  std::vector<OutputResult> outputs;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const KernelImage::Buffer& b = buffers[i];
    if (b.written) {
      outputs.push_back(
          {static_cast<uint64_t>(b.slot), b.scalar, b.size_elements, got[i].data(), nullptr});
    }
  }
  OutputCheckOptions options;
  options.work = 1e9;
  BEAMD_ASSIGN_OR_RETURN(const OutputCheck check, CheckOutputs(sink, inputs, outputs, options));
  if (!check.equal) return absl::DataLossError(check.detail);
  if (!check.complete || check.undecided * 2 > check.checked) {
    return absl::InternalError(absl::StrCat("only ", check.checked - check.undecided, " of ",
                                            check.checked, " elements were judged"));
  }
  return absl::OkStatus();
}

class SmallKernels : public ::testing::TestWithParam<SmallKernel> {};

TEST_P(SmallKernels, AreTheEvaluatorsWhateverTheOpts) {
  UOpGraph graph;
  const absl::StatusOr<UOp> sink = ParseText(GetParam().text, graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  ASSERT_TRUE(VerifyKernel(*sink).ok()) << VerifyKernel(*sink);
  for (const Target& target : Targets()) {
    const Kernel plain = Kernel::Create(*sink, target.caps).value();
    std::mt19937_64 random(kSeed);
    std::set<std::string> tried;
    for (int walk = 0; walk < kWalks; ++walk) {
      Kernel kernel = walk == 0   ? plain
                      : walk == 1 ? HandCodedOptimizations(plain)
                                  : RandomWalk(plain, random() % (kMostSteps + 1), random);
      // Groups without local axes, of a size of ours or of one that is named.
      if (walk % 4 == 3) {
        kernel.Apply({OptOp::kNoLocals, 0, static_cast<int32_t>(1 + random() % 64)}).IgnoreError();
      }
      if (!tried.insert(ToString(kernel.applied_opts())).second) continue;
      const std::string what =
          absl::StrCat(target.name, " ", ToString(kernel.applied_opts()), " ", kernel.name());
      UOpGraph lowered_graph;
      const absl::StatusOr<LinearProgram> program = Lower(kernel, lowered_graph, {});
      // More than the small target can launch at once.
      if (absl::IsResourceExhausted(program.status())) continue;
      ASSERT_TRUE(program.ok()) << what << ": " << program.status();
      if (program->image.compute_ops > kMostOps) continue;
      const std::vector<KernelImage::Variable>& variables = program->image.variables;
      std::vector<std::vector<int64_t>> all_values = {{}};
      if (!variables.empty()) {
        const KernelImage::Variable& v = variables[0];
        all_values = {{v.min}, {(v.min + v.max) / 2}, {v.max}};
      }
      for (const std::vector<int64_t>& values : all_values) {
        const absl::Status status =
            Check(*sink, *program, target.caps, GetParam().odd_floats, values);
        ASSERT_TRUE(status.ok()) << what << ": " << status << "\n" << ToText(*program);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GpuValues, SmallKernels, ::testing::ValuesIn(kSmallKernels),
                         [](const auto& info) { return std::string(info.param.name); });

// No kernel of the above gets to UPCASTMID by an action.
TEST(GpuValues, AnAxisBetweenThePartsOfAGroupedReductionIsOfItsGroup) {
  const TargetCaps caps = CorpusTarget(TargetKind::kHip);
  UOpGraph graph, lowered_graph;
  const UOp sink = ParseText(R"(
%0 = DEFINE_GLOBAL image(1,4,4) float32 slot 0
%1 = VIEW void view[shape (16,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (16,64) strides (64,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))",
                             graph)
                       .value();
  Kernel kernel = Kernel::Create(sink, caps).value();
  ASSERT_TRUE(kernel.ApplyAll({{OptOp::kGroupTop, 0, 8}, {OptOp::kUpcastMid, 0, 4}}).ok());
  ASSERT_EQ(kernel.UpcastInMidReduceAxes().size(), 1u);
  const LinearProgram program = Lower(kernel, lowered_graph, {}).value();
  EXPECT_EQ(program.image.shared_bytes, 8 * 4 * 4);
  const absl::Status status = Check(sink, program, caps, false, {});
  EXPECT_TRUE(status.ok()) << status << "\n" << ToText(program);
}

// ---- tensor cores ----

struct Machine {
  const char* name;
  TargetKind kind;
  const char* arch;
  int wave_size = 32;
  bool allow_tf32 = false;
};

class TensorCoreValues : public ::testing::TestWithParam<Machine> {};

// (m,n) = (m,k) times (k,n).
std::string Matmul(int m, int n, int k, const TensorCore& core) {
  const bool casts = core.in != core.out;
  return absl::StrReplaceAll(
      R"(
%0 = DEFINE_GLOBAL global $out* slot 0
%1 = VIEW void view[shape ($m,$n,1) strides ($n,1,0) offset 0]
%2 = DEFINE_GLOBAL global $in* slot 1
%3 = VIEW void view[shape ($m,$n,$k) strides ($k,0,1) offset 0]
%4 = LOAD $in (%2, %3)
%5 = DEFINE_GLOBAL global $in* slot 2
%6 = VIEW void view[shape ($m,$n,$k) strides (0,1,$n) offset 0]
%7 = LOAD $in (%5, %6)
%8 = MUL $in (%4, %7)
$cast%10 = REDUCE_AXIS $out ($summed) ADD axes (2)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))",
      {{"$m", absl::StrCat(m)},
       {"$n", absl::StrCat(n)},
       {"$k", absl::StrCat(k)},
       {"$in", Name(core.in)},
       {"$out", Name(core.out)},
       {"$cast", casts ? absl::StrCat("%9 = CAST ", Name(core.out), " (%8)\n") : ""},
       {"$summed", casts ? "%9" : "%8"}});
}

// What lanes hold of a tile is the table's; here every layout meets kernels whose tiles are split,
// unrolled and padded, and whose sums take a loop, several or none.
void CheckProducts(const TargetCaps& caps) {
  const std::span<const TensorCore> cores = TensorCoresOf(caps);
  ASSERT_FALSE(cores.empty());
  std::mt19937_64 random(kSeed);
  for (const TensorCore& core : cores) {
    for (const auto& [m, n, k, level] :
         {std::array{64, 32, 48, 0},
          {core.dims[kTileM], core.dims[kTileN], core.dims[kTileK], 0},
          {20, 25, 13, 2}}) {
      UOpGraph graph;
      const std::string text = Matmul(m, n, k, core);
      const UOp sink = ParseText(text, graph).value();
      const Kernel plain = Kernel::Create(sink, caps).value();
      Kernel tiled = plain;
      ASSERT_TRUE(tiled.Apply({OptOp::kTc, 0, level}).ok()) << text;
      for (int walk = 0; walk < 4; ++walk) {
        const Kernel kernel =
            walk == 0 ? tiled : RandomWalk(tiled, random() % (kMostSteps + 1), random);
        const std::string what = absl::StrCat(ToString(kernel.applied_opts()), " ", kernel.name());
        UOpGraph lowered_graph;
        const absl::StatusOr<LinearProgram> program = Lower(kernel, lowered_graph, {});
        ASSERT_TRUE(program.ok()) << what << ": " << program.status();
        EXPECT_EQ(std::ranges::any_of(
                      program->ops,
                      [&](UOp u) { return u.is(Op::kWmma) && &cores[u.arg().as_int()] == &core; }),
                  caps.tensor_cores == TensorCoreUse::kOn)
            << what << "\n"
            << ToText(*program);
        const absl::Status status = Check(sink, *program, caps, false, {});
        ASSERT_TRUE(status.ok()) << what << ": " << status << "\n" << ToText(*program);
      }
    }
  }
}

TEST_P(TensorCoreValues, AreTheEvaluatorsWhateverTheOpts) {
  TargetCaps caps = CorpusTarget(GetParam().kind);
  caps.arch = GetParam().arch;
  caps.wave_size = GetParam().wave_size;
  caps.allow_tf32 = GetParam().allow_tf32;
  CheckProducts(caps);
  // The same splits without the instruction.
  caps.tensor_cores = TensorCoreUse::kShapes;
  CheckProducts(caps);
}

INSTANTIATE_TEST_SUITE_P(Machines, TensorCoreValues,
                         ::testing::Values(Machine{"sm_75", TargetKind::kCuda, "sm_75"},
                                           Machine{"sm_80", TargetKind::kCuda, "sm_80"},
                                           Machine{"sm_90_tf32", TargetKind::kCuda, "sm_90", 32,
                                                   true},
                                           Machine{"gfx1100", TargetKind::kHip, "gfx1100"},
                                           Machine{"gfx1201", TargetKind::kHip, "gfx1201"},
                                           Machine{"gfx90a", TargetKind::kHip, "gfx90a", 64},
                                           Machine{"gfx942", TargetKind::kHip, "gfx942", 64}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace beamd
