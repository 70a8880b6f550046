#include "server/store/database.h"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "server/store/salvage.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// Damage that a repair didn't mend is left alone for so long.
constexpr absl::Duration kRepairEvery = absl::Minutes(1);
// What calls wait for a database that is exchanged. Most exchanges take less; a repair may take
// minutes, and calls that wait hold the threads of all others.
constexpr absl::Duration kPatience = absl::Seconds(2);
// Where RocksDB's repair puts tables that it could not read whole.
constexpr char kLost[] = "/lost";
constexpr char kTable[] = ".sst";
constexpr size_t kProbeBytes = size_t{64} << 10;

// What RocksDB has to say, in the daemon's log.
class Voice final : public rocksdb::Logger {
 public:
  Voice() : Logger(rocksdb::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list args) override {
    char line[1024];
    std::vsnprintf(line, sizeof(line), format, args);
    spdlog::debug("store: {}", line);
  }
};

rocksdb::Options RocksOptions(rocksdb::Env* env) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = size_t{8} << 20;
  options.max_open_files = 256;
  options.is_fd_close_on_exec = true;
  // What follows a damaged part of the log was acknowledged too.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  options.info_log = std::make_shared<Voice>();
  if (env != nullptr) options.env = env;
  return options;
}

bool IsHeld(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  return status.IsIOError() && (absl::StrContains(text, "lock hold by current process") ||
                                absl::StrContains(text, "While lock file"));
}

bool IsDamage(const rocksdb::Status& status) {
  return status.IsCorruption() || status.IsPathNotFound();
}

}  // namespace

absl::Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("store: ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

// RocksDB's own work fails on threads of its own.
class Database::Listener final : public rocksdb::EventListener {
 public:
  explicit Listener(Database& database) : database_(database) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override {
    database_.Fail(error->ToString());
    if (IsDamage(*error)) database_.Damage();
  }

 private:
  Database& database_;
};

absl::Status Database::Use::status() const {
  if (!entered_) return absl::UnavailableError("store: it is being repaired");
  if (database_.db_ != nullptr) return absl::OkStatus();
  return absl::UnavailableError("store: it can't be opened again");
}

Database::Database(std::string directory, DatabaseOptions options)
    : directory_(std::move(directory)),
      options_(std::move(options)),
      rocksdb_(RocksOptions(options_.env)) {
  rocksdb_.listeners.push_back(std::make_shared<Listener>(*this));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& directory,
                                                         DatabaseOptions options) {
  std::unique_ptr<Database> database(new Database(directory, std::move(options)));
  BEAMD_RETURN_IF_ERROR(database->OpenAtFirst());
  database->keeper_ = std::thread([d = database.get()] { d->Keep(); });
  return database;
}

Database::~Database() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    keeper_wakes_.NotifyAll();
  }
  if (keeper_.joinable()) keeper_.join();
  db_.reset();  // before what its threads tell
}

// False where that would take long.
bool Database::Enter() {
  MutexLock lock(mutex_);
  while (exchanging_ && SteadyNow() < refuses_) changed_.WaitUntil(mutex_, refuses_);
  if (exchanging_) return false;
  ++users_;
  return true;
}

void Database::Leave() {
  MutexLock lock(mutex_);
  if (--users_ == 0) changed_.NotifyAll();
}

absl::Status Database::OpenAtFirst() {
  absl::Status status = OpenForWriting(/*repaired=*/false);
  if (absl::IsDataLoss(status)) {
    status = Repair(status);
    if (status.ok()) status = OpenForWriting(/*repaired=*/true);
  }
  if (status.ok() || absl::IsFailedPrecondition(status)) return status;
  // There may be something to read.
  if (!OpenForReading().ok()) return status;
  Fail(std::string(status.message()));
  return absl::OkStatus();
}

// Without the file that names the rest, RocksDB would begin anew and remove what is there.
bool Database::IsCutOff() const {
  std::error_code error;
  if (std::filesystem::exists(directory_ + "/CURRENT", error)) return false;
  const std::filesystem::directory_iterator files(directory_, error);
  return std::any_of(begin(files), end(files), [](const auto& file) {
    return file.path().extension() == kTable ||
           absl::StartsWith(file.path().filename().string(), "MANIFEST-");
  });
}

absl::Status Database::OpenForWriting(bool repaired) {
  if (IsCutOff()) return absl::DataLossError("store: CURRENT is gone");
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(rocksdb_, directory_, &db);
  if (IsHeld(opened)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", directory_, " is in use by another beamd"));
  }
  if (IsDamage(opened)) return absl::DataLossError(opened.ToString());
  BEAMD_RETURN_IF_ERROR(ToStatus(opened));
  db_.reset(db);
  absl::Status status = PutBackLost();
  if (status.ok()) status = options_.prepare(*db_, repaired);
  if (!status.ok()) db_.reset();
  return status;
}

absl::Status Database::OpenForReading() {
  rocksdb::DB* db = nullptr;
  BEAMD_RETURN_IF_ERROR(ToStatus(rocksdb::DB::OpenForReadOnly(rocksdb_, directory_, &db)));
  db_.reset(db);
  absl::Status status = options_.prepare(*db_, /*repaired=*/false);
  if (!status.ok()) db_.reset();
  return status;
}

absl::Status Database::Repair(const absl::Status& why) {
  spdlog::error("store: {} is damaged, repairing it: {}", directory_, why.ToString());
  {
    MutexLock lock(mutex_);
    ++health_.repairs;
  }
  return ToStatus(rocksdb::RepairDB(directory_, rocksdb_));
}

// A repair puts a whole table aside for one damaged block.
absl::Status Database::PutBackLost() {
  std::error_code error;
  const std::filesystem::directory_iterator files(directory_ + kLost, error);
  if (error) return absl::OkStatus();
  for (const auto& file : files) {
    if (file.path().extension() != kTable) continue;
    const std::string path = file.path().string();
    const absl::StatusOr<Salvaged> salvaged =
        SalvageTable(rocksdb_, path, [&](absl::string_view key, absl::string_view value) {
          if (!options_.salvage(key)) return absl::OkStatus();
          const rocksdb::Slice slice(key.data(), key.size());
          std::string there;
          const rocksdb::Status found = db_->Get({}, slice, &there);
          if (!found.IsNotFound()) return ToStatus(found);
          return ToStatus(db_->Put({}, slice, rocksdb::Slice(value.data(), value.size())));
        });
    if (salvaged.ok()) {
      BEAMD_RETURN_IF_ERROR(ToStatus(db_->SyncWAL()));
      spdlog::warn("store: {}: {} entries saved, {} damaged parts passed over", path,
                   salvaged->entries, salvaged->gaps);
    } else if (absl::IsDataLoss(salvaged.status())) {
      spdlog::error("store: nothing of it could be saved: {}", salvaged.status().ToString());
    } else {
      return salvaged.status();
    }
    // Stays for whoever wants to see it.
    std::filesystem::rename(path, path + ".seen", error);
    if (error) return absl::InternalError(absl::StrCat("store: ", path, ": ", error.message()));
  }
  return absl::OkStatus();
}

bool Database::DirectoryTakesWrites() const {
  const std::string file = directory_ + "/probe";
  std::unique_ptr<rocksdb::WritableFile> probe;
  rocksdb::Status status = rocksdb_.env->NewWritableFile(file, &probe, {});
  if (status.ok()) status = probe->Append(std::string(kProbeBytes, 'x'));
  if (status.ok()) status = probe->Sync();
  if (status.ok()) status = probe->Close();
  rocksdb_.env->DeleteFile(file).PermitUncheckedError();
  return status.ok();
}

void Database::Exchange(bool repair) {
  {
    MutexLock lock(mutex_);
    exchanging_ = true;
    refuses_ = SteadyNow() + kPatience;
    while (users_ > 0) changed_.Wait(mutex_);
    // From here on it is work of this thread's; before, a call may hang.
    health_.mending = true;
  }
  db_.reset();
  absl::Status status;
  if (!repair) status = OpenForWriting(/*repaired=*/false);
  if (repair || absl::IsDataLoss(status)) {
    status = Repair(status.ok() ? absl::DataLossError("a read met it") : status);
    if (status.ok()) status = OpenForWriting(/*repaired=*/true);
    MutexLock lock(mutex_);
    damaged_ = false;
    repaired_ = SteadyNow();
    told_ = false;
  }
  if (!status.ok()) {
    Fail(std::string(status.message()));
    if (const absl::Status read = OpenForReading(); !read.ok()) {
      spdlog::error("store: it can't be read either: {}", read.ToString());
    }
  } else {
    Recovered();
  }
  MutexLock lock(mutex_);
  health_.mending = false;
  exchanging_ = false;
  changed_.NotifyAll();
}

void Database::Mend() {
  bool damaged = false;
  {
    MutexLock lock(mutex_);
    damaged = damaged_;
  }
  if (damaged) return Exchange(/*repair=*/true);
  {
    const Use use(*this);
    rocksdb::WriteBatch nothing;
    nothing.PutLogData("probe");
    rocksdb::WriteOptions synced;
    synced.sync = true;
    if (use.status().ok() && db_->Resume().ok() && db_->Write(synced, &nothing).ok()) {
      return Recovered();
    }
  }
  if (DirectoryTakesWrites()) Exchange(/*repair=*/false);
}

void Database::Keep() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (told_ != health_.writable) {
      told_ = health_.writable;
      const bool writable = told_;
      mutex_.Unlock();
      Tell(writable);
      mutex_.Lock();
      continue;
    }
    if (health_.writable && !damaged_) {
      keeper_wakes_.Wait(mutex_);
      continue;
    }
    const absl::Time due = SteadyNow() + options_.retry;
    while (!stopping_ && SteadyNow() < due) keeper_wakes_.WaitUntil(mutex_, due);
    if (stopping_) return;
    mutex_.Unlock();
    Mend();
    mutex_.Lock();
  }
}

void Database::Fail(const std::string& why) {
  MutexLock lock(mutex_);
  if (health_.writable) {
    spdlog::error("store: {} takes no more writes: {}", directory_, why);
    health_.writable = false;
    keeper_wakes_.NotifyAll();
  }
  health_.why = why;
}

void Database::Damage() {
  MutexLock lock(mutex_);
  if (damaged_ || SteadyNow() - repaired_ < kRepairEvery) return;
  damaged_ = true;
  keeper_wakes_.NotifyAll();
}

void Database::Recovered() {
  MutexLock lock(mutex_);
  if (health_.writable) return;
  health_.writable = true;
  health_.why.clear();
  spdlog::info("store: {} takes writes again", directory_);
}

absl::Status Database::Wrote(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  {
    MutexLock lock(mutex_);
    ++health_.failed_writes;
  }
  Fail(status.ToString());
  if (IsDamage(status)) Damage();
  return ToStatus(status);
}

absl::Status Database::Read(const rocksdb::Status& status) {
  if (status.IsCorruption()) {
    MetUnreadable(status.ToString());
    Damage();
  }
  return ToStatus(status);
}

void Database::MetUnreadable(absl::string_view what) {
  MutexLock lock(mutex_);
  // Ever rarer: a key that is asked for often must not fill the log.
  if (std::has_single_bit(static_cast<uint64_t>(++health_.unreadable))) {
    spdlog::warn("store: {} unreadable, the last: {}", health_.unreadable, std::string(what));
  }
}

StoreHealth Database::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void Database::SetWatcher(std::function<void(bool writable)> watcher) {
  const bool writable = health().writable;
  MutexLock lock(watcher_mutex_);
  watcher_ = std::move(watcher);
  if (watcher_) watcher_(writable);
}

void Database::Tell(bool writable) {
  MutexLock lock(watcher_mutex_);
  if (watcher_) watcher_(writable);
}

}  // namespace beamd
