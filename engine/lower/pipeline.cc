#include "engine/lower/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/lower/collapse.h"
#include "engine/lower/expand.h"
#include "engine/lower/linearize.h"
#include "engine/lower/lower_indexing.h"
#include "engine/lower/narrow.h"
#include "engine/lower/streaming.h"
#include "engine/shape/shape_tracker.h"
#include "engine/symbolic/symbolic.h"
#include "engine/uop/text.h"

namespace beamd {
namespace {

// Nodes that an unrolled graph may have, whatever the client allows: bounds memory and time.
constexpr int64_t kMaxExpandedNodes = 200'000;

constexpr absl::string_view kPasses[] = {"ast", "index", "collapse", "expand", "narrow", "linear"};

// Buffers, variables and sizes that a launch needs, from the kernel as the client sent it.
void DescribeLaunch(UOp ast, KernelImage& image) {
  std::map<int32_t, KernelImage::Buffer> buffers;
  std::map<std::string, KernelImage::Variable> variables;
  for (const UOp u : Toposort(ast)) {
    if (u.is(Op::kDefineVar)) {
      const auto& v = u.data<VariableArg>();
      variables[v.name] = {v.name, v.min, v.max};
    }
    if (!u.is(Op::kLoad | Op::kStore | Op::kPreload)) continue;
    const BufferArg& arg = u.src(0).data<BufferArg>();
    KernelImage::Buffer& b = buffers[static_cast<int32_t>(arg.id)];
    b.slot = static_cast<int32_t>(arg.id);
    b.scalar = u.src(0).scalar();
    b.size_elements =
        std::max({b.size_elements, int64_t{1}, static_cast<int64_t>(arg.size_elements),
                  ImageElements(u.src(0).dtype()), ShapeTracker::FromUOp(u.src(1)).RealSize()});
    (u.is(Op::kStore) ? b.written : b.read) = true;
  }
  for (const auto& [slot, b] : buffers) {
    image.bytes += static_cast<double>(b.size_elements) * SizeBytes(b.scalar);
    image.buffers.push_back(b);
  }
  for (const auto& [name, v] : variables) image.variables.push_back(v);
}

// Whether an axis of the outputs has no elements.
bool StoresNothing(UOp ast) {
  for (const UOp store : ast.src()) {
    const ShapeTracker view = ShapeTracker::FromUOp(store.src(1));
    for (const SInt& size : view.shape()) {
      if (size.max() == 0) return true;
    }
  }
  return false;
}

// A GPU's launch: sizes from the program's indices, what each takes of shared memory.
absl::Status DescribeGrid(const LinearProgram& program, const TargetCaps& caps,
                          KernelImage& image) {
  for (const UOp u : program.ops) {
    if (u.is(Op::kSpecial)) {
      const std::string& name = u.data<std::string>();
      const Bounds extent = BoundsOf(u.src(0));
      (name[0] == 'g' ? image.global_size : image.local_size)[name[1] - '0'] = extent.max;
      image.compute_ops *=
          static_cast<double>(extent.min) / 2 + static_cast<double>(extent.max) / 2;
    }
    if (u.is(Op::kDefineLocal)) {
      const int64_t bytes = u.src(0).int_value() * SizeBytes(u.scalar());
      // Each starts aligned.
      image.shared_bytes = (image.shared_bytes + 15) / 16 * 16 + bytes;
    }
  }
  if (image.shared_bytes > caps.shared_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        image.shared_bytes, " bytes of shared memory, the target has ", caps.shared_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<UOp> Ok(UOp u) { return u; }

// Runs a pass, times it, and prints what it made where that is asked for.
class PassRunner {
 public:
  explicit PassRunner(const LowerOptions& options) : options_(options) {}

  template <typename Pass, typename Result>
  absl::Status operator()(absl::string_view name, Pass pass, Result& result) const {
    const absl::Time start = absl::Now();
    BEAMD_ASSIGN_OR_RETURN(result, pass());
    if (options_.timings != nullptr) options_.timings->emplace_back(name, absl::Now() - start);
    if (options_.dump_text != nullptr && options_.dump == name)
      *options_.dump_text = ToText(result);
    return absl::OkStatus();
  }

 private:
  const LowerOptions& options_;
};

}  // namespace

std::span<const absl::string_view> LowerPassNames() { return kPasses; }

absl::StatusOr<LinearProgram> Lower(const Kernel& kernel, UOpGraph& graph,
                                    const LowerOptions& options) {
  PassRunner run(options);
  const int64_t max_nodes = options.max_uops > 0
                                ? std::min(2 * options.max_uops + 1000, kMaxExpandedNodes)
                                : kMaxExpandedNodes;
  UOp sink;
  LinearProgram program;
  BEAMD_RETURN_IF_ERROR(run(
      "ast", [&] { return Ok(kernel.OptimizedAst(graph)); }, sink));
  const TensorCore* core =
      kernel.caps().tensor_cores == TensorCoreUse::kOn ? kernel.tensor_core() : nullptr;
  BEAMD_RETURN_IF_ERROR(run(
      "index", [&] { return LowerIndexing(sink, kernel.caps(), core, kernel.group_items()); },
      sink));
  BEAMD_RETURN_IF_ERROR(run(
      "collapse", [&] { return Ok(CollapseLoops(sink)); }, sink));
  BEAMD_RETURN_IF_ERROR(run(
      "expand", [&] { return Expand(sink, kernel.caps(), max_nodes); }, sink));
  BEAMD_RETURN_IF_ERROR(run(
      "narrow", [&] { return Ok(NarrowIndices(sink, kernel.caps())); }, sink));
  BEAMD_RETURN_IF_ERROR(run(
      "linear", [&] { return Linearize(sink, kernel.caps()); }, program));

  KernelImage& image = program.image;
  image.kind = kernel.caps().kind;
  // A vector counts as many as it has lanes, as in 0.10.0, whose limit on candidates this is held
  // against.
  for (const UOp u : program.ops) image.uop_count += u.is(kAlu) ? u.lanes() : 1;
  if (options.max_uops > 0 && image.uop_count >= options.max_uops) {
    return absl::ResourceExhaustedError(
        absl::StrCat(image.uop_count, " linear operations, the limit is ", options.max_uops));
  }
  DescribeLaunch(kernel.ast(), image);
  const bool empty = StoresNothing(kernel.ast());
  if (kernel.caps().has_local) {
    BEAMD_RETURN_IF_ERROR(DescribeGrid(program, kernel.caps(), image));
    if (empty) image.global_size[0] = 0;
    return program;
  }
  MarkStreamedStores(program);
  if (program.slice_range) image.slices = SInt(program.slice_range.src(0)).max();
  // The ranges of such axes are folded away as if they had one element.
  if (empty) image.slices = 0;
  return program;
}

}  // namespace beamd
