#include "server/tuning/parse_kernel.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/verify.h"
#include "engine/uop/view_index.h"
#include "engine/uop/wire.h"

namespace beamd {

namespace {

// Bytes that the kernel's buffers hold, at least, with every variable at its largest. A double: a
// client may name more than 64 bits count.
absl::StatusOr<double> BufferBytes(UOp sink) {
  const std::vector<UOp> nodes = Toposort(sink);
  VariableValues variables;
  for (const UOp u : nodes) {
    if (u.is(Op::kDefineVar)) variables[u.data<VariableArg>().name] = u.data<VariableArg>().max;
  }
  absl::flat_hash_map<uint64_t, double> bytes;
  for (const UOp u : nodes) {
    if (!u.is(Op::kLoad | Op::kPreload | Op::kStore) || !u.src(0).has_data<BufferArg>()) continue;
    const BufferArg& arg = u.src(0).data<BufferArg>();
    auto elements = static_cast<double>(arg.size_elements);
    if (u.src(0).dtype().is_image()) {
      elements = std::max(elements, static_cast<double>(ImageElements(u.src(0).dtype())));
    } else if (arg.size_elements == 0) {
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex view, ViewIndex::Create(u.src(1), variables));
      const IndexBounds bounds = IndexBoundsOf(view);
      elements = bounds.empty ? 0 : static_cast<double>(bounds.index.max) + 1;
    }
    double& most = bytes[arg.id];
    most = std::max(most, elements * SizeBytes(u.src(0).dtype().scalar));
  }
  double all = 0;
  for (const auto& [slot, size] : bytes) all += size;
  return all;
}

}  // namespace

absl::StatusOr<ParsedKernel> ParseKernel(const v1::Graph& message, const KernelLimits& limits) {
  ParsedKernel kernel;
  kernel.graph = std::make_unique<UOpGraph>();
  std::vector<UOp> nodes;
  BEAMD_ASSIGN_OR_RETURN(const UOp sink, FromProto(message, *kernel.graph, limits.graph, &nodes));
  BEAMD_RETURN_IF_ERROR(VerifyKernel(sink, nodes));
  BEAMD_ASSIGN_OR_RETURN(const double bytes, BufferBytes(sink));
  if (bytes > static_cast<double>(limits.buffer_bytes)) {
    constexpr double kMost = 9e18;
    const auto value = static_cast<int64_t>(std::min(bytes, kMost));
    return InvalidArgument(
        absl::StrCat("buffers of ", value, " bytes, the limit is ", limits.buffer_bytes),
        {.reason = "BUFFER_BYTES", .field = "graph", .limit = limits.buffer_bytes, .value = value});
  }
  kernel.sink = CanonicalKernel(sink, *kernel.graph);
  kernel.hash = KernelHash(kernel.sink);
  kernel.canonical = ToProto(kernel.sink);
  return kernel;
}

}  // namespace beamd
