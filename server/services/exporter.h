// What an export sends, record by record.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store.h"

namespace beamd {

// Pages through the store: what is written meanwhile may or may not be in it. What can't be read is
// left out, and named in the log. Not thread-safe.
class Exporter {
 public:
  // Of one kernel, or of all.
  Exporter(Store& store, const std::optional<Digest>& kernel) : store_(store), kernel_(kernel) {}

  // Null: that was all.
  absl::StatusOr<std::unique_ptr<v1::ExportedRecord>> Next();
  // Of records whose graph can't be read.
  int64_t left_out() const { return left_out_; }

 private:
  absl::Status Read();

  Store& store_;
  const std::optional<Digest> kernel_;
  std::optional<Digest> after_;
  std::deque<v1::Record> page_;
  bool last_ = false;
  int64_t left_out_ = 0;
};

}  // namespace beamd
