// Where the internal buffers of a schedule lie, so that those which are never needed at once share
// memory.
//
// Greedy by size: the largest buffer first, at the lowest place that is free for as long as it
// lives (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/schedule/schedule.h"

namespace beamd {

struct MemoryPlan {
  struct Place {
    int arena = 0;
    int64_t offset_bytes = 0;  // a multiple of kBufferAlignment
  };
  struct Arena {
    std::string device;
    int64_t size_bytes = 0;
  };
  std::vector<Arena> arenas;  // one a device
  // Every internal buffer, unless NO_MEMORY_PLANNER.
  absl::flat_hash_map<const TensorBuffer*, Place> places;
  int64_t peak_bytes = 0;         // of all arenas
  int64_t unshared_bytes = 0;     // what the internal buffers take apart
  int64_t lower_bound_bytes = 0;  // the most that is needed at once
};
inline constexpr int64_t kBufferAlignment = 64;

MemoryPlan PlanMemory(const Schedule& schedule);

}  // namespace beamd
