#include "engine/llvm/kernel_image.h"

namespace beamd {

Digest KernelImage::Hash() const {
  Hasher hasher;
  hasher.Add(static_cast<uint64_t>(kind)).Add(code).Add(entry);
  hasher.Add(static_cast<uint64_t>(buffers.size()));
  for (const Buffer& b : buffers) {
    hasher.Add(static_cast<uint64_t>(b.slot)).Add(static_cast<uint64_t>(b.scalar));
    hasher.Add(static_cast<uint64_t>(b.size_elements));
    hasher.Add(static_cast<uint64_t>(b.read ? 1 : 0) | (b.written ? 2 : 0));
  }
  hasher.Add(static_cast<uint64_t>(variables.size()));
  for (const Variable& v : variables) {
    hasher.Add(v.name).Add(static_cast<uint64_t>(v.min)).Add(static_cast<uint64_t>(v.max));
  }
  hasher.Add(static_cast<uint64_t>(slices));
  for (const int64_t size : global_size) hasher.Add(static_cast<uint64_t>(size));
  for (const int64_t size : local_size) hasher.Add(static_cast<uint64_t>(size));
  hasher.Add(static_cast<uint64_t>(shared_bytes));
  return hasher.Finish();
}

}  // namespace beamd
