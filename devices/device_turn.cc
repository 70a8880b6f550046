#include "devices/device_turn.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr size_t kBytes = 4096;

absl::StatusOr<pthread_mutex_t*> Map(int file) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a device's turn");
  return static_cast<pthread_mutex_t*>(memory);
}

// A holder died; the memory behind the lock is the kernel's and whole.
void Mend(pthread_mutex_t* mutex, int result) {
  if (result == EOWNERDEAD) pthread_mutex_consistent(mutex);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTurn>> DeviceTurn::Create() {
  const int file = memfd_create("beamd turn", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kBytes) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    return absl::ErrnoToStatus(error, "making a device's turn");
  }
  const absl::StatusOr<pthread_mutex_t*> mutex = Map(file);
  if (!mutex.ok()) {
    close(file);
    return mutex.status();
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  const int result = pthread_mutex_init(*mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  std::unique_ptr<DeviceTurn> turn(new DeviceTurn(*mutex, file));
  if (result != 0) return absl::ErrnoToStatus(result, "making a device's turn");
  return turn;
}

absl::StatusOr<std::unique_ptr<DeviceTurn>> DeviceTurn::Open(int file) {
  struct stat description;
  if (fstat(file, &description) != 0 || description.st_size != kBytes) {
    close(file);
    return absl::InvalidArgumentError("the descriptor is no device's turn");
  }
  const absl::StatusOr<pthread_mutex_t*> mutex = Map(file);
  close(file);
  if (!mutex.ok()) return mutex.status();
  return std::unique_ptr<DeviceTurn>(new DeviceTurn(*mutex, -1));
}

DeviceTurn::~DeviceTurn() {
  munmap(mutex_, kBytes);
  if (file_ >= 0) close(file_);
}

void DeviceTurn::Take() { Mend(mutex_, pthread_mutex_lock(mutex_)); }

bool DeviceTurn::TryTake() {
  const int result = pthread_mutex_trylock(mutex_);
  Mend(mutex_, result);
  return result == 0 || result == EOWNERDEAD;
}

void DeviceTurn::Give() { pthread_mutex_unlock(mutex_); }

}  // namespace beamd
