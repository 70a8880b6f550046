#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/uop/buffer_use.h"
#include "engine/uop/evaluator.h"
#include "tests/conformance/bench.h"
#include "tests/conformance/check.h"
#include "tests/conformance/children.h"
#include "tests/testing/corpus.h"

namespace beamd::conformance {
namespace {

// Of the launches of a large kernel.
constexpr int64_t kGroups = 3;
// Elements that the evaluator looks at, a list of opts.
constexpr size_t kElements = 96;
constexpr unsigned kSecondsPerKernel = 300;
constexpr unsigned char kUntouched = 0xff;

// The heuristics' opts, and the tensor core alone.
std::vector<Kernel> Variants(const Kernel& kernel) {
  const Kernel chosen = HandCodedOptimizations(kernel);
  std::vector<Kernel> variants = {chosen};
  for (const Opt& opt : chosen.applied_opts()) {
    if (opt.op != OptOp::kTc) continue;
    Kernel alone = kernel;
    if (alone.ApplyAll({opt}).ok()) variants.push_back(std::move(alone));
  }
  return variants;
}

class HotKernel {
 public:
  static absl::StatusOr<HotKernel> Create(UOp sink) {
    HotKernel made(sink);
    BEAMD_ASSIGN_OR_RETURN(made.uses_, BufferUses(sink, {}));
    for (const BufferUse& use : made.uses_) {
      std::string& bytes = made.initial_.emplace_back(
          testing::CorpusInput(static_cast<int64_t>(use.slot), use.elements, use.dtype.scalar));
      if (use.stored && !use.loaded) std::memset(bytes.data(), kUntouched, bytes.size());
    }
    return made;
  }

  // What is wrong with the elements that the image stores; empty if nothing is.
  absl::StatusOr<std::string> Wrong(Device& device, const KernelImage& image) const {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Buffer*> arguments;
    for (const KernelImage::Buffer& b : image.buffers) {
      const std::string& bytes = initial_[IndexOf(static_cast<uint64_t>(b.slot))];
      BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.Allocate(bytes.size()));
      BEAMD_RETURN_IF_ERROR(buffer->Write(0, std::as_bytes(std::span(bytes))));
      arguments.push_back(buffer.get());
      buffers.push_back(std::move(buffer));
    }
    BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device.Load(image));
    Launch launch;
    launch.buffers = arguments;
    launch.end = image.slices;
    BEAMD_RETURN_IF_ERROR(device.Run(*executable, launch).status());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const KernelImage::Buffer& b = image.buffers[i];
      if (!b.written) continue;
      BEAMD_ASSIGN_OR_RETURN(
          const std::string wrong,
          WrongIn(static_cast<uint64_t>(b.slot), static_cast<const char*>(buffers[i]->mapped())));
      if (!wrong.empty()) return wrong;
    }
    return std::string();
  }

 private:
  explicit HotKernel(UOp sink) : sink_(sink) {}

  size_t IndexOf(uint64_t slot) const {
    size_t i = 0;
    while (uses_[i].slot != slot) ++i;
    return i;
  }

  absl::StatusOr<std::string> WrongIn(uint64_t slot, const char* got) const {
    const size_t i = IndexOf(slot);
    const Scalar scalar = uses_[i].dtype.scalar;
    const size_t bytes = SizeBytes(scalar);
    std::vector<int64_t> stored;
    for (int64_t e = 0; e < uses_[i].elements; ++e) {
      const size_t at = static_cast<size_t>(e) * bytes;
      if (std::memcmp(got + at, initial_[i].data() + at, bytes) != 0) stored.push_back(e);
    }
    if (stored.empty()) return std::string("nothing is stored");
    std::mt19937_64 random(slot);
    std::vector<int64_t> elements;
    for (size_t k = 0; k < std::min(kElements, stored.size()); ++k) {
      elements.push_back(stored[random() % stored.size()]);
    }
    EvalInputs inputs;
    for (size_t b = 0; b < uses_.size(); ++b) {
      inputs.buffers[uses_[b].slot] = {initial_[b].data(), uses_[b].elements,
                                       uses_[b].dtype.scalar};
    }
    BEAMD_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(sink_, inputs));
    BEAMD_ASSIGN_OR_RETURN(const std::vector<EvalValue> want, evaluator.Evaluate(slot, elements));
    size_t undecided = 0;
    for (size_t k = 0; k < elements.size(); ++k) {
      switch (CompareElement(got + static_cast<size_t>(elements[k]) * bytes, want[k])) {
        case Comparison::kDifferent:
          return absl::StrCat("slot ", slot, " element ", elements[k], " should be ", want[k].real);
        case Comparison::kUndecided:
          ++undecided;
          break;
        case Comparison::kEqual:
          break;
      }
    }
    if (undecided == elements.size()) return std::string("no element can be decided");
    return std::string();
  }

  const UOp sink_;
  std::vector<BufferUse> uses_;
  std::vector<std::string> initial_;
};

absl::StatusOr<std::string> Difference(const std::string& id, const CheckInput& input,
                                       const Bench& bench) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp sink, input.recorded->Graph(id, graph));
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(sink, bench.caps()));
  BEAMD_ASSIGN_OR_RETURN(const HotKernel hot, HotKernel::Create(sink));
  size_t number = 0;
  for (const Kernel& variant : Variants(kernel)) {
    const std::string opts = ToString(variant.applied_opts());
    const absl::StatusOr<CompileResult> compiled = bench.compiler->Compile(variant, {});
    if (!compiled.ok()) return absl::StrCat(opts, ": ", compiled.status().message());
    // Shuffled on the last, so that the groups aren't neighbours.
    Device& device = *bench.devices[bench.devices.size() - 1 - number++ % bench.devices.size()];
    const absl::StatusOr<std::string> wrong = hot.Wrong(device, compiled->image);
    if (!wrong.ok()) return absl::StrCat(opts, ": ", wrong.status().message());
    if (!wrong->empty()) return absl::StrCat(opts, ": ", *wrong);
  }
  return std::string();
}

}  // namespace

absl::StatusOr<Tally> CheckTensorCores(const CheckInput& input) {
  if (input.target == TargetKind::kCpu) return absl::NotFoundError("a CPU has no tensor cores");
  BEAMD_ASSIGN_OR_RETURN(std::vector<testing::CorpusKernel> hot,
                         testing::ReadCorpusKernels(input.recorded->directory(), {"hot.jsonl.gz"}));
  std::vector<std::string> ids;
  for (const testing::CorpusKernel& k : hot) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(k.id, input, graph);
    if (kernel.ok() && HandCodedOptimizations(*kernel).tensor_core() != nullptr) {
      ids.push_back(k.id);
    }
  }
  ids = Sampled(std::move(ids), input);
  Tally tally;
  BEAMD_RETURN_IF_ERROR(InChildren(
      ids.size(), kSecondsPerKernel,
      [&]() -> std::function<std::string(size_t)> {
        auto bench = std::make_shared<absl::StatusOr<Bench>>(MakeBench(input, kGroups));
        return [&, bench](size_t i) {
          if (!bench->ok()) return std::string(bench->status().message());
          const absl::StatusOr<std::string> why = Difference(ids[i], input, **bench);
          return why.ok() ? *why : std::string(why.status().message());
        };
      },
      [&](size_t i, const std::string& why) { Count(ids[i], why, input, tally); }));
  return tally;
}

}  // namespace beamd::conformance
