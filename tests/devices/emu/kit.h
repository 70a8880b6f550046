// Kernels written as LLVM IR, assembled and run on an emulated GPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "devices/device.h"
#include "devices/emu/device.h"
#include "engine/llvm/kernel_image.h"

namespace beamd::testing {

// The bitcode of LLVM IR; InvalidArgument with LLVM's words where it isn't any.
absl::StatusOr<std::string> Assemble(const std::string& text);

// A kernel of one device, with its memory.
class EmuKit {
 public:
  // Fails the test where the arch is unknown.
  explicit EmuKit(absl::string_view arch, uint64_t seed = 0);

  Device& device() { return *device_; }
  // The header of modules for the device: triple and data layout.
  std::string Header() const;
  // A kernel with this body and these parameters: "ptr addrspace(1) %out, i64 %n". `globals` stand
  // before it.
  std::string Module(absl::string_view parameters, absl::string_view body,
                     absl::string_view globals = "") const;

  // An image without code: sizes and one buffer for each of `buffers`, of so many floats.
  struct Shape {
    std::vector<KernelImage::Buffer> buffers;
    std::array<int64_t, 3> groups = {1, 1, 1};
    std::array<int64_t, 3> items = {1, 1, 1};
    int64_t shared_bytes = 0;
    std::vector<KernelImage::Variable> variables;
  };
  absl::StatusOr<KernelImage> Image(const std::string& module, const Shape& shape) const;

  // Loads and runs a module once on `memory`, a buffer each, of the bytes that the shape says.
  absl::Status Run(const std::string& module, const Shape& shape,
                   std::vector<std::vector<std::byte>>& memory,
                   const std::vector<int64_t>& variables = {});

 private:
  std::unique_ptr<Device> device_;
};

KernelImage::Buffer Reads(int32_t slot, Scalar scalar, int64_t elements);
KernelImage::Buffer Writes(int32_t slot, Scalar scalar, int64_t elements);
KernelImage::Buffer ReadsAndWrites(int32_t slot, Scalar scalar, int64_t elements);

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Values as memory, and back.
template <typename T>
std::vector<std::byte> Memory(const std::vector<T>& values) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}
template <typename T>
std::vector<T> Values(const std::vector<std::byte>& memory) {
  const auto* const values = reinterpret_cast<const T*>(memory.data());
  return {values, values + memory.size() / sizeof(T)};
}

}  // namespace beamd::testing
