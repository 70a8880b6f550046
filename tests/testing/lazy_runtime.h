// A context whose lazy buffers are realised in this process on cpu:0, and what tests put in and
// read out.
//
//   LazyRuntime lazy;
//   const LazyBuffer x = lazy.From<float>({1, 2, 3, 4}, {2, 2});
//   EXPECT_THAT(lazy.Values<float>(x + 1), ElementsAre(2, 3, 4, 5));
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/lazy/lazy_context.h"
#include "server/execution/runtime.h"

namespace beamd::testing {

namespace internal {

template <typename T>
constexpr Scalar ScalarOf() {
  if constexpr (std::is_same_v<T, float>) return Scalar::kFloat32;
  if constexpr (std::is_same_v<T, double>) return Scalar::kFloat64;
  if constexpr (std::is_same_v<T, int32_t>) return Scalar::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return Scalar::kInt64;
  if constexpr (std::is_same_v<T, uint32_t>) return Scalar::kUint32;
  if constexpr (std::is_same_v<T, uint64_t>) return Scalar::kUint64;
  if constexpr (std::is_same_v<T, uint8_t>) return Scalar::kUint8;
}

}  // namespace internal

struct LazyRuntime {
  // The program ends where the runtime can't start.
  LazyRuntime() : LazyRuntime(Runtime::Create()) {}
  explicit LazyRuntime(absl::StatusOr<std::unique_ptr<Runtime>> created) {
    BEAMD_CHECK(created.ok(), created.status().ToString());
    runtime = *std::move(created);
    context.set_realizer(runtime.get());
  }

  // Data on the host, which goes to the device when it is used.
  template <typename T>
  LazyBuffer From(const std::vector<T>& values, const Shape& shape) {
    auto buffer = std::make_shared<TensorBuffer>();
    buffer->device = context.device();
    buffer->dtype = internal::ScalarOf<T>();
    buffer->size_elements = static_cast<int64_t>(values.size());
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    buffer->memory = std::make_shared<HostMemory>(std::move(bytes));
    return LazyBuffer::FromBuffer(context, std::move(buffer), shape);
  }

  absl::Status Realize(const LazyBuffer& x) { return runtime->Realize({&x, 1}); }

  // Realises; the elements row-major. The program ends where that fails: tests of errors call
  // Realize.
  template <typename T>
  std::vector<T> Values(const LazyBuffer& x) {
    const LazyBuffer whole = x.Contiguous();
    absl::Status status = Realize(whole);
    BEAMD_CHECK(status.ok(), status.ToString());
    BEAMD_CHECK(x.dtype() == internal::ScalarOf<T>(), "the test reads another dtype");
    std::vector<T> values(static_cast<size_t>(whole.base().buffer()->size_elements));
    status = runtime->Read(*whole.base().buffer(), std::as_writable_bytes(std::span(values)));
    BEAMD_CHECK(status.ok(), status.ToString());
    return values;
  }

  std::unique_ptr<Runtime> runtime;
  LazyContext context;
};

}  // namespace beamd::testing
