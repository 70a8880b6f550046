#include "server/tuning/capture.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/kernel/opt.h"
#include "engine/uop/wire.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// Text as JSON writes it.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void Append(int fd, const std::string& line) {
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    spdlog::warn("the capture file can't be written: {}", strerror(errno));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CaptureFile>> CaptureFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  return std::unique_ptr<CaptureFile>(new CaptureFile(fd));
}

CaptureFile::~CaptureFile() { close(fd_); }

void CaptureFile::Kernel(const std::string& hash, const v1::Graph& graph) {
  Append(fd_, absl::StrCat("{\"kernel\":\"", hash, "\",\"graph\":", GraphToJson(graph), "}\n"));
}

void CaptureFile::Candidate(const std::string& hash, const CandidateReport& report) {
  Append(fd_, absl::StrCat("{\"kernel\":\"", hash, "\",\"opts\":", Quoted(ToString(report.opts)),
                           ",\"failure\":\"", Name(report.failure),
                           "\",\"seconds\":", absl::StrFormat("%.9g", report.seconds),
                           ",\"detail\":", Quoted(report.detail), "}\n"));
}

}  // namespace beamd
