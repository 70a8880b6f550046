// The dtype that values of several dtypes meet in.
//
// Spec: tinygrad 0.10.0 dtype.py; the lattice of JAX' JEP 9407 without its weak types.
#pragma once

#include <initializer_list>
#include <span>

#include "engine/dtype/dtype.h"

namespace beamd {

// The least dtype above all of `dtypes`, of which there is one at least; void is not among them.
Scalar LeastUpperDType(std::span<const Scalar> dtypes);
inline Scalar LeastUpperDType(std::initializer_list<Scalar> dtypes) {
  return LeastUpperDType(std::span<const Scalar>(dtypes.begin(), dtypes.size()));
}
// A float as it is; else float32.
Scalar LeastUpperFloat(Scalar s);
// What a sum of `s` is accumulated in: at least int32, uint32 or float32.
Scalar SumAccDType(Scalar s);

}  // namespace beamd
