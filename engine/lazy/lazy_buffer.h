// A tensor's value, not computed yet: an operation over other lazy buffers (a base), or a view of a
// base.
//
// Spec: tinygrad 0.10.0 engine/lazy.py, whose nodes these are: the same foldings, the same views,
// so that scheduling gives the same kernels. Differs: constants fold by SEMANTICS only (x*0, x-x
// and x+0.0 of floats stay); a view of an unrealised base counts as one node however it was made.
//
// Arguments are the caller's duty here (shapes equal, axes in range, dtypes that fit): a broken one
// is a BEAMD_CHECK. engine/tensor is where a user's mistakes become errors.
//
// A handle of 8 bytes; copying shares. A node dies with its last handle, without recursion however
// deep its sources are. Confined to the thread of its LazyContext.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/dtype/const_value.h"
#include "engine/dtype/dtype.h"
#include "engine/lazy/lazy_context.h"
#include "engine/lazy/tensor_buffer.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/arg.h"
#include "engine/uop/op.h"

namespace beamd {

// What a base does besides its sources: CONST: a value, or an integer expression over variables;
// REDUCE_AXIS; ASSIGN into a view of its target; COPY: the device it comes to.
using LazyArg = std::variant<std::monostate, ConstValue, UOp, ReduceArg,
                             std::shared_ptr<const ShapeTracker>, std::string>;

class LazyBuffer {
 public:
  LazyBuffer() = default;
  explicit LazyBuffer(LazyNode* node);
  LazyBuffer(const LazyBuffer& other);
  LazyBuffer(LazyBuffer&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  LazyBuffer& operator=(LazyBuffer other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~LazyBuffer();
  explicit operator bool() const { return node_ != nullptr; }
  bool operator==(const LazyBuffer& other) const { return node_ == other.node_; }

  // --- making ---
  // Memory of unspecified content; counts as realised.
  static LazyBuffer Empty(LazyContext& context, const Shape& shape, Scalar dtype,
                          absl::string_view device);
  // `value` is converted to dtype. Expanded to `shape` by stride 0.
  static LazyBuffer Const(LazyContext& context, ConstValue value, const Shape& shape, Scalar dtype,
                          absl::string_view device);
  // The value of an integer expression over variables of the context.
  static LazyBuffer Const(LazyContext& context, UOp expression, const Shape& shape, Scalar dtype,
                          absl::string_view device);
  // A realised buffer, as if computed before.
  static LazyBuffer FromBuffer(LazyContext& context, std::shared_ptr<TensorBuffer> buffer,
                               const Shape& shape);

  // --- looking ---
  LazyContext& context() const;
  const std::string& device() const;
  Scalar dtype() const;
  // The image that this is to be stored as, of float32 only; void: a plain buffer. What is computed
  // of images is one (the first that has one says which). Whether it becomes one is seen at the
  // buffer: only where as many elements and a last axis of a multiple of four fit.
  DType image() const;
  const ShapeTracker& st() const;
  const Shape& shape() const { return st().shape(); }
  SInt size() const;
  // This node itself where it is a base.
  LazyBuffer base() const;
  bool is_base() const;
  // Of a base:
  // CONST, CONTIGUOUS, BUFFER_VIEW, COPY, ASSIGN, CAST, BITCAST, REDUCE_AXIS, an ALU op, or BUFFER:
  // a realised one.
  Op op() const;
  const LazyArg& arg() const;
  std::span<const LazyBuffer> srcs() const;
  const std::shared_ptr<TensorBuffer>& buffer() const;
  // Computed (its sources are gone), or made of a buffer.
  bool is_realized() const;  // of the base
  bool forced_realize() const;
  void set_forced_realize() const;
  // A CONST with a number, not masked anywhere.
  bool is_unmasked_const() const;
  bool is_const() const;  // CONST with a number, maybe masked
  ConstValue const_value() const;
  // Creation order in the context.
  uint64_t id() const;
  // Handles to this very node.
  int64_t use_count() const;
  const LazyNode* node() const { return node_; }

  // --- computing ---
  // Unary, binary and ternary ops over equal shapes; dtypes are equal but for WHERE's condition.
  LazyBuffer Alu(Op op) const { return Alu(op, std::span<const LazyBuffer>()); }
  LazyBuffer Alu(Op op, const LazyBuffer& b) const { return Alu(op, std::span(&b, 1)); }
  LazyBuffer Alu(Op op, const LazyBuffer& b, const LazyBuffer& c) const;
  LazyBuffer Alu(Op op, std::span<const LazyBuffer> others) const;
  // Of this shape, dtype and device.
  LazyBuffer ConstLike(ConstValue value) const;
  LazyBuffer Cast(Scalar to) const;
  // The same values of float32, to be stored as `image`; void: as a plain buffer.
  LazyBuffer CastImage(DType image) const;
  // Sizes of the dtypes are equal.
  LazyBuffer Bitcast(Scalar to) const;
  // Folds over `axes` with kAdd, kMul or kMax; they stay, with size 1. Large reductions are split
  // in two (SPLIT_REDUCEOP, REDUCEOP_SPLIT_THRESHOLD).
  LazyBuffer Reduce(Op op, std::span<const int> axes) const;
  // Memory of its own, row-major.
  LazyBuffer Contiguous() const;
  LazyBuffer CopyTo(absl::string_view to) const;
  LazyBuffer Clone() const;
  // `value` written into this, a view of a realised buffer, of the same size and dtype. The result
  // is this view of the buffer afterwards.
  LazyBuffer Assign(const LazyBuffer& value) const;

  // --- moving ---
  LazyBuffer Reshape(const Shape& to) const;
  LazyBuffer Pad(std::span<const std::pair<SInt, SInt>> amounts) const;
  LazyBuffer Expand(const Shape& to) const;
  LazyBuffer Permute(std::span<const int> order) const;
  LazyBuffer Shrink(std::span<const std::pair<SInt, SInt>> ranges) const;
  LazyBuffer Flip(std::span<const int> axes) const;
  // Through `moved`, whose buffer is the base's.
  LazyBuffer WithView(ShapeTracker moved) const;

  // For a realizer: the base's value now lies in its buffer; its sources go.
  void MarkRealized() const;

 private:
  friend class LazyMaker;

  LazyNode* node_ = nullptr;
};

// Element-wise sugar; both sides have one shape and dtype, a constant takes the other's.
LazyBuffer operator+(const LazyBuffer& a, const LazyBuffer& b);
LazyBuffer operator+(const LazyBuffer& a, ConstValue b);
LazyBuffer operator-(const LazyBuffer& a, const LazyBuffer& b);  // a + b * -1
LazyBuffer operator-(const LazyBuffer& a);                       // a * -1; of bool: not
LazyBuffer operator*(const LazyBuffer& a, const LazyBuffer& b);
LazyBuffer operator*(const LazyBuffer& a, ConstValue b);
LazyBuffer operator/(const LazyBuffer& a, const LazyBuffer& b);  // floats: a * 1/b

}  // namespace beamd
