#include "engine/tensor/nn/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/json_string.h"
#include "engine/base/status.h"

namespace beamd::nn {

namespace {

constexpr uint64_t kHeaderSizeBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr size_t kMaxAxes = 64;
constexpr absl::string_view kMetadataName = "__metadata__";

constexpr std::array<std::pair<absl::string_view, Scalar>, 13> kDTypes = {{
    {"BOOL", Scalar::kBool},
    {"I8", Scalar::kInt8},
    {"U8", Scalar::kUint8},
    {"I16", Scalar::kInt16},
    {"U16", Scalar::kUint16},
    {"I32", Scalar::kInt32},
    {"U32", Scalar::kUint32},
    {"I64", Scalar::kInt64},
    {"U64", Scalar::kUint64},
    {"F16", Scalar::kFloat16},
    {"BF16", Scalar::kBFloat16},
    {"F32", Scalar::kFloat32},
    {"F64", Scalar::kFloat64},
}};

absl::Status Malformed(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", why));
}

// `name` as part of a message: whatever bytes it has, short and printable.
std::string Quoted(absl::string_view name) {
  constexpr size_t kShown = 100;
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kShown)),
                      name.size() > kShown ? "...\"" : "\"");
}

// The length of the UTF-8 sequence at the beginning of `text`, which isn't empty; 0 if it is none.
// (RFC 3629, section 4)
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto is_in = [&](size_t i, unsigned low, unsigned high) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return is_in(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool is_second = is_in(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return is_second && is_in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool is_second = is_in(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return is_second && is_in(2, 0x80, 0xBF) && is_in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto push = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

// What the header says of one tensor; offsets count from the end of the header.
struct Entry {
  std::string name;
  Scalar dtype = Scalar::kVoid;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Reads the JSON (RFC 8259) that a header may be, no more: three levels of fixed form.
class HeaderReader {
 public:
  explicit HeaderReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<Header> Read() {
    Header header;
    std::set<std::string> names;
    if (text_.empty() || text_[0] != '{') return Malformed("the header doesn't begin with '{'");
    BEAMD_RETURN_IF_ERROR(ReadObject([&](std::string name) -> absl::Status {
      if (!names.insert(name).second) return Malformed(absl::StrCat(Quoted(name), " twice"));
      if (name == kMetadataName) return ReadMetadata(&header.metadata);
      Entry entry;
      entry.name = std::move(name);
      BEAMD_RETURN_IF_ERROR(ReadEntry(&entry));
      header.entries.push_back(std::move(entry));
      return absl::OkStatus();
    }));
    SkipSpace();
    if (at_ != text_.size()) return Error("more after the header's '}'");
    return header;
  }

 private:
  absl::Status Error(absl::string_view why) const {
    return Malformed(absl::StrCat(why, " at byte ", at_, " of the header"));
  }

  void SkipSpace() {
    while (at_ < text_.size() &&
           absl::string_view(" \t\n\r").find(text_[at_]) != absl::string_view::npos) {
      ++at_;
    }
  }

  // Whether `c` is next, which is then read.
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    return Take(c) ? absl::OkStatus() : Error(absl::StrCat("no '", std::string(1, c), "'"));
  }

  // Calls `read_value` with each key, before its value.
  template <typename F>
  absl::Status ReadObject(F read_value) {
    BEAMD_RETURN_IF_ERROR(Expect('{'));
    if (Take('}')) return absl::OkStatus();
    do {
      BEAMD_ASSIGN_OR_RETURN(std::string key, ReadString());
      BEAMD_RETURN_IF_ERROR(Expect(':'));
      BEAMD_RETURN_IF_ERROR(read_value(std::move(key)));
    } while (Take(','));
    return Expect('}');
  }

  absl::StatusOr<uint32_t> ReadHex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      if (c >= '0' && c <= '9') {
        code = code * 16 + static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        code = code * 16 + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      } else {
        return Error("not four hexadecimal digits");
      }
    }
    return code;
  }

  // What follows a backslash.
  absl::Status ReadEscape(std::string* out) {
    if (at_ >= text_.size()) return Error("a text without an end");
    const char c = text_[at_++];
    constexpr absl::string_view kNames = "\"\\/bfnrt";
    constexpr absl::string_view kValues = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(c); i != absl::string_view::npos) {
      out->push_back(kValues[i]);
      return absl::OkStatus();
    }
    if (c != 'u') return Error("an unknown escape");
    BEAMD_ASSIGN_OR_RETURN(uint32_t code, ReadHex4());
    if (code >= 0xD800 && code < 0xDC00 && absl::StartsWith(text_.substr(at_), "\\u")) {
      at_ += 2;
      BEAMD_ASSIGN_OR_RETURN(const uint32_t low, ReadHex4());
      if (low < 0xDC00 || low > 0xDFFF) return Error("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code <= 0xDFFF) {
      return Error("half of a surrogate pair");
    }
    AppendUtf8(code, out);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadString() {
    BEAMD_RETURN_IF_ERROR(Expect('"'));
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c == '\\') {
        ++at_;
        BEAMD_RETURN_IF_ERROR(ReadEscape(&out));
        continue;
      }
      const size_t length = Utf8Length(text_.substr(at_));
      if (length == 0 || static_cast<unsigned char>(c) < 0x20) return Error("a bad character");
      out.append(text_.data() + at_, length);
      at_ += length;
    }
    return Error("a text without an end");
  }

  // Decimal digits, up to int64's greatest.
  absl::StatusOr<int64_t> ReadCount() {
    SkipSpace();
    const size_t start = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value)) {
        return Error("too large a number");
      }
    }
    if (at_ == start) return Error("no number");
    if (text_[start] == '0' && at_ - start > 1) return Error("a number with a leading 0");
    return value;
  }

  absl::StatusOr<std::vector<int64_t>> ReadCounts(size_t most) {
    std::vector<int64_t> counts;
    BEAMD_RETURN_IF_ERROR(Expect('['));
    if (Take(']')) return counts;
    do {
      if (counts.size() == most) return Error(absl::StrCat("more than ", most, " numbers"));
      BEAMD_ASSIGN_OR_RETURN(const int64_t count, ReadCount());
      counts.push_back(count);
    } while (Take(','));
    BEAMD_RETURN_IF_ERROR(Expect(']'));
    return counts;
  }

  absl::Status ReadMetadata(std::map<std::string, std::string>* metadata) {
    return ReadObject([&](std::string key) -> absl::Status {
      BEAMD_ASSIGN_OR_RETURN(std::string value, ReadString());
      const bool is_new = metadata->emplace(std::move(key), std::move(value)).second;
      return is_new ? absl::OkStatus() : Error("a key of the metadata twice");
    });
  }

  absl::Status ReadEntry(Entry* entry) {
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    BEAMD_RETURN_IF_ERROR(ReadObject([&](const std::string& key) -> absl::Status {
      if (key == "dtype" && !has_dtype) {
        has_dtype = true;
        BEAMD_ASSIGN_OR_RETURN(const std::string name, ReadString());
        for (const auto& [known, scalar] : kDTypes) {
          if (known == name) entry->dtype = scalar;
        }
        if (entry->dtype != Scalar::kVoid) return absl::OkStatus();
        return Malformed(absl::StrCat(Quoted(entry->name), " has unknown dtype ", Quoted(name)));
      }
      if (key == "shape" && !has_shape) {
        has_shape = true;
        BEAMD_ASSIGN_OR_RETURN(entry->shape, ReadCounts(kMaxAxes));
        return absl::OkStatus();
      }
      if (key == "data_offsets" && !has_offsets) {
        has_offsets = true;
        BEAMD_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ReadCounts(2));
        if (offsets.size() != 2) return Error("data_offsets aren't two numbers");
        entry->begin = static_cast<uint64_t>(offsets[0]);
        entry->end = static_cast<uint64_t>(offsets[1]);
        return absl::OkStatus();
      }
      return Malformed(absl::StrCat(Quoted(entry->name), " has an unexpected ", Quoted(key)));
    }));
    if (has_dtype && has_shape && has_offsets) return absl::OkStatus();
    return Malformed(absl::StrCat(Quoted(entry->name), " needs a dtype, a shape and data_offsets"));
  }

  absl::string_view text_;
  size_t at_ = 0;
};

// Puts the entries in the order of their elements, which must fill `data_bytes` without a hole.
absl::Status CheckLayout(std::vector<Entry>* entries, uint64_t data_bytes) {
  std::stable_sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t filled = 0;
  for (const Entry& entry : *entries) {
    int64_t size = SizeBytes(entry.dtype);
    for (int64_t axis : entry.shape) {
      if (__builtin_mul_overflow(size, axis, &size)) {
        return Malformed(absl::StrCat("the size of ", Quoted(entry.name), " overflows"));
      }
    }
    if (entry.begin != filled || entry.end < entry.begin || entry.end > data_bytes) {
      return Malformed(absl::StrFormat("%s lies at [%d, %d), expected from %d, in %d bytes",
                                       Quoted(entry.name), entry.begin, entry.end, filled,
                                       data_bytes));
    }
    if (entry.end - entry.begin != static_cast<uint64_t>(size)) {
      return Malformed(absl::StrFormat("%s has %d bytes, its shape and dtype take %d",
                                       Quoted(entry.name), entry.end - entry.begin, size));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    return Malformed(absl::StrCat(data_bytes - filled, " bytes after the last tensor"));
  }
  return absl::OkStatus();
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

absl::string_view DTypeName(Scalar dtype) {
  for (const auto& [name, scalar] : kDTypes) {
    if (scalar == dtype) return name;
  }
  return "";
}

// Parses a file of `size` bytes, of which read(begin, count) gives those asked for until it is asked
// again: the header first, then, where that fits the size, one tensor after the other.
template <typename Read>
absl::StatusOr<Safetensors> Parse(LazyContext& context, uint64_t size, Read read) {
  if (size < kHeaderSizeBytes) return Malformed("shorter than 8 bytes");
  BEAMD_ASSIGN_OR_RETURN(const std::span<const std::byte> count, read(0, kHeaderSizeBytes));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kHeaderSizeBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(count[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes || header_bytes > size - kHeaderSizeBytes) {
    return Malformed(absl::StrCat("a header of ", header_bytes, " bytes in a file of ", size));
  }
  const uint64_t data_begin = kHeaderSizeBytes + header_bytes;
  BEAMD_ASSIGN_OR_RETURN(const std::span<const std::byte> text,
                         read(kHeaderSizeBytes, header_bytes));
  BEAMD_ASSIGN_OR_RETURN(
      Header header,
      HeaderReader(absl::string_view(reinterpret_cast<const char*>(text.data()), text.size()))
          .Read());
  BEAMD_RETURN_IF_ERROR(CheckLayout(&header.entries, size - data_begin));

  Safetensors result;
  result.metadata = std::move(header.metadata);
  for (const Entry& entry : header.entries) {
    BEAMD_ASSIGN_OR_RETURN(const std::span<const std::byte> elements,
                           read(data_begin + entry.begin, entry.end - entry.begin));
    if (entry.dtype == Scalar::kBool && std::any_of(elements.begin(), elements.end(),
                                                    [](std::byte b) { return b > std::byte{1}; })) {
      return Malformed(absl::StrCat(Quoted(entry.name), " has a bool that is neither 0 nor 1"));
    }
    Tensor tensor = Tensor::FromBytes(context, elements,
                                      Shape(entry.shape.begin(), entry.shape.end()), entry.dtype);
    BEAMD_RETURN_IF_ERROR(tensor.status());
    result.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return result;
}

}  // namespace

absl::StatusOr<Safetensors> ParseSafetensors(LazyContext& context,
                                             std::span<const std::byte> bytes) {
  return Parse(context, bytes.size(),
               [&](uint64_t begin, uint64_t count) -> absl::StatusOr<std::span<const std::byte>> {
                 return bytes.subspan(begin, count);
               });
}

absl::StatusOr<Safetensors> LoadSafetensorsFile(LazyContext& context, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status kind = std::filesystem::status(path, error);
  if (kind.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return absl::UnavailableError(absl::StrCat(path, ": can't be read"));
  std::vector<std::byte> part;
  absl::StatusOr<Safetensors> parsed =
      Parse(context, size,
            [&](uint64_t begin, uint64_t count) -> absl::StatusOr<std::span<const std::byte>> {
              part.resize(count);
              file.seekg(static_cast<std::streamoff>(begin));
              file.read(reinterpret_cast<char*>(part.data()), static_cast<std::streamsize>(count));
              if (file) return std::span<const std::byte>(part);
              return absl::DataLossError(absl::StrCat("ended before byte ", begin + count));
            });
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.status().code(), absl::StrCat(path, ": ", parsed.status().message()));
}

absl::StatusOr<std::vector<std::byte>> WriteSafetensors(
    const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  std::set<absl::string_view> names = {kMetadataName};
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second || !IsUtf8(name)) {
      return Malformed(
          absl::StrCat("no tensor can be named ", Quoted(name), ": taken, or not UTF-8"));
    }
    BEAMD_RETURN_IF_ERROR(tensor.status());
    if (!AllNumbers(tensor.shape())) {
      return Malformed(absl::StrCat(Quoted(name), " has a symbolic size"));
    }
    all.push_back(tensor);
  }
  BEAMD_RETURN_IF_ERROR(Tensor::Realize(all));

  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) {
        return Malformed(absl::StrCat("metadata ", Quoted(key), " is not UTF-8"));
      }
      std::string& pair = pairs.emplace_back();
      absl::StrAppend(&pair, JsonString(key));
      pair.push_back(':');
      absl::StrAppend(&pair, JsonString(value));
    }
    members.push_back(absl::StrCat("\"", kMetadataName, "\":{", absl::StrJoin(pairs, ","), "}"));
  }
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : tensors) {
    BEAMD_ASSIGN_OR_RETURN(const std::vector<std::byte> elements, tensor.ToBytes());
    std::string& member = members.emplace_back();
    absl::StrAppend(&member, JsonString(name));
    absl::StrAppend(&member, ":{\"dtype\":\"", DTypeName(tensor.dtype()), "\",\"shape\":[",
                    absl::StrJoin(tensor.shape(), ",",
                                  [](std::string* out, const SInt& axis) {
                                    absl::StrAppend(out, axis.number());
                                  }),
                    "],\"data_offsets\":[", data.size(), ",", data.size() + elements.size(), "]}");
    data.insert(data.end(), elements.begin(), elements.end());
  }

  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  // So that the elements begin at a multiple of 8.
  header.append((kHeaderSizeBytes - header.size() % kHeaderSizeBytes) % kHeaderSizeBytes, ' ');
  if (header.size() > kMaxHeaderBytes) return Malformed("the header would be too large");
  std::vector<std::byte> bytes;
  bytes.reserve(kHeaderSizeBytes + header.size() + data.size());
  for (size_t i = 0; i < kHeaderSizeBytes; ++i) {
    bytes.push_back(static_cast<std::byte>(uint64_t{header.size()} >> (8 * i) & 0xFF));
  }
  const std::byte* text = reinterpret_cast<const std::byte*>(header.data());
  bytes.insert(bytes.end(), text, text + header.size());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

absl::Status SaveSafetensorsFile(const NamedTensors& tensors, const std::string& path,
                                 const std::map<std::string, std::string>& metadata) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, WriteSafetensors(tensors, metadata));
  const std::string partial = absl::StrCat(path, ".partial");
  std::error_code error;
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(partial, path, error);
  if (!error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  return absl::UnavailableError(absl::StrCat(path, ": can't be written: ", error.message()));
}

}  // namespace beamd::nn
