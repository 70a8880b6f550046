// The numbers that a driver tells of a GPU, one call each.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace beamd {

// `Read`: absl::Status(int attribute, int* value). Read many, then look at status() once.
template <typename Read>
class Attributes {
 public:
  explicit Attributes(Read read) : read_(std::move(read)) {}
  // 0 where the driver refuses.
  int64_t operator[](int attribute) {
    int value = 0;
    absl::Status status = read_(attribute, &value);
    if (status_.ok()) status_ = std::move(status);
    return value;
  }
  // The first refusal.
  const absl::Status& status() const { return status_; }

 private:
  Read read_;
  absl::Status status_;
};

}  // namespace beamd
