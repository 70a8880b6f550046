// Many kernels under one budget: a model's, say. Those that promise most go first and get most.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "proto/beamd/v1/batch.pb.h"
#include "server/auth/caller.h"
#include "server/tuning/tuner.h"

namespace beamd {

struct BatchOptions {
  // Searches of the batch that run at once: one is compiled while another is timed.
  int parallel = 2;
  int items_max = 10000;
  // Of the messages of items that have not ended, and of the ids of those that have.
  int64_t bytes_max = int64_t{128} << 20;
};

// Thread-safe, but for Next, which one thread calls at a time.
//
// What an item promises is what its model spends in it: its weight times its time as far as that is
// known, of a record of the same kernel, else of its share of memory traffic and arithmetic. Each
// item that starts gets that share of the budget that is left among the items that are left. Once
// the budget is over, and a little more, nothing is waited for: an item's answer is then the best so
// far, or DEADLINE_EXCEEDED.
class Batch {
 public:
  // `changed` is called on any thread when Next may have something; it may be called once more
  // after the batch is gone.
  Batch(Tuner& tuner, Caller caller, BatchOptions options, std::function<void()> changed);

  // The first message carries the batch's settings, later ones items; one that is refused ends
  // nothing here. An item whose kernel can't be parsed is taken, and told as failed.
  absl::Status Add(v1::TuneBatchRequest message);
  // No more will come.
  void Close();

  struct News {
    v1::TuneBatchEvent event;
    std::unique_ptr<v1::TuneBatchItem> item;  // with an item's error: as it came
    int64_t bytes = 0;                        // that it was held for
  };
  // The next thing to tell; nullopt: nothing now. Call it now and then too, for the time that
  // passes. Starts what there is room for.
  std::optional<News> Next();
  // Whether all was told.
  bool done() const;

 private:
  struct Item {
    std::string id;
    double weight = 1;
    std::unique_ptr<v1::TuneBatchItem> message;  // as it came, until it has ended
    int64_t bytes = 0;                           // of the message
    double promise = 0;
    bool started = false;
    std::unique_ptr<JobWatch> watch;
    v1::TuneAccepted accepted;  // while it is watched
    uint64_t seen = 0;
    double best_s = 0;
    double hc_s = 0;
    bool ended = false;
  };

  void StartSome() BEAMD_REQUIRES(mutex_);
  void Start(Item& item) BEAMD_REQUIRES(mutex_);
  void Look(Item& item) BEAMD_REQUIRES(mutex_);
  void Finish(Item& item, const absl::StatusOr<v1::TuneResult>& result) BEAMD_REQUIRES(mutex_);
  void Leave(Item& item) BEAMD_REQUIRES(mutex_);
  void TellProgress() BEAMD_REQUIRES(mutex_);
  // An event of the item, to be filled in.
  News& Tell(const Item& item) BEAMD_REQUIRES(mutex_);
  absl::Duration Left() const BEAMD_REQUIRES(mutex_);

  Tuner& tuner_;
  const Caller caller_;
  const BatchOptions options_;
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  absl::Time began_ BEAMD_GUARDED_BY(mutex_);  // when `begin` came
  bool configured_ BEAMD_GUARDED_BY(mutex_) = false;
  bool closed_ BEAMD_GUARDED_BY(mutex_) = false;
  absl::Duration budget_ BEAMD_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  std::vector<std::unique_ptr<Item>> items_ BEAMD_GUARDED_BY(mutex_);
  std::deque<News> events_ BEAMD_GUARDED_BY(mutex_);
  int64_t held_bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  int running_ BEAMD_GUARDED_BY(mutex_) = 0;
  int ended_ BEAMD_GUARDED_BY(mutex_) = 0;
  absl::Time told_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace beamd
