// Frames over a socket: four bytes of length, little-endian, then that many of a serialised Frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/workers/frames.pb.h"

namespace beamd {

// Longer frames are garbage: neither an image nor a graph that passed the limits comes near it.
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// InvalidArgument if the frame is longer than kMaxFrameBytes.
absl::StatusOr<std::string> EncodeFrame(const internal::Frame& frame);

// Takes bytes as they come, gives whole frames.
class FrameParser {
 public:
  void Append(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // The next whole frame, nullopt if it isn't there yet; DataLoss once the stream is no frames.
  absl::StatusOr<std::optional<internal::Frame>> Next();

 private:
  std::string buffer_;
  size_t begin_ = 0;
};

// The child's end: blocks. Does not own the descriptor.
class FrameChannel {
 public:
  explicit FrameChannel(int fd) : fd_(fd) {}
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;
  // nullopt at the end of the stream.
  absl::StatusOr<std::optional<internal::Frame>> Read();
  absl::Status Write(const internal::Frame& frame);
  // The descriptor that came with the frame that Read gave last; the caller's from now on. -1:
  // there is none. Frames with one are taken in the order in which they came.
  int TakeFile();

 private:
  int fd_;
  FrameParser parser_;
  std::deque<int> files_;
};

}  // namespace beamd
