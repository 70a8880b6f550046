// A store whose files fail or are damaged, and the tuner on it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/store/store.h"
#include "tests/fault/scripted_tuner.h"

namespace beamd {
namespace {

using ::beamd::testing::FileFault;
using ::beamd::testing::ScriptedTuner;

Digest KeyOf(int i) { return HashBytes(absl::StrCat("key", i)); }
Digest KernelOf(int i) { return HashBytes(absl::StrCat("kernel", i)); }

v1::Record RecordOf(int i) {
  v1::Record record;
  record.set_key(KeyOf(i).Hex());
  record.set_kernel_hash(KernelOf(i).Hex());
  record.set_best_s(i + 1);
  for (int k = 0; k < 100; ++k) record.add_samples(i * 1000 + k);
  return record;
}

v1::Graph SomeGraph() {
  v1::Graph graph;
  graph.add_nodes()->set_op(v1::OP_SINK);
  return graph;
}

class StoreFault : public ScriptedTuner {
 protected:
  void Put(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      ASSERT_TRUE(store_->PutRecord(RecordOf(i), SomeGraph()).ok()) << i;
    }
  }
  // Of the first `count` those that are there; each as it was.
  int Found(int count) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      const absl::StatusOr<std::optional<v1::Record>> record = store_->FindRecord(KeyOf(i));
      if (!record.ok() || !*record) continue;
      ++found;
      v1::Record wanted = RecordOf(i);
      wanted.set_generation((*record)->generation());
      wanted.set_sequence((*record)->sequence());
      EXPECT_EQ((*record)->SerializeAsString(), wanted.SerializeAsString());
    }
    return found;
  }
  // What was written goes from the log into tables.
  void Settle() {
    Open();
    Open();
  }

  // The largest file of that kind.
  std::string File(const std::string& suffix) const {
    std::string largest;
    uintmax_t size = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      const std::string path = file.path().string();
      const bool wanted =
          absl::EndsWith(path, suffix) || absl::StartsWith(file.path().filename().string(), suffix);
      if (!wanted || file.file_size() < size) continue;
      size = file.file_size();
      largest = path;
    }
    EXPECT_FALSE(largest.empty()) << suffix;
    return largest;
  }
  // Changes bytes from `begin` on; a negative one counts from the end.
  static void Damage(const std::string& path, int64_t begin, int64_t count) {
    if (begin < 0) begin += static_cast<int64_t>(std::filesystem::file_size(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes(static_cast<size_t>(count), '\0');
    file.seekg(begin);
    file.read(bytes.data(), count);
    for (char& byte : bytes) byte = static_cast<char>(byte ^ 0x55);
    file.seekp(begin);
    file.write(bytes.data(), count);
    ASSERT_TRUE(file.good());
  }
};

class UnwritableStore : public StoreFault, public ::testing::WithParamInterface<FileFault> {};

TEST_P(UnwritableStore, AnswersGoOnAndWritesResume) {
  Open();
  Put(0, 20);
  StartTuner();
  Tuner::Answer before = Tune(1);
  EXPECT_FALSE(before.accepted.not_durable());
  EXPECT_TRUE(End(before).persisted());

  files_.Set(GetParam());
  Tuner::Answer meanwhile = Tune(2);
  EXPECT_TRUE(meanwhile.accepted.not_durable());
  const v1::TuneResult result = End(meanwhile);
  EXPECT_EQ(result.record().best_s(), 0.5);
  EXPECT_FALSE(result.persisted());
  EXPECT_FALSE(store_->health().writable);
  EXPECT_FALSE(store_->health().why.empty());
  EXPECT_GT(store_->health().failed_writes, 0);
  // What is stored is served, what was just found too.
  Tuner::Answer stored = Tune(1);
  EXPECT_TRUE(End(stored).persisted());
  Tuner::Answer again = Tune(2);
  EXPECT_FALSE(End(again).persisted());
  EXPECT_EQ(searches_, 2);
  EXPECT_EQ(Found(20), 20);
  EXPECT_EQ(tuner_->GetJob(meanwhile.accepted.job())->state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(tuner_->ListJobs("", 10)->size(), 2);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_FALSE(store_->health().writable);

  files_.Set(FileFault::kNone);
  Await([&] { return store_->health().writable; });
  const Digest key = *Digest::FromHex(meanwhile.accepted.key());
  Await([&] { return store_->FindRecord(key)->has_value(); });
  Tuner::Answer after = Tune(2);
  EXPECT_TRUE(End(after).persisted());
  Tuner::Answer next = Tune(3);
  EXPECT_FALSE(next.accepted.not_durable());
  EXPECT_TRUE(End(next).persisted());
  EXPECT_EQ(searches_, 3);

  Open();
  EXPECT_EQ(Found(20), 20);
  for (const Tuner::Answer* answer : {&before, &meanwhile, &next}) {
    EXPECT_TRUE(*store_->FindRecord(*Digest::FromHex(answer->accepted.key())));
    EXPECT_EQ((*store_->FindJob(answer->accepted.job()))->state(), internal::StoredJob::FINISHED);
  }
}

TEST_P(UnwritableStore, AJobThatOutlivesTheFaultIsStoredAsAnyOther) {
  Open();
  StartTuner();
  released_ = false;
  files_.Set(GetParam());
  Tuner::Answer answer = Tune(1);
  EXPECT_TRUE(answer.accepted.not_durable());
  Await([&] { return searches_ == 1; });
  EXPECT_EQ(tuner_->GetJob(answer.accepted.job())->state(), v1::JOB_STATE_RUNNING);
  files_.Set(FileFault::kNone);
  // Durable from now on.
  Await([&] { return store_->FindJob(answer.accepted.job())->has_value(); });
  released_ = true;
  EXPECT_TRUE(End(answer).persisted());
}

TEST_P(UnwritableStore, IsOpenedAllTheSame) {
  Open();
  Put(0, 20);
  store_.reset();
  files_.Set(GetParam());
  Open();
  StartTuner();
  EXPECT_FALSE(store_->health().writable);
  EXPECT_EQ(Found(20), 20);
  Tuner::Answer answer = Tune(1);
  EXPECT_TRUE(answer.accepted.not_durable());
  EXPECT_FALSE(End(answer).persisted());
  files_.Set(FileFault::kNone);
  Await([&] { return store_->health().writable; });
  EXPECT_EQ(Found(20), 20);
  Put(20, 21);
}

INSTANTIATE_TEST_SUITE_P(Faults, UnwritableStore,
                         ::testing::Values(FileFault::kFull, FileFault::kReadOnly,
                                           FileFault::kNoSync));

TEST_F(StoreFault, ARecordIsWrittenOnceThoughItsJobIsNotTaken) {
  Open();
  // Full again right after the next write.
  const auto one_more = std::make_shared<std::atomic<bool>>(false);
  store_->SetObserver([this, one_more](absl::string_view operation, absl::Duration) {
    if (operation == "write" && one_more->exchange(false)) files_.Set(FileFault::kFull);
  });
  StartTuner();
  files_.Set(FileFault::kFull);
  Tuner::Answer answer = Tune(1);
  EXPECT_FALSE(End(answer).persisted());
  Await([&] { return tuner_->load().running == 0; });
  *one_more = true;
  files_.Set(FileFault::kNone);
  Await([&] { return !*one_more && !store_->health().writable; });
  const Digest key = *Digest::FromHex(answer.accepted.key());
  EXPECT_EQ((*store_->FindRecord(key))->generation(), 1);
  EXPECT_FALSE(*store_->FindJob(answer.accepted.job()));
  EXPECT_EQ(tuner_->GetJob(answer.accepted.job())->result().record().generation(), 1);

  files_.Set(FileFault::kNone);
  Await([&] { return store_->FindJob(answer.accepted.job())->has_value(); });
  EXPECT_EQ((*store_->FindJob(answer.accepted.job()))->generation(), 1);
  EXPECT_EQ((*store_->FindRecord(key))->generation(), 1);
}

TEST_F(StoreFault, OneThatCanNeitherBeReadNorMadeIsRefused) {
  files_.Set(FileFault::kReadOnly);
  const absl::Status status = Store::Open(directory_, {.env = files_.env()}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "Read-only")) << status;
}

TEST_F(StoreFault, OneThatAnotherHoldsIsRefused) {
  Open();
  const absl::Status status = Store::Open(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "in use by another beamd")) << status;
}

class DamagedStore : public StoreFault {
 protected:
  void SetUp() override {
    Open();
    Put(0, 400);
    Settle();
  }
};

TEST_F(DamagedStore, ADamagedBlockIsMissedAndTheRestIsKept) {
  const std::string table = File(".sst");
  store_.reset();
  const auto size = static_cast<int64_t>(std::filesystem::file_size(table));
  for (const int64_t part : {4, 2}) Damage(table, size / part, 3);
  Open();
  EXPECT_LT(Found(400), 400);
  // In between it is written to.
  Put(400, 410);
  Await([&] { return store_->health().repairs > 0 && Found(410) >= 395; });
  EXPECT_TRUE(store_->health().writable);
  const int found = Found(410);
  EXPECT_LT(found, 410);
  EXPECT_EQ(store_->sequence(), 410);
  // What was lost is found anew, and stays.
  for (int i = 0; i < 400; ++i) {
    if (!*store_->FindRecord(KeyOf(i))) Put(i, i + 1);
  }
  EXPECT_EQ(Found(410), 410);
  Settle();
  EXPECT_EQ(Found(410), 410);
}

TEST_F(StoreFault, ALostKeyIsTunedAgain) {
  Open();
  StartTuner();
  std::vector<Tuner::Answer> answers;
  for (int kernel = 1; kernel <= 40; ++kernel) {
    answers.push_back(Tune(kernel));
    End(answers.back());
  }
  store_->SetWatcher(nullptr);
  Settle();
  const std::string table = File(".sst");
  store_->SetWatcher(nullptr);
  store_.reset();
  // Every block, but not what leads to them.
  const auto size = static_cast<int64_t>(std::filesystem::file_size(table));
  for (int64_t at = 0; at < size * 8 / 10; at += 1000) Damage(table, at, 1);
  Open();
  StartTuner();
  Tuner::Answer again = Tune(1);
  EXPECT_TRUE(End(again).persisted());
  EXPECT_EQ(searches_, 41);
  Await([&] { return store_->health().repairs > 0; });
  Tuner::Answer last = Tune(1);
  EXPECT_TRUE(End(last).persisted());
  EXPECT_EQ(last.accepted.job(), "") << "it had been found again";
}

TEST_F(DamagedStore, ATableWhoseEndIsDamagedIsLeftOut) {
  // Half in another table.
  Put(400, 800);
  Settle();
  const std::string table = File(".sst");
  store_.reset();
  Damage(table, -60, 60);
  Open();
  Await([&] { return Found(800) >= 400; });
  EXPECT_TRUE(store_->health().writable);
  Put(800, 801);
}

TEST_F(DamagedStore, WhatNamesTheTablesIsMadeAnew) {
  const std::string manifest = File("MANIFEST-");
  store_.reset();
  Damage(manifest, 10, 20);
  Open();
  EXPECT_EQ(Found(400), 400);
  EXPECT_EQ(store_->health().repairs, 1);
  Put(400, 401);
  store_.reset();
  std::filesystem::remove(directory_ + "/CURRENT");
  Open();
  EXPECT_EQ(Found(401), 401);
  Put(401, 402);
}

TEST_F(DamagedStore, WhatFollowsADamagedPartOfTheLogIsKept) {
  Put(400, 600);
  const std::string log = File(".log");
  store_.reset();
  Damage(log, static_cast<int64_t>(std::filesystem::file_size(log)) / 2, 1);
  Open();
  EXPECT_GT(Found(600), 550);
  EXPECT_EQ(Found(400), 400);
  Put(600, 601);
}

}  // namespace
}  // namespace beamd
