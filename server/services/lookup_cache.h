// Answers to look-ups as they went out, by the bytes of the request: a client that asks again, as
// every CI job does, is answered without parsing a graph. An answer holds as long as no record was
// written.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/mutex.h"

namespace beamd {

// What answered the queries of one request ("strict", "miss"), for counting them.
using Matches = std::vector<std::string>;

// Thread-safe. `Bytes` is copied cheaply (grpc::ByteBuffer: it shares its slices).
template <typename Bytes>
class LookupCache {
 public:
  struct Answer {
    Bytes bytes;
    std::shared_ptr<const Matches> matches;
  };

  explicit LookupCache(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // The answer to `request` that was given when the store was at `version`.
  std::optional<Answer> Find(const Digest& request, uint64_t version) {
    MutexLock lock(mutex_);
    if (version != version_) return std::nullopt;
    const auto it = entries_.find(request);
    if (it == entries_.end()) return std::nullopt;
    order_.splice(order_.begin(), order_, it->second.place);
    return it->second.answer;
  }

  // `version` was read before the answer was made: what was written meanwhile makes it old.
  // `bytes`: what the answer counts for.
  void Put(const Digest& request, uint64_t version, Answer answer, int64_t bytes) {
    bytes += kEntryBytes;
    if (bytes > capacity_bytes_) return;
    MutexLock lock(mutex_);
    if (version != version_) {
      // A late answer of before.
      if (version < version_) return;
      entries_.clear();
      order_.clear();
      bytes_ = 0;
      version_ = version;
    }
    if (entries_.find(request) != entries_.end()) return;
    order_.push_front(request);
    entries_.emplace(request, Entry{std::move(answer), bytes, order_.begin()});
    bytes_ += bytes;
    while (bytes_ > capacity_bytes_) {
      const auto last = entries_.find(order_.back());
      bytes_ -= last->second.bytes;
      entries_.erase(last);
      order_.pop_back();
    }
  }

  int64_t bytes() const {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  // Key, list and map.
  static constexpr int64_t kEntryBytes = 256;
  struct Entry {
    Answer answer;
    int64_t bytes = 0;
    std::list<Digest>::iterator place;
  };

  const int64_t capacity_bytes_;
  mutable Mutex mutex_;
  uint64_t version_ BEAMD_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  std::list<Digest> order_ BEAMD_GUARDED_BY(mutex_);  // the most lately used first
  std::map<Digest, Entry> entries_ BEAMD_GUARDED_BY(mutex_);
};

}  // namespace beamd
