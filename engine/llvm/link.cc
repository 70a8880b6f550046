#include "engine/llvm/link.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "engine/base/memory_file.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "lld/Common/Driver.h"
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

// Standard output, for a while. A child that may make no files has no other way to let lld write:
// it wants a folder for what it is called to, but for "-".
class CaptureOutput {
 public:
  CaptureOutput() : file_(memfd_create("kernel.hsaco", MFD_CLOEXEC)), before_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    llvm::outs().flush();
    if (file_ >= 0) dup3(file_, STDOUT_FILENO, 0);
  }
  ~CaptureOutput() {
    End();
    if (file_ >= 0) close(file_);
  }
  CaptureOutput(const CaptureOutput&) = delete;
  CaptureOutput& operator=(const CaptureOutput&) = delete;

  // What was written until now; from here on it goes where it went before.
  absl::StatusOr<std::string> Finish() {
    llvm::outs().flush();
    End();
    std::string bytes(static_cast<size_t>(std::max<off_t>(lseek(file_, 0, SEEK_END), 0)), '\0');
    if (pread(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      return absl::ErrnoToStatus(errno, "reading the linker's output");
    }
    return bytes;
  }

 private:
  void End() {
    if (ended_) return;
    ended_ = true;
    if (before_ < 0) {
      // It was closed.
      close(STDOUT_FILENO);
      return;
    }
    dup3(before_, STDOUT_FILENO, 0);
    close(before_);
  }

  const int file_, before_;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<std::string> LinkCodeObject(absl::string_view object) {
  static Mutex mutex;
  static bool usable = true;
  const MutexLock lock(mutex);
  if (!usable) return absl::UnavailableError("lld failed in a way that it can't run again");
  MemoryFile input;
  BEAMD_RETURN_IF_ERROR(input.Set(object));
  const std::string from = input.path();
  const std::array arguments = {"ld.lld", "-shared", "--no-undefined", "--threads=1", from.c_str(),
                                "-o",     "-"};
  std::string errors;
  llvm::raw_string_ostream stream(errors);
  const KeepSignals keep;
  CaptureOutput output;
  const lld::Result result =
      lld::lldMain(arguments, llvm::nulls(), stream, {{lld::Gnu, &lld::elf::link}});
  usable = result.canRunAgain;
  absl::StatusOr<std::string> code = output.Finish();
  if (result.retCode != 0) return absl::InternalError(absl::StrCat("lld: ", errors));
  return code;
}

}  // namespace beamd
