// What survives a restart: records, the graphs they are for, timings of candidates, jobs.
// README.md specifies every byte of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "proto/beamd/v1/ast.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store_health.h"
#include "server/store/stored.pb.h"

namespace rocksdb {
class Env;
}

namespace beamd {

struct StoreEntry {
  std::string key, value;
  bool operator==(const StoreEntry&) const = default;
};
// Takes one entry of a store from a schema to the next: what stands in its place.
using StoreMigration = std::function<absl::StatusOr<std::vector<StoreEntry>>(StoreEntry)>;
// Migration i leads from schema i + 1 to i + 2; the current schema is their number + 1.
const std::vector<StoreMigration>& StoreMigrations();

// Told of each look into the store by key ("read") and each synced write ("write"), and how long it
// took. Called on the thread that did it.
using StoreObserver = std::function<void(absl::string_view operation, absl::Duration took)>;

struct StoreOptions {
  std::vector<StoreMigration> migrations = StoreMigrations();
  // That images may come to; the longest unused go.
  int64_t image_bytes = int64_t{512} << 20;
  // Jobs that have ended are kept up to so many, besides those that a key's newest record is of; the
  // first to have ended go.
  int64_t jobs_kept = 10000;
  // What files are reached through; null: the system's. Outlives the store.
  rocksdb::Env* env = nullptr;
  // How long after a failure, and after each try to mend it, the next try comes.
  absl::Duration retry = absl::Seconds(1);
};

// Thread-safe. What a call wrote is synced when it returns, unless it says otherwise: then it
// survives the end of the process, but not of the machine.
//
// Where the file system takes no more writes, they fail and reads go on; the store tries again, and
// goes on by itself once it can. Where a file is damaged, what is in the damaged part is missed and
// the rest is kept: the store is repaired while calls wait for a while and then fail with Unavailable, and it says in
// the log what it lost.
class Store {
 public:
  // Makes the directory if need be, migrates an older schema. FailedPrecondition where another
  // process holds it, or where a newer beamd wrote it. A store that is there and can't be written
  // is opened all the same.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& directory,
                                                     const StoreOptions& options = {});
  ~Store();

  StoreHealth health() const;
  // Told at once, and whenever that changes, whether the store takes writes; on a thread of the
  // store's from then on. Null: nobody, from when this returns.
  void SetWatcher(std::function<void(bool writable)> watcher);

  // Writes `record` as the next generation of its key, with the graph, and returns it with its
  // generation and its sequence. Earlier generations stay.
  absl::StatusOr<v1::Record> PutRecord(v1::Record record, const v1::Graph& graph);
  // The same of a record from elsewhere, marked so. False where a record of this store's own, or
  // the same one, is there: then nothing is written.
  absl::StatusOr<bool> ImportRecord(v1::Record record, const v1::Graph& graph);
  // The sequence of the newest record; 0: there is none.
  uint64_t sequence() const;
  // What FindRecord gave when `sequence` was the newest.
  absl::StatusOr<std::optional<v1::Record>> FindRecordAt(const Digest& key, uint64_t sequence);
  // The newest generation, or the one asked for.
  absl::StatusOr<std::optional<v1::Record>> FindRecord(const Digest& key, uint64_t generation = 0);
  // The newest record of each key of this kernel, the newest first, up to `limit` keys.
  absl::StatusOr<std::vector<v1::Record>> RecordsOf(
      const Digest& kernel, size_t limit = std::numeric_limits<size_t>::max());
  // The newest record of up to `limit` keys, from the first key behind `after`.
  absl::StatusOr<std::vector<v1::Record>> ListRecords(const std::optional<Digest>& after,
                                                      int limit);
  absl::StatusOr<std::optional<v1::Graph>> FindGraph(const Digest& kernel);

  // Not synced: a lost timing costs one more measurement.
  absl::Status PutTiming(const Digest& key, const internal::StoredTiming& timing);
  absl::StatusOr<std::optional<internal::StoredTiming>> FindTiming(const Digest& key);
  absl::Status DropTiming(const Digest& key);

  // Where it has ended, some that ended before it may be forgotten, with what they tried.
  absl::Status PutJob(const internal::StoredJob& job);
  // The same of a job that is there and stays open. Not synced.
  absl::Status NoteJob(const internal::StoredJob& job);
  absl::StatusOr<std::optional<internal::StoredJob>> FindJob(const std::string& id);
  // Jobs that a daemon accepted and did not end, oldest first.
  absl::StatusOr<std::vector<internal::StoredJob>> UnfinishedJobs();
  // Up to `limit` jobs, the newest first, from the one before `before`; empty: from the newest.
  absl::StatusOr<std::vector<internal::StoredJob>> ListJobs(const std::string& before, int limit);

  // What a job tried, numbered from 1. Not synced: a lost one costs one more measurement.
  absl::Status PutCandidate(const std::string& job, uint64_t number,
                            const internal::StoredCandidate& candidate);
  absl::StatusOr<std::optional<internal::StoredCandidate>> FindCandidate(const std::string& job,
                                                                         uint64_t number);
  struct Candidate {
    uint64_t number = 0;
    internal::StoredCandidate stored;
  };
  // In the order of their numbers. One that was lost, or can't be read, isn't there.
  absl::StatusOr<std::vector<Candidate>> CandidatesOf(const std::string& job);
  absl::Status DropCandidates(const std::string& job);

  // Machine code by what shaped it (server/sessions), as much of it as StoreOptions::image_bytes.
  // Not synced: a lost one costs one more compile.
  absl::Status PutImage(const Digest& key, const std::string& image);
  // nullopt too where it was damaged: it is written anew.
  absl::StatusOr<std::optional<std::string>> FindImage(const Digest& key);

  // Device seconds that a principal used on a day (days since 1970, UTC); another day's are
  // forgotten. Not synced.
  absl::Status PutUsage(const std::string& principal, int64_t day, double seconds);
  absl::StatusOr<double> FindUsage(const std::string& principal, int64_t day);

  // A copy of the store as it is, in a directory that isn't there yet: files of this store, shared
  // where the file system can. Others write meanwhile.
  absl::Status Checkpoint(const std::string& directory);
  const std::string& directory() const;
  // Before others use the store.
  void SetObserver(StoreObserver observer);

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd
