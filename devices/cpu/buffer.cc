#include "devices/cpu/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "devices/launch.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBuffer>> CpuBuffer::Create(size_t size_bytes) {
  const auto no_room = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", size_bytes, " bytes"));
  };
  if (size_bytes > (size_t{1} << 47)) return no_room();
  const bool huge = size_bytes >= kHugePage;
  const size_t unit = huge ? kHugePage : kPage;
  const size_t bytes = (std::max<size_t>(size_bytes, 1) + unit - 1) / unit * unit;
  // Huge pages need an aligned start: map one too many, give back what sticks out.
  const size_t extra = huge ? kHugePage : 0;
  void* mapping =
      mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return no_room();
  auto* start = static_cast<std::byte*>(mapping);
  if (huge) {
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (skip > 0) munmap(start, skip);
    if (extra > skip) munmap(start + skip + bytes, extra - skip);
    start += skip;
    // Advice only: without huge pages the buffer is slower, not wrong.
    madvise(start, bytes, MADV_HUGEPAGE);
  }
  return std::unique_ptr<CpuBuffer>(new CpuBuffer(start, size_bytes, bytes));
}

absl::StatusOr<std::unique_ptr<CpuBuffer>> CpuBuffer::Window(Buffer& parent, size_t offset_bytes,
                                                             size_t size_bytes) {
  auto* const data = static_cast<std::byte*>(parent.mapped());
  if (data == nullptr) return absl::InvalidArgumentError("the buffer is not of this device");
  BEAMD_RETURN_IF_ERROR(CheckWindow(parent, offset_bytes, size_bytes));
  return std::unique_ptr<CpuBuffer>(new CpuBuffer(data + offset_bytes, size_bytes, 0));
}

CpuBuffer::~CpuBuffer() {
  if (mapped_bytes_ > 0) munmap(data_, mapped_bytes_);
}

absl::Status CpuBuffer::Write(size_t offset_bytes, std::span<const std::byte> bytes) {
  BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes_, offset_bytes, bytes.size()));
  if (!bytes.empty()) std::memcpy(data_ + offset_bytes, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status CpuBuffer::Read(size_t offset_bytes, std::span<std::byte> bytes) const {
  BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes_, offset_bytes, bytes.size()));
  if (!bytes.empty()) std::memcpy(bytes.data(), data_ + offset_bytes, bytes.size());
  return absl::OkStatus();
}

}  // namespace beamd
