// Which bases are stored, and which of those share a kernel.
//
// Spec: tinygrad 0.10.0 engine/schedule.py, do_realize and group_realizes. Differs: whether a value
// may be padded after it was computed is decided by its bits where everything it reads is 0; a long
// chain of element-wise operations that several kernels need is stored once.
#pragma once

#include <vector>

#include "engine/schedule/lazy_graph.h"

namespace beamd {

struct KernelGroup {
  std::vector<BaseId> outputs;  // all stored by one kernel, or one copy or view
  BaseId reduce = kNoBase;      // the reduction that the kernel computes, if any
};

struct Grouping {
  std::vector<bool> realized;  // by base
  std::vector<KernelGroup> groups;
};

Grouping GroupKernels(const LazyGraph& graph);

}  // namespace beamd
