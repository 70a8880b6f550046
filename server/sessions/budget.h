// How much memory, and how many buffers, clients hold together.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace beamd {

// Thread-safe. What it gave must not outlive it.
class Budget {
 public:
  // Of all clients; with `whole`, which outlives it, of one principal.
  Budget(int64_t bytes, int64_t buffers, Budget* whole = nullptr)
      : most_bytes_(bytes), most_buffers_(buffers), whole_(whole) {}

  // For one buffer of these bytes. ResourceExhausted naming limit and value.
  absl::Status Take(int64_t bytes) {
    if (whole_ != nullptr) BEAMD_RETURN_IF_ERROR(whole_->Take(bytes));
    absl::Status status = Count(bytes);
    if (!status.ok() && whole_ != nullptr) whole_->Give(bytes);
    return status;
  }
  void Give(int64_t bytes) {
    {
      MutexLock lock(mutex_);
      bytes_ -= bytes;
      --buffers_;
    }
    if (whole_ != nullptr) whole_->Give(bytes);
  }
  int64_t bytes() const {
    MutexLock lock(mutex_);
    return bytes_;
  }
  int64_t buffers() const {
    MutexLock lock(mutex_);
    return buffers_;
  }

 private:
  absl::Status Count(int64_t bytes) {
    const char* const who = whole_ != nullptr ? "you hold " : "the server holds ";
    MutexLock lock(mutex_);
    if (buffers_ + 1 > most_buffers_) {
      return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                            who, buffers_, " buffers of ", most_buffers_, ": no room for another")),
                        {.reason = whole_ != nullptr ? "PRINCIPAL_BUFFERS" : "BUFFERS",
                         .limit = most_buffers_,
                         .value = buffers_ + 1});
    }
    if (bytes > most_bytes_ - bytes_) {
      return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                            who, bytes_, " bytes of ", most_bytes_, ": no room for ", bytes)),
                        {.reason = whole_ != nullptr ? "PRINCIPAL_BYTES" : "SERVER_BYTES",
                         .limit = most_bytes_,
                         .value = bytes});
    }
    bytes_ += bytes;
    ++buffers_;
    return absl::OkStatus();
  }

  const int64_t most_bytes_;
  const int64_t most_buffers_;
  Budget* const whole_;
  mutable Mutex mutex_;
  int64_t bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  int64_t buffers_ BEAMD_GUARDED_BY(mutex_) = 0;
};

}  // namespace beamd
