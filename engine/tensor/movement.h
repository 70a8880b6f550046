// What the files of this folder build movement from, beyond Tensor's own methods. Tensors are ok
// and arguments fit: the methods check.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/lazy/lazy_context.h"
#include "engine/tensor/tensor.h"

namespace beamd {

// Tensor::Pool with sizes that may be symbolic, `kernel` no greater than the axes it covers.
//
// An axis becomes (outputs, kernel) by repeating it, not by gathering: windows stay views, so a
// convolution is one kernel. (0.10.0: _pool)
Tensor PoolWindows(const Tensor& x, std::span<const SInt> kernel, std::span<const int> stride,
                   std::span<const int> dilation);

// bool [rows, columns]: true where column - row >= diagonal. A view of one constant.
// (0.10.0: _tri)
Tensor UpperTriangle(LazyContext& context, int64_t rows, int64_t columns, int64_t diagonal,
                     const std::string& device);

// `x` as it is; a failure renamed to the operation that was asked for: "roll: cat: ...".
Tensor Named(absl::string_view operation, Tensor x);

}  // namespace beamd
