// Integer and bool operations on numbers, exactly SEMANTICS "Values".
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/uop/uop.h"

namespace beamd {

// `u`'s value where its sources have the values `v`: an ALU op or CAST between integers and bools
// (wrapped to their dtypes, uint64 as its bits). nullopt for any other node.
std::optional<int64_t> EvalIntOp(UOp u, std::span<const int64_t> v);

}  // namespace beamd
