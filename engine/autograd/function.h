// A differentiable operation: its value over lazy buffers, and the gradient of each input.
//
// One class a Function of tinygrad 0.10.0 function.py (and Neg, Sub, Div, Eq of 0.9's). Forward
// computes and keeps what Backward needs. Shapes and dtypes are checked by the caller
// (engine/tensor): a Function gets what fits.
//
// A gradient is absent (a null LazyBuffer) where the input has none (comparisons, conditions) or
// doesn't need it; Backward fails where 0.10.0 raises (bitcast, integer and bit operations).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/lazy/lazy_buffer.h"

namespace beamd {

class Function {
 public:
  virtual ~Function() = default;
  // "Add", as in 0.10.0.
  virtual absl::string_view name() const = 0;
  // One entry an input of Forward, in order. `grad` has the shape and dtype of Forward's result.
  // Unimplemented: there is no gradient; the message names the function.
  virtual absl::StatusOr<std::vector<LazyBuffer>> Backward(const LazyBuffer& grad) const;

  // Which inputs want a gradient. Empty: all of them.
  std::vector<bool> needs_input_grad;

 protected:
  bool Needs(size_t input) const {
    return input >= needs_input_grad.size() || needs_input_grad[input];
  }
};

}  // namespace beamd
