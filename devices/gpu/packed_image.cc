#include "devices/gpu/packed_image.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace beamd {
namespace {

constexpr char kMark[8] = {'b', 'e', 'a', 'm', 'd', 'i', 'm', 'g'};

void Put(std::string& to, int64_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void Put(std::string& to, const std::string& text) {
  Put(to, static_cast<int64_t>(text.size()));
  to += text;
}

// Takes from the front; what isn't there is zero or empty, and is remembered.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  int64_t Number() {
    int64_t value = 0;
    if (whole_ = whole_ && bytes_.size() >= sizeof(value); whole_) {
      std::memcpy(&value, bytes_.data(), sizeof(value));
      bytes_.remove_prefix(sizeof(value));
    }
    return value;
  }
  std::string Text() {
    const auto size = static_cast<size_t>(Number());
    whole_ = whole_ && size <= bytes_.size();
    if (!whole_) return "";
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  // Of items that take eight bytes at least.
  int64_t Count() {
    const int64_t count = Number();
    whole_ = whole_ && count >= 0 && static_cast<size_t>(count) <= bytes_.size() / sizeof(count);
    return whole_ ? count : 0;
  }
  bool whole() const { return whole_; }

 private:
  absl::string_view bytes_;
  bool whole_ = true;
};

}  // namespace

std::string PackImage(const KernelImage& image) {
  std::string body;
  Put(body, static_cast<int64_t>(image.kind));
  Put(body, image.code);
  Put(body, image.entry);
  Put(body, static_cast<int64_t>(image.buffers.size()));
  for (const KernelImage::Buffer& b : image.buffers) {
    Put(body, b.slot);
    Put(body, static_cast<int64_t>(b.scalar));
    Put(body, b.size_elements);
    Put(body, int64_t{b.read});
    Put(body, int64_t{b.written});
  }
  Put(body, static_cast<int64_t>(image.variables.size()));
  for (const KernelImage::Variable& v : image.variables) {
    Put(body, v.name);
    Put(body, v.min);
    Put(body, v.max);
  }
  for (const int64_t size : image.global_size) Put(body, size);
  for (const int64_t size : image.local_size) Put(body, size);
  Put(body, image.shared_bytes);
  std::string packed(kMark, sizeof(kMark));
  Put(packed, body);
  return packed;
}

absl::StatusOr<KernelImage> UnpackImage(const void* packed) {
  const auto broken = [] { return absl::InvalidArgumentError("no packed image"); };
  if (std::memcmp(packed, kMark, sizeof(kMark)) != 0) return broken();
  const char* const behind = static_cast<const char*>(packed) + sizeof(kMark);
  int64_t size = 0;
  std::memcpy(&size, behind, sizeof(size));
  Reader reader(absl::string_view(behind + sizeof(size), static_cast<size_t>(size)));
  KernelImage image;
  image.kind = static_cast<TargetKind>(reader.Number());
  image.code = reader.Text();
  image.entry = reader.Text();
  image.buffers.resize(static_cast<size_t>(reader.Count()));
  for (KernelImage::Buffer& b : image.buffers) {
    b.slot = static_cast<int32_t>(reader.Number());
    b.scalar = static_cast<Scalar>(reader.Number());
    b.size_elements = reader.Number();
    b.read = reader.Number() != 0;
    b.written = reader.Number() != 0;
  }
  image.variables.resize(static_cast<size_t>(reader.Count()));
  for (KernelImage::Variable& v : image.variables) {
    v.name = reader.Text();
    v.min = reader.Number();
    v.max = reader.Number();
  }
  for (int64_t& extent : image.global_size) extent = reader.Number();
  for (int64_t& extent : image.local_size) extent = reader.Number();
  image.shared_bytes = reader.Number();
  if (!reader.whole()) return broken();
  return image;
}

}  // namespace beamd
