#include "server/workers/frame_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr size_t kHeaderBytes = 4;
// Consumed bytes are dropped from the front once they are this many.
constexpr size_t kCompactBytes = size_t{1} << 20;

uint32_t ReadLength(const char* p) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  return u[0] | u[1] << 8 | u[2] << 16 | static_cast<uint32_t>(u[3]) << 24;
}

// That one message may bring along; the daemon sends one at a time.
constexpr size_t kMostFiles = 8;

void TakeFiles(msghdr& message, std::deque<int>& files) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(c) + i * sizeof(int), sizeof(file));
      files.push_back(file);
    }
  }
}

}  // namespace

absl::StatusOr<std::string> EncodeFrame(const internal::Frame& frame) {
  const size_t size = frame.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", size, " bytes"));
  }
  std::string out;
  out.reserve(kHeaderBytes + size);
  for (size_t i = 0; i < kHeaderBytes; ++i) out.push_back(static_cast<char>(size >> (8 * i)));
  frame.AppendToString(&out);
  return out;
}

absl::StatusOr<std::optional<internal::Frame>> FrameParser::Next() {
  if (buffer_.size() - begin_ < kHeaderBytes) return std::nullopt;
  const uint32_t length = ReadLength(buffer_.data() + begin_);
  if (length > kMaxFrameBytes) {
    return absl::DataLossError(absl::StrCat("a frame that claims ", length, " bytes"));
  }
  if (buffer_.size() - begin_ - kHeaderBytes < length) return std::nullopt;
  internal::Frame frame;
  if (!frame.ParseFromArray(buffer_.data() + begin_ + kHeaderBytes, static_cast<int>(length))) {
    return absl::DataLossError("bytes that are no frame");
  }
  begin_ += kHeaderBytes + length;
  if (begin_ == buffer_.size() || begin_ > kCompactBytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

FrameChannel::~FrameChannel() {
  for (const int file : files_) close(file);
}

int FrameChannel::TakeFile() {
  if (files_.empty()) return -1;
  const int file = files_.front();
  files_.pop_front();
  return file;
}

absl::StatusOr<std::optional<internal::Frame>> FrameChannel::Read() {
  char bytes[1 << 16];
  while (true) {
    BEAMD_ASSIGN_OR_RETURN(std::optional<internal::Frame> frame, parser_.Next());
    if (frame) return frame;
    iovec where{.iov_base = bytes, .iov_len = sizeof(bytes)};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))];
    msghdr message{};
    message.msg_iov = &where;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    if (n > 0) TakeFiles(message, files_);
    if (n == 0) return std::nullopt;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "reading a frame");
    parser_.Append({bytes, static_cast<size_t>(n)});
  }
}

absl::Status FrameChannel::Write(const internal::Frame& frame) {
  BEAMD_ASSIGN_OR_RETURN(const std::string bytes, EncodeFrame(frame));
  absl::string_view left = bytes;
  while (!left.empty()) {
    const ssize_t n = send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "writing a frame");
    left.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace beamd
