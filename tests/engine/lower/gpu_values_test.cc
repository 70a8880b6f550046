// Lowering for GPUs keeps what a kernel computes: interpreted under random legal opts, with all
// work-items of a group in step, every element of every output is what the evaluator says, and no
// two work-items race.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/lower/pipeline.h"
#include "engine/search/actions.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/output_check.h"
#include "engine/uop/text.h"
#include "engine/uop/verify.h"
#include "tests/engine/lower/kernels.h"
#include "tests/testing/interpreter.h"

namespace beamd {
namespace {

using ::beamd::testing::Interpret;
using ::beamd::testing::kSmallKernels;
using ::beamd::testing::SmallKernel;

constexpr int kWalks = 24;
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

// Up to kMostSteps legal actions, an opt's kind drawn first so that the rare ones come up too.
Kernel Walked(Kernel kernel, std::mt19937_64& random) {
  const uint64_t steps = random() % (kMostSteps + 1);
  for (uint64_t step = 0; step < steps; ++step) {
    std::vector<std::pair<int, Kernel>> legal = LegalActions(kernel, {});
    if (legal.empty()) break;
    std::set<OptOp> kinds;
    for (const auto& [unused, next] : legal) kinds.insert(next.applied_opts().back().op);
    const OptOp kind = *std::next(kinds.begin(), static_cast<int64_t>(random() % kinds.size()));
    std::erase_if(legal, [&](const auto& l) { return l.second.applied_opts().back().op != kind; });
    kernel = std::move(legal[random() % legal.size()].second);
  }
  return kernel;
}

class GpuValues : public ::testing::TestWithParam<SmallKernel> {};

TEST_P(GpuValues, AreTheEvaluatorsWhateverTheOpts) {
  UOpGraph graph;
  const absl::StatusOr<UOp> sink = ParseText(GetParam().text, graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  ASSERT_TRUE(VerifyKernel(*sink).ok()) << VerifyKernel(*sink);
  for (const Target& target : Targets()) {
    const Kernel plain = Kernel::Create(*sink, target.caps).value();
    std::mt19937_64 random(kSeed);
    std::set<std::vector<Opt>> tried;
    for (int walk = 0; walk < kWalks; ++walk) {
      const Kernel kernel = walk == 0   ? plain
                            : walk == 1 ? HandCodedOptimizations(plain)
                                        : Walked(plain, random);
      if (!tried.insert(kernel.applied_opts()).second) continue;
      const std::string what =
          absl::StrCat(target.name, " ", ToString(kernel.applied_opts()), " ", kernel.name());
      UOpGraph lowered_graph;
      const absl::StatusOr<LinearProgram> program = Lower(kernel, lowered_graph, {});
      // More than the small target can launch at once.
      if (absl::IsResourceExhausted(program.status())) continue;
      ASSERT_TRUE(program.ok()) << what << ": " << program.status();
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

INSTANTIATE_TEST_SUITE_P(Kernels, GpuValues, ::testing::ValuesIn(kSmallKernels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace beamd
