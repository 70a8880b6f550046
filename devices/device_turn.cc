#include "devices/device_turn.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "engine/base/profile.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr size_t kBytes = 4096;

template <typename T>
absl::StatusOr<T*> Map(int file) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a device's turn");
  return static_cast<T*>(memory);
}

// Memory of a descriptor of its own, zeros.
template <typename T>
absl::StatusOr<std::pair<T*, int>> Make(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kBytes) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    return absl::ErrnoToStatus(error, "making a device's turn");
  }
  const absl::StatusOr<T*> memory = Map<T>(file);
  if (!memory.ok()) {
    close(file);
    return memory.status();
  }
  return std::pair(*memory, file);
}

// What another process made; closes `file`.
template <typename T>
absl::StatusOr<T*> Join(int file) {
  struct stat description;
  if (fstat(file, &description) != 0 || description.st_size != kBytes) {
    close(file);
    return absl::InvalidArgumentError("the descriptor is no device's turn");
  }
  absl::StatusOr<T*> memory = Map<T>(file);
  close(file);
  return memory;
}

// A holder died; the memory behind the lock is the kernel's and whole.
void Mend(pthread_mutex_t* mutex, int result) {
  if (result == EOWNERDEAD) pthread_mutex_consistent(mutex);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTurn>> DeviceTurn::Create() {
  BEAMD_ASSIGN_OR_RETURN(const auto made, Make<pthread_mutex_t>("beamd turn"));
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  const int result = pthread_mutex_init(made.first, &attributes);
  pthread_mutexattr_destroy(&attributes);
  std::unique_ptr<DeviceTurn> turn(new DeviceTurn(made.first, made.second));
  if (result != 0) return absl::ErrnoToStatus(result, "making a device's turn");
  return turn;
}

absl::StatusOr<std::unique_ptr<DeviceTurn>> DeviceTurn::Open(int file) {
  BEAMD_ASSIGN_OR_RETURN(pthread_mutex_t* const mutex, Join<pthread_mutex_t>(file));
  return std::unique_ptr<DeviceTurn>(new DeviceTurn(mutex, -1));
}

DeviceTurn::~DeviceTurn() {
  munmap(mutex_, kBytes);
  if (file_ >= 0) close(file_);
}

void DeviceTurn::Lock() { Mend(mutex_, pthread_mutex_lock(mutex_)); }

void DeviceTurn::Take() {
  if (TryTake()) return;
  if (page_ != nullptr) page_->BeginWait();
  if (group_ != nullptr) group_->Lock();
  Lock();
  if (page_ != nullptr) page_->EndWait();
}

bool DeviceTurn::TryTake() {
  if (group_ != nullptr && !group_->TryTake()) return false;
  const int result = pthread_mutex_trylock(mutex_);
  Mend(mutex_, result);
  if (result == 0 || result == EOWNERDEAD) return true;
  if (group_ != nullptr) group_->Give();
  return false;
}

void DeviceTurn::Give() {
  pthread_mutex_unlock(mutex_);
  if (group_ != nullptr) group_->Give();
}

// All zeros at first.
struct RunPage::State {
  std::atomic<int64_t> waits_since_ns;  // 0: it doesn't wait
  std::atomic<int64_t> waited_ns;
  std::atomic<uint64_t> stopped;  // 0: none
};

absl::StatusOr<std::unique_ptr<RunPage>> RunPage::Create() {
  BEAMD_ASSIGN_OR_RETURN(const auto made, Make<State>("beamd run"));
  return std::unique_ptr<RunPage>(new RunPage(made.first, made.second));
}

absl::StatusOr<std::unique_ptr<RunPage>> RunPage::Open(int file) {
  BEAMD_ASSIGN_OR_RETURN(State* const state, Join<State>(file));
  // A process that was ended while it waited is this one's forerunner.
  state->waits_since_ns = 0;
  return std::unique_ptr<RunPage>(new RunPage(state, -1));
}

RunPage::~RunPage() {
  munmap(state_, kBytes);
  if (file_ >= 0) close(file_);
}

void RunPage::BeginWait() { state_->waits_since_ns = MonotonicNanoseconds(); }

void RunPage::EndWait() {
  state_->waited_ns += MonotonicNanoseconds() - state_->waits_since_ns;
  state_->waits_since_ns = 0;
}

absl::Duration RunPage::Waited() const {
  const int64_t since_ns = state_->waits_since_ns;
  const int64_t lasts_ns = since_ns == 0 ? 0 : MonotonicNanoseconds() - since_ns;
  return absl::Nanoseconds(state_->waited_ns + lasts_ns);
}

void RunPage::Stop(uint64_t run) { state_->stopped = run; }

bool RunPage::IsStopped(uint64_t run) const { return state_->stopped == run; }

}  // namespace beamd
