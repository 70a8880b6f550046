// Which images a store keeps, and which of them goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "engine/base/hash.h"

namespace beamd {

// Images by their last use, which is a number that rises: no clock can step back. Not thread-safe.
class ImageShelf {
 public:
  struct Entry {
    Digest image;
    int64_t bytes = 0;
    bool operator==(const Entry&) const = default;
  };
  // By use, the longest unused first.
  using Entries = std::map<uint64_t, Entry>;

  // The use of an image that is there.
  std::optional<uint64_t> UseOf(const Digest& image) const {
    const auto it = use_of_.find(image);
    if (it == use_of_.end()) return std::nullopt;
    return it->second;
  }
  // The number of a use that comes now.
  uint64_t next_use() const { return entries_.empty() ? 1 : entries_.rbegin()->first + 1; }
  // Whether most others were used since: only then is a use worth a write.
  bool IsOld(uint64_t use) const { return next_use() - use > entries_.size() / 2 + 1; }

  // In the place of what the image had.
  void Add(uint64_t use, const Entry& entry) {
    Remove(entry.image);
    entries_[use] = entry;
    use_of_[entry.image] = use;
    bytes_ += entry.bytes;
  }
  void Remove(const Digest& image) {
    const auto it = use_of_.find(image);
    if (it == use_of_.end()) return;
    const auto entry = entries_.find(it->second);
    bytes_ -= entry->second.bytes;
    entries_.erase(entry);
    use_of_.erase(it);
  }
  void Clear() { *this = ImageShelf(); }

  const Entries& entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }

 private:
  Entries entries_;
  absl::flat_hash_map<Digest, uint64_t> use_of_;
  int64_t bytes_ = 0;
};

}  // namespace beamd
