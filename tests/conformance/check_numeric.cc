#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/llvm/compiler.h"
#include "engine/uop/buffer_use.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/output_check.h"
#include "tests/conformance/bench.h"
#include "tests/conformance/check.h"
#include "tests/conformance/children.h"
#include "tests/conformance/variants.h"
#include "tests/testing/corpus.h"

namespace beamd::conformance {
namespace {

using testing::CorpusNumeric;

// A kernel's five variants, the evaluator included.
constexpr unsigned kSecondsPerKernel = 180;
// What the evaluator may spend a variant: nodes times points.
constexpr double kWork = 1e6;

// One kernel's buffers, as the corpus fills them.
class Case {
 public:
  Case(UOp sink, const CorpusNumeric& recorded) : sink_(sink), recorded_(recorded) {
    for (const CorpusNumeric::Buffer& b : recorded.buffers) {
      initial_.push_back(testing::CorpusInput(static_cast<int64_t>(b.slot), b.elements, b.scalar));
    }
  }

  // Runs the image on fresh buffers; the content of each afterwards.
  absl::StatusOr<std::vector<std::string>> Run(Device& device, const KernelImage& image) const {
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (size_t i = 0; i < initial_.size(); ++i) {
      BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                             device.Allocate(BytesFor(i, image) + 64));
      BEAMD_RETURN_IF_ERROR(buffer->Write(0, std::as_bytes(std::span(initial_[i]))));
      buffers.push_back(std::move(buffer));
    }
    std::vector<Buffer*> arguments;
    for (const KernelImage::Buffer& b : image.buffers) {
      const size_t i = IndexOf(static_cast<uint64_t>(b.slot));
      if (i == buffers.size())
        return absl::InternalError(absl::StrCat("no buffer for slot ", b.slot));
      arguments.push_back(buffers[i].get());
    }
    BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device.Load(image));
    Launch launch;
    launch.buffers = arguments;
    launch.end = image.slices;
    std::vector<int64_t> variables;
    for (const KernelImage::Variable& v : image.variables) {
      const auto value =
          std::ranges::find(recorded_.variables, v.name, &std::pair<std::string, int64_t>::first);
      if (value == recorded_.variables.end()) {
        return absl::InternalError(absl::StrCat("no value for ", v.name));
      }
      variables.push_back(value->second);
    }
    launch.variables = variables;
    BEAMD_RETURN_IF_ERROR(device.Run(*executable, launch).status());
    std::vector<std::string> content;
    for (size_t i = 0; i < buffers.size(); ++i) {
      std::string& bytes = content.emplace_back(initial_[i].size(), '\0');
      BEAMD_RETURN_IF_ERROR(buffers[i]->Read(0, std::as_writable_bytes(std::span(bytes))));
    }
    return content;
  }

  // What is wrong with `got`; `reference`: the unoptimised kernel's, if there is one yet.
  absl::StatusOr<std::string> Wrong(const std::vector<std::string>& got,
                                    const std::vector<std::string>* reference) const {
    EvalInputs inputs;
    for (size_t i = 0; i < initial_.size(); ++i) {
      const CorpusNumeric::Buffer& b = recorded_.buffers[i];
      inputs.buffers[b.slot] = {initial_[i].data(), b.elements, b.scalar};
    }
    inputs.variables.insert(recorded_.variables.begin(), recorded_.variables.end());
    std::vector<OutputResult> outputs;
    for (const CorpusNumeric::Output& o : recorded_.outputs) {
      const size_t i = IndexOf(o.slot);
      outputs.push_back({o.slot, recorded_.buffers[i].scalar, recorded_.buffers[i].elements,
                         got[i].data(), reference != nullptr ? (*reference)[i].data() : nullptr});
    }
    OutputCheckOptions options;
    options.work = kWork;
    BEAMD_ASSIGN_OR_RETURN(const OutputCheck check, CheckOutputs(sink_, inputs, outputs, options));
    if (!check.equal) return check.detail;
    if (reference != nullptr) return std::string();
    return DiffersFromRecorded(got, inputs);
  }

 private:
  size_t IndexOf(uint64_t slot) const {
    size_t i = 0;
    while (i < recorded_.buffers.size() && recorded_.buffers[i].slot != slot) ++i;
    return i;
  }

  // What the image wants of a buffer: with variables, what their greatest values reach.
  size_t BytesFor(size_t i, const KernelImage& image) const {
    size_t bytes = initial_[i].size();
    for (const KernelImage::Buffer& b : image.buffers) {
      if (static_cast<uint64_t>(b.slot) != recorded_.buffers[i].slot) continue;
      bytes = std::max(bytes, static_cast<size_t>(b.size_elements) * SizeBytes(b.scalar));
    }
    return bytes;
  }

  // The recorded values with the evaluator's errors.
  absl::StatusOr<std::string> DiffersFromRecorded(const std::vector<std::string>& got,
                                                  const EvalInputs& inputs) const {
    BEAMD_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(sink_, inputs));
    for (const CorpusNumeric::Output& o : recorded_.outputs) {
      const size_t i = IndexOf(o.slot);
      const Scalar scalar = recorded_.buffers[i].scalar;
      std::vector<int64_t> elements;
      for (const CorpusNumeric::Sample& s : o.samples) elements.push_back(s.element);
      BEAMD_ASSIGN_OR_RETURN(std::vector<EvalValue> want, evaluator.Evaluate(o.slot, elements));
      for (size_t k = 0; k < elements.size(); ++k) {
        want[k].real = o.samples[k].real;
        want[k].integer = WrapInt(o.samples[k].integer, scalar);
        if (CompareElement(got[i].data() + elements[k] * SizeBytes(scalar), want[k]) ==
            Comparison::kDifferent) {
          return absl::StrCat("slot ", o.slot, " element ", elements[k], " is not the recorded ",
                              o.samples[k].real);
        }
      }
    }
    return std::string();
  }

  const UOp sink_;
  const CorpusNumeric& recorded_;
  std::vector<std::string> initial_;
};

using Variables = std::vector<std::pair<std::string, int64_t>>;

std::string Describe(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) absl::StrAppend(&text, " ", name, "=", value);
  return text;
}

// What is run of a kernel of which nothing is recorded, or not for these values of its variables:
// the evaluator alone judges.
absl::StatusOr<CorpusNumeric> Unrecorded(const std::string& id, UOp sink, Variables variables) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<BufferUse> uses,
                         BufferUses(sink, {variables.begin(), variables.end()}));
  CorpusNumeric c;
  c.id = id;
  for (const BufferUse& use : uses) {
    c.buffers.push_back({use.slot, std::max(use.elements, int64_t{1}), use.dtype.scalar});
    if (use.stored) c.outputs.push_back({.slot = use.slot});
  }
  c.variables = std::move(variables);
  return c;
}

// With the values of variables that are recorded, and with all of them at their least, in the
// middle and at their greatest.
absl::StatusOr<std::vector<CorpusNumeric>> Settings(const CorpusNumeric& recorded, UOp sink) {
  std::vector<CorpusNumeric> settings = {recorded};
  if (recorded.variables.empty()) return settings;
  for (const int64_t quarters : {0, 2, 4}) {
    Variables variables;
    for (const UOp u : Toposort(sink)) {
      if (!u.is(Op::kDefineVar)) continue;
      const VariableArg& v = u.data<VariableArg>();
      variables.emplace_back(v.name, v.min + (v.max - v.min) * quarters / 4);
    }
    BEAMD_ASSIGN_OR_RETURN(CorpusNumeric c, Unrecorded(recorded.id, sink, std::move(variables)));
    settings.push_back(std::move(c));
  }
  return settings;
}

// How the kernel's values differ, empty if they don't.
absl::StatusOr<std::string> Difference(const CorpusNumeric& recorded, const CheckInput& input,
                                       const Bench& bench) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp sink, input.recorded->Graph(recorded.id, graph));
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(sink, bench.caps()));
  BEAMD_ASSIGN_OR_RETURN(const std::vector<CorpusNumeric> settings, Settings(recorded, sink));
  std::vector<Case> cases;
  cases.reserve(settings.size());
  for (const CorpusNumeric& setting : settings) cases.emplace_back(sink, setting);
  // Of each case: what the first variant, the unoptimised kernel, left.
  std::vector<std::vector<std::string>> references(cases.size());
  size_t number = 0;
  for (const Kernel& variant : Variants(kernel, recorded.id)) {
    const std::string opts = ToString(variant.applied_opts());
    Device& device = *bench.devices[number++ % bench.devices.size()];
    absl::StatusOr<CompileResult> compiled = bench.compiler->Compile(variant, {});
    if (!compiled.ok()) return absl::StrCat(opts, ": ", compiled.status().message());
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto where = [&] { return absl::StrCat(opts, Describe(settings[i].variables), ": "); };
      std::vector<std::string>& reference = references[i];
      absl::StatusOr<std::vector<std::string>> got = cases[i].Run(device, compiled->image);
      if (!got.ok()) return absl::StrCat(where(), got.status().message());
      BEAMD_ASSIGN_OR_RETURN(const std::string wrong,
                             cases[i].Wrong(*got, reference.empty() ? nullptr : &reference));
      if (!wrong.empty()) return absl::StrCat(where(), wrong);
      if (reference.empty()) reference = *std::move(got);
    }
  }
  return std::string();
}

// An emulated GPU does some 10^8 points a second.
constexpr int64_t kMostPoints = 10'000'000;

// Points of the full shape, at most kMostPoints + 1.
int64_t PointsOf(const Kernel& kernel) {
  int64_t points = 1;
  for (const SInt& size : kernel.full_shape()) {
    points = size.max() == 0 ? 0 : std::min(points, kMostPoints / size.max() + 1) * size.max();
  }
  return std::min(points, kMostPoints + 1);
}

// Nothing is recorded of kernels with images.
absl::Status AddImageKernels(const Recorded& recorded, std::vector<CorpusNumeric>& cases) {
  std::set<std::string> known;
  for (const CorpusNumeric& c : cases) known.insert(c.id);
  for (const std::string& id : recorded.ImageKernels()) {
    if (known.contains(id)) continue;
    UOpGraph graph;
    BEAMD_ASSIGN_OR_RETURN(const UOp sink, recorded.Graph(id, graph));
    BEAMD_ASSIGN_OR_RETURN(CorpusNumeric c, Unrecorded(id, sink, {}));
    cases.push_back(std::move(c));
  }
  return absl::OkStatus();
}

// Those that an emulated GPU is quick enough for.
absl::Status KeepSmall(const CheckInput& input, std::vector<CorpusNumeric>& cases) {
  std::vector<CorpusNumeric> kept;
  for (CorpusNumeric& c : cases) {
    UOpGraph graph;
    BEAMD_ASSIGN_OR_RETURN(const UOp sink, input.recorded->Graph(c.id, graph));
    const absl::StatusOr<Kernel> kernel = Kernel::Create(sink, CorpusTarget(input.target));
    // What the engine refuses counts as different.
    if (!kernel.ok() || PointsOf(*kernel) <= kMostPoints) kept.push_back(std::move(c));
  }
  cases = std::move(kept);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tally> CheckNumeric(const CheckInput& input) {
  BEAMD_ASSIGN_OR_RETURN(std::vector<CorpusNumeric> cases,
                         testing::ReadCorpusNumeric(input.recorded->directory()));
  BEAMD_RETURN_IF_ERROR(AddImageKernels(*input.recorded, cases));
  if (input.target != TargetKind::kCpu) BEAMD_RETURN_IF_ERROR(KeepSmall(input, cases));
  cases = Sampled(std::move(cases), input);
  Tally tally;
  BEAMD_RETURN_IF_ERROR(InChildren(
      cases.size(), kSecondsPerKernel,
      [&]() -> std::function<std::string(size_t)> {
        auto bench = std::make_shared<absl::StatusOr<Bench>>(MakeBench(input, /*most_groups=*/0));
        return [&, bench](size_t i) {
          if (!bench->ok()) return std::string(bench->status().message());
          const absl::StatusOr<std::string> why = Difference(cases[i], input, **bench);
          return why.ok() ? *why : std::string(why.status().message());
        };
      },
      [&](size_t i, const std::string& why) { Count(cases[i].id, why, input, tally); }));
  return tally;
}

}  // namespace beamd::conformance
