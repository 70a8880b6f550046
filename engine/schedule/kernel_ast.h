// The graph of one kernel: a group of bases as STOREs of one shape, every movement pushed into the
// views of loads, constants and stores.
//
// Out:   SINK of STOREs as engine/uop/verify.h wants them; DEFINE_GLOBALs numbered in order of first
//        use, the first output 0. All of one rank: the shape before the reduction, 1 where reduced.
// Spec:  tinygrad 0.10.0 engine/schedule.py, full_ast_rewrite.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/schedule/grouping.h"
#include "engine/schedule/lazy_graph.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/uop.h"

namespace beamd {

struct KernelAst {
  struct Buffer {
    std::shared_ptr<TensorBuffer> buffer;
    bool written = false;
    bool read_old = false;      // as it was before this schedule
    BaseId read_new = kNoBase;  // as this base leaves it
  };
  UOp sink;
  std::vector<Buffer> buffers;  // by slot
};

// FailedPrecondition: the kernel would read an element of a buffer that it has overwritten.
absl::StatusOr<KernelAst> BuildKernelAst(const LazyGraph& graph, const std::vector<bool>& realized,
                                         const KernelGroup& group, UOpGraph& uops);

}  // namespace beamd
