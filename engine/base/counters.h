// What a runtime has done so far. Answers to tinygrad 0.10.0 helpers.py, GlobalCounters. Differs: a
// runtime has its own, since one process may have several.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

struct Counts {
  int64_t kernels = 0;
  double ops = 0;            // arithmetic operations, as each kernel states them
  double bytes = 0;          // of the buffers that each kernel touches
  absl::Duration time;       // of the kernels that were timed
  int64_t memory_bytes = 0;  // held now
  int64_t peak_memory_bytes = 0;
};

// Thread-safe.
class Counters {
 public:
  void AddKernels(int64_t kernels, double ops, double bytes, absl::Duration time);
  // Negative: given back.
  void AddMemory(int64_t bytes);
  Counts Get() const;
  // All to 0 but the memory: what is held stays, and the peak begins there.
  void Reset();

 private:
  mutable Mutex mutex_;
  Counts counts_ BEAMD_GUARDED_BY(mutex_);
};

}  // namespace beamd
