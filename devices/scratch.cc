#include "devices/scratch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr unsigned char kPattern = 0xFF;

// A finaliser of 32 bits (M. Wellons' lowbias32): every input bit changes every output bit.
uint32_t Mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

uint16_t HalfBits(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

uint16_t BFloatBits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  // To nearest even; the values here are finite.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Elements that are compared at a time, whole blocks.
constexpr int64_t kCompared = int64_t{1} << 18;

// Blocks of this many elements share a table of hashes.
constexpr int64_t kBlock = 4096;

// An element's hash is its table entry times its block's own hash, both odd: one multiplication,
// which compilers make vectors of. Only the upper bits are good.
template <typename T, typename F>
void Fill(void* out, int64_t first, int64_t count, uint32_t base, F value) {
  std::array<uint32_t, kBlock> table;
  for (int64_t i = 0; i < kBlock; ++i) table[i] = Mix(static_cast<uint32_t>(i) + base) | 1;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const uint32_t factor = Mix(static_cast<uint32_t>((first + begin) / kBlock) ^ ~base) | 1;
    T* const elements = static_cast<T*>(out) + begin;
    const int64_t n = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < n; ++i) elements[i] = static_cast<T>(value(table[i] * factor));
  }
}

float Unit(uint32_t x) { return static_cast<float>(static_cast<int32_t>(x) >> 8) * 0x1p-23F; }
int32_t Unsigned(uint32_t x) { return static_cast<int32_t>((x >> 16) * 201 >> 16); }
int32_t Signed(uint32_t x) { return Unsigned(x) - 100; }

}  // namespace

void FillSeeded(Scalar scalar, int64_t count, int32_t slot, uint64_t seed, void* out,
                int64_t begin) {
  const uint32_t base = Mix(static_cast<uint32_t>(seed) ^ Mix(static_cast<uint32_t>(seed >> 32)) ^
                            Mix(static_cast<uint32_t>(slot) * 0x9E3779B9U));
  switch (scalar) {
    case Scalar::kVoid:
      return;
    case Scalar::kBool:
      return Fill<uint8_t>(out, begin, count, base, [](uint32_t x) { return x >> 31; });
    case Scalar::kInt8:
      return Fill<int8_t>(out, begin, count, base, Signed);
    case Scalar::kUint8:
      return Fill<uint8_t>(out, begin, count, base, Unsigned);
    case Scalar::kInt16:
      return Fill<int16_t>(out, begin, count, base, Signed);
    case Scalar::kUint16:
      return Fill<uint16_t>(out, begin, count, base, Unsigned);
    case Scalar::kInt32:
      return Fill<int32_t>(out, begin, count, base, Signed);
    case Scalar::kUint32:
      return Fill<uint32_t>(out, begin, count, base, Unsigned);
    case Scalar::kInt64:
      return Fill<int64_t>(out, begin, count, base, Signed);
    case Scalar::kUint64:
      return Fill<uint64_t>(out, begin, count, base, Unsigned);
    case Scalar::kFloat16:
      return Fill<uint16_t>(out, begin, count, base, [](uint32_t x) { return HalfBits(Unit(x)); });
    case Scalar::kBFloat16:
      return Fill<uint16_t>(out, begin, count, base,
                            [](uint32_t x) { return BFloatBits(Unit(x)); });
    case Scalar::kFloat32:
      return Fill<float>(out, begin, count, base, Unit);
    case Scalar::kFloat64:
      return Fill<double>(out, begin, count, base, Unit);
  }
}

absl::StatusOr<ScratchBuffers> ScratchBuffers::Create(Device& device,
                                                      std::span<const KernelImage::Buffer> buffers,
                                                      uint64_t seed) {
  ScratchBuffers scratch;
  scratch.device_ = &device;
  scratch.seed_ = seed;
  scratch.uses_.assign(buffers.begin(), buffers.end());
  double bytes = 0;
  for (const KernelImage::Buffer& b : buffers) {
    bytes += static_cast<double>(b.size_elements) * SizeBytes(b.scalar);
  }
  const int64_t room = device.info().memory_bytes;
  if (bytes > static_cast<double>(room)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the kernel's buffers hold ", bytes, " bytes, the device ", room));
  }
  scratch.wholes_.resize(buffers.size());
  scratch.buffers_.resize(buffers.size());
  scratch.pointers_.resize(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(scratch.Allocate(i));
    BEAMD_RETURN_IF_ERROR(scratch.Restore(i));
  }
  return scratch;
}

size_t ScratchBuffers::SizeOf(size_t i) const {
  return static_cast<size_t>(uses_[i].size_elements) * SizeBytes(uses_[i].scalar);
}

absl::Status ScratchBuffers::Allocate(size_t i) {
  static_assert(kGuardBytes % kWindowAlignment == 0);
  const size_t size = SizeOf(i);
  BEAMD_ASSIGN_OR_RETURN(wholes_[i], device_->Allocate(size + 2 * kGuardBytes));
  BEAMD_ASSIGN_OR_RETURN(buffers_[i], device_->View(*wholes_[i], kGuardBytes, size + kGuardBytes));
  pointers_[i] = buffers_[i].get();
  return WriteGuards(i);
}

absl::Status ScratchBuffers::WriteGuards(size_t i) {
  const std::string guard(kGuardBytes, static_cast<char>(kGuard));
  BEAMD_RETURN_IF_ERROR(wholes_[i]->Write(0, std::as_bytes(std::span(guard))));
  return buffers_[i]->Write(SizeOf(i), std::as_bytes(std::span(guard)));
}

void ScratchBuffers::FillInitial(size_t i, void* out) const {
  const KernelImage::Buffer& use = uses_[i];
  if (Pattern(i) != nullptr) {
    std::memset(out, kPattern, SizeOf(i));
  } else {
    FillSeeded(use.scalar, use.size_elements, use.slot, seed_, out);
  }
}

std::string ScratchBuffers::Initial(size_t i) const {
  std::string initial(SizeOf(i), '\0');
  FillInitial(i, initial.data());
  return initial;
}

const void* ScratchBuffers::Pattern(size_t i) const {
  static constexpr unsigned char kElement[8] = {kPattern, kPattern, kPattern, kPattern,
                                                kPattern, kPattern, kPattern, kPattern};
  return uses_[i].written && !uses_[i].read ? kElement : nullptr;
}

absl::Status ScratchBuffers::Restore(size_t i) {
  if (void* const memory = buffers_[i]->mapped(); memory != nullptr) {
    FillInitial(i, memory);
    return absl::OkStatus();
  }
  const std::string initial = Initial(i);
  return buffers_[i]->Write(0, std::as_bytes(std::span(initial)));
}

absl::Status ScratchBuffers::Reset() {
  for (size_t i = 0; i < uses_.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(Restore(i));
    BEAMD_RETURN_IF_ERROR(WriteGuards(i));
  }
  return absl::OkStatus();
}

absl::Status ScratchBuffers::CheckInputs() const {
  std::string wanted, storage;
  for (size_t i = 0; i < uses_.size(); ++i) {
    const KernelImage::Buffer& use = uses_[i];
    if (use.written) continue;
    const size_t element = SizeBytes(use.scalar);
    const auto* const mapped = static_cast<const char*>(buffers_[i]->mapped());
    for (int64_t begin = 0; begin < use.size_elements; begin += kCompared) {
      const int64_t count = std::min(kCompared, use.size_elements - begin);
      wanted.resize(static_cast<size_t>(count) * element);
      FillSeeded(use.scalar, count, use.slot, seed_, wanted.data(), begin);
      const char* got = mapped + static_cast<size_t>(begin) * element;
      if (mapped == nullptr) {
        storage.resize(wanted.size());
        BEAMD_RETURN_IF_ERROR(buffers_[i]->Read(static_cast<size_t>(begin) * element,
                                                std::as_writable_bytes(std::span(storage))));
        got = storage.data();
      }
      if (std::memcmp(got, wanted.data(), wanted.size()) != 0) {
        return absl::OutOfRangeError(absl::StrCat("wrote to slot ", use.slot, ", an input"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ScratchBuffers::CheckGuards() const {
  for (size_t i = 0; i < uses_.size(); ++i) {
    std::string guard(kGuardBytes, '\0');
    BEAMD_RETURN_IF_ERROR(wholes_[i]->Read(0, std::as_writable_bytes(std::span(guard))));
    if (guard.find_first_not_of(static_cast<char>(kGuard)) != std::string::npos) {
      return absl::OutOfRangeError(absl::StrCat("wrote before the begin of slot ", uses_[i].slot));
    }
    BEAMD_RETURN_IF_ERROR(buffers_[i]->Read(SizeOf(i), std::as_writable_bytes(std::span(guard))));
    if (guard.find_first_not_of(static_cast<char>(kGuard)) != std::string::npos) {
      return absl::OutOfRangeError(absl::StrCat("wrote behind the end of slot ", uses_[i].slot));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ScratchBuffers::Content(size_t i) const {
  std::string content(SizeOf(i), '\0');
  BEAMD_RETURN_IF_ERROR(buffers_[i]->Read(0, std::as_writable_bytes(std::span(content))));
  return content;
}

absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> ScratchBuffers::TakeWritten() {
  std::vector<std::unique_ptr<Buffer>> taken(uses_.size());
  taken_wholes_.clear();
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (!uses_[i].written) continue;
    taken[i] = std::move(buffers_[i]);
    taken_wholes_.push_back(std::move(wholes_[i]));
    BEAMD_RETURN_IF_ERROR(Allocate(i));
  }
  return taken;
}

absl::StatusOr<const void*> ScratchBuffers::View(Buffer& taken, size_t i,
                                                 std::string& storage) const {
  if (const void* const memory = taken.mapped(); memory != nullptr) return memory;
  storage.resize(SizeOf(i));
  BEAMD_RETURN_IF_ERROR(taken.Read(0, std::as_writable_bytes(std::span(storage))));
  return storage.data();
}

}  // namespace beamd
