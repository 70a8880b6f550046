// Which unrolled axes become the lanes of vectors, and what each value depends on.
//
// One set of axes is chosen for the whole kernel: all of the output or all of one reduction. Along
// it consecutive lanes should be consecutive elements of the buffers that cost most. The choice is
// by a cost model over the point graph, not by an opt: opts say how far to unroll, this says how to
// use the registers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/uop/uop.h"

namespace beamd {

// Bit i stands for UnrollAnalysis::ranges[i].
using RangeMask = uint64_t;

// An index expression taken apart: base + offset + sum coefficient[i] * ranges[i] + the hard terms.
struct Access {
  UOp base;                                           // depends on no unrolled range; null: 0
  int64_t offset = 0;                                 // elements
  std::vector<std::pair<int, int64_t>> coefficients;  // range, elements; none is 0
  std::vector<UOp> hard_terms;  // depend on unrolled ranges through more than a product
  RangeMask hard_mask = 0;      // the ranges that they depend on

  int64_t CoefficientOf(int range) const;
};

struct UnrollAnalysis {
  std::vector<UOp> nodes;   // value nodes, sources first; index expressions are left out
  std::vector<UOp> ranges;  // unrolled ones: kUpcast and kUnroll
  std::vector<int64_t> extents;
  std::vector<RangeMask> deps;  // by node id: the unrolled ranges that its value varies with
  std::vector<UOp> loops;       // the other ranges, in the order of a walk
  std::vector<RangeMask>
      loop_deps;  // by node id: bit i stands for loops[i]; a REDUCE has closed its own
  absl::flat_hash_map<UOp, Access> accesses;  // by INDEX

  RangeMask DepsOf(UOp u) const { return deps[u.id()]; }
};

// `sink` is LowerIndexing's. ResourceExhausted if over 64 ranges are unrolled or over 64 are loops.
absl::StatusOr<UnrollAnalysis> AnalyseUnroll(UOp sink);

// Ranges that are lanes, the fastest first; `count` is the product of their extents.
struct Lanes {
  std::vector<int> ranges;
  RangeMask mask = 0;
  int count = 1;
};

Lanes ChooseLanes(const UnrollAnalysis& analysis, const TargetCaps& caps);

}  // namespace beamd
