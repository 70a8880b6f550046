// The moves of the search: opts by their number in the seeds' list, and which of them a kernel can
// take. Spec: tinygrad 0.10.0 engine/search.py, actions and get_kernel_actions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/kernel/kernel.h"
#include "engine/kernel/opt.h"

namespace beamd {

struct ActionOptions {
  bool padto = true;         // BEAM_PADTO
  bool no_locals = false;    // NOLOCALS: adds that opt to the list
  int tc_opt = 2;            // TC_OPT of the search
  int64_t upcast_max = 256;  // BEAM_UPCAST_MAX: elements a thread
  int64_t local_max = 1024;  // BEAM_LOCAL_MAX: threads a work-group

  bool operator==(const ActionOptions&) const = default;
};

// Action i of a search is element i - 1; 0 is "no action".
std::vector<Opt> Actions(const ActionOptions& options);

// Every action that applies to `kernel` and stays within the limits, with what it leads to, in
// order. An amount that takes a whole axis is left to the action that says so (amount 0).
std::vector<std::pair<int, Kernel>> LegalActions(const Kernel& kernel,
                                                 const ActionOptions& options);

// What to try where `opts` leave the size of work-groups open (NOLOCALS without an amount): the same
// list with each amount, applied to `fresh`. None where they don't, or can't be applied.
// Spec: 0.10.0 engine/search.py, optimize_local_size. Differs: it tries each dimension by itself
// when the kernel is first run, and doesn't keep what it finds; here the list holds it.
std::vector<Kernel> GroupSizes(const Kernel& fresh, const std::vector<Opt>& opts);

}  // namespace beamd
