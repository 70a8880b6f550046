// Which jobs have ended and may be forgotten, and which of them goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace beamd {

// Jobs in the order in which they ended, which is a number that rises: no clock can step back. Not
// thread-safe.
class EndedJobs {
 public:
  bool Has(const std::string& id) const { return number_of_.contains(id); }
  // The number of one that ends now.
  uint64_t next() const { return order_.empty() ? 1 : order_.rbegin()->first + 1; }
  // In the place of what the job had.
  void Add(uint64_t number, const std::string& id) {
    Remove(id);
    order_.emplace(number, id);
    number_of_[id] = number;
  }
  void Remove(const std::string& id) {
    const auto it = number_of_.find(id);
    if (it == number_of_.end()) return;
    order_.erase({it->second, id});
    number_of_.erase(it);
  }
  void Clear() { *this = EndedJobs(); }

  size_t size() const { return order_.size(); }
  // Its number and its id; there is one.
  const std::pair<uint64_t, std::string>& oldest() const { return *order_.begin(); }

 private:
  std::set<std::pair<uint64_t, std::string>> order_;
  absl::flat_hash_map<std::string, uint64_t> number_of_;
};

}  // namespace beamd
