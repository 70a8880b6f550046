#include "server/sessions/upload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"

namespace beamd {

UploadState::UploadState(std::shared_ptr<Content> content, std::string sha256)
    : sha256_(std::move(sha256)), size_bytes_(content->size_bytes()), content_(std::move(content)) {
  if (!sha256_.empty()) hash_ = std::make_unique<Sha256Stream>();
}

absl::StatusOr<uint64_t> UploadState::OpenStream(int64_t offset) {
  MutexLock lock(mutex_);
  BEAMD_RETURN_IF_ERROR(CheckOffset(offset, 0));
  return ++stream_;
}

absl::Status UploadState::CheckOffset(int64_t offset, int64_t size_bytes) const {
  if (!complete_ && offset == arrived_ && size_bytes <= size_bytes_ - arrived_) {
    return absl::OkStatus();
  }
  return WithDetail(
      absl::OutOfRangeError(absl::StrCat("the content goes on at ", arrived_, " of ", size_bytes_,
                                         ", not with ", size_bytes, " bytes at ", offset)),
      {.reason = "OFFSET", .field = "offset", .limit = arrived_, .value = offset});
}

absl::Status UploadState::Take(uint64_t stream, const UploadPiece& piece, int64_t most_bytes) {
  MutexLock lock(mutex_);
  if (content_ == nullptr && !complete_) {
    return WithDetail(absl::NotFoundError("the buffer was freed"), {.reason = "HANDLE"});
  }
  if (stream != stream_) {
    return WithDetail(absl::AbortedError("another stream brings this buffer's content now"),
                      {.reason = "OTHER_STREAM"});
  }
  BEAMD_RETURN_IF_ERROR(CheckOffset(piece.offset, piece.size_bytes));
  if (piece.size_bytes > most_bytes) {
    return WithDetail(
        absl::ResourceExhaustedError(
            absl::StrCat("a chunk of ", piece.size_bytes, " bytes, over ", most_bytes)),
        {.reason = "CHUNK", .field = "data", .limit = most_bytes, .value = piece.size_bytes});
  }
  // Checked and hashed where it lies, while it is in the cache.
  uint32_t crc = 0;
  for (const std::span<const std::byte> part : piece.data) crc = Crc32c(crc, part);
  if (crc != piece.crc32c) {
    return WithDetail(
        absl::DataLossError(absl::StrCat("the chunk at ", piece.offset, " isn't as it was sent")),
        {.reason = "CRC32C", .field = "crc32c", .value = piece.offset});
  }
  BEAMD_RETURN_IF_ERROR(content_->Write(arrived_, piece.data));
  if (hash_ != nullptr) {
    for (const std::span<const std::byte> part : piece.data) hash_->Add(part);
  }
  arrived_ += piece.size_bytes;
  if (arrived_ < size_bytes_) return absl::OkStatus();
  if (hash_ != nullptr && hash_->Finish() != sha256_) {
    hash_ = std::make_unique<Sha256Stream>();
    arrived_ = 0;
    return WithDetail(absl::DataLossError("the content isn't what its SHA-256 says"),
                      {.reason = "SHA256", .field = "sha256"});
  }
  hash_ = nullptr;
  if (!sha256_.empty()) content_->Fix();
  complete_ = true;
  content_ = nullptr;  // the buffer has it: who writes must be its only owner
  return absl::OkStatus();
}

void UploadState::End() {
  MutexLock lock(mutex_);
  content_ = nullptr;
}

bool UploadState::complete() const {
  MutexLock lock(mutex_);
  return complete_;
}

int64_t UploadState::arrived() const {
  MutexLock lock(mutex_);
  return complete_ ? size_bytes_ : arrived_;
}

}  // namespace beamd
