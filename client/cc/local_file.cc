#include "client/cc/local_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"

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

absl::Status WriteLocalFile(const std::string& path, absl::string_view bytes) {
  File out(std::fopen(path.c_str(), "wbe"));
  if (out == nullptr) return LocalError("write", path, errno);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), out.get()) == bytes.size();
  const int why = errno;
  // What the disk has no room for may show only now.
  const bool closed = std::fclose(out.release()) == 0;
  if (!written) return LocalError("write", path, why);
  return closed ? absl::OkStatus() : LocalError("write", path, errno);
}

}  // namespace beamd
