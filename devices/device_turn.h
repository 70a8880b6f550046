// Whose turn it is on a device that several processes run kernels on: the one that times them, and
// those that run them for clients.
//
// A lock in memory that they share. It is the kernel's priority-inheriting one (futex(2),
// FUTEX_LOCK_PI) since that is handed to who has waited longest, and never taken by who comes at
// the right moment: a holder that gives it up and wants it again stands behind all who wait. It is
// robust: where a holder dies, the next one has it. Without a second one who wants it, taking it is
// an exchange in memory.
#pragma once

#include <pthread.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace beamd {

// How long a process has waited for its turns: in memory that it shares with the one that limits
// its time, which must not count that. One thread of the process waits; anybody may read.
class TurnWaits {
 public:
  static absl::StatusOr<std::unique_ptr<TurnWaits>> Create();
  // What another process created, for waiting; closes `file`. InvalidArgument where that is no such
  // memory.
  static absl::StatusOr<std::unique_ptr<TurnWaits>> Open(int file);
  ~TurnWaits();
  TurnWaits(const TurnWaits&) = delete;
  TurnWaits& operator=(const TurnWaits&) = delete;

  // Of the memory; -1 for one that was opened.
  int file() const { return file_; }

  void Begin();
  void End();
  // Until now, a wait that lasts included; one that ends just then may count twice.
  absl::Duration Total() const;

 private:
  struct State;
  TurnWaits(State* state, int file) : state_(state), file_(file) {}

  State* const state_;
  const int file_;
};

// Thread-safe. One thread at a time has the turn.
class DeviceTurn {
 public:
  // In memory of its own: a descriptor of it goes to other processes.
  static absl::StatusOr<std::unique_ptr<DeviceTurn>> Create();
  // What another process created; closes `file`. InvalidArgument where that is no such memory.
  static absl::StatusOr<std::unique_ptr<DeviceTurn>> Open(int file);
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

  // Of the memory; -1 for one that was opened.
  int file() const { return file_; }
  // Where Take notes that it waits; null: nowhere. Before it is used; outlives this.
  void set_waits(TurnWaits* waits) { waits_ = waits; }

  void Take();
  // False where another has it.
  bool TryTake();
  void Give();

 private:
  DeviceTurn(pthread_mutex_t* mutex, int file) : mutex_(mutex), file_(file) {}

  pthread_mutex_t* const mutex_;
  const int file_;
  TurnWaits* waits_ = nullptr;
};

// Has the turn while it lives; null: there is none to take.
class DeviceTurnScope {
 public:
  explicit DeviceTurnScope(DeviceTurn* turn) : turn_(turn) {
    if (turn_ != nullptr) turn_->Take();
  }
  ~DeviceTurnScope() {
    if (turn_ != nullptr) turn_->Give();
  }
  DeviceTurnScope(const DeviceTurnScope&) = delete;
  DeviceTurnScope& operator=(const DeviceTurnScope&) = delete;

 private:
  DeviceTurn* const turn_;
};

}  // namespace beamd
