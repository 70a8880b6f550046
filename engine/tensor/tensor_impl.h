// What the files of this folder share: what a Tensor holds, and how a Function is applied to it.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/autograd/function.h"
#include "engine/tensor/tensor.h"

namespace beamd {

// How a tensor came to be: kept only where a gradient may be asked for.
struct Recorded {
  std::unique_ptr<Function> function;
  std::vector<Tensor> parents;
};

struct Tensor::Impl {
  absl::Status status;
  LazyBuffer lazydata;
  std::optional<bool> requires_grad;
  std::shared_ptr<Impl> grad;
  std::unique_ptr<Recorded> recorded;
  bool recording_freed = false;  // Backward used `recorded` and let it go

  // Frees the chain of recorded parents without recursion.
  ~Impl();
};

// A failed tensor: "<operation>: <why>".
Tensor InvalidTensor(absl::string_view operation, absl::string_view why);
// The first input that failed (or is no tensor), as a failed tensor; undefined if none did.
Tensor FirstFailed(std::span<const Tensor> inputs);
inline Tensor FirstFailed(std::initializer_list<Tensor> inputs) {
  return FirstFailed(std::span<const Tensor>(inputs.begin(), inputs.size()));
}

// The result of `function` over `inputs`, which are ok, recorded if one requires a gradient.
Tensor Record(std::unique_ptr<Function> function, std::vector<Tensor> inputs, LazyBuffer result);

// Applies F::Forward to the lazy data of `inputs` and `args`, and records it:
//   return Apply<functions::Add>({x, y});
//   return Apply<functions::Sum>({x}, axes);
template <typename F, typename... Args>
Tensor Apply(std::initializer_list<Tensor> inputs, Args&&... args) {
  auto function = std::make_unique<F>();
  const Tensor* in = inputs.begin();
  LazyBuffer result;
  if constexpr (F::kInputs == 1) {
    result = function->Forward(in[0].lazydata(), std::forward<Args>(args)...);
  } else if constexpr (F::kInputs == 2) {
    result = function->Forward(in[0].lazydata(), in[1].lazydata(), std::forward<Args>(args)...);
  } else {
    result = function->Forward(in[0].lazydata(), in[1].lazydata(), in[2].lazydata(),
                               std::forward<Args>(args)...);
  }
  return Record(std::move(function), std::vector<Tensor>(inputs), std::move(result));
}

// `axis` counted from 0, or nullopt if it is none of `ndim` (of a scalar, 0 and -1 are).
std::optional<int> ResolveAxis(int axis, int ndim);
// All of them, sorted, or the error.
absl::StatusOr<std::vector<int>> ResolveAxes(const Axes& axes, int ndim);
// The shape that all broadcast to, or why there is none.
absl::StatusOr<Shape> BroadcastShape(std::span<const Shape> shapes);
// "(3, 4)".
std::string ToString(const Shape& shape);
// Its elements, of so many bytes each, can be counted whatever the variables are. What can't would
// pass for small or empty, since sizes wrap.
bool IsCountable(const Shape& shape, int element_size = 1);
// `like` and the operand as tensors of one shape and, if `match_dtype`, of one dtype. A number takes
// like's dtype (a float beside an integer tensor: the context's default_float). `reverse` swaps
// them. What can't be, `operation` can't: both are then the same failed tensor.
// (0.10.0: _broadcasted)
std::pair<Tensor, Tensor> Broadcasted(absl::string_view operation, const Tensor& like,
                                      const Operand& other, bool reverse = false,
                                      bool match_dtype = true);

}  // namespace beamd
