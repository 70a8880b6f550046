#include "server/tuning/batch.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "gtest/gtest.h"
#include "tests/fault/scripted_tuner.h"

namespace beamd {
namespace {

class BatchTest : public testing::ScriptedTuner {
 protected:
  void SetUp() override {
    Open();
    released_ = false;
    StartTuner();
  }

  static v1::TuneBatchRequest Begin(absl::Duration budget) {
    v1::TuneBatchRequest message;
    message.mutable_begin();
    if (budget == absl::InfiniteDuration()) return message;
    const int64_t ns = absl::ToInt64Nanoseconds(budget);
    message.mutable_begin()->mutable_budget()->set_seconds(ns / 1'000'000'000);
    message.mutable_begin()->mutable_budget()->set_nanos(static_cast<int>(ns % 1'000'000'000));
    return message;
  }
  // Kernel `number`.
  static v1::TuneBatchRequest Item(int number) {
    v1::TuneBatchRequest message;
    message.mutable_item()->set_id(absl::StrCat(number));
    v1::Graph& graph = *message.mutable_item()->mutable_request()->mutable_graph();
    for (int i = 0; i < number; ++i) graph.add_nodes()->set_op(v1::OP_SINK);
    return message;
  }

  // The item's last events, by id, once all were told.
  static std::map<std::string, v1::TuneBatchEvent> Finish(Batch& batch) {
    std::map<std::string, v1::TuneBatchEvent> last;
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    while (!batch.done() && absl::Now() < limit) {
      while (const std::optional<Batch::News> news = batch.Next()) {
        last[news->event.id()] = news->event;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_TRUE(batch.done());
    return last;
  }
};

TEST_F(BatchTest, LeavesWhatIsStillSearchedWhenItsBudgetIsOver) {
  best_s_ = 0.25;
  Tuner::Answer alone = Tune(1);
  Await([&] { return searches_ == 1; });
  Batch batch(*tuner_, {.principal = "me"}, {.parallel = 1}, [] {});
  ASSERT_TRUE(batch.Add(Begin(absl::Milliseconds(400))).ok());
  // One is joined, and the others never get to start.
  for (const int kernel : {1, 2, 3}) ASSERT_TRUE(batch.Add(Item(kernel)).ok());
  batch.Close();
  const absl::Time began = absl::Now();
  const auto last = Finish(batch);
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(390));
  EXPECT_LT(absl::Now() - began, absl::Seconds(3));
  ASSERT_TRUE(last.at("1").has_result()) << last.at("1").ShortDebugString();
  EXPECT_EQ(last.at("1").result().record().best_s(), 0.25);
  EXPECT_EQ(last.at("1").result().record().end(), v1::SEARCH_END_BUDGET);
  EXPECT_FALSE(last.at("1").result().record().verification().verified());
  EXPECT_EQ(last.at("1").result().job(), alone.accepted.job());
  for (const char* id : {"2", "3"}) {
    EXPECT_EQ(last.at(id).code(), 4) << last.at(id).ShortDebugString();  // DEADLINE_EXCEEDED
    EXPECT_EQ(last.at(id).error().reason(), "BUDGET");
  }
  // Who asked before goes on.
  EXPECT_EQ(alone.watch->job().token().reason(), StopReason::kNone);
  released_ = true;
  EXPECT_TRUE(End(alone).persisted());
}

TEST_F(BatchTest, EndsItsOwnQueuedSearchWithItsBudget) {
  const Tuner::Answer other = Tune(1);
  Await([&] { return searches_ == 1; });
  Batch batch(*tuner_, {.principal = "me"}, {.parallel = 2}, [] {});
  ASSERT_TRUE(batch.Add(Begin(absl::Milliseconds(300))).ok());
  ASSERT_TRUE(batch.Add(Item(2)).ok());
  batch.Close();
  const auto last = Finish(batch);
  EXPECT_EQ(last.at("2").code(), 4);
  EXPECT_EQ(last.at("2").error().reason(), "BUDGET");
  // Nobody waits for it any more.
  Await([&] { return tuner_->load().waiting == 0; });
  EXPECT_EQ(searches_, 1);
}

TEST_F(BatchTest, WaitsForItsSearchesWithoutABudget) {
  Batch batch(*tuner_, {.principal = "me"}, {.parallel = 2}, [] {});
  ASSERT_TRUE(batch.Add(Begin(absl::InfiniteDuration())).ok());
  for (int kernel = 1; kernel < 40; ++kernel) ASSERT_TRUE(batch.Add(Item(kernel)).ok());
  batch.Close();
  released_ = true;
  const auto last = Finish(batch);
  for (int kernel = 1; kernel < 40; ++kernel) {
    EXPECT_TRUE(last.at(absl::StrCat(kernel)).result().persisted());
  }
}

TEST_F(BatchTest, HoldsSoManyBytesOfItemsThatHaveNotEnded) {
  const auto bytes = static_cast<int64_t>(Item(50).item().ByteSizeLong());
  Batch batch(*tuner_, {.principal = "me"}, {.parallel = 1, .bytes_max = 2 * bytes}, [] {});
  ASSERT_TRUE(batch.Add(Begin(absl::InfiniteDuration())).ok());
  ASSERT_TRUE(batch.Add(Item(50)).ok());
  ASSERT_TRUE(batch.Add(Item(49)).ok());
  const absl::Status third = batch.Add(Item(48));
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  const std::optional<ErrorDetail> detail = GetErrorDetail(third);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, "BATCH_BYTES");
  EXPECT_EQ(detail->limit, 2 * bytes);
  EXPECT_GT(*detail->value, 2 * bytes);
  // Those that end make room.
  released_ = true;
  Await([&] {
    while (batch.Next()) continue;
    return tuner_->load().running + tuner_->load().waiting == 0 && searches_ == 2;
  });
  while (batch.Next()) continue;
  for (const int kernel : {47, 46}) EXPECT_TRUE(batch.Add(Item(kernel)).ok());
  batch.Close();
  EXPECT_TRUE(Finish(batch).at("46").has_result());
}

TEST_F(BatchTest, HoldsNoItemThatIsNoKernelOnceThatIsTold) {
  const auto bytes = static_cast<int64_t>(Item(50).item().ByteSizeLong());
  Batch batch(*tuner_, {.principal = "me"}, {.parallel = 1, .bytes_max = 2 * bytes}, [] {});
  ASSERT_TRUE(batch.Add(Begin(absl::InfiniteDuration())).ok());
  parses_ = false;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(batch.Add(Item(50)).ok());
    const std::optional<Batch::News> news = batch.Next();
    ASSERT_TRUE(news && news->event.has_error());
    EXPECT_EQ(news->event.error().reason(), "EMPTY");
    EXPECT_EQ(news->item->request().graph().nodes_size(), 50);
  }
  EXPECT_EQ(searches_, 0);
}

}  // namespace
}  // namespace beamd
