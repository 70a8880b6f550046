// EXP2, LOG2 and SIN of float32 and float64, as straight-line vector code over own polynomials.
//
// Bounds (SEMANTICS.md): 2 ulp over the whole range, sub-normals, infinities and NaN included; SIN
// of float32 within 1e-7 near its zeros. One polynomial each for every target, so an answer doesn't
// depend on a machine's math library. Except EXP2 of float32 on GPUs: their own instruction keeps
// the bound and is a tenth of the work.
//
// Only SIN branches, or is a call where the target says so: arguments too large for the short range
// reduction (past 2^16 for float32, 2^19 for float64) go through an internal function that reduces
// them with as many bits of 1/pi as they need. Payne and Hanek, "Radian reduction for trigonometric
// functions" (1983).
#pragma once

#include "engine/llvm/value.h"

namespace beamd {

// `x`: float, double, or a vector of either; the result has its type.
llvm::Value* EmitExp2(Builder& b, const AluTarget& target, llvm::Value* x);
llvm::Value* EmitLog2(Builder& b, const AluTarget& target, llvm::Value* x);
llvm::Value* EmitSin(Builder& b, const AluTarget& target, llvm::Value* x);

}  // namespace beamd
