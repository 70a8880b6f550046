// Files for RocksDB that fail as a test says.
#pragma once

#include <atomic>
#include <memory>

#include "rocksdb/env.h"

namespace beamd::testing {

enum class FileFault {
  kNone,
  kFull,      // what is there can be read and removed; nothing can be added
  kReadOnly,  // nothing can be changed, made or locked
  kNoSync,    // writes are taken, but whether they reach the disk isn't known
};

// Thread-safe. Outlives the stores on it.
class FaultyFiles {
 public:
  FaultyFiles();
  rocksdb::Env* env() const { return env_.get(); }
  void Set(FileFault fault) { *fault_ = fault; }

 private:
  const std::shared_ptr<std::atomic<FileFault>> fault_;
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace beamd::testing
