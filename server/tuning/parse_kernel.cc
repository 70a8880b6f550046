#include "server/tuning/parse_kernel.h"

#include <vector>

#include "engine/base/status.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/verify.h"
#include "engine/uop/wire.h"

namespace beamd {

absl::StatusOr<ParsedKernel> ParseKernel(const v1::Graph& message) {
  ParsedKernel kernel;
  kernel.graph = std::make_unique<UOpGraph>();
  std::vector<UOp> nodes;
  BEAMD_ASSIGN_OR_RETURN(const UOp sink, FromProto(message, *kernel.graph, {}, &nodes));
  BEAMD_RETURN_IF_ERROR(VerifyKernel(sink, nodes));
  kernel.sink = CanonicalKernel(sink, *kernel.graph);
  kernel.hash = KernelHash(kernel.sink);
  kernel.canonical = ToProto(kernel.sink);
  return kernel;
}

}  // namespace beamd
