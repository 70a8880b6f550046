#include "server/execution/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "devices/launch.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::byte* Map(int file, size_t size_bytes, bool writable) {
  void* const memory =
      mmap(nullptr, size_bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Advice only, where the system has huge pages for shared memory.
  if (size_bytes >= kHugePage) madvise(memory, size_bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(size_t size_bytes) {
  const auto no_room = [&](const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", what, " for a buffer of ", size_bytes, " bytes: ", strerror(errno)));
  };
  const int file = memfd_create("beamd buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return no_room("descriptor");
  std::byte* data = nullptr;
  if (ftruncate(file, static_cast<off_t>(size_bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    data = Map(file, size_bytes, true);
  }
  if (data == nullptr) {
    absl::Status status = no_room("memory");
    close(file);
    return status;
  }
  return std::unique_ptr<SharedMemory>(new SharedMemory(data, size_bytes, file));
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Open(int file, size_t size_bytes,
                                                                 bool writable) {
  struct stat description;
  if (fstat(file, &description) != 0 || description.st_size < static_cast<off_t>(size_bytes) ||
      size_bytes == 0) {
    close(file);
    return absl::InvalidArgumentError("the descriptor is no memory of that size");
  }
  std::byte* const data = Map(file, size_bytes, writable);
  const int error = errno;
  close(file);
  if (data == nullptr) return absl::ErrnoToStatus(error, "mapping shared memory");
  return std::unique_ptr<SharedMemory>(new SharedMemory(data, size_bytes, -1));
}

void SharedMemory::LetGo() { madvise(data_, size_bytes_, MADV_DONTNEED); }

SharedMemory::~SharedMemory() {
  munmap(data_, size_bytes_);
  if (file_ >= 0) close(file_);
}

absl::Status SharedBuffer::Write(size_t offset_bytes, std::span<const std::byte> bytes) {
  BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes(), offset_bytes, bytes.size()));
  if (!bytes.empty()) std::memcpy(memory_->data() + offset_bytes, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status SharedBuffer::Read(size_t offset_bytes, std::span<std::byte> bytes) const {
  BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes(), offset_bytes, bytes.size()));
  if (!bytes.empty()) std::memcpy(bytes.data(), memory_->data() + offset_bytes, bytes.size());
  return absl::OkStatus();
}

}  // namespace beamd
