// Lowering keeps what a kernel computes: compiled under random opts and run, every element of every
// output is what the evaluator says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/registry.h"
#include "devices/scratch.h"
#include "engine/base/status.h"
#include "engine/llvm/compiler.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/output_check.h"
#include "engine/uop/text.h"
#include "engine/uop/verify.h"
#include "tests/engine/lower/kernels.h"
#include "tests/testing/walk.h"

namespace beamd {
namespace {

using ::beamd::testing::kSmallKernels;
using ::beamd::testing::RandomWalk;
using ::beamd::testing::SmallKernel;

constexpr int kWalks = 20;
constexpr int kMostSteps = 5;
constexpr uint64_t kSeed = 7;

class Values : public ::testing::TestWithParam<SmallKernel> {
 protected:
  static void SetUpTestSuite() {
    caps_ = new TargetCaps(HostCaps());
    compiler_ = KernelCompiler::Create(*caps_).value().release();
    device_ = OpenDevice("cpu:0").value().release();
  }
  static void TearDownTestSuite() {
    delete device_;
    delete compiler_;
    delete caps_;
  }

  // What a buffer holds before every run: seeded, and the floats that are unlike others if the
  // kernel wants them.
  static std::string Initial(const ScratchBuffers& scratch, const KernelImage::Buffer& buffer,
                             size_t i) {
    std::string bytes = scratch.Initial(i);
    if (!GetParam().odd_floats || !buffer.read || buffer.scalar != Scalar::kFloat32) return bytes;
    const float odd[] = {std::numeric_limits<float>::quiet_NaN(), -0.0F, 0.0F,
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()};
    std::mt19937 random(static_cast<uint32_t>(buffer.slot));
    for (size_t at = random() % 5; at < bytes.size() / 4; at += 3 + random() % 9) {
      std::memcpy(&bytes[4 * at], &odd[random() % std::size(odd)], 4);
    }
    return bytes;
  }

  // Runs the image with the variables' values and judges the outputs.
  static absl::Status Check(UOp sink, const KernelImage& image,
                            const std::vector<int64_t>& variables) {
    BEAMD_ASSIGN_OR_RETURN(ScratchBuffers scratch,
                           ScratchBuffers::Create(*device_, image.buffers, kSeed));
    std::vector<std::string> initial;
    EvalInputs inputs;
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      initial.push_back(Initial(scratch, image.buffers[i], i));
      BEAMD_RETURN_IF_ERROR(
          scratch.pointers()[i]->Write(0, std::as_bytes(std::span(initial.back()))));
    }
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      const KernelImage::Buffer& b = image.buffers[i];
      inputs.buffers[static_cast<uint64_t>(b.slot)] = {initial[i].data(), b.size_elements,
                                                       b.scalar};
    }
    for (size_t v = 0; v < variables.size(); ++v) {
      inputs.variables[image.variables[v].name] = variables[v];
    }
    BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device_->Load(image));
    Launch launch;
    launch.buffers = scratch.pointers();
    launch.variables = variables;
    launch.end = image.slices;
    BEAMD_RETURN_IF_ERROR(device_->Run(*executable, launch).status());
    BEAMD_RETURN_IF_ERROR(scratch.CheckGuards());

    std::vector<std::string> got;
    std::vector<OutputResult> outputs;
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      BEAMD_ASSIGN_OR_RETURN(std::string content, scratch.Content(i));
      got.push_back(std::move(content));
    }
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      const KernelImage::Buffer& b = image.buffers[i];
      if (b.written) {
        outputs.push_back(
            {static_cast<uint64_t>(b.slot), b.scalar, b.size_elements, got[i].data(), nullptr});
      } else if (got[i] != initial[i]) {
        return absl::DataLossError(absl::StrCat("wrote to slot ", b.slot));
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

  static TargetCaps* caps_;
  static KernelCompiler* compiler_;
  static Device* device_;
};
TargetCaps* Values::caps_ = nullptr;
KernelCompiler* Values::compiler_ = nullptr;
Device* Values::device_ = nullptr;

TEST_P(Values, AreTheEvaluatorsWhateverTheOpts) {
  UOpGraph graph;
  const absl::StatusOr<UOp> sink = ParseText(GetParam().text, graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  ASSERT_TRUE(VerifyKernel(*sink).ok()) << VerifyKernel(*sink);
  const Kernel plain = Kernel::Create(*sink, *caps_).value();
  std::mt19937_64 random(kSeed);
  std::set<std::string> tried;
  for (int walk = 0; walk < kWalks; ++walk) {
    const Kernel kernel = walk == 0   ? plain
                          : walk == 1 ? HandCodedOptimizations(plain)
                                      : RandomWalk(plain, random() % (kMostSteps + 1), random);
    if (!tried.insert(ToString(kernel.applied_opts())).second) continue;
    const std::string opts = ToString(kernel.applied_opts());
    const absl::StatusOr<CompileResult> compiled = compiler_->Compile(kernel, {});
    ASSERT_TRUE(compiled.ok()) << opts << ": " << compiled.status();
    const std::vector<KernelImage::Variable>& variables = compiled->image.variables;
    if (variables.empty()) {
      const absl::Status status = Check(*sink, compiled->image, {});
      EXPECT_TRUE(status.ok()) << opts << ": " << status;
      continue;
    }
    ASSERT_EQ(variables.size(), 1u);
    for (const int64_t value :
         {variables[0].min, (variables[0].min + variables[0].max) / 2, variables[0].max}) {
      const absl::Status status = Check(*sink, compiled->image, {value});
      EXPECT_TRUE(status.ok()) << opts << " with " << value << ": " << status;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Values, ::testing::ValuesIn(kSmallKernels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace beamd
