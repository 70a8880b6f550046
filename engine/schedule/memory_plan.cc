#include "engine/schedule/memory_plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/option.h"

namespace beamd {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// A buffer and the items between which it holds something, both included.
struct Life {
  const TensorBuffer* buffer = nullptr;
  size_t first = 0;
  size_t last = 0;
  int64_t bytes = 0;
  int64_t offset = 0;
};

std::vector<Life> LivesOf(const Schedule& schedule) {
  absl::flat_hash_map<const TensorBuffer*, size_t> places;
  std::vector<Life> lives;
  for (const auto& buffer : schedule.internal) {
    places[buffer.get()] = lives.size();
    lives.push_back({buffer.get(), schedule.items.size(), 0, AlignUp(buffer->size_bytes())});
  }
  for (size_t i = 0; i < schedule.items.size(); ++i) {
    for (const auto& buffer : schedule.items[i].buffers) {
      const auto it = places.find(buffer.get());
      if (it == places.end()) continue;
      Life& life = lives[it->second];
      life.first = std::min(life.first, i);
      life.last = std::max(life.last, i);
    }
  }
  return lives;
}

// The most bytes that live at once.
int64_t MostAtOnce(const std::vector<Life>& lives, size_t items) {
  std::vector<int64_t> change(items + 1, 0);
  for (const Life& life : lives) {
    change[life.first] += life.bytes;
    change[life.last + 1] -= life.bytes;
  }
  int64_t now = 0;
  int64_t most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return most;
}

// Gives every life an offset; returns the size of the arena.
int64_t Place(std::vector<Life>& lives) {
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<const Life*> placed;  // by offset
  int64_t size = 0;
  for (Life& life : lives) {
    int64_t free_from = 0;
    int64_t best = -1;
    int64_t best_gap = 0;
    for (const Life* other : placed) {
      if (other->last < life.first || life.last < other->first) continue;
      const int64_t gap = other->offset - free_from;
      // The smallest hole that takes it.
      if (gap >= life.bytes && (best < 0 || gap < best_gap)) {
        best = free_from;
        best_gap = gap;
      }
      free_from = std::max(free_from, other->offset + other->bytes);
    }
    life.offset = best < 0 ? free_from : best;
    size = std::max(size, life.offset + life.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &life,
                         [](const Life* a, const Life* b) { return a->offset < b->offset; }),
        &life);
  }
  return size;
}

}  // namespace

MemoryPlan PlanMemory(const Schedule& schedule) {
  MemoryPlan plan;
  if (options::kNoMemoryPlanner != 0) return plan;
  absl::flat_hash_map<std::string, std::vector<Life>> by_device;
  for (Life& life : LivesOf(schedule)) by_device[life.buffer->device].push_back(life);
  std::vector<std::string> devices;
  devices.reserve(by_device.size());
  for (const auto& [device, lives] : by_device) devices.push_back(device);
  std::sort(devices.begin(), devices.end());
  for (const std::string& device : devices) {
    std::vector<Life>& lives = by_device[device];
    for (const Life& life : lives) plan.unshared_bytes += life.bytes;
    plan.lower_bound_bytes += MostAtOnce(lives, schedule.items.size());
    const int64_t size = Place(lives);
    const int arena = static_cast<int>(plan.arenas.size());
    for (const Life& life : lives) plan.places[life.buffer] = {arena, life.offset};
    plan.arenas.push_back({device, size});
    plan.peak_bytes += size;
  }
  return plan;
}

}  // namespace beamd
