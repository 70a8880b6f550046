#include "engine/base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace beamd {

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MemoryFile::Set(absl::string_view content) {
  const int fd = memfd_create("beamd", MFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  while (!content.empty()) {
    const ssize_t n = write(fd, content.data(), content.size());
    if (n >= 0) {
      content.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      const int error = errno;
      close(fd);
      return absl::ErrnoToStatus(error, "writing to memory");
    }
  }
  if (fd_ < 0) {
    fd_ = fd;
    return absl::OkStatus();
  }
  const int moved = dup3(fd, fd_, O_CLOEXEC);
  const int error = errno;
  close(fd);
  return moved < 0 ? absl::ErrnoToStatus(error, "dup3") : absl::OkStatus();
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

}  // namespace beamd
