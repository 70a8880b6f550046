// Which buffers a kernel has, and how large they have to be.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/uop/uop.h"
#include "engine/uop/view_index.h"

namespace beamd {

// A buffer of a kernel: how it is used, and how many elements it has to have.
struct BufferUse {
  uint64_t slot = 0;
  DType dtype;
  // What DEFINE_GLOBAL or an image's sides state, else the largest valid index + 1.
  int64_t elements = 0;
  bool loaded = false, stored = false;
};
// Ordered by slot. Where only enumerating more than 2^26 points would tell, `elements` is the bound
// that is known, which is never too small.
absl::StatusOr<std::vector<BufferUse>> BufferUses(UOp sink, const VariableValues& variables);

}  // namespace beamd
