// What the names of kernels and of tensor graphs share: a digest over nodes, and sizes in the order
// in which they are used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/hash.h"
#include "engine/uop/uop.h"

namespace beamd {

// BLAKE3 over the graph under `root`: a node's digest is that of `scheme`, its op, dtype, argument
// and its sources' digests. `scheme` changes with the meaning of the digest.
Digest StructureHash(UOp root, absl::string_view scheme);

// Gives the sources that an argument uses as sizes new places, in order of use, behind the first
// `fixed`, which stay.
class SizeRenumber {
 public:
  SizeRenumber(std::span<const UOp> old, int fixed)
      : old_(old), src_(old.begin(), old.begin() + fixed), fixed_(fixed) {}

  IntOrSrc operator()(const IntOrSrc& v) {
    if (v.src < 0) return v;
    const auto at = std::find(src_.begin() + fixed_, src_.end(), old_[v.src]);
    if (at != src_.end()) return {0, static_cast<int32_t>(at - src_.begin())};
    src_.push_back(old_[v.src]);
    return {0, static_cast<int32_t>(src_.size() - 1)};
  }
  // What is left to be the node's sources.
  std::vector<UOp> TakeSources() { return std::move(src_); }

 private:
  std::span<const UOp> old_;
  std::vector<UOp> src_;
  const int fixed_;
};

}  // namespace beamd
