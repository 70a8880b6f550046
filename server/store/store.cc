#include "server/store/store.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"
#include "server/store/stored_value.h"

namespace beamd {
namespace {

// First byte of a key.
constexpr char kMeta = 'm';
constexpr char kRecord = 'r';
constexpr char kByKernel = 'k';
constexpr char kGraph = 'g';
constexpr char kTiming = 't';
constexpr char kJob = 'j';
constexpr char kOpenJob = 'o';
constexpr char kCandidate = 'c';
constexpr char kUsage = 'u';
constexpr char kImage = 'i';

constexpr absl::string_view kSchemaKey = "mschema";
// The sequence of the newest record, in decimal digits.
constexpr absl::string_view kSequenceKey = "msequence";

absl::Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("store: ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

rocksdb::Slice Slice(absl::string_view s) { return {s.data(), s.size()}; }
absl::string_view View(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

absl::string_view Bytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::string Key(char space, absl::string_view a, absl::string_view b = "") {
  return absl::StrCat(absl::string_view(&space, 1), a, b);
}

// Big-endian, so that generations sort.
std::string BigEndian(uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[7 - i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

using stored::Decode;
using stored::Encode;

rocksdb::Options DbOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = size_t{8} << 20;
  options.max_open_files = 256;
  options.keep_log_file_num = 2;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.is_fd_close_on_exec = true;
  return options;
}

rocksdb::WriteOptions Synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

// A job's id holds no '/'.
std::string CandidateKey(const std::string& job, uint64_t number) {
  return Key(kCandidate, absl::StrCat(job, "/"), BigEndian(number));
}

// What bounds the keys that begin with `prefix` from above; it ends in no 0xff.
std::string PastPrefix(std::string prefix) {
  ++prefix.back();
  return prefix;
}

// To schema 2: times stand with their job's candidates, and only what failed is kept by kernel.
absl::StatusOr<std::vector<StoreEntry>> DropTimes(StoreEntry entry) {
  if (entry.key[0] != kTiming) return std::vector<StoreEntry>{std::move(entry)};
  BEAMD_ASSIGN_OR_RETURN(const auto timing, Decode<internal::StoredTiming>(entry.value));
  if (timing.failure() == 0) return std::vector<StoreEntry>{};
  return std::vector<StoreEntry>{std::move(entry)};
}

}  // namespace

const std::vector<StoreMigration>& StoreMigrations() {
  static const std::vector<StoreMigration> migrations = {DropTimes};
  return migrations;
}

class Store::Impl {
 public:
  Impl(std::string directory, std::unique_ptr<rocksdb::DB> db)
      : directory_(std::move(directory)), db_(std::move(db)) {}

  const std::string& directory() const { return directory_; }
  void SetObserver(StoreObserver observer) { observer_ = std::move(observer); }

  absl::Status LoadSequence() {
    BEAMD_ASSIGN_OR_RETURN(const std::optional<std::string> stored, Get(std::string(kSequenceKey)));
    uint64_t sequence = 0;
    if (stored && !absl::SimpleAtoi(*stored, &sequence)) {
      return absl::DataLossError("store: its sequence is no number");
    }
    sequence_ = sequence;
    return absl::OkStatus();
  }
  uint64_t sequence() const { return sequence_; }

  absl::Status Migrate(const std::vector<StoreMigration>& migrations) {
    const uint64_t current = migrations.size() + 1;
    BEAMD_ASSIGN_OR_RETURN(const std::optional<std::string> stored, Get(std::string(kSchemaKey)));
    uint64_t schema = current;  // of an empty store
    if (stored && !absl::SimpleAtoi(*stored, &schema)) {
      return absl::DataLossError("store: its schema is no number");
    }
    if (schema > current) {
      return absl::FailedPreconditionError(
          absl::StrCat("the store has schema ", schema, ", this beamd knows up to ", current));
    }
    rocksdb::WriteBatch batch;
    if (schema < current) {
      BEAMD_RETURN_IF_ERROR(Scan("", [&](absl::string_view key, absl::string_view value) {
        return Rewrite({std::string(key), std::string(value)}, schema, migrations, batch);
      }));
    }
    if (stored && schema == current) return absl::OkStatus();
    batch.Put(Slice(kSchemaKey), absl::StrCat(current));
    return ToStatus(Write(batch));
  }

  absl::StatusOr<v1::Record> PutRecord(v1::Record record, const v1::Graph& graph) {
    BEAMD_ASSIGN_OR_RETURN(const Digest key, Digest::FromHex(record.key()));
    BEAMD_ASSIGN_OR_RETURN(const Digest kernel, Digest::FromHex(record.kernel_hash()));
    MutexLock lock(generations_);
    BEAMD_ASSIGN_OR_RETURN(const std::optional<v1::Record> newest, FindRecord(key, 0));
    if (record.imported() && newest && (!newest->imported() || SameAnswer(*newest, record))) {
      return *newest;
    }
    record.set_generation(newest ? newest->generation() + 1 : 1);
    record.set_sequence(sequence_ + 1);
    rocksdb::WriteBatch batch;
    batch.Put(Slice(kSequenceKey), absl::StrCat(record.sequence()));
    batch.Put(Key(kRecord, Bytes(key), BigEndian(record.generation())), Encode(record));
    batch.Put(Key(kByKernel, Bytes(kernel), Bytes(key)), "");
    batch.Put(Key(kGraph, Bytes(kernel)), Encode(graph));
    BEAMD_RETURN_IF_ERROR(ToStatus(Write(batch)));
    sequence_ = record.sequence();
    return record;
  }

  absl::StatusOr<std::optional<v1::Record>> FindRecordAt(const Digest& key, uint64_t sequence) {
    const std::string prefix = Key(kRecord, Bytes(key));
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    it->SeekForPrev(absl::StrCat(prefix, BigEndian(~uint64_t{0})));
    for (; it->Valid() && absl::StartsWith(View(it->key()), prefix); it->Prev()) {
      BEAMD_ASSIGN_OR_RETURN(v1::Record record, Decode<v1::Record>(View(it->value())));
      if (record.sequence() <= sequence) return record;
    }
    BEAMD_RETURN_IF_ERROR(ToStatus(it->status()));
    return std::nullopt;
  }

  absl::Status Checkpoint(const std::string& directory) {
    rocksdb::Checkpoint* made = nullptr;
    BEAMD_RETURN_IF_ERROR(ToStatus(rocksdb::Checkpoint::Create(db_.get(), &made)));
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    return ToStatus(checkpoint->CreateCheckpoint(directory));
  }

  absl::StatusOr<std::optional<v1::Record>> FindRecord(const Digest& key, uint64_t generation) {
    if (generation != 0) {
      return Find<v1::Record>(Key(kRecord, Bytes(key), BigEndian(generation)));
    }
    const std::string prefix = Key(kRecord, Bytes(key));
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    const absl::Time began = absl::Now();
    it->SeekForPrev(absl::StrCat(prefix, BigEndian(~uint64_t{0})));
    if (observer_) observer_("read", absl::Now() - began);
    if (!it->Valid() || !absl::StartsWith(View(it->key()), prefix)) {
      BEAMD_RETURN_IF_ERROR(ToStatus(it->status()));
      return std::nullopt;
    }
    return Decode<v1::Record>(View(it->value()));
  }

  absl::StatusOr<std::vector<v1::Record>> RecordsOf(const Digest& kernel) {
    const std::string prefix = Key(kByKernel, Bytes(kernel));
    std::vector<v1::Record> records;
    BEAMD_RETURN_IF_ERROR(Scan(prefix, [&](absl::string_view key, absl::string_view) {
      return AppendNewest(key.substr(prefix.size()), records);
    }));
    return records;
  }

  absl::StatusOr<std::vector<v1::Record>> ListRecords(const std::optional<Digest>& after,
                                                      int limit) {
    std::vector<v1::Record> records;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    // Behind every generation of a key.
    const std::string last(9, '\xff');
    it->Seek(after ? Key(kRecord, Bytes(*after), last) : std::string(1, kRecord));
    while (it->Valid() && View(it->key())[0] == kRecord &&
           static_cast<int>(records.size()) < limit) {
      const std::string key(View(it->key()).substr(1, sizeof(Digest)));
      BEAMD_RETURN_IF_ERROR(AppendNewest(key, records));
      it->Seek(Key(kRecord, key, last));
    }
    BEAMD_RETURN_IF_ERROR(ToStatus(it->status()));
    return records;
  }

  absl::Status PutJob(const internal::StoredJob& job) {
    rocksdb::WriteBatch batch;
    batch.Put(Key(kJob, job.id()), Encode(job));
    if (job.state() == internal::StoredJob::ACCEPTED) {
      batch.Put(Key(kOpenJob, job.id()), "");
    } else {
      batch.Delete(Key(kOpenJob, job.id()));
    }
    return ToStatus(Write(batch));
  }

  absl::StatusOr<std::vector<internal::StoredJob>> UnfinishedJobs() {
    std::vector<internal::StoredJob> jobs;
    const std::string prefix(1, kOpenJob);
    BEAMD_RETURN_IF_ERROR(
        Scan(prefix, [&](absl::string_view key, absl::string_view) -> absl::Status {
          BEAMD_ASSIGN_OR_RETURN(std::optional<internal::StoredJob> job,
                                 Find<internal::StoredJob>(Key(kJob, key.substr(1))));
          if (job) jobs.push_back(*std::move(job));
          return absl::OkStatus();
        }));
    return jobs;
  }

  // Newest first: ids begin with the time.
  absl::StatusOr<std::vector<internal::StoredJob>> ListJobs(const std::string& before, int limit) {
    std::vector<internal::StoredJob> jobs;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    const std::string end = before.empty() ? std::string(1, kJob + 1) : Key(kJob, before);
    it->SeekForPrev(end);
    if (it->Valid() && View(it->key()) == end) it->Prev();
    for (; it->Valid() && it->key()[0] == kJob && static_cast<int>(jobs.size()) < limit;
         it->Prev()) {
      BEAMD_ASSIGN_OR_RETURN(jobs.emplace_back(), Decode<internal::StoredJob>(View(it->value())));
    }
    BEAMD_RETURN_IF_ERROR(ToStatus(it->status()));
    return jobs;
  }

  absl::StatusOr<std::vector<internal::StoredCandidate>> CandidatesOf(const std::string& job) {
    std::vector<internal::StoredCandidate> candidates;
    BEAMD_RETURN_IF_ERROR(Scan(Key(kCandidate, job, "/"),
                               [&](absl::string_view, absl::string_view value) -> absl::Status {
                                 BEAMD_ASSIGN_OR_RETURN(candidates.emplace_back(),
                                                        Decode<internal::StoredCandidate>(value));
                                 return absl::OkStatus();
                               }));
    return candidates;
  }

  absl::Status DropCandidates(const std::string& job) {
    const std::string begin = Key(kCandidate, job, "/");
    return ToStatus(db_->DeleteRange({}, db_->DefaultColumnFamily(), begin, PastPrefix(begin)));
  }

  absl::Status Put(const std::string& key, const std::string& value) {
    return ToStatus(db_->Put({}, key, value));
  }

  template <typename Message>
  absl::StatusOr<std::optional<Message>> Find(const std::string& key) {
    BEAMD_ASSIGN_OR_RETURN(const std::optional<std::string> value, Get(key));
    if (!value) return std::nullopt;
    return Decode<Message>(*value);
  }

 private:
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) {
    std::string value;
    const rocksdb::Status status = Read(key, value);
    if (status.IsNotFound()) return std::nullopt;
    BEAMD_RETURN_IF_ERROR(ToStatus(status));
    return value;
  }

  template <typename Visit>
  absl::Status Scan(const std::string& prefix, Visit visit) {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    for (it->Seek(prefix); it->Valid() && absl::StartsWith(View(it->key()), prefix); it->Next()) {
      BEAMD_RETURN_IF_ERROR(visit(View(it->key()), View(it->value())));
    }
    return ToStatus(it->status());
  }

  absl::Status AppendNewest(absl::string_view key_bytes, std::vector<v1::Record>& records) {
    Digest key;
    if (key_bytes.size() != key.bytes.size()) return absl::DataLossError("store: a key too short");
    std::copy(key_bytes.begin(), key_bytes.end(), key.bytes.begin());
    BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Record> record, FindRecord(key, 0));
    if (record) records.push_back(*std::move(record));
    return absl::OkStatus();
  }

  static absl::Status Rewrite(StoreEntry entry, uint64_t schema,
                              const std::vector<StoreMigration>& migrations,
                              rocksdb::WriteBatch& batch) {
    if (entry.key[0] == kMeta) return absl::OkStatus();
    const StoreEntry old = entry;
    std::vector<StoreEntry> entries = {std::move(entry)};
    for (uint64_t i = schema - 1; i < migrations.size(); ++i) {
      std::vector<StoreEntry> next;
      for (StoreEntry& from : entries) {
        BEAMD_ASSIGN_OR_RETURN(std::vector<StoreEntry> to, migrations[i](std::move(from)));
        std::move(to.begin(), to.end(), std::back_inserter(next));
      }
      entries = std::move(next);
    }
    // Most entries mean the same in both schemas: the write holds what changes.
    if (entries.size() == 1 && entries[0] == old) return absl::OkStatus();
    batch.Delete(old.key);
    for (const StoreEntry& e : entries) batch.Put(e.key, e.value);
    return absl::OkStatus();
  }

  static bool SameAnswer(const v1::Record& a, const v1::Record& b) {
    return a.opts_size() == b.opts_size() &&
           std::equal(a.opts().begin(), a.opts().end(), b.opts().begin(),
                      [](const v1::Opt& x, const v1::Opt& y) {
                        return x.SerializeAsString() == y.SerializeAsString();
                      });
  }

  // Synced.
  rocksdb::Status Write(rocksdb::WriteBatch& batch) {
    const absl::Time began = absl::Now();
    const rocksdb::Status status = db_->Write(Synced(), &batch);
    if (observer_) observer_("write", absl::Now() - began);
    return status;
  }

  rocksdb::Status Read(const std::string& key, std::string& value) {
    const absl::Time began = absl::Now();
    const rocksdb::Status status = db_->Get({}, key, &value);
    if (observer_) observer_("read", absl::Now() - began);
    return status;
  }

  StoreObserver observer_;
  const std::string directory_;
  const std::unique_ptr<rocksdb::DB> db_;
  Mutex generations_;  // held from reading the newest generation to writing the next
  std::atomic<uint64_t> sequence_ = 0;
};

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory,
                                                   const std::vector<StoreMigration>& migrations) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", directory, " can't be made: ", error.message()));
  }
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(DbOptions(), directory, &db);
  if (status.IsIOError() && absl::StrContains(status.ToString(), "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", directory, " is in use by another beamd"));
  }
  BEAMD_RETURN_IF_ERROR(ToStatus(status));
  auto impl = std::make_unique<Impl>(directory, std::unique_ptr<rocksdb::DB>(db));
  BEAMD_RETURN_IF_ERROR(impl->Migrate(migrations));
  BEAMD_RETURN_IF_ERROR(impl->LoadSequence());
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

absl::StatusOr<v1::Record> Store::PutRecord(v1::Record record, const v1::Graph& graph) {
  return impl_->PutRecord(std::move(record), graph);
}
absl::StatusOr<std::optional<v1::Record>> Store::FindRecord(const Digest& key,
                                                            uint64_t generation) {
  return impl_->FindRecord(key, generation);
}
absl::StatusOr<std::vector<v1::Record>> Store::RecordsOf(const Digest& kernel) {
  return impl_->RecordsOf(kernel);
}
absl::StatusOr<std::vector<v1::Record>> Store::ListRecords(const std::optional<Digest>& after,
                                                           int limit) {
  return impl_->ListRecords(after, limit);
}
absl::StatusOr<std::optional<v1::Graph>> Store::FindGraph(const Digest& kernel) {
  return impl_->Find<v1::Graph>(Key(kGraph, Bytes(kernel)));
}
absl::Status Store::PutImage(const Digest& key, const std::string& image) {
  internal::StoredImage stored;
  stored.set_image(image);
  stored.set_digest(std::string(Bytes(HashBytes(image))));
  return impl_->Put(Key(kImage, Bytes(key)), Encode(stored));
}
absl::StatusOr<std::optional<std::string>> Store::FindImage(const Digest& key) {
  absl::StatusOr<std::optional<internal::StoredImage>> stored =
      impl_->Find<internal::StoredImage>(Key(kImage, Bytes(key)));
  if (absl::IsDataLoss(stored.status())) return std::nullopt;
  if (!stored.ok()) return stored.status();
  if (!*stored) return std::nullopt;
  if ((*stored)->digest() != Bytes(HashBytes((*stored)->image()))) return std::nullopt;
  return std::move(*(*stored)->mutable_image());
}

absl::Status Store::PutTiming(const Digest& key, const internal::StoredTiming& timing) {
  return impl_->Put(Key(kTiming, Bytes(key)), Encode(timing));
}
absl::StatusOr<std::optional<internal::StoredTiming>> Store::FindTiming(const Digest& key) {
  return impl_->Find<internal::StoredTiming>(Key(kTiming, Bytes(key)));
}
absl::Status Store::PutJob(const internal::StoredJob& job) { return impl_->PutJob(job); }
absl::StatusOr<std::optional<internal::StoredJob>> Store::FindJob(const std::string& id) {
  return impl_->Find<internal::StoredJob>(Key(kJob, id));
}
absl::StatusOr<std::vector<internal::StoredJob>> Store::UnfinishedJobs() {
  return impl_->UnfinishedJobs();
}
absl::StatusOr<std::vector<internal::StoredJob>> Store::ListJobs(const std::string& before,
                                                                 int limit) {
  return impl_->ListJobs(before, limit);
}
absl::Status Store::PutCandidate(const std::string& job, uint64_t number,
                                 const internal::StoredCandidate& candidate) {
  return impl_->Put(CandidateKey(job, number), Encode(candidate));
}
absl::StatusOr<std::optional<internal::StoredCandidate>> Store::FindCandidate(
    const std::string& job, uint64_t number) {
  return impl_->Find<internal::StoredCandidate>(CandidateKey(job, number));
}
absl::StatusOr<std::vector<internal::StoredCandidate>> Store::CandidatesOf(const std::string& job) {
  return impl_->CandidatesOf(job);
}
absl::StatusOr<bool> Store::ImportRecord(v1::Record record, const v1::Graph& graph) {
  record.set_imported(true);
  const uint64_t before = impl_->sequence();
  BEAMD_ASSIGN_OR_RETURN(const v1::Record there, impl_->PutRecord(std::move(record), graph));
  return there.imported() && there.sequence() > before;
}
void Store::SetObserver(StoreObserver observer) { impl_->SetObserver(std::move(observer)); }
uint64_t Store::sequence() const { return impl_->sequence(); }
absl::StatusOr<std::optional<v1::Record>> Store::FindRecordAt(const Digest& key,
                                                              uint64_t sequence) {
  return impl_->FindRecordAt(key, sequence);
}
absl::Status Store::Checkpoint(const std::string& directory) {
  return impl_->Checkpoint(directory);
}
const std::string& Store::directory() const { return impl_->directory(); }
absl::Status Store::DropCandidates(const std::string& job) { return impl_->DropCandidates(job); }
absl::Status Store::PutUsage(const std::string& principal, int64_t day, double seconds) {
  internal::StoredUsage usage;
  usage.set_day(day);
  usage.set_device_seconds(seconds);
  return impl_->Put(Key(kUsage, principal), Encode(usage));
}
absl::StatusOr<double> Store::FindUsage(const std::string& principal, int64_t day) {
  BEAMD_ASSIGN_OR_RETURN(const std::optional<internal::StoredUsage> usage,
                         impl_->Find<internal::StoredUsage>(Key(kUsage, principal)));
  return usage && usage->day() == day ? usage->device_seconds() : 0.0;
}

}  // namespace beamd
