// Every Function of tinygrad 0.10.0 function.py, and Neg, Sub, Div and Eq of 0.9's.
//
// Each has the number of its inputs (kInputs), Forward, which takes their lazy data and what else
// the operation needs, and Backward where there is a gradient. Inputs of one call have one shape,
// and one dtype but for Where's condition; conditions are bool.
//
// Spec: tinygrad 0.10.0 function.py; the formulas are its own, since a gradient's value at 0, at
// inf and at ties depends on them. README.md has the table.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/autograd/function.h"
#include "engine/dtype/dtype.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/shape/sint.h"
#include "engine/shape/view.h"

namespace beamd::functions {

using Gradients = absl::StatusOr<std::vector<LazyBuffer>>;

// --- placement and dtype ---

class Contiguous final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Contiguous"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;
};

// The value as it is; its gradient in memory of its own.
class ContiguousBackward final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "ContiguousBackward"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;
};

// A bitcast, whose dtypes have one size, has no gradient: Unimplemented.
class Cast final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Cast"; }
  LazyBuffer Forward(const LazyBuffer& x, Scalar dtype, bool bitcast = false);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  Scalar from_ = Scalar::kVoid;
  bool bitcast_ = false;
};

// float32 that is stored as an image, or, with a void `image`, as a plain buffer again.
class CastImage final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "CastImage"; }
  LazyBuffer Forward(const LazyBuffer& x, DType image);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  DType from_;
};

// --- one operand ---

// Of bool: not.
class Neg final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Neg"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;
};

class Reciprocal final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Reciprocal"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer result_;
};

class Sin final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Sin"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
};

// The gradient at 0 is 0.
class Relu final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Relu"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer result_;
};

class Log final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Log"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
};

class Exp final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Exp"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer result_;
};

class Sqrt final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Sqrt"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer result_;
};

class Sigmoid final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Sigmoid"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer result_;
};

// -1, 0 or 1, of NaN 1; the gradient is 0 everywhere.
class Sign final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Sign"; }
  LazyBuffer Forward(const LazyBuffer& x);
  Gradients Backward(const LazyBuffer& grad) const override;
};

// --- two operands ---

// The comparisons give bool and no gradient to either side.
class Less final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Less"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;
};

class Eq final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Eq"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;
};

class Neq final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Neq"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;
};

// Bit and integer operations: Backward is Unimplemented.
class Xor final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Xor"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
};

class BitwiseAnd final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "BitwiseAnd"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
};

class BitwiseOr final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "BitwiseOr"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
};

// uint64 counters and seeds.
class Threefry final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Threefry"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& seed);
};

class Add final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Add"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;
};

class Sub final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Sub"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;
};

class Mul final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Mul"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
  LazyBuffer y_;
};

// Of integers it is IDiv, and has no gradient.
class Div final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "Div"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
  LazyBuffer y_;
};

class IDiv final : public Function {
 public:
  static constexpr int kInputs = 2;
  absl::string_view name() const override { return "IDiv"; }
  LazyBuffer Forward(const LazyBuffer& x, const LazyBuffer& y);
};

// --- three operands ---

class Where final : public Function {
 public:
  static constexpr int kInputs = 3;
  absl::string_view name() const override { return "Where"; }
  LazyBuffer Forward(const LazyBuffer& condition, const LazyBuffer& x, const LazyBuffer& y);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer condition_;
};

// --- reductions: the axes stay, with size 1 ---

class Sum final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Sum"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const int> axes);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  Shape input_shape_;
};

// The gradient is product / x: NaN where x is 0.
class Prod final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Prod"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const int> axes);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
  LazyBuffer result_;
};

// Elements that tie for the greatest share the gradient equally.
class Max final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Max"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const int> axes);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  LazyBuffer x_;
  LazyBuffer result_;
  std::vector<int> axes_;
};

// --- movement ---

// The gradient is summed in SumAccDType of its dtype.
class Expand final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Expand"; }
  LazyBuffer Forward(const LazyBuffer& x, const Shape& shape);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  std::vector<int> expanded_axes_;
};

class Reshape final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Reshape"; }
  LazyBuffer Forward(const LazyBuffer& x, const Shape& shape);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  Shape input_shape_;
};

class Permute final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Permute"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const int> order);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  std::vector<int> order_;
};

// Amounts before and after, an axis; not negative.
class Pad final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Pad"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const std::pair<SInt, SInt>> amounts);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  std::vector<std::pair<SInt, SInt>> kept_;
};

// [begin, end) an axis; the bounds may be symbolic.
class Shrink final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Shrink"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const std::pair<SInt, SInt>> ranges);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  std::vector<std::pair<SInt, SInt>> cut_;
};

class Flip final : public Function {
 public:
  static constexpr int kInputs = 1;
  absl::string_view name() const override { return "Flip"; }
  LazyBuffer Forward(const LazyBuffer& x, std::span<const int> axes);
  Gradients Backward(const LazyBuffer& grad) const override;

 private:
  std::vector<int> axes_;
};

}  // namespace beamd::functions
