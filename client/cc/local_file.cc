#include "client/cc/local_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

absl::Status LocalError(absl::string_view what, absl::string_view path, int error) {
  const std::string message = absl::StrCat("can't ", what, " ", path, ": ", std::strerror(error));
  const bool missing = error == ENOENT || error == ENOTDIR;
  return WithDetail(missing ? absl::NotFoundError(message) : absl::FailedPreconditionError(message),
                    {.reason = "FILE"});
}

absl::StatusOr<std::string> ReadLocalFile(const std::string& path) {
  const File in(std::fopen(path.c_str(), "rbe"));
  if (in == nullptr) return LocalError("read", path, errno);
  std::string bytes;
  char some[1 << 16];
  size_t count = 0;
  while ((count = std::fread(some, 1, sizeof(some), in.get())) > 0) bytes.append(some, count);
  // A folder opens, and can't be read.
  if (std::ferror(in.get()) != 0) return LocalError("read", path, errno);
  return bytes;
}

namespace {

// An error names `path`. A file beside `path` goes where it isn't whole.
absl::Status WriteAll(const std::string& to, const char* mode, absl::string_view bytes,
                      const std::string& path) {
  File out(std::fopen(to.c_str(), mode));
  if (out == nullptr) return LocalError("write", path, errno);
  int why = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), out.get()) != bytes.size()) why = errno;
  // What the disk has no room for may show only now.
  if (std::fclose(out.release()) != 0 && why == 0) why = errno;
  if (why == 0) return absl::OkStatus();
  if (to != path) unlink(to.c_str());
  return LocalError("write", path, why);
}

}  // namespace

absl::Status WriteLocalFile(const std::string& path, absl::string_view bytes) {
  // What isn't a file (a device, a pipe, a link) is written to, not replaced.
  struct stat old {};
  const bool there = lstat(path.c_str(), &old) == 0;
  if (there && !S_ISREG(old.st_mode)) return WriteAll(path, "wbe", bytes, path);
  const std::string beside = absl::StrCat(path, ".new-", getpid());
  BEAMD_RETURN_IF_ERROR(WriteAll(beside, "wbxe", bytes, path));
  if ((!there || chmod(beside.c_str(), old.st_mode & 07777) == 0) &&
      std::rename(beside.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int why = errno;
  unlink(beside.c_str());
  return LocalError("write", path, why);
}

}  // namespace beamd
