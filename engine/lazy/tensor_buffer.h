// The memory of a base LazyBuffer: how much and where, and once a runtime gave it some, the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/dtype/dtype.h"

namespace beamd {

// What a runtime hangs on a TensorBuffer; it alone knows the type behind it.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
};

// Data that a program brought along and no runtime has taken yet: a realizer puts its own memory,
// with these bytes, in the place of this on the first use.
struct HostMemory final : BufferMemory {
  explicit HostMemory(std::vector<std::byte> data) : bytes(std::move(data)) {}
  std::vector<std::byte> bytes;
};

// Confined to the thread of its LazyContext.
struct TensorBuffer {
  std::string device;
  Scalar dtype = Scalar::kVoid;  // of an image: its texels', which may be narrower than its values
  DType image;                   // void: none
  int64_t size_elements = 0;
  std::shared_ptr<BufferMemory> memory;  // null: not allocated
  // A window of another buffer (BUFFER_VIEW): it never has memory of its own.
  std::shared_ptr<TensorBuffer> parent;
  int64_t offset_bytes = 0;

  // What a kernel's parameter for this is.
  DType pointer() const {
    return image.is_image() ? image : DType::Pointer(dtype, AddressSpace::kGlobal);
  }
  int64_t size_bytes() const { return size_elements * SizeBytes(dtype); }
  bool allocated() const { return (parent ? parent->memory : memory) != nullptr; }
};

}  // namespace beamd
