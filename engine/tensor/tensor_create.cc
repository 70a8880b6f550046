#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

// The dtype of a number that stands alone.
Scalar NaturalDType(ConstValue value, const LazyContext& context) {
  switch (value.kind()) {
    case ConstValue::Kind::kBool:
      return Scalar::kBool;
    case ConstValue::Kind::kInt:
      return context.default_int;
    case ConstValue::Kind::kFloat:
      break;
  }
  return context.default_float;
}

const std::string& DeviceOf(const LazyContext& context, const TensorOptions& options) {
  return options.device.empty() ? context.device() : options.device;
}

absl::Status CheckShape(absl::string_view operation, const Shape& shape, int element_size = 1) {
  for (const SInt& size : shape) {
    if (size.min() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(operation, ": the shape ", ToString(shape), " has a negative size"));
    }
  }
  if (!IsCountable(shape, element_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": the shape ", ToString(shape), " is too large"));
  }
  return absl::OkStatus();
}

absl::Status CheckDType(absl::string_view operation, Scalar dtype) {
  if (dtype == Scalar::kVoid) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": void is no dtype of a tensor"));
  }
  return absl::OkStatus();
}

// The number of elements of a shape of numbers.
absl::StatusOr<int64_t> CountElements(absl::string_view operation, const Shape& shape) {
  BEAMD_RETURN_IF_ERROR(CheckShape(operation, shape, /*element_size=*/8));
  int64_t count = 1;
  for (const SInt& size : shape) {
    if (!size.is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat(operation, ": the shape ", ToString(shape), " holds variables"));
    }
    count *= size.number();
  }
  return count;
}

Tensor FromHost(LazyContext& context, std::vector<std::byte> bytes, int64_t count,
                const Shape& shape, Scalar dtype, const TensorOptions& options) {
  auto buffer = std::make_shared<TensorBuffer>();
  buffer->device = DeviceOf(context, options);
  buffer->dtype = dtype;
  buffer->size_elements = count;
  buffer->memory = std::make_shared<HostMemory>(std::move(bytes));
  return Tensor(LazyBuffer::FromBuffer(context, std::move(buffer), shape), options.requires_grad);
}

template <typename T>
Scalar DTypeOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return Scalar::kBool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? Scalar::kFloat32 : Scalar::kFloat64;
  } else {
    constexpr Scalar kSigned[] = {Scalar::kInt8, Scalar::kInt16, Scalar::kInt32, Scalar::kInt64};
    constexpr Scalar kUnsigned[] = {Scalar::kUint8, Scalar::kUint16, Scalar::kUint32,
                                    Scalar::kUint64};
    constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
  }
}

// `value` as an element of `dtype`.
template <typename T>
void StoreAs(T value, Scalar dtype, std::byte* at) {
  if (IsFloat(dtype)) {
    StoreFloat(static_cast<double>(value), dtype, at);
  } else {
    StoreInt(ConstValue(value).As(dtype).as_int(), dtype, at);
  }
}

// Elements of a range, not below 0; nullopt where a tensor can't have that many.
std::optional<int> RangeLength(ConstValue start, ConstValue stop, ConstValue step) {
  double length = 0;
  if (start.is_float() || stop.is_float() || step.is_float()) {
    length = std::ceil((stop.as_float() - start.as_float()) / step.as_float());
  } else {
    const __int128 span = static_cast<__int128>(stop.as_int()) - start.as_int();
    const __int128 by = step.as_int();
    const __int128 whole = span / by;
    const bool more = span % by != 0 && (span < 0) == (by < 0);
    length = static_cast<double>(whole + (more ? 1 : 0));
  }
  // Not "length > max": NaN is no length either.
  if (!(length <= std::numeric_limits<int>::max())) return std::nullopt;
  return length <= 0 ? 0 : static_cast<int>(length);
}

// a - b, in integers where both are.
ConstValue Difference(ConstValue a, ConstValue b) {
  if (a.is_float() || b.is_float()) return ConstValue(a.as_float() - b.as_float());
  return ConstValue(WrapInt(
      static_cast<int64_t>(static_cast<uint64_t>(a.as_int()) - static_cast<uint64_t>(b.as_int())),
      Scalar::kInt64));
}

}  // namespace

// Not T: within the class that is the transpose.
template <typename Value>
Tensor Tensor::From(LazyContext& context, std::span<const Value> values, const Shape& shape,
                    const TensorOptions& options) {
  const absl::StatusOr<int64_t> count = CountElements("from", shape);
  if (!count.ok()) return Failed(count.status());
  if (static_cast<uint64_t>(*count) != values.size()) {
    return InvalidTensor(
        "from", absl::StrCat(values.size(), " values for the shape ", beamd::ToString(shape)));
  }
  const Scalar dtype = options.dtype.value_or(DTypeOf<Value>());
  if (absl::Status status = CheckDType("from", dtype); !status.ok()) return Failed(status);
  const size_t width = static_cast<size_t>(SizeBytes(dtype));
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) StoreAs(values[i], dtype, &bytes[i * width]);
  return FromHost(context, std::move(bytes), *count, shape, dtype, options);
}

template <>
Tensor Tensor::From<bool>(LazyContext& context, const std::vector<bool>& values, const Shape& shape,
                          const TensorOptions& options) {
  const std::vector<uint8_t> wide(values.begin(), values.end());
  TensorOptions as_bool = options;
  as_bool.dtype = options.dtype.value_or(Scalar::kBool);
  return From<uint8_t>(context, std::span<const uint8_t>(wide), shape, as_bool);
}

#define BEAMD_MADE_FROM(Value)                                                      \
  template Tensor Tensor::From(LazyContext& context, std::span<const Value> values, \
                               const Shape& shape, const TensorOptions& options)
BEAMD_MADE_FROM(bool);
BEAMD_MADE_FROM(int8_t);
BEAMD_MADE_FROM(uint8_t);
BEAMD_MADE_FROM(int16_t);
BEAMD_MADE_FROM(uint16_t);
BEAMD_MADE_FROM(int32_t);
BEAMD_MADE_FROM(uint32_t);
BEAMD_MADE_FROM(int64_t);
BEAMD_MADE_FROM(uint64_t);
BEAMD_MADE_FROM(float);
BEAMD_MADE_FROM(double);
#undef BEAMD_MADE_FROM

Tensor Tensor::FromBytes(LazyContext& context, std::span<const std::byte> bytes, const Shape& shape,
                         Scalar dtype, const TensorOptions& options) {
  if (absl::Status status = CheckDType("from_bytes", dtype); !status.ok()) return Failed(status);
  const absl::StatusOr<int64_t> count = CountElements("from_bytes", shape);
  if (!count.ok()) return Failed(count.status());
  if (static_cast<uint64_t>(*count) * SizeBytes(dtype) != bytes.size()) {
    return InvalidTensor("from_bytes", absl::StrCat(bytes.size(), " bytes for ", Name(dtype),
                                                    " of the shape ", beamd::ToString(shape)));
  }
  return FromHost(context, std::vector<std::byte>(bytes.begin(), bytes.end()), *count, shape, dtype,
                  options);
}

Tensor Tensor::Scalar0(LazyContext& context, ConstValue value, const TensorOptions& options) {
  return Full(context, {}, value, options);
}

Tensor Tensor::FromUop(LazyContext& context, UOp expression, const TensorOptions& options) {
  if (!expression) return InvalidTensor("from_uop", "there is no expression");
  const Scalar dtype = options.dtype.value_or(context.default_int);
  if (absl::Status status = CheckDType("from_uop", dtype); !status.ok()) return Failed(status);
  if (!IsInt(expression.scalar()) || expression.lanes() != 1) {
    return InvalidTensor("from_uop", absl::StrCat("an expression of ", ToString(expression.dtype()),
                                                  " is no integer"));
  }
  return Tensor(LazyBuffer::Const(context, context.graph().Import(expression), {}, dtype,
                                  DeviceOf(context, options)),
                options.requires_grad);
}

Tensor Tensor::Empty(LazyContext& context, const Shape& shape, const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(context.default_float);
  if (absl::Status status = CheckDType("empty", dtype); !status.ok()) return Failed(status);
  const absl::StatusOr<int64_t> count = CountElements("empty", shape);
  if (!count.ok()) return Failed(count.status());
  return Tensor(LazyBuffer::Empty(context, shape, dtype, DeviceOf(context, options)),
                options.requires_grad);
}

Tensor Tensor::Full(LazyContext& context, const Shape& shape, ConstValue value,
                    const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(NaturalDType(value, context));
  if (absl::Status status = CheckDType("full", dtype); !status.ok()) return Failed(status);
  if (absl::Status status = CheckShape("full", shape); !status.ok()) return Failed(status);
  return Tensor(LazyBuffer::Const(context, value, shape, dtype, DeviceOf(context, options)),
                options.requires_grad);
}

Tensor Tensor::Zeros(LazyContext& context, const Shape& shape, const TensorOptions& options) {
  return Full(context, shape, 0.0, options);
}

Tensor Tensor::Ones(LazyContext& context, const Shape& shape, const TensorOptions& options) {
  return Full(context, shape, 1.0, options);
}

Tensor Tensor::Arange(LazyContext& context, ConstValue stop, const TensorOptions& options) {
  return Arange(context, 0, stop, 1, options);
}

Tensor Tensor::Arange(LazyContext& context, ConstValue start, ConstValue stop, ConstValue step,
                      const TensorOptions& options) {
  if (step.Is(0)) return InvalidTensor("arange", "the step is 0");
  const std::optional<int> length = RangeLength(start, stop, step);
  if (!length.has_value()) {
    return InvalidTensor(
        "arange", absl::StrCat("from ", beamd::ToString(start), " to ", beamd::ToString(stop),
                               " by ", beamd::ToString(step), " are too many elements"));
  }
  const bool is_float = start.is_float() || stop.is_float() || step.is_float();
  TensorOptions own = options;
  own.dtype = options.dtype.value_or(is_float ? context.default_float : context.default_int);
  if (*length == 0) return Full(context, {0}, 0, own);
  // A running sum of steps: the scheduler knows it as a range, and makes no buffer of it.
  const Tensor steps = Full(context, {*length}, step, own);
  const Tensor sums = steps.PadFlat({SInt(*length - 1), SInt(0)}).Pool({*length}).Sum(-1);
  Tensor result = sums.Add(Difference(start, step)).Cast(*own.dtype);
  return result.ok() ? Tensor(result.lazydata(), options.requires_grad) : result;
}

Tensor Tensor::Linspace(LazyContext& context, ConstValue start, ConstValue stop, int steps,
                        const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(context.default_float);
  if (steps < 0) return InvalidTensor("linspace", absl::StrCat(steps, " steps"));
  if (dtype == Scalar::kBool) return InvalidTensor("linspace", "bool can't be spaced");
  TensorOptions own = options;
  own.dtype = dtype;
  if (steps <= 1) return Full(context, {steps}, start, own);
  TensorOptions index = options;
  index.dtype = std::nullopt;
  const Scalar computed =
      IsFloat(dtype) ? LeastUpperDType({dtype, context.default_float}) : context.default_float;
  const double distance = (stop.as_float() - start.as_float()) / (steps - 1);
  Tensor result =
      Arange(context, steps, index).Cast(computed).Mul(distance).Add(start, true).Cast(dtype);
  return result.ok() ? Tensor(result.lazydata(), options.requires_grad) : result;
}

Tensor Tensor::Eye(LazyContext& context, int n, std::optional<int> m,
                   const TensorOptions& options) {
  const int columns = m.value_or(n);
  if (n < 0 || columns < 0) {
    return InvalidTensor("eye", absl::StrCat(n, " rows, ", columns, " columns"));
  }
  // A 1 and n zeros a row, of which the last row's zeros go, are the diagonal when read n a row.
  const SInt square = SInt(n) * SInt(n);
  Tensor x = Ones(context, {n, 1}, options)
                 .Pad({std::nullopt, {{0, n}}})
                 .Flatten()
                 .Shrink({{{0, square}}})
                 .Reshape({n, n});
  if (columns == n) return x;
  return columns > n ? x.Pad({std::nullopt, {{0, columns - n}}})
                     : x.Shrink({std::nullopt, {{0, columns}}});
}

Tensor Tensor::FullLike(ConstValue value, const TensorOptions& options) const {
  if (!ok()) return Failed(status());
  TensorOptions own = options;
  own.dtype = options.dtype.value_or(dtype());
  own.device = options.device.empty() ? device() : options.device;
  return Full(context(), shape(), value, own);
}

Tensor Tensor::ZerosLike(const TensorOptions& options) const { return FullLike(0, options); }

Tensor Tensor::OnesLike(const TensorOptions& options) const { return FullLike(1, options); }

}  // namespace beamd
