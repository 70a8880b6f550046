// Where the elements of a tensor core's tile are in a kernel's axes.
#pragma once

#include <span>
#include <vector>

#include "engine/kernel/tensor_core.h"
#include "engine/uop/uop.h"

namespace beamd {

// The index of each of core.splits' axes, in their order, at one element of a lane's vector of
// `operand` (core.a or core.b). `threads`: the index of each LOCAL split's axis in that lane, of the
// output's point; `element`: which of the vector's. An axis that the operand doesn't vary along is 0.
//
// The kernel's axes say which element of C a lane holds; a tile's own rows and columns may come in
// any order, as long as A, B and C agree.
std::vector<UOp> TileIndices(const TensorCore& core, const TensorCore::Layout& operand,
                             std::span<const UOp> threads, UOp element);

}  // namespace beamd
