#include "engine/base/counters.h"

#include <algorithm>

namespace beamd {

void Counters::AddKernels(int64_t kernels, double ops, double bytes, absl::Duration time) {
  MutexLock lock(mutex_);
  counts_.kernels += kernels;
  counts_.ops += ops;
  counts_.bytes += bytes;
  counts_.time += time;
}

void Counters::AddMemory(int64_t bytes) {
  MutexLock lock(mutex_);
  counts_.memory_bytes += bytes;
  counts_.peak_memory_bytes = std::max(counts_.peak_memory_bytes, counts_.memory_bytes);
}

Counts Counters::Get() const {
  MutexLock lock(mutex_);
  return counts_;
}

void Counters::Reset() {
  MutexLock lock(mutex_);
  const int64_t held = counts_.memory_bytes;
  counts_ = Counts();
  counts_.memory_bytes = held;
  counts_.peak_memory_bytes = held;
}

}  // namespace beamd
