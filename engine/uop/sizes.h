// Where a node's sources stop being values: sizes that are expressions are sources too.
#pragma once

#include <optional>

#include "engine/uop/op.h"

namespace beamd {

// Sources before the ones that the node's argument names as sizes; nullopt where an op's argument
// holds no sizes.
inline std::optional<int> SizesBegin(Op op) {
  switch (op) {
    case Op::kView:
    case Op::kBuffer:
    case Op::kEmpty:
      return 0;
    case Op::kReshape:
    case Op::kExpand:
    case Op::kPad:
    case Op::kShrink:
      return 1;
    case Op::kAssign:
      return 2;
    default:
      return std::nullopt;
  }
}

}  // namespace beamd
