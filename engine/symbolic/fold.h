// The rules of Simplify that aren't algebra between two patterns. Each takes the node and gives
// back an equal one, or null where it has nothing to say.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/uop/uop.h"

namespace beamd {

// Constants as operands -> a constant.
UOp FoldConstants(UOp alu);
// An integer or bool that has only one value -> that constant.
UOp FoldSingleValue(UOp alu);
// a + b, a - b -> terms collected and ordered, constant last.
UOp NormaliseSum(UOp sum);
// a * b, -a -> factors ordered, constant last, or distributed over a sum.
UOp NormaliseProduct(UOp product);
// a & b, a | b of bools -> distinct operands, ordered.
UOp NormaliseLogic(UOp logic);
// a op b -> b op a, for commutative ops.
UOp OrderOperands(UOp alu);
UOp FoldDiv(UOp div);
UOp FoldMod(UOp mod);
UOp FoldLess(UOp less);
UOp FoldNotEqual(UOp ne);
UOp FoldMax(UOp max);
UOp FoldCast(UOp cast);

// Value of a lane of an integer CONST or VCONST.
int64_t LaneOf(UOp constant, int lane);
// CONST where all lanes are equal, else VCONST.
UOp LanesConstant(DType dtype, std::vector<int64_t> lanes, UOpGraph& graph);

}  // namespace beamd
