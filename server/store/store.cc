#include "server/store/store.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"
#include "server/store/database.h"
#include "server/store/ended_jobs.h"
#include "server/store/image_shelf.h"
#include "server/store/stored_value.h"
#include "spdlog/spdlog.h"

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
constexpr char kEndedJob = 'e';
constexpr char kCandidate = 'c';
constexpr char kUsage = 'u';
constexpr char kImage = 'i';
constexpr char kImageUse = 'x';

// Of the keys that a repair lost so many are named in the log.
constexpr int64_t kLostTold = 100;

// Jobs that are forgotten at most when one ends, and when the store is opened: fewer are kept from
// some time on, and nobody waits for all the others to go.
constexpr int kForgottenAtEnd = 8;
constexpr int kForgottenAtOpen = 1000;

constexpr absl::string_view kSchemaKey = "mschema";
// The sequence of the newest record, in decimal digits.
constexpr absl::string_view kSequenceKey = "msequence";

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

uint64_t FromBigEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

using stored::Decode;
using stored::Encode;

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
  // One that can't be read is as good as lost, which costs one more measurement.
  const auto timing = Decode<internal::StoredTiming>(entry.value);
  if (!timing.ok() || timing->failure() == 0) return std::vector<StoreEntry>{};
  return std::vector<StoreEntry>{std::move(entry)};
}

// To schema 3: of images it is known when they were used. Those that it isn't of are compiled again.
absl::StatusOr<std::vector<StoreEntry>> DropImages(StoreEntry entry) {
  if (entry.key[0] == kImage) return std::vector<StoreEntry>{};
  return std::vector<StoreEntry>{std::move(entry)};
}

std::string EndedKey(uint64_t number, const std::string& job) {
  return Key(kEndedJob, BigEndian(number), job);
}

// To schema 4: which jobs have ended, those of before in the order of their ids.
absl::StatusOr<std::vector<StoreEntry>> NoteEnded(StoreEntry entry) {
  if (entry.key[0] != kJob) return std::vector<StoreEntry>{std::move(entry)};
  const absl::StatusOr<internal::StoredJob> job = Decode<internal::StoredJob>(entry.value);
  if (job.ok() && job->state() == internal::StoredJob::ACCEPTED) {
    return std::vector<StoreEntry>{std::move(entry)};
  }
  StoreEntry ended{.key = EndedKey(0, entry.key.substr(1)), .value = ""};
  return std::vector<StoreEntry>{std::move(entry), std::move(ended)};
}

// Behind a kernel's hash: its records, the newest first. `sequence`: of the record.
std::string ByKernelKey(const Digest& kernel, uint64_t sequence, const Digest& key) {
  return absl::StrCat(Key(kByKernel, Bytes(kernel)), BigEndian(~sequence), Bytes(key));
}
constexpr size_t kByKernelKeyAt = 1 + sizeof(Digest) + sizeof(uint64_t);

// To schema 5: a kernel's records are found newest first.
absl::StatusOr<std::vector<StoreEntry>> OrderRecords(StoreEntry entry) {
  if (entry.key[0] == kByKernel) return std::vector<StoreEntry>{};
  std::vector<StoreEntry> entries;
  if (entry.key[0] == kRecord) {
    // What can't be read answers nobody.
    const absl::StatusOr<v1::Record> record = Decode<v1::Record>(entry.value);
    const absl::StatusOr<Digest> key = Digest::FromHex(record.ok() ? record->key() : "");
    const absl::StatusOr<Digest> kernel = Digest::FromHex(record.ok() ? record->kernel_hash() : "");
    if (key.ok() && kernel.ok()) {
      entries.push_back({.key = ByKernelKey(*kernel, record->sequence(), *key), .value = ""});
    }
  }
  entries.push_back(std::move(entry));
  return entries;
}

// False where `bytes` aren't a digest's.
bool ToDigest(absl::string_view bytes, Digest& digest) {
  if (bytes.size() != digest.bytes.size()) return false;
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return true;
}

}  // namespace

const std::vector<StoreMigration>& StoreMigrations() {
  static const std::vector<StoreMigration> migrations = {DropTimes, DropImages, NoteEnded,
                                                         OrderRecords};
  return migrations;
}

class Store::Impl {
 public:
  Impl(std::string directory, const StoreOptions& options)
      : directory_(std::move(directory)),
        migrations_(options.migrations),
        image_bytes_(options.image_bytes),
        jobs_kept_(static_cast<size_t>(options.jobs_kept)) {}

  absl::Status Open(const StoreOptions& options) {
    BEAMD_ASSIGN_OR_RETURN(
        database_,
        Database::Open(
            directory_,
            {.env = options.env,
             .retry = options.retry,
             .prepare = [this](rocksdb::DB& db, bool repaired) { return Prepare(db, repaired); },
             // A job's candidates are forgotten in one stroke, which a table doesn't
             // tell of another's.
             .salvage = [](absl::string_view key) { return key[0] != kCandidate; }}));
    return absl::OkStatus();
  }

  // Runs `call` while the database stays as it is.
  template <typename Call>
  auto Used(Call call) -> decltype(call()) {
    const Database::Use use(*database_);
    BEAMD_RETURN_IF_ERROR(use.status());
    return call();
  }
  StoreHealth health() const { return database_->health(); }
  void SetWatcher(std::function<void(bool)> watcher) { database_->SetWatcher(std::move(watcher)); }

  const std::string& directory() const { return directory_; }
  void SetObserver(StoreObserver observer) { observer_ = std::move(observer); }

  absl::Status Prepare(rocksdb::DB& db, bool repaired) {
    db_ = &db;
    BEAMD_RETURN_IF_ERROR(Migrate(migrations_));
    BEAMD_RETURN_IF_ERROR(LoadSequence());
    BEAMD_RETURN_IF_ERROR(LoadImages(repaired));
    BEAMD_RETURN_IF_ERROR(LoadEnded(repaired));
    return repaired ? TakeStock() : absl::OkStatus();
  }

  // After a repair: what is the newest record, and which keys have none any more.
  absl::Status TakeStock() {
    uint64_t sequence = sequence_;
    BEAMD_RETURN_IF_ERROR(
        Scan(std::string(1, kRecord), [&](absl::string_view key, absl::string_view value) {
          const absl::StatusOr<v1::Record> record = Decode<v1::Record>(value);
          if (record.ok()) sequence = std::max(sequence, record->sequence());
          if (!record.ok()) PassOver(record.status(), key);
          return absl::OkStatus();
        }));
    int64_t lost = 0;
    BEAMD_RETURN_IF_ERROR(
        Scan(std::string(1, kByKernel), [&](absl::string_view index, absl::string_view) {
          const absl::string_view key = index.substr(std::min(index.size(), kByKernelKeyAt));
          const std::string prefix = Key(kRecord, key);
          const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
          it->Seek(prefix);
          if (it->Valid() && absl::StartsWith(View(it->key()), prefix)) return absl::OkStatus();
          if (lost < kLostTold) {
            spdlog::error("store: the record of key {} was lost", absl::BytesToHexString(key));
          }
          ++lost;
          return absl::OkStatus();
        }));
    spdlog::warn("store: repaired; {} keys have no record any more", lost);
    if (sequence == sequence_) return absl::OkStatus();
    sequence_ = sequence;
    rocksdb::WriteBatch batch;
    batch.Put(Slice(kSequenceKey), absl::StrCat(sequence));
    return Write(batch);
  }

  absl::Status LoadSequence() {
    BEAMD_ASSIGN_OR_RETURN(const std::optional<std::string> stored, Get(std::string(kSequenceKey)));
    uint64_t sequence = 0;
    if (stored && !absl::SimpleAtoi(*stored, &sequence)) {
      return absl::DataLossError("store: its sequence is no number");
    }
    // What was not acknowledged may have been written all the same, and the other way round after a
    // repair: it never goes back.
    sequence_ = std::max<uint64_t>(sequence_, sequence);
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
    return Write(batch);
  }

  absl::StatusOr<v1::Record> PutRecord(v1::Record record, const v1::Graph& graph) {
    BEAMD_ASSIGN_OR_RETURN(const Digest key, Digest::FromHex(record.key()));
    BEAMD_ASSIGN_OR_RETURN(const Digest kernel, Digest::FromHex(record.kernel_hash()));
    MutexLock lock(generations_);
    rocksdb::WriteBatch batch;
    std::string superseded;  // whose record is the newest no longer
    const absl::StatusOr<std::optional<v1::Record>> newest = FindRecord(key, 0);
    if (!newest.ok()) {
      if (!absl::IsDataLoss(newest.status())) return newest.status();
      // Which generation it is can't be told: no key has had more than there are records.
      record.set_generation(std::max(NewestGeneration(key), sequence_.load()) + 1);
    } else {
      const std::optional<v1::Record>& there = *newest;
      if (record.imported() && there && (!there->imported() || SameAnswer(*there, record))) {
        return *there;
      }
      record.set_generation(there ? there->generation() + 1 : 1);
      if (there && there->job() != record.job()) superseded = there->job();
      if (there) batch.Delete(ByKernelKey(kernel, there->sequence(), key));
    }
    record.set_sequence(sequence_ + 1);
    batch.Put(Slice(kSequenceKey), absl::StrCat(record.sequence()));
    batch.Put(Key(kRecord, Bytes(key), BigEndian(record.generation())), Encode(record));
    batch.Put(ByKernelKey(kernel, record.sequence(), key), "");
    batch.Put(Key(kGraph, Bytes(kernel)), Encode(graph));
    MutexLock jobs(jobs_);
    const uint64_t number = ended_.next();
    const bool forgettable = IsLeftOut(superseded);
    if (forgettable) batch.Put(EndedKey(number, superseded), "");
    BEAMD_RETURN_IF_ERROR(Write(batch));
    if (forgettable) ended_.Add(number, superseded);
    sequence_ = record.sequence();
    return record;
  }

  absl::StatusOr<std::optional<v1::Record>> FindRecordAt(const Digest& key, uint64_t sequence) {
    const std::string prefix = Key(kRecord, Bytes(key));
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    it->SeekForPrev(absl::StrCat(prefix, BigEndian(~uint64_t{0})));
    for (; it->Valid() && absl::StartsWith(View(it->key()), prefix); it->Prev()) {
      absl::StatusOr<v1::Record> record = Decode<v1::Record>(View(it->value()));
      if (!record.ok()) {
        PassOver(record.status(), View(it->key()));
      } else if (record->sequence() <= sequence) {
        return *std::move(record);
      }
    }
    BEAMD_RETURN_IF_ERROR(Read(it->status()));
    return std::nullopt;
  }

  absl::Status Checkpoint(const std::string& directory) {
    rocksdb::Checkpoint* made = nullptr;
    BEAMD_RETURN_IF_ERROR(ToStatus(rocksdb::Checkpoint::Create(db_, &made)));
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
      BEAMD_RETURN_IF_ERROR(Read(it->status()));
      return std::nullopt;
    }
    return Decode<v1::Record>(View(it->value()));
  }

  absl::StatusOr<std::vector<v1::Record>> RecordsOf(const Digest& kernel, size_t limit) {
    const std::string prefix = Key(kByKernel, Bytes(kernel));
    std::vector<v1::Record> records;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    absl::flat_hash_set<std::string> seen;
    for (it->Seek(prefix);
         it->Valid() && absl::StartsWith(View(it->key()), prefix) && records.size() < limit;
         it->Next()) {
      const absl::string_view key = View(it->key()).substr(prefix.size() + sizeof(uint64_t));
      // A newer record of a key may stand beside one that could not be read when it was written.
      if (!seen.emplace(key).second) continue;
      BEAMD_RETURN_IF_ERROR(AppendNewest(key, records));
    }
    BEAMD_RETURN_IF_ERROR(Read(it->status()));
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
    BEAMD_RETURN_IF_ERROR(Read(it->status()));
    return records;
  }

  absl::Status PutJob(const internal::StoredJob& job) {
    rocksdb::WriteBatch batch;
    batch.Put(Key(kJob, job.id()), Encode(job));
    if (job.state() == internal::StoredJob::ACCEPTED) {
      batch.Put(Key(kOpenJob, job.id()), "");
      return Write(batch);
    }
    batch.Delete(Key(kOpenJob, job.id()));
    MutexLock lock(jobs_);
    const uint64_t number = ended_.next();
    const bool ends = !ended_.Has(job.id());
    if (ends) batch.Put(EndedKey(number, job.id()), "");
    BEAMD_RETURN_IF_ERROR(Write(batch));
    if (ends) ended_.Add(number, job.id());
    ForgetJobs(kForgottenAtEnd);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<internal::StoredJob>> UnfinishedJobs() {
    std::vector<internal::StoredJob> jobs;
    const std::string prefix(1, kOpenJob);
    BEAMD_RETURN_IF_ERROR(
        Scan(prefix, [&](absl::string_view key, absl::string_view) -> absl::Status {
          const std::string job_key = Key(kJob, key.substr(1));
          absl::StatusOr<std::optional<internal::StoredJob>> job =
              Find<internal::StoredJob>(job_key);
          if (!job.ok()) return PassOver(job.status(), job_key) ? absl::OkStatus() : job.status();
          // A repair may bring back that a job is open, which has ended.
          if (*job && (*job)->state() == internal::StoredJob::ACCEPTED) {
            jobs.push_back(**std::move(job));
          }
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
      absl::StatusOr<internal::StoredJob> job = Decode<internal::StoredJob>(View(it->value()));
      if (job.ok()) {
        jobs.push_back(*std::move(job));
      } else {
        PassOver(job.status(), View(it->key()));
      }
    }
    BEAMD_RETURN_IF_ERROR(Read(it->status()));
    return jobs;
  }

  absl::StatusOr<std::vector<Candidate>> CandidatesOf(const std::string& job) {
    const std::string prefix = Key(kCandidate, job, "/");
    std::vector<Candidate> candidates;
    BEAMD_RETURN_IF_ERROR(Scan(prefix, [&](absl::string_view key, absl::string_view value) {
      absl::StatusOr<internal::StoredCandidate> stored = Decode<internal::StoredCandidate>(value);
      if (stored.ok()) {
        candidates.push_back(
            {.number = FromBigEndian(key.substr(prefix.size())), .stored = *std::move(stored)});
      } else {
        PassOver(stored.status(), key);
      }
      return absl::OkStatus();
    }));
    return candidates;
  }

  absl::Status DropCandidates(const std::string& job) {
    const std::string begin = Key(kCandidate, job, "/");
    return Wrote(db_->DeleteRange({}, db_->DefaultColumnFamily(), begin, PastPrefix(begin)));
  }

  absl::Status DropTiming(const Digest& key) {
    return Wrote(db_->Delete({}, Key(kTiming, Bytes(key))));
  }

  absl::Status Put(const std::string& key, const std::string& value) {
    return Wrote(db_->Put({}, key, value));
  }

  // The longest unused make room; what is past the bound alone isn't kept.
  absl::Status PutImage(const Digest& image, const std::string& value) {
    const std::string key = Key(kImage, Bytes(image));
    const auto bytes = static_cast<int64_t>(key.size() + value.size());
    if (bytes > image_bytes_) return absl::OkStatus();
    MutexLock lock(images_);
    rocksdb::WriteBatch batch;
    batch.Put(key, value);
    const uint64_t use = NoteUse({.image = image, .bytes = bytes}, batch);
    const std::optional<uint64_t> before = shelf_.UseOf(image);
    const int64_t replaced = before ? shelf_.entries().at(*before).bytes : 0;
    const std::vector<Digest> gone = MakeRoom(shelf_.bytes() - replaced + bytes, image, batch);
    BEAMD_RETURN_IF_ERROR(Wrote(db_->Write({}, &batch)));
    for (const Digest& old : gone) shelf_.Remove(old);
    shelf_.Add(use, {.image = image, .bytes = bytes});
    return absl::OkStatus();
  }

  // It is used now. What can't be written down costs it some of its time here.
  void TouchImage(const Digest& image) {
    MutexLock lock(images_);
    const std::optional<uint64_t> before = shelf_.UseOf(image);
    if (!before || !shelf_.IsOld(*before)) return;
    const ImageShelf::Entry entry = shelf_.entries().at(*before);
    rocksdb::WriteBatch batch;
    const uint64_t use = NoteUse(entry, batch);
    if (Wrote(db_->Write({}, &batch)).ok()) shelf_.Add(use, entry);
  }

  template <typename Message>
  absl::StatusOr<std::optional<Message>> Find(const std::string& key) {
    BEAMD_ASSIGN_OR_RETURN(const std::optional<std::string> value, Get(key));
    if (!value) return std::nullopt;
    return Decode<Message>(*value);
  }

 private:
  // Its use from now on, in the place of the one before.
  uint64_t NoteUse(const ImageShelf::Entry& entry, rocksdb::WriteBatch& batch)
      BEAMD_REQUIRES(images_) {
    if (const std::optional<uint64_t> before = shelf_.UseOf(entry.image)) {
      batch.Delete(Key(kImageUse, BigEndian(*before)));
    }
    const uint64_t use = shelf_.next_use();
    internal::StoredImageUse stored;
    stored.set_image(std::string(Bytes(entry.image)));
    stored.set_bytes(entry.bytes);
    batch.Put(Key(kImageUse, BigEndian(use)), Encode(stored));
    return use;
  }

  // Which images go so that `held` bytes become few enough; not `kept`.
  std::vector<Digest> MakeRoom(int64_t held, const std::optional<Digest>& kept,
                               rocksdb::WriteBatch& batch) BEAMD_REQUIRES(images_) {
    std::vector<Digest> gone;
    for (const auto& [use, entry] : shelf_.entries()) {
      if (held <= image_bytes_) break;
      if (entry.image == kept) continue;
      batch.Delete(Key(kImageUse, BigEndian(use)));
      batch.Delete(Key(kImage, Bytes(entry.image)));
      held -= entry.bytes;
      gone.push_back(entry.image);
    }
    return gone;
  }

  // What there is; after a repair also of images whose use was lost.
  absl::Status LoadImages(bool repaired) {
    MutexLock lock(images_);
    shelf_.Clear();
    BEAMD_RETURN_IF_ERROR(
        Scan(std::string(1, kImageUse), [&](absl::string_view key, absl::string_view value) {
          const auto stored = Decode<internal::StoredImageUse>(value);
          ImageShelf::Entry entry;
          if (stored.ok() && key.size() == 9 && ToDigest(stored->image(), entry.image)) {
            entry.bytes = stored->bytes();
            shelf_.Add(FromBigEndian(key.substr(1)), entry);
          }
          return absl::OkStatus();
        }));
    rocksdb::WriteBatch batch;
    if (repaired) {
      BEAMD_RETURN_IF_ERROR(
          Scan(std::string(1, kImage), [&](absl::string_view key, absl::string_view value) {
            ImageShelf::Entry entry{.bytes = static_cast<int64_t>(key.size() + value.size())};
            if (!ToDigest(key.substr(1), entry.image) || shelf_.UseOf(entry.image)) {
              return absl::OkStatus();
            }
            shelf_.Add(NoteUse(entry, batch), entry);
            return absl::OkStatus();
          }));
    }
    for (const Digest& old : MakeRoom(shelf_.bytes(), std::nullopt, batch)) shelf_.Remove(old);
    // A store that can only be read now makes room later.
    if (batch.Count() > 0) ToStatus(db_->Write({}, &batch)).IgnoreError();
    return absl::OkStatus();
  }

  // Whether it has ended and was passed over by ForgetJobs, or is of before.
  bool IsLeftOut(const std::string& id) BEAMD_REQUIRES(jobs_) {
    if (id.empty() || ended_.Has(id)) return false;
    const auto job = Find<internal::StoredJob>(Key(kJob, id));
    return job.ok() && *job && (*job)->state() != internal::StoredJob::ACCEPTED;
  }

  // Such a job tells why its key is answered as it is.
  bool IsOfNewestRecord(const std::string& id) {
    const auto job = Find<internal::StoredJob>(Key(kJob, id));
    if (!job.ok() || !*job) return false;
    const absl::StatusOr<Digest> key = Digest::FromHex((*job)->key());
    if (!key.ok()) return false;
    const absl::StatusOr<std::optional<v1::Record>> record = FindRecord(*key, 0);
    return record.ok() && *record && (*record)->job() == id;
  }

  // The first to have ended, one in a write, until few enough are left. What can't be written now
  // goes later.
  void ForgetJobs(int most) BEAMD_REQUIRES(jobs_) {
    for (; most > 0 && ended_.size() > jobs_kept_; --most) {
      const auto [number, id] = ended_.oldest();
      rocksdb::WriteBatch batch;
      batch.Delete(EndedKey(number, id));
      if (!IsOfNewestRecord(id)) {
        batch.Delete(Key(kJob, id));
        const std::string candidates = Key(kCandidate, id, "/");
        batch.DeleteRange(candidates, PastPrefix(candidates));
      }
      if (!db_->Write({}, &batch).ok()) return;
      ended_.Remove(id);
    }
  }

  // What there is; after a repair also jobs of which it was lost that they ended.
  absl::Status LoadEnded(bool repaired) {
    MutexLock lock(jobs_);
    ended_.Clear();
    BEAMD_RETURN_IF_ERROR(
        Scan(std::string(1, kEndedJob), [&](absl::string_view key, absl::string_view) {
          if (key.size() > 9)
            ended_.Add(FromBigEndian(key.substr(1, 8)), std::string(key.substr(9)));
          return absl::OkStatus();
        }));
    rocksdb::WriteBatch batch;
    if (repaired) {
      BEAMD_RETURN_IF_ERROR(
          Scan(std::string(1, kJob), [&](absl::string_view key, absl::string_view value) {
            const auto job = Decode<internal::StoredJob>(value);
            const std::string id(key.substr(1));
            if (ended_.Has(id)) return absl::OkStatus();
            if (job.ok() && job->state() == internal::StoredJob::ACCEPTED) return absl::OkStatus();
            const uint64_t number = ended_.next();
            batch.Put(EndedKey(number, id), "");
            ended_.Add(number, id);
            return absl::OkStatus();
          }));
    }
    // A store that can only be read now does so later.
    if (batch.Count() > 0) ToStatus(db_->Write({}, &batch)).IgnoreError();
    ForgetJobs(kForgottenAtOpen);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) {
    std::string value;
    const rocksdb::Status status = Fetch(key, value);
    if (status.IsNotFound()) return std::nullopt;
    BEAMD_RETURN_IF_ERROR(Read(status));
    return value;
  }

  template <typename Visit>
  absl::Status Scan(const std::string& prefix, Visit visit) {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    for (it->Seek(prefix); it->Valid() && absl::StartsWith(View(it->key()), prefix); it->Next()) {
      BEAMD_RETURN_IF_ERROR(visit(View(it->key()), View(it->value())));
    }
    return Read(it->status());
  }

  absl::Status AppendNewest(absl::string_view key_bytes, std::vector<v1::Record>& records) {
    Digest key;
    if (!ToDigest(key_bytes, key)) return absl::DataLossError("store: a key too short");
    absl::StatusOr<std::optional<v1::Record>> record = FindRecord(key, 0);
    if (!record.ok()) {
      return PassOver(record.status(), key_bytes) ? absl::OkStatus() : record.status();
    }
    if (*record) records.push_back(**std::move(record));
    return absl::OkStatus();
  }

  // 0 where there is none, or none that can be told.
  uint64_t NewestGeneration(const Digest& key) {
    const std::string prefix = Key(kRecord, Bytes(key));
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}));
    it->SeekForPrev(absl::StrCat(prefix, BigEndian(~uint64_t{0})));
    if (!it->Valid() || !absl::StartsWith(View(it->key()), prefix)) return 0;
    return FromBigEndian(View(it->key()).substr(prefix.size()));
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
    const auto same = std::find(entries.begin(), entries.end(), old);
    if (same == entries.end()) {
      batch.Delete(old.key);
    } else {
      entries.erase(same);
    }
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
  absl::Status Write(rocksdb::WriteBatch& batch) {
    const absl::Time began = absl::Now();
    const rocksdb::Status status = db_->Write(Synced(), &batch);
    if (observer_) observer_("write", absl::Now() - began);
    return Wrote(status);
  }

  rocksdb::Status Fetch(const std::string& key, std::string& value) {
    const absl::Time began = absl::Now();
    rocksdb::Status status = db_->Get({}, key, &value);
    if (observer_) observer_("read", absl::Now() - began);
    return status;
  }

  // While it is opened for the first time there is nobody to tell.
  absl::Status Wrote(const rocksdb::Status& status) {
    return database_ == nullptr ? ToStatus(status) : database_->Wrote(status);
  }
  absl::Status Read(const rocksdb::Status& status) {
    return database_ == nullptr ? ToStatus(status) : database_->Read(status);
  }

  // True where `status` says that a value is unreadable: it is passed over, as if it weren't there.
  bool PassOver(const absl::Status& status, absl::string_view key) {
    if (!absl::IsDataLoss(status)) return false;
    if (database_ != nullptr) {
      database_->MetUnreadable(absl::StrCat(status.message(), ", under ", absl::CHexEscape(key)));
    }
    return true;
  }

  StoreObserver observer_;
  const std::string directory_;
  const std::vector<StoreMigration> migrations_;
  const int64_t image_bytes_;
  const size_t jobs_kept_;
  rocksdb::DB* db_ = nullptr;  // the database's; changes where no call is Used
  std::unique_ptr<Database> database_;
  Mutex generations_;  // held from reading the newest generation to writing the next
  std::atomic<uint64_t> sequence_ = 0;
  Mutex jobs_;  // held from reading the order of ended jobs to writing it; after generations_
  EndedJobs ended_ BEAMD_GUARDED_BY(jobs_);
  Mutex images_;  // held from choosing what goes to its being gone
  ImageShelf shelf_ BEAMD_GUARDED_BY(images_);
};

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory,
                                                   const StoreOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", directory, " can't be made: ", error.message()));
  }
  auto impl = std::make_unique<Impl>(directory, options);
  BEAMD_RETURN_IF_ERROR(impl->Open(options));
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

StoreHealth Store::health() const { return impl_->health(); }
void Store::SetWatcher(std::function<void(bool writable)> watcher) {
  impl_->SetWatcher(std::move(watcher));
}

absl::StatusOr<v1::Record> Store::PutRecord(v1::Record record, const v1::Graph& graph) {
  return impl_->Used([&] { return impl_->PutRecord(std::move(record), graph); });
}
absl::StatusOr<std::optional<v1::Record>> Store::FindRecord(const Digest& key,
                                                            uint64_t generation) {
  return impl_->Used([&] { return impl_->FindRecord(key, generation); });
}
absl::StatusOr<std::vector<v1::Record>> Store::RecordsOf(const Digest& kernel, size_t limit) {
  return impl_->Used([&] { return impl_->RecordsOf(kernel, limit); });
}
absl::StatusOr<std::vector<v1::Record>> Store::ListRecords(const std::optional<Digest>& after,
                                                           int limit) {
  return impl_->Used([&] { return impl_->ListRecords(after, limit); });
}
absl::StatusOr<std::optional<v1::Graph>> Store::FindGraph(const Digest& kernel) {
  return impl_->Used([&] { return impl_->Find<v1::Graph>(Key(kGraph, Bytes(kernel))); });
}
absl::Status Store::PutImage(const Digest& key, const std::string& image) {
  internal::StoredImage stored;
  stored.set_image(image);
  stored.set_digest(std::string(Bytes(HashBytes(image))));
  return impl_->Used([&] { return impl_->PutImage(key, Encode(stored)); });
}
absl::StatusOr<std::optional<std::string>> Store::FindImage(const Digest& key) {
  absl::StatusOr<std::optional<internal::StoredImage>> stored =
      impl_->Used([&] { return impl_->Find<internal::StoredImage>(Key(kImage, Bytes(key))); });
  if (absl::IsDataLoss(stored.status())) return std::nullopt;
  if (!stored.ok()) return stored.status();
  if (!*stored) return std::nullopt;
  if ((*stored)->digest() != Bytes(HashBytes((*stored)->image()))) return std::nullopt;
  BEAMD_RETURN_IF_ERROR(impl_->Used([&] {
    impl_->TouchImage(key);
    return absl::OkStatus();
  }));
  return std::move(*(*stored)->mutable_image());
}

absl::Status Store::PutTiming(const Digest& key, const internal::StoredTiming& timing) {
  return impl_->Used([&] { return impl_->Put(Key(kTiming, Bytes(key)), Encode(timing)); });
}
absl::StatusOr<std::optional<internal::StoredTiming>> Store::FindTiming(const Digest& key) {
  return impl_->Used([&] { return impl_->Find<internal::StoredTiming>(Key(kTiming, Bytes(key))); });
}
absl::Status Store::DropTiming(const Digest& key) {
  return impl_->Used([&] { return impl_->DropTiming(key); });
}
absl::Status Store::PutJob(const internal::StoredJob& job) {
  return impl_->Used([&] { return impl_->PutJob(job); });
}
absl::Status Store::NoteJob(const internal::StoredJob& job) {
  return impl_->Used([&] { return impl_->Put(Key(kJob, job.id()), Encode(job)); });
}
absl::StatusOr<std::optional<internal::StoredJob>> Store::FindJob(const std::string& id) {
  return impl_->Used([&] { return impl_->Find<internal::StoredJob>(Key(kJob, id)); });
}
absl::StatusOr<std::vector<internal::StoredJob>> Store::UnfinishedJobs() {
  return impl_->Used([&] { return impl_->UnfinishedJobs(); });
}
absl::StatusOr<std::vector<internal::StoredJob>> Store::ListJobs(const std::string& before,
                                                                 int limit) {
  return impl_->Used([&] { return impl_->ListJobs(before, limit); });
}
absl::Status Store::PutCandidate(const std::string& job, uint64_t number,
                                 const internal::StoredCandidate& candidate) {
  return impl_->Used([&] { return impl_->Put(CandidateKey(job, number), Encode(candidate)); });
}
absl::StatusOr<std::optional<internal::StoredCandidate>> Store::FindCandidate(
    const std::string& job, uint64_t number) {
  return impl_->Used(
      [&] { return impl_->Find<internal::StoredCandidate>(CandidateKey(job, number)); });
}
absl::StatusOr<std::vector<Store::Candidate>> Store::CandidatesOf(const std::string& job) {
  return impl_->Used([&] { return impl_->CandidatesOf(job); });
}
absl::StatusOr<bool> Store::ImportRecord(v1::Record record, const v1::Graph& graph) {
  record.set_imported(true);
  const uint64_t before = impl_->sequence();
  BEAMD_ASSIGN_OR_RETURN(const v1::Record there, PutRecord(std::move(record), graph));
  return there.imported() && there.sequence() > before;
}
void Store::SetObserver(StoreObserver observer) { impl_->SetObserver(std::move(observer)); }
uint64_t Store::sequence() const { return impl_->sequence(); }
absl::StatusOr<std::optional<v1::Record>> Store::FindRecordAt(const Digest& key,
                                                              uint64_t sequence) {
  return impl_->Used([&] { return impl_->FindRecordAt(key, sequence); });
}
absl::Status Store::Checkpoint(const std::string& directory) {
  return impl_->Used([&] { return impl_->Checkpoint(directory); });
}
const std::string& Store::directory() const { return impl_->directory(); }
absl::Status Store::DropCandidates(const std::string& job) {
  return impl_->Used([&] { return impl_->DropCandidates(job); });
}
absl::Status Store::PutUsage(const std::string& principal, int64_t day, double seconds) {
  internal::StoredUsage usage;
  usage.set_day(day);
  usage.set_device_seconds(seconds);
  return impl_->Used([&] { return impl_->Put(Key(kUsage, principal), Encode(usage)); });
}
absl::StatusOr<double> Store::FindUsage(const std::string& principal, int64_t day) {
  BEAMD_ASSIGN_OR_RETURN(const std::optional<internal::StoredUsage> usage, impl_->Used([&] {
    return impl_->Find<internal::StoredUsage>(Key(kUsage, principal));
  }));
  return usage && usage->day() == day ? usage->device_seconds() : 0.0;
}

}  // namespace beamd
