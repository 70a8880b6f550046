#include "engine/tensor/tensor.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "engine/autograd/functions.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

absl::Status ReadError(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("read: ", why));
}

// The scalar whose elements are T.
template <typename T>
constexpr Scalar ScalarOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return Scalar::kBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return Scalar::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return Scalar::kFloat64;
  } else {
    constexpr bool kSigned = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return kSigned ? Scalar::kInt8 : Scalar::kUint8;
      case 2:
        return kSigned ? Scalar::kInt16 : Scalar::kUint16;
      case 4:
        return kSigned ? Scalar::kInt32 : Scalar::kUint32;
      default:
        return kSigned ? Scalar::kInt64 : Scalar::kUint64;
    }
  }
}

template <typename T>
bool ReadsAs(Scalar dtype) {
  if (std::is_same_v<T, float> && (dtype == Scalar::kFloat16 || dtype == Scalar::kBFloat16)) {
    return true;
  }
  return dtype == ScalarOf<T>();
}

absl::Status CheckAssign(const Tensor& target, const Tensor& value) {
  if (!value.ok()) return value.status();
  if (value.shape() != target.shape()) {
    return InvalidTensor("assign", absl::StrCat("a value of shape ", ToString(value.shape()),
                                                " into one of ", ToString(target.shape())))
        .status();
  }
  if (value.dtype() != target.dtype()) {
    return InvalidTensor("assign", absl::StrCat("a value of ", Name(value.dtype()), " into one of ",
                                                Name(target.dtype())))
        .status();
  }
  if (value.device() != target.device()) {
    return InvalidTensor("assign", absl::StrCat("a value on ", value.device(), " into one on ",
                                                target.device()))
        .status();
  }
  if (value.requires_grad().value_or(false)) {
    return InvalidTensor("assign", "the value requires a gradient, which would be lost").status();
  }
  return absl::OkStatus();
}

absl::Status CheckReplace(const Tensor& target, const Tensor& value) {
  if (!value.ok()) return value.status();
  if (value.shape() != target.shape()) {
    return InvalidTensor("replace", absl::StrCat("a value of shape ", ToString(value.shape()),
                                                 " for one of ", ToString(target.shape())))
        .status();
  }
  if (value.requires_grad().value_or(false) || target.impl()->recorded) {
    return InvalidTensor("replace", "a recorded gradient would belong to another value").status();
  }
  return absl::OkStatus();
}

// The tensor that stands for `result`, another copy of what `source` is: gradients go to what
// `source` was made of. One that wasn't made of anything recorded gets gradients of its own.
Tensor CopyOf(const Tensor& source, LazyBuffer result) {
  if (source.impl()->recorded) {
    return Record(std::make_unique<functions::Contiguous>(), {source}, std::move(result));
  }
  return Tensor(std::move(result), source.requires_grad());
}

}  // namespace

Tensor::Tensor(LazyBuffer lazydata, std::optional<bool> requires_grad)
    : impl_(std::make_shared<Impl>()) {
  impl_->lazydata = std::move(lazydata);
  impl_->requires_grad = requires_grad;
}

Tensor Tensor::Failed(absl::Status status) {
  auto impl = std::make_shared<Impl>();
  impl->status =
      status.ok() ? absl::InternalError("a failed tensor without a reason") : std::move(status);
  return Tensor(std::move(impl));
}

bool Tensor::ok() const { return impl_ != nullptr && impl_->status.ok(); }

const absl::Status& Tensor::status() const {
  static const auto* const kUndefined =
      new absl::Status(absl::FailedPreconditionError("there is no tensor"));
  return impl_ == nullptr ? *kUndefined : impl_->status;
}

const LazyBuffer& Tensor::lazydata() const {
  BEAMD_CHECK(ok(), "a failed tensor has no data");
  return impl_->lazydata;
}

SInt Tensor::size(int axis) const {
  const std::optional<int> at = ndim() == 0 ? std::nullopt : ResolveAxis(axis, ndim());
  return at.has_value() ? shape()[*at] : SInt(0);
}

SInt Tensor::numel() const { return lazydata().size(); }

int64_t Tensor::nbytes() const {
  int64_t bytes = 0;
  return __builtin_mul_overflow(numel().max(), element_size(), &bytes)
             ? std::numeric_limits<int64_t>::max()
             : bytes;
}

std::optional<bool> Tensor::requires_grad() const {
  return impl_ == nullptr ? std::nullopt : impl_->requires_grad;
}

Tensor& Tensor::set_requires_grad(std::optional<bool> requires_grad) {
  if (impl_ != nullptr) impl_->requires_grad = requires_grad;
  return *this;
}

Tensor Tensor::grad() const { return impl_ == nullptr ? Tensor() : Tensor(impl_->grad); }

void Tensor::set_grad(const Tensor& grad) {
  if (impl_ != nullptr) impl_->grad = grad.impl_;
}

absl::Status Tensor::Realize() const { return Realize(std::span<const Tensor>(this, 1)); }

absl::Status Tensor::Realize(std::span<const Tensor> tensors) {
  std::vector<LazyBuffer> roots;
  for (const Tensor& tensor : tensors) {
    if (!tensor.ok()) return tensor.status();
    if (&tensor.context() != &tensors[0].context()) {
      return absl::InvalidArgumentError("realize: the tensors are of different contexts");
    }
    if (!tensor.lazydata().is_realized()) roots.push_back(tensor.lazydata());
  }
  if (roots.empty()) return absl::OkStatus();
  Realizer* const realizer = roots[0].context().realizer();
  if (realizer == nullptr) {
    return absl::FailedPreconditionError("realize: the context has no realizer");
  }
  return realizer->Realize(roots);
}

absl::StatusOr<std::vector<std::byte>> Tensor::ToBytes() const {
  if (!ok()) return status();
  if (!AllNumbers(shape())) {
    return ReadError(absl::StrCat("the shape ", ToString(shape()), " holds variables"));
  }
  if (!IsCountable(shape(), element_size())) {
    return ReadError(absl::StrCat("the shape ", ToString(shape()), " is too large"));
  }
  const int64_t size_bytes = nbytes();
  if (size_bytes == 0) return std::vector<std::byte>();
  const Tensor whole(lazydata().Contiguous(), false);
  BEAMD_RETURN_IF_ERROR(whole.Realize());
  const TensorBuffer& buffer = *whole.lazydata().base().buffer();
  std::vector<std::byte> bytes;
  if (const auto* host = dynamic_cast<const HostMemory*>(buffer.memory.get())) {
    bytes = host->bytes;
  } else if (context().realizer() == nullptr) {
    return absl::FailedPreconditionError("read: the context has no realizer");
  } else {
    bytes.resize(static_cast<size_t>(buffer.size_bytes()));
    BEAMD_RETURN_IF_ERROR(context().realizer()->Read(buffer, bytes));
  }
  if (buffer.dtype == dtype()) return bytes;
  // An image's texels may be narrower than its values.
  std::vector<std::byte> values(static_cast<size_t>(size_bytes));
  for (int64_t i = 0; i < buffer.size_elements; ++i) {
    StoreFloat(LoadFloat(&bytes[i * SizeBytes(buffer.dtype)], buffer.dtype), dtype(),
               &values[i * element_size()]);
  }
  return values;
}

// Not T: within the class that is the transpose.
template <typename Value>
absl::StatusOr<std::vector<Value>> Tensor::ToVector() const {
  if (!ok()) return status();
  if (!ReadsAs<Value>(dtype())) {
    return ReadError(absl::StrCat(Name(dtype()), " elements are no ", Name(ScalarOf<Value>())));
  }
  BEAMD_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ToBytes());
  const size_t count = bytes.size() / static_cast<size_t>(element_size());
  std::vector<Value> values(count);
  if constexpr (std::is_same_v<Value, bool>) {
    for (size_t i = 0; i < count; ++i) values[i] = bytes[i] != std::byte{0};
  } else if (element_size() == sizeof(Value)) {
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<Value>(LoadFloat(bytes.data() + i * element_size(), dtype()));
    }
  }
  return values;
}

template <typename Value>
absl::StatusOr<Value> Tensor::Item() const {
  if (!ok()) return status();
  if (numel() != SInt(1)) {
    return ReadError(
        absl::StrCat("a tensor of ", beamd::ToString(numel()), " elements is no item"));
  }
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Value> values, ToVector<Value>());
  return static_cast<Value>(values[0]);
}

#define BEAMD_READABLE(Value)                                           \
  template absl::StatusOr<std::vector<Value>> Tensor::ToVector() const; \
  template absl::StatusOr<Value> Tensor::Item() const
BEAMD_READABLE(bool);
BEAMD_READABLE(int8_t);
BEAMD_READABLE(uint8_t);
BEAMD_READABLE(int16_t);
BEAMD_READABLE(uint16_t);
BEAMD_READABLE(int32_t);
BEAMD_READABLE(uint32_t);
BEAMD_READABLE(int64_t);
BEAMD_READABLE(uint64_t);
BEAMD_READABLE(float);
BEAMD_READABLE(double);
#undef BEAMD_READABLE

Tensor& Tensor::Assign(const Operand& value) {
  if (!ok()) return *this;
  const Tensor x = value.is_tensor() ? value.tensor() : FullLike(value.constant());
  if (x.ok() && x.lazydata() == lazydata()) return *this;
  impl_->status = CheckAssign(*this, x);
  if (!ok()) return *this;
  impl_->lazydata = lazydata().is_realized() ? lazydata().Assign(x.lazydata()) : x.lazydata();
  return *this;
}

Tensor& Tensor::Replace(const Tensor& value) {
  if (!ok()) return *this;
  impl_->status = CheckReplace(*this, value);
  if (ok()) impl_->lazydata = value.lazydata();
  return *this;
}

Tensor Tensor::Detach() const { return ok() ? Tensor(lazydata(), false) : Failed(status()); }

Tensor Tensor::Clone() const {
  if (!ok()) return Failed(status());
  Tensor clone = CopyOf(*this, lazydata().Clone());
  if (grad().ok()) clone.set_grad(grad().Clone());
  return clone;
}

Tensor Tensor::To(absl::string_view device) const {
  if (!ok()) return Failed(status());
  if (device.empty() || device == this->device()) return *this;
  Tensor copy = CopyOf(*this, lazydata().CopyTo(device));
  if (grad().ok()) copy.set_grad(grad().To(device));
  return copy;
}

Tensor Tensor::Contiguous() const {
  if (!ok()) return Failed(status());
  if (!IsCountable(shape(), element_size())) {
    return InvalidTensor("contiguous",
                         absl::StrCat("the shape ", beamd::ToString(shape()), " is too large"));
  }
  return Apply<functions::Contiguous>({*this});
}

Tensor Tensor::ContiguousBackward() const {
  return ok() ? Apply<functions::ContiguousBackward>({*this}) : Failed(status());
}

}  // namespace beamd
