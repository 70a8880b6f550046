#include "server/tuning/batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "server/tuning/options.h"

namespace beamd {
namespace {

constexpr absl::Duration kTellEvery = absl::Milliseconds(500);
// A share of the budget below this finds nothing: the item is searched with it all the same.
constexpr absl::Duration kLeastShare = absl::Milliseconds(200);
// Of the budget, what its last searches get to end by themselves, checked and stored.
constexpr double kLateness = 0.08;

v1::ErrorDetail ToDetail(const absl::Status& status) {
  v1::ErrorDetail detail;
  detail.set_message(std::string(status.message()));
  detail.set_reason(absl::StatusCodeToString(status.code()));
  if (const std::optional<ErrorDetail> from = GetErrorDetail(status)) {
    detail.set_reason(from->reason);
    detail.set_field(from->field);
    if (from->node) detail.set_node(static_cast<uint32_t>(*from->node));
    if (from->limit) detail.set_limit(*from->limit);
    if (from->value) detail.set_value(*from->value);
  }
  return detail;
}

void SetDuration(absl::Duration from, google::protobuf::Duration& to) {
  const int64_t ns = absl::ToInt64Nanoseconds(from);
  to.set_seconds(ns / 1'000'000'000);
  to.set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

// What a search had found when it was no longer waited for.
v1::TuneResult BestSoFar(const v1::TuneAccepted& accepted, const v1::TuneProgress& progress) {
  v1::TuneResult result;
  v1::Record& record = *result.mutable_record();
  record.set_key(accepted.key());
  record.set_kernel_hash(accepted.kernel_hash());
  record.set_device(accepted.device());
  record.set_job(accepted.job());
  *record.mutable_opts() = progress.best_opts();
  record.set_best_s(progress.best_s());
  *record.mutable_failures() = progress.failures();
  record.set_search_s(progress.elapsed_s());
  record.set_end(v1::SEARCH_END_BUDGET);
  result.set_match(v1::MATCH_SEARCHED);
  result.set_job(accepted.job());
  result.set_trace_id(accepted.trace_id());
  return result;
}

}  // namespace

Batch::Batch(Tuner& tuner, Caller caller, BatchOptions options, std::function<void()> changed)
    : tuner_(tuner),
      caller_(std::move(caller)),
      options_(options),
      changed_(std::move(changed)),
      began_(SteadyNow()) {}

absl::Status Batch::Add(v1::TuneBatchRequest message) {
  MutexLock lock(mutex_);
  if (message.has_begin()) {
    if (configured_) {
      return InvalidArgument("a batch begins once", {.reason = "BEGUN", .field = "begin"});
    }
    configured_ = true;
    v1::TuneRequest bound;
    if (message.begin().has_budget()) *bound.mutable_budget() = message.begin().budget();
    BEAMD_ASSIGN_OR_RETURN(budget_, ResolveBudget(bound));
    began_ = SteadyNow();
    return absl::OkStatus();
  }
  if (!configured_ || !message.has_item()) {
    return InvalidArgument("a batch wants `begin` first, then items",
                           {.reason = "NOT_BEGUN", .field = "begin"});
  }
  const auto count = static_cast<int>(items_.size());
  if (count >= options_.items_max) {
    return WithDetail(
        absl::ResourceExhaustedError(
            absl::StrCat("a batch has at most ", options_.items_max, " items")),
        {.reason = "TOO_MANY", .field = "item", .limit = options_.items_max, .value = count + 1});
  }
  auto item = std::make_unique<Item>();
  item->bytes = static_cast<int64_t>(message.item().ByteSizeLong());
  if (held_bytes_ + item->bytes > options_.bytes_max) {
    const int64_t value = held_bytes_ + item->bytes;
    return WithDetail(
        absl::ResourceExhaustedError(
            absl::StrCat("items of ", value, " bytes that have not ended, at most ",
                         options_.bytes_max, "; there is room again when some of them end")),
        {.reason = "BATCH_BYTES", .field = "item", .limit = options_.bytes_max, .value = value});
  }
  const double weight = message.item().weight();
  if (!(weight >= 0 && weight < 1e18)) {
    return InvalidArgument("a weight must be finite and not below 0",
                           {.reason = "WEIGHT", .field = "item.weight"});
  }
  item->id = message.item().id();
  item->weight = weight == 0 ? 1 : weight;
  item->message = std::make_unique<v1::TuneBatchItem>(std::move(*message.mutable_item()));
  held_bytes_ += item->bytes;
  const absl::StatusOr<double> seconds = tuner_.ExpectedSeconds(item->message->request());
  if (seconds.ok()) {
    item->promise = item->weight * *seconds;
  } else {
    item->started = true;
    Finish(*item, seconds.status());
  }
  items_.push_back(std::move(item));
  return absl::OkStatus();
}

void Batch::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

bool Batch::done() const {
  MutexLock lock(mutex_);
  return closed_ && ended_ == static_cast<int>(items_.size()) && events_.empty();
}

absl::Duration Batch::Left() const { return budget_ - (SteadyNow() - began_); }

void Batch::StartSome() {
  // What ends at once tells its end first: there may be thousands.
  while (running_ < options_.parallel && events_.empty()) {
    Item* best = nullptr;
    for (const auto& item : items_) {
      if (!item->started && (best == nullptr || item->promise > best->promise)) best = item.get();
    }
    if (best == nullptr) return;
    Start(*best);
  }
}

void Batch::Start(Item& item) {
  double promised = 0;
  int left = 0;
  for (const auto& other : items_) {
    if (other->started) continue;
    promised += other->promise;
    ++left;
  }
  item.started = true;
  bool late = false;
  v1::TuneRequest request = item.message->request();
  if (budget_ < absl::InfiniteDuration()) {
    if (Left() <= absl::ZeroDuration()) {
      // What is stored still answers.
      request.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
      late = item.message->request().mode() != v1::TUNE_MODE_LOOKUP_ONLY;
    } else {
      // As many run at once as share the device.
      const double share = promised > 0 ? item.promise / promised : 1.0 / left;
      const int beside = std::min(options_.parallel, left);
      const absl::Duration own =
          std::clamp(Left() * (share * beside), std::min(kLeastShare, Left()), Left());
      const absl::StatusOr<absl::Duration> asked = ResolveBudget(request);
      if (!asked.ok() || own < *asked) SetDuration(own, *request.mutable_budget());
    }
  }
  absl::StatusOr<Tuner::Answer> answer = tuner_.Tune(request, caller_, changed_);
  if (late && absl::IsNotFound(answer.status())) {
    return Finish(item, WithDetail(absl::DeadlineExceededError(
                                       "the batch's budget was used up before its turn came"),
                                   {.reason = "BUDGET", .field = "begin.budget"}));
  }
  if (!answer.ok()) return Finish(item, answer.status());
  *Tell(item).event.mutable_accepted() = answer->accepted;
  if (answer->result) return Finish(item, *std::move(answer->result));
  item.accepted = std::move(answer->accepted);
  item.watch = std::move(answer->watch);
  ++running_;
}

void Batch::Finish(Item& item, const absl::StatusOr<v1::TuneResult>& result) {
  if (item.watch != nullptr) --running_;
  item.watch.reset();
  item.ended = true;
  ++ended_;
  News& news = Tell(item);
  v1::TuneBatchEvent& event = news.event;
  if (result.ok()) {
    item.best_s = result->record().best_s();
    item.hc_s = result->record().hc_s();
    *event.mutable_result() = *result;
    held_bytes_ -= item.bytes - static_cast<int64_t>(item.id.size());
    item.message.reset();
  } else {
    news.item = std::move(item.message);
    news.bytes = item.bytes - static_cast<int64_t>(item.id.size());
    *event.mutable_error() = ToDetail(result.status());
    event.set_code(static_cast<int>(result.status().code()));
  }
}

void Batch::Look(Item& item) {
  Job::News news = item.watch->job().Look(item.seen);
  item.seen = news.number;
  if (news.progress) item.best_s = news.progress->best_s();
  if (news.end) Finish(item, *news.end);
}

// A job that others watch, or that is kept, goes on; the others end at once.
void Batch::Leave(Item& item) {
  std::optional<v1::TuneProgress> progress = item.watch->job().Look(0).progress;
  item.watch->Leave(StopReason::kDeadline);
  if (progress && progress->best_s() > 0) return Finish(item, BestSoFar(item.accepted, *progress));
  Finish(item, WithDetail(absl::DeadlineExceededError(
                              "the batch's budget was used up before anything was timed"),
                          {.reason = "BUDGET", .field = "begin.budget"}));
}

void Batch::TellProgress() {
  const absl::Time now = SteadyNow();
  const bool all = closed_ && ended_ == static_cast<int>(items_.size());
  if (items_.empty() || (now - told_ < kTellEvery && !all) || told_ == absl::InfiniteFuture()) {
    return;
  }
  told_ = all ? absl::InfiniteFuture() : now;  // the last is told once
  v1::TuneBatchProgress& progress = *events_.emplace_back().event.mutable_progress();
  progress.set_items(static_cast<uint32_t>(items_.size()));
  progress.set_running(static_cast<uint32_t>(running_));
  progress.set_done(static_cast<uint32_t>(ended_));
  progress.set_elapsed_s(absl::ToDoubleSeconds(now - began_));
  if (budget_ < absl::InfiniteDuration()) progress.set_budget_s(absl::ToDoubleSeconds(budget_));
  double hc_s = 0, best_s = 0;
  for (const auto& item : items_) {
    if (item->hc_s > 0 && item->best_s > 0) {
      hc_s += item->weight * item->hc_s;
      best_s += item->weight * item->best_s;
    }
    if (item->watch == nullptr) continue;
    v1::TuneBatchItemProgress& one = *progress.add_now();
    one.set_id(item->id);
    if (auto news = item->watch->job().Look(0); news.progress) {
      *one.mutable_progress() = *std::move(news.progress);
    }
  }
  progress.set_hc_s(hc_s);
  progress.set_best_s(best_s);
}

Batch::News& Batch::Tell(const Item& item) {
  News& news = events_.emplace_back();
  news.event.set_id(item.id);
  return news;
}

std::optional<Batch::News> Batch::Next() {
  MutexLock lock(mutex_);
  if (events_.empty()) {
    for (const auto& item : items_) {
      if (item->watch != nullptr) Look(*item);
      // However long a job that was joined, or that queues behind others, has yet to run.
      if (item->watch != nullptr && Left() < -kLateness * budget_) Leave(*item);
    }
    StartSome();
    TellProgress();
  }
  if (events_.empty()) return std::nullopt;
  News news = std::move(events_.front());
  events_.pop_front();
  held_bytes_ -= news.bytes;
  return news;
}

}  // namespace beamd
