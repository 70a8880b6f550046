#include "server/store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"

namespace beamd {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Digest Named(absl::string_view name) { return HashBytes(name); }

v1::Record MakeRecord(const Digest& key, const Digest& kernel, double best_s = 1) {
  v1::Record record;
  record.set_key(key.Hex());
  record.set_kernel_hash(kernel.Hex());
  record.set_best_s(best_s);
  return record;
}

v1::Graph SomeGraph() {
  v1::Graph graph;
  graph.add_nodes()->set_op(v1::OP_SINK);
  return graph;
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    Reopen();
  }
  void Reopen(const StoreOptions& options = {}) {
    store_.reset();
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(directory_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  const std::string directory_ = absl::StrCat(
      testing::TempDir(), "store.", testing::UnitTest::GetInstance()->current_test_info()->name());
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, KeepsRecordsAndGraphsOverARestart) {
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k"), 0.5), SomeGraph()).ok());
  Reopen();
  const auto record = *store_->FindRecord(Named("a"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->best_s(), 0.5);
  const auto graph = *store_->FindGraph(Named("k"));
  ASSERT_TRUE(graph);
  EXPECT_TRUE(MessageDifferencer::Equals(*graph, SomeGraph()));
  EXPECT_FALSE(*store_->FindRecord(Named("b")));
  EXPECT_FALSE(*store_->FindGraph(Named("b")));
}

TEST_F(StoreTest, ANewRecordOfAKeyIsANewGenerationAndTheOldOneStays) {
  const Digest key = Named("a");
  EXPECT_EQ(store_->PutRecord(MakeRecord(key, Named("k"), 3), SomeGraph())->generation(), 1);
  EXPECT_EQ(store_->PutRecord(MakeRecord(key, Named("k"), 2), SomeGraph())->generation(), 2);
  Reopen();
  EXPECT_EQ(store_->PutRecord(MakeRecord(key, Named("k"), 1), SomeGraph())->generation(), 3);
  EXPECT_EQ((*store_->FindRecord(key))->best_s(), 1);
  EXPECT_EQ((*store_->FindRecord(key, 1))->best_s(), 3);
  EXPECT_EQ((*store_->FindRecord(key, 2))->best_s(), 2);
  EXPECT_FALSE(*store_->FindRecord(key, 4));
}

TEST_F(StoreTest, ListsTheNewestOfEachKeyPageByPage) {
  std::vector<std::string> keys;
  for (int i = 0; i < 7; ++i) {
    const Digest key = Named(absl::StrCat(i));
    keys.push_back(key.Hex());
    for (int generation = 0; generation <= i; ++generation) {
      ASSERT_TRUE(store_->PutRecord(MakeRecord(key, Named("k")), SomeGraph()).ok());
    }
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::string> listed;
  std::optional<Digest> after;
  while (true) {
    const std::vector<v1::Record> page = *store_->ListRecords(after, 3);
    if (page.empty()) break;
    for (const v1::Record& record : page) {
      listed.push_back(record.key());
      EXPECT_EQ(HashBytes(absl::StrCat(record.generation() - 1)).Hex(), record.key());
    }
    after = *Digest::FromHex(page.back().key());
  }
  EXPECT_EQ(listed, keys);
}

TEST_F(StoreTest, FindsTheRecordsOfAKernel) {
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k1")), SomeGraph()).ok());
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("b"), Named("k2")), SomeGraph()).ok());
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("b"), Named("k2")), SomeGraph()).ok());
  const std::vector<v1::Record> records = *store_->RecordsOf(Named("k2"));
  ASSERT_EQ(records.size(), 1);
  EXPECT_EQ(records[0].key(), Named("b").Hex());
  EXPECT_EQ(records[0].generation(), 2);
  EXPECT_TRUE(store_->RecordsOf(Named("k3"))->empty());
}

TEST_F(StoreTest, AKernelsNewestRecordsComeFirst) {
  for (const char* key : {"a", "b", "c", "a"}) {
    ASSERT_TRUE(store_->PutRecord(MakeRecord(Named(key), Named("k")), SomeGraph()).ok());
  }
  const auto keys = [&](size_t limit) {
    std::vector<std::string> found;
    const std::vector<v1::Record> records = *store_->RecordsOf(Named("k"), limit);
    found.reserve(records.size());
    for (const v1::Record& record : records) found.push_back(record.key());
    return found;
  };
  const std::string a = Named("a").Hex(), b = Named("b").Hex(), c = Named("c").Hex();
  EXPECT_THAT(keys(10), ElementsAre(a, c, b));
  EXPECT_THAT(keys(2), ElementsAre(a, c));
  // A store of schema 4 had them in the order of their keys.
  store_.reset();
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &opened).ok());
  std::unique_ptr<rocksdb::DB> db(opened);
  ASSERT_TRUE(db->DeleteRange({}, db->DefaultColumnFamily(), "k", "l").ok());
  const auto bytes = [](const Digest& d) { return std::string(d.bytes.begin(), d.bytes.end()); };
  for (const char* key : {"a", "b", "c"}) {
    ASSERT_TRUE(db->Put({}, "k" + bytes(Named("k")) + bytes(Named(key)), "").ok());
  }
  ASSERT_TRUE(db->Put({}, "mschema", "4").ok());
  db.reset();
  Reopen();
  EXPECT_THAT(keys(10), ElementsAre(a, c, b));
  EXPECT_EQ(store_->RecordsOf(Named("k"), 1)->at(0).generation(), 2);
}

TEST_F(StoreTest, AnImportHidesNothingThatIsHere) {
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k"), 1), SomeGraph()).ok());
  EXPECT_FALSE(*store_->ImportRecord(MakeRecord(Named("a"), Named("k"), 0.5), SomeGraph()));
  EXPECT_EQ((*store_->FindRecord(Named("a")))->best_s(), 1);
  EXPECT_TRUE(*store_->ImportRecord(MakeRecord(Named("b"), Named("k"), 2), SomeGraph()));
  EXPECT_TRUE((*store_->FindRecord(Named("b")))->imported());
  EXPECT_FALSE(*store_->ImportRecord(MakeRecord(Named("b"), Named("k"), 2), SomeGraph()))
      << "the same again";
  v1::Record other = MakeRecord(Named("b"), Named("k"), 3);
  other.add_opts()->set_op(v1::OPT_OP_UPCAST);
  EXPECT_TRUE(*store_->ImportRecord(other, SomeGraph()));
  EXPECT_EQ((*store_->FindRecord(Named("b")))->generation(), 2);
}

TEST_F(StoreTest, ASnapshotSeesWhatWasThere) {
  EXPECT_EQ(store_->sequence(), 0);
  for (const double best_s : {1, 2}) {
    ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k"), best_s), SomeGraph()).ok());
    ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("b"), Named("k"), best_s), SomeGraph()).ok());
  }
  Reopen();
  EXPECT_EQ(store_->sequence(), 4);
  EXPECT_FALSE(*store_->FindRecordAt(Named("b"), 1));
  EXPECT_EQ((*store_->FindRecordAt(Named("a"), 1))->best_s(), 1);
  EXPECT_EQ((*store_->FindRecordAt(Named("a"), 2))->best_s(), 1);
  EXPECT_EQ((*store_->FindRecordAt(Named("a"), 3))->best_s(), 2);
  EXPECT_EQ((*store_->FindRecordAt(Named("b"), 3))->best_s(), 1);
}

TEST_F(StoreTest, ACheckpointIsAStore) {
  const std::string copy = directory_ + ".copy";
  std::filesystem::remove_all(copy);
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k"), 1), SomeGraph()).ok());
  ASSERT_TRUE(store_->Checkpoint(copy).ok());
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("b"), Named("k"), 1), SomeGraph()).ok());
  const std::unique_ptr<Store> other = *Store::Open(copy);
  EXPECT_TRUE(*other->FindRecord(Named("a")));
  EXPECT_FALSE(*other->FindRecord(Named("b")));
  EXPECT_EQ(other->sequence(), 1);
}

TEST_F(StoreTest, RefusesARecordWithoutAKey) {
  EXPECT_EQ(store_->PutRecord(v1::Record(), SomeGraph()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, KeepsTimings) {
  internal::StoredTiming timing;
  timing.set_failure(5);
  ASSERT_TRUE(store_->PutTiming(Named("t"), timing).ok());
  Reopen();
  EXPECT_EQ((*store_->FindTiming(Named("t")))->failure(), 5);
  EXPECT_FALSE(*store_->FindTiming(Named("u")));
}

TEST_F(StoreTest, KeepsWhatAJobTriedInOrder) {
  for (const uint64_t number : {2, 300, 1}) {
    internal::StoredCandidate candidate;
    candidate.set_uops(static_cast<int64_t>(number));
    ASSERT_TRUE(store_->PutCandidate("7", number, candidate).ok());
    ASSERT_TRUE(store_->PutCandidate("77", number, candidate).ok());
  }
  Reopen();
  std::vector<int64_t> uops;
  std::vector<Store::Candidate> candidates = *store_->CandidatesOf("7");
  for (const Store::Candidate& c : candidates) uops.push_back(c.stored.uops());
  EXPECT_THAT(uops, ElementsAre(1, 2, 300));
  EXPECT_EQ((*store_->FindCandidate("7", 300))->uops(), 300);
  EXPECT_FALSE(*store_->FindCandidate("7", 3));
  // One that is lost changes no other's number, which says what is replayed.
  store_.reset();
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &opened).ok());
  std::unique_ptr<rocksdb::DB> db(opened);
  ASSERT_TRUE(db->Delete({}, std::string("c7/") + std::string("\0\0\0\0\0\0\0\2", 8)).ok());
  db.reset();
  Reopen();
  candidates = *store_->CandidatesOf("7");
  ASSERT_EQ(candidates.size(), 2);
  EXPECT_EQ(candidates[1].number, 300);
  EXPECT_EQ(candidates[1].stored.uops(), 300);
  ASSERT_TRUE(store_->DropCandidates("7").ok());
  EXPECT_TRUE(store_->CandidatesOf("7")->empty());
  EXPECT_EQ(store_->CandidatesOf("77")->size(), 3);
}

TEST_F(StoreTest, ListsJobsNewestFirst) {
  for (const char* id : {"1", "2", "3"}) {
    internal::StoredJob job;
    job.set_id(id);
    ASSERT_TRUE(store_->PutJob(job).ok());
  }
  const auto ids = [&](const std::string& before, int limit) {
    const std::vector<internal::StoredJob> jobs = *store_->ListJobs(before, limit);
    std::vector<std::string> ids;
    for (const internal::StoredJob& job : jobs) ids.push_back(job.id());
    return ids;
  };
  EXPECT_THAT(ids("", 2), ElementsAre("3", "2"));
  EXPECT_THAT(ids("2", 2), ElementsAre("1"));
  EXPECT_THAT(ids("1", 2), ElementsAre());
}

TEST_F(StoreTest, KeepsADaysUsage) {
  ASSERT_TRUE(store_->PutUsage("a", 20000, 1.5).ok());
  Reopen();
  EXPECT_EQ(*store_->FindUsage("a", 20000), 1.5);
  EXPECT_EQ(*store_->FindUsage("a", 20001), 0);
  EXPECT_EQ(*store_->FindUsage("b", 20000), 0);
}

TEST_F(StoreTest, SchemaOnesTimesGoAndItsFailuresStay) {
  internal::StoredTiming failed;
  failed.set_failure(5);
  ASSERT_TRUE(store_->PutTiming(Named("failed"), failed).ok());
  ASSERT_TRUE(store_->PutTiming(Named("timed"), {}).ok());
  store_.reset();
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &opened).ok());
  db.reset(opened);
  ASSERT_TRUE(db->Put({}, "mschema", "1").ok());
  ASSERT_TRUE(db->Put({}, "t" + std::string(32, 'x'), "no timing").ok());
  db.reset();
  Reopen();
  EXPECT_TRUE(*store_->FindTiming(Named("failed")));
  EXPECT_FALSE(*store_->FindTiming(Named("timed")));
}

TEST_F(StoreTest, KeepsTheImagesThatWereUsedLastAndNoRecordGoes) {
  constexpr int64_t kBound = 95 << 10;  // ten of them
  Reopen({.image_bytes = kBound});
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k")), SomeGraph()).ok());
  const std::string image(9 << 10, 'x');
  const auto name = [](int i) { return Named(absl::StrCat("image ", i)); };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store_->PutImage(name(i), image).ok());
  // The first is wanted all the time, the others never again.
  for (int i = 10; i < 100; ++i) {
    EXPECT_EQ(*store_->FindImage(name(0)), image) << i;
    ASSERT_TRUE(store_->PutImage(name(i), absl::StrCat(image, i)).ok());
  }
  const auto held = [&] {
    std::vector<int> there;
    for (int i = 0; i < 100; ++i) {
      if (*store_->FindImage(name(i))) there.push_back(i);
    }
    return there;
  };
  EXPECT_THAT(held(), ElementsAre(0, 91, 92, 93, 94, 95, 96, 97, 98, 99));
  // One that comes again is counted once, and one past the bound isn't kept.
  ASSERT_TRUE(store_->PutImage(name(91), image).ok());
  ASSERT_TRUE(store_->PutImage(name(1), std::string(kBound, 'y')).ok());
  EXPECT_THAT(held(), ElementsAre(0, 91, 92, 93, 94, 95, 96, 97, 98, 99));
  // A restart knows the same.
  Reopen({.image_bytes = kBound});
  ASSERT_TRUE(store_->PutImage(name(2), image).ok());
  EXPECT_EQ(held().size(), 10);
  EXPECT_TRUE(*store_->FindImage(name(2)));
  Reopen({.image_bytes = kBound / 2});
  EXPECT_EQ(held().size(), 5);
  EXPECT_TRUE(*store_->FindImage(name(2)));
  Reopen({.image_bytes = 0});
  ASSERT_TRUE(store_->PutImage(name(3), image).ok());
  EXPECT_TRUE(held().empty());
  EXPECT_TRUE(*store_->FindRecord(Named("a")));
  EXPECT_TRUE(*store_->FindGraph(Named("k")));
}

TEST_F(StoreTest, SchemaTwosImagesGo) {
  ASSERT_TRUE(store_->PutImage(Named("old"), "code").ok());
  store_.reset();
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &opened).ok());
  std::unique_ptr<rocksdb::DB> db(opened);
  ASSERT_TRUE(db->Put({}, "mschema", "2").ok());
  db.reset();
  Reopen();
  EXPECT_FALSE(*store_->FindImage(Named("old")));
  ASSERT_TRUE(store_->PutImage(Named("old"), "code").ok());
  EXPECT_EQ(*store_->FindImage(Named("old")), "code");
}

TEST_F(StoreTest, KnowsWhichJobsWereNotEnded) {
  for (const char* id : {"1", "2", "3"}) {
    internal::StoredJob job;
    job.set_id(id);
    job.set_state(internal::StoredJob::ACCEPTED);
    ASSERT_TRUE(store_->PutJob(job).ok());
  }
  internal::StoredJob ended;
  ended.set_id("2");
  ended.set_state(internal::StoredJob::FINISHED);
  ASSERT_TRUE(store_->PutJob(ended).ok());
  Reopen();
  std::vector<std::string> open;
  const std::vector<internal::StoredJob> unfinished = *store_->UnfinishedJobs();
  open.reserve(unfinished.size());
  for (const internal::StoredJob& job : unfinished) open.push_back(job.id());
  EXPECT_THAT(open, ElementsAre("1", "3"));
  EXPECT_EQ((*store_->FindJob("2"))->state(), internal::StoredJob::FINISHED);
  EXPECT_FALSE(*store_->FindJob("4"));
}

class EndedJobsTest : public StoreTest {
 protected:
  // With what it tried and, where `key` has a name, the record that it found.
  void Run(const std::string& id, const std::string& key = "") {
    internal::StoredJob job;
    job.set_id(id);
    job.set_state(internal::StoredJob::ACCEPTED);
    if (!key.empty()) job.set_key(Named(key).Hex());
    ASSERT_TRUE(store_->PutJob(job).ok());
    for (const uint64_t number : {1, 2}) {
      ASSERT_TRUE(store_->PutCandidate(id, number, internal::StoredCandidate()).ok());
    }
    if (!key.empty()) {
      v1::Record record = MakeRecord(Named(key), Named("k"));
      record.set_job(id);
      ASSERT_TRUE(store_->PutRecord(record, SomeGraph()).ok());
    }
    job.set_state(internal::StoredJob::FINISHED);
    ASSERT_TRUE(store_->PutJob(job).ok());
  }
  std::vector<std::string> Listed() {
    std::vector<std::string> ids;
    const std::vector<internal::StoredJob> jobs = *store_->ListJobs("", 1000);
    ids.reserve(jobs.size());
    for (const internal::StoredJob& job : jobs) ids.push_back(job.id());
    return ids;
  }
};

TEST_F(EndedJobsTest, TheFirstToEndAreForgottenWithWhatTheyTried) {
  Reopen({.jobs_kept = 2});
  internal::StoredJob open;
  open.set_id("0");
  open.set_state(internal::StoredJob::ACCEPTED);
  ASSERT_TRUE(store_->PutJob(open).ok());
  // In the order in which they end, not in that of their ids.
  for (const char* id : {"4", "3", "2", "1"}) Run(id);
  EXPECT_THAT(Listed(), ElementsAre("2", "1", "0"));
  EXPECT_TRUE(store_->CandidatesOf("4")->empty());
  EXPECT_EQ(store_->CandidatesOf("2")->size(), 2);
  // A restart knows the order, and how many there are.
  Reopen({.jobs_kept = 2});
  Run("5");
  EXPECT_THAT(Listed(), ElementsAre("5", "1", "0"));
  Reopen({.jobs_kept = 1});
  EXPECT_THAT(Listed(), ElementsAre("5", "0"));
  EXPECT_EQ(store_->UnfinishedJobs()->size(), 1);
}

TEST_F(EndedJobsTest, TheJobOfAKeysNewestRecordIsKept) {
  Reopen({.jobs_kept = 2});
  Run("1", "a");
  Run("2", "b");
  for (const char* id : {"3", "4", "5", "6"}) Run(id);
  EXPECT_THAT(Listed(), ElementsAre("6", "5", "2", "1"));
  EXPECT_EQ(store_->CandidatesOf("1")->size(), 2);
  // Another record of the key: its job is as any other.
  Run("7", "a");
  EXPECT_THAT(Listed(), ElementsAre("7", "2", "1"));
  for (const char* id : {"8", "9"}) Run(id);
  EXPECT_THAT(Listed(), ElementsAre("9", "8", "7", "2"));
  EXPECT_TRUE(store_->CandidatesOf("1")->empty());
  EXPECT_EQ((*store_->FindRecord(Named("a"), 1))->job(), "1");
}

TEST_F(EndedJobsTest, AStoreOfBeforeForgetsToo) {
  std::vector<StoreMigration> before = StoreMigrations();
  before.resize(2);
  store_.reset();
  std::filesystem::remove_all(directory_);
  Reopen({.migrations = before});
  for (const char* id : {"1", "2", "3", "4"}) Run(id, id);
  for (const char* id : {"5", "6"}) Run(id);
  store_.reset();
  {
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    ASSERT_TRUE(db->DeleteRange({}, db->DefaultColumnFamily(), "e", "f").ok());
  }
  Reopen({.jobs_kept = 1});
  EXPECT_THAT(Listed(), ElementsAre("6", "4", "3", "2", "1"));
}

TEST_F(StoreTest, ASecondOneOnTheSameDirectoryIsRefused) {
  const absl::Status status = Store::Open(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use by another beamd"));
}

TEST_F(StoreTest, ADirectoryThatCannotBeMadeIsRefused) {
  EXPECT_EQ(Store::Open("/proc/no/store").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoreTest, MigratesAnOlderSchemaAndRefusesANewerOne) {
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k")), SomeGraph()).ok());
  ASSERT_TRUE(store_->PutTiming(Named("t"), {}).ok());
  store_.reset();
  // Then records get a label, then timings go.
  std::vector<StoreMigration> migrations = StoreMigrations();
  migrations.emplace_back([](StoreEntry entry) -> absl::StatusOr<std::vector<StoreEntry>> {
    if (entry.key[0] != 'r') return std::vector<StoreEntry>{entry};
    v1::Record record;
    record.ParseFromString(entry.value.substr(1));
    record.set_label("migrated");
    return std::vector<StoreEntry>{{entry.key, "\1" + record.SerializeAsString()}};
  });
  migrations.emplace_back([](StoreEntry entry) -> absl::StatusOr<std::vector<StoreEntry>> {
    if (entry.key[0] == 't') return std::vector<StoreEntry>{};
    return std::vector<StoreEntry>{entry};
  });
  for (int opens = 0; opens < 2; ++opens) {
    absl::StatusOr<std::unique_ptr<Store>> newer =
        Store::Open(directory_, {.migrations = migrations});
    ASSERT_TRUE(newer.ok()) << newer.status();
    EXPECT_EQ((*(*newer)->FindRecord(Named("a")))->label(), "migrated");
    EXPECT_EQ((*(*newer)->RecordsOf(Named("k")))[0].label(), "migrated");
    EXPECT_FALSE(*(*newer)->FindTiming(Named("t")));
  }
  const absl::Status status = Store::Open(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("schema ", migrations.size() + 1)));
}

TEST_F(StoreTest, AMigrationThatFailsChangesNothing) {
  ASSERT_TRUE(store_->PutRecord(MakeRecord(Named("a"), Named("k")), SomeGraph()).ok());
  store_.reset();
  std::vector<StoreMigration> migrations = StoreMigrations();
  migrations.emplace_back([](StoreEntry entry) -> absl::StatusOr<std::vector<StoreEntry>> {
    if (entry.key[0] == 'r') return absl::DataLossError("no");
    return std::vector<StoreEntry>{};
  });
  EXPECT_FALSE(Store::Open(directory_, {.migrations = migrations}).ok());
  Reopen();
  EXPECT_TRUE(*store_->FindRecord(Named("a")));
  EXPECT_TRUE(*store_->FindGraph(Named("k")));
}

// In a process of its own: writes records until it is killed, telling each key once it is written.
[[noreturn]] void WriteForEver(const std::string& directory) {
  const std::unique_ptr<Store> store = *Store::Open(directory);
  for (int i = 0;; ++i) {
    const Digest key = Named(absl::StrCat("killed", i));
    if (!store->PutRecord(MakeRecord(key, Named("k"), i), SomeGraph()).ok()) std::abort();
    std::printf("%d\n", i);
    std::fflush(stdout);
  }
}

TEST_F(StoreTest, WhatWasToldSurvivesKill9) {
  store_.reset();
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    dup2(out[1], STDOUT_FILENO);
    execl("/proc/self/exe", "store_test", "write-for-ever", directory_.c_str(), nullptr);
    _exit(1);
  }
  close(out[1]);
  FILE* lines = fdopen(out[0], "r");
  int told = -1;
  while (told < 50) ASSERT_EQ(std::fscanf(lines, "%d", &told), 1);
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  while (std::fscanf(lines, "%d", &told) == 1) {
  }
  std::fclose(lines);
  Reopen();
  for (int i = 0; i <= told; ++i) {
    const auto record = *store_->FindRecord(Named(absl::StrCat("killed", i)));
    ASSERT_TRUE(record) << i << " of " << told;
    EXPECT_EQ(record->best_s(), i);
  }
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "write-for-ever") beamd::WriteForEver(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
