// Whose turn it is on a device that several processes run kernels on: the one that times them, and
// those that run them for clients.
//
// A lock in memory that they share. It is the kernel's priority-inheriting one (futex(2),
// FUTEX_LOCK_PI) since that is handed to who has waited longest, and never taken by who comes at
// the right moment: a holder that gives it up and wants it again stands behind all who wait. It is
// robust: where a holder dies, the next one has it. Without a second one who wants it, taking it is
// an exchange in memory.
//
// Who has many processes gets no more turns by them: those of one principal take a turn among
// themselves first (set_group), and so stand before the device one at a time.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace beamd {

// What a process that runs kernels and the one that limits its time tell each other while it runs,
// in memory that they share. One thread of the first waits; anybody may read.
class RunPage {
 public:
  static absl::StatusOr<std::unique_ptr<RunPage>> Create();
  // What another process created, for running; closes `file`. InvalidArgument where that is no such
  // memory.
  static absl::StatusOr<std::unique_ptr<RunPage>> Open(int file);
  ~RunPage();
  RunPage(const RunPage&) = delete;
  RunPage& operator=(const RunPage&) = delete;

  // Of the memory; -1 for one that was opened.
  int file() const { return file_; }

  // Around each wait for a turn: a limit of time must not count it.
  void BeginWait();
  void EndWait();
  // Of all waits until now, one that lasts included; one that ends just then may count twice.
  absl::Duration Waited() const;

  // The run of this number, which is not 0, is to end before its next kernel; the last such call
  // counts.
  void Stop(uint64_t run);
  bool IsStopped(uint64_t run) const;

 private:
  struct State;
  RunPage(State* state, int file) : state_(state), file_(file) {}

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
  void set_page(RunPage* page) { page_ = page; }
  // The turn of those that this one belongs to: it is taken first and given last, so that only one
  // of them at a time stands before this. Null: it stands for itself. As above.
  void set_group(DeviceTurn* group) { group_ = group; }

  void Take();
  // False where another has it.
  bool TryTake();
  void Give();

 private:
  DeviceTurn(pthread_mutex_t* mutex, int file) : mutex_(mutex), file_(file) {}
  void Lock();

  pthread_mutex_t* const mutex_;
  const int file_;
  RunPage* page_ = nullptr;
  DeviceTurn* group_ = nullptr;
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
