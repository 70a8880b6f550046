// The RocksDB under a store, kept going: watched, and opened again or repaired where it fails.
//
// RocksDB stops writing for good at most errors of its files, and at damage that a compaction
// meets; reads go on. A thread tries to mend that: RocksDB's own way first, then closing and opening
// it, and a repair where a file is damaged. Calls wait while it is closed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "server/store/store_health.h"

namespace beamd {

// DataLoss: what is there is damaged; ResourceExhausted: the file system is full.
absl::Status ToStatus(const rocksdb::Status& status);

struct DatabaseOptions {
  rocksdb::Env* env = nullptr;  // null: the system's
  absl::Duration retry;
  // What a database that was opened is given before others use it. `repaired`: something may be
  // missing.
  std::function<absl::Status(rocksdb::DB& db, bool repaired)> prepare;
  // Whether an entry of a damaged file is put back where its key has none any more.
  std::function<bool(absl::string_view key)> salvage;
};

// Thread-safe.
class Database {
 public:
  // FailedPrecondition where another process holds it.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& directory,
                                                        DatabaseOptions options);
  ~Database();

  // While it lives the database stays. Not within another.
  class Use {
   public:
    explicit Use(Database& database) : database_(database), entered_(database.Enter()) {}
    ~Use() {
      if (entered_) database_.Leave();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // Unavailable where there is none: it is being repaired, or could not be opened again.
    absl::Status status() const;

   private:
    Database& database_;
    const bool entered_;
  };
  // Under a Use, or in `prepare`.
  rocksdb::DB& db() const { return *db_; }

  // What a call of RocksDB came to; a failure is taken to heart.
  absl::Status Wrote(const rocksdb::Status& status);
  absl::Status Read(const rocksdb::Status& status);
  // A value that RocksDB holds to be good isn't.
  void MetUnreadable(absl::string_view what);

  StoreHealth health() const;
  void SetWatcher(std::function<void(bool writable)> watcher);

 private:
  class Listener;
  Database(std::string directory, DatabaseOptions options);

  bool Enter();
  void Leave();
  absl::Status OpenAtFirst();
  absl::Status OpenForWriting(bool repaired);
  absl::Status OpenForReading();
  absl::Status Repair(const absl::Status& why);
  absl::Status PutBackLost();
  bool IsCutOff() const;
  bool DirectoryTakesWrites() const;
  void Exchange(bool repair);
  void Mend();
  void Keep();
  void Fail(const std::string& why);
  void Damage();
  void Recovered();
  void Tell(bool writable);

  const std::string directory_;
  const DatabaseOptions options_;
  rocksdb::Options rocksdb_;
  std::unique_ptr<rocksdb::DB> db_;  // exchanged while there are no users

  mutable Mutex mutex_;
  CondVar changed_;
  int users_ BEAMD_GUARDED_BY(mutex_) = 0;
  bool exchanging_ BEAMD_GUARDED_BY(mutex_) = false;
  // Once it is exchanged, when calls no longer wait for that.
  absl::Time refuses_ BEAMD_GUARDED_BY(mutex_);
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  bool damaged_ BEAMD_GUARDED_BY(mutex_) = false;
  bool told_ BEAMD_GUARDED_BY(mutex_) = true;
  absl::Time repaired_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();
  StoreHealth health_ BEAMD_GUARDED_BY(mutex_);
  CondVar keeper_wakes_;
  Mutex watcher_mutex_;  // held while it is told
  std::function<void(bool)> watcher_ BEAMD_GUARDED_BY(watcher_mutex_);
  std::thread keeper_;
};

}  // namespace beamd
