// The content of a buffer as it comes in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/sessions/content.h"
#include "server/sessions/upload_piece.h"

namespace beamd {

// How far one buffer's content is there. Thread-safe; one stream at a time brings it.
class UploadState {
 public:
  // `sha256` is empty, or 32 bytes.
  UploadState(std::shared_ptr<Content> content, std::string sha256);

  // The right of a stream that begins at `offset` to bring pieces; it ends the one before it.
  // OutOfRange, with nothing ended: that isn't where the content goes on.
  absl::StatusOr<uint64_t> OpenStream(int64_t offset);
  // DataLoss: the piece isn't what its CRC says, or the whole not what its digest says (it begins
  // anew then); OutOfRange: it isn't the next one; ResourceExhausted: it is past `most_bytes`;
  // Aborted: another stream has taken this one's place; NotFound: the buffer is gone.
  absl::Status Take(uint64_t stream, const UploadPiece& piece, int64_t most_bytes);
  // All is there and right; it isn't written by uploads any more.
  bool complete() const;
  int64_t arrived() const;
  // The buffer is gone: its memory is let go, whatever streams are open.
  void End();
  // As asked for.
  const std::string& sha256() const { return sha256_; }

 private:
  absl::Status CheckOffset(int64_t offset, int64_t size_bytes) const BEAMD_REQUIRES(mutex_);

  const std::string sha256_;
  const int64_t size_bytes_;
  mutable Mutex mutex_;
  std::shared_ptr<Content> content_ BEAMD_GUARDED_BY(mutex_);  // null: the buffer is gone
  uint64_t stream_ BEAMD_GUARDED_BY(mutex_) = 0;
  int64_t arrived_ BEAMD_GUARDED_BY(mutex_) = 0;
  bool complete_ BEAMD_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Sha256Stream> hash_ BEAMD_GUARDED_BY(mutex_);
};

}  // namespace beamd
