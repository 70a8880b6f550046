#include "engine/llvm/link.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace beamd {
namespace {

// LLVM takes signals over when it writes a file, to remove a part of one. The process' own way with
// them comes back here.
class KeepSignals {
 public:
  KeepSignals() {
    for (size_t i = 0; i < kTaken.size(); ++i) sigaction(kTaken[i], nullptr, &before_[i]);
  }
  ~KeepSignals() {
    for (size_t i = 0; i < kTaken.size(); ++i) sigaction(kTaken[i], &before_[i], nullptr);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  // llvm/lib/Support/Unix/Signals.inc, RegisterHandlers.
  static constexpr std::array kTaken = {SIGHUP,  SIGINT,  SIGTERM, SIGUSR2, SIGILL,  SIGTRAP,
                                        SIGABRT, SIGFPE,  SIGBUS,  SIGSEGV, SIGQUIT, SIGSYS,
                                        SIGXCPU, SIGXFSZ, SIGPIPE, SIGUSR1};
  std::array<struct sigaction, kTaken.size()> before_{};
};

// A file that only this process sees, with `bytes` in it.
class MemoryFile {
 public:
  static absl::StatusOr<MemoryFile> Create(absl::string_view bytes) {
    MemoryFile file(memfd_create("kernel.o", MFD_CLOEXEC));
    if (file.fd_ < 0) return absl::ErrnoToStatus(errno, "memfd_create");
    while (!bytes.empty()) {
      const ssize_t n = write(file.fd_, bytes.data(), bytes.size());
      if (n < 0) return absl::ErrnoToStatus(errno, "writing the linker's input");
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return file;
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  std::string Path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}
  int fd_;
};

// A folder for lld's output, which it can't write to a file without a name.
class ScratchFolder {
 public:
  ScratchFolder() {
    for (const char* parent : {"/dev/shm", "/tmp"}) {
      std::string path = absl::StrCat(parent, "/beamd-link.XXXXXX");
      if (mkdtemp(path.data()) == nullptr) continue;
      path_ = path;
      return;
    }
  }
  ~ScratchFolder() {
    if (path_.empty()) return;
    unlink(File().c_str());
    rmdir(path_.c_str());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  bool ok() const { return !path_.empty(); }
  std::string File() const { return absl::StrCat(path_, "/kernel.hsaco"); }

 private:
  std::string path_;
};

}  // namespace

absl::StatusOr<std::string> LinkCodeObject(absl::string_view object) {
  static Mutex mutex;
  static bool usable = true;
  const MutexLock lock(mutex);
  if (!usable) return absl::UnavailableError("lld failed in a way that it can't run again");
  BEAMD_ASSIGN_OR_RETURN(const MemoryFile input, MemoryFile::Create(object));
  const ScratchFolder folder;
  if (!folder.ok()) return absl::ErrnoToStatus(errno, "no folder for the linker's output");
  const std::string from = input.Path(), to = folder.File();
  const std::array arguments = {"ld.lld",     "-shared", "--no-undefined", "--threads=1",
                                from.c_str(), "-o",      to.c_str()};
  std::string errors;
  llvm::raw_string_ostream stream(errors);
  const KeepSignals keep;
  const lld::Result result =
      lld::lldMain(arguments, llvm::nulls(), stream, {{lld::Gnu, &lld::elf::link}});
  usable = result.canRunAgain;
  if (result.retCode != 0) return absl::InternalError(absl::StrCat("lld: ", errors));
  auto output = llvm::MemoryBuffer::getFile(to, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!output) return absl::InternalError(output.getError().message());
  return (*output)->getBuffer().str();
}

}  // namespace beamd
