#include "client/beamctl/npy.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cc/local_file.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // of where the content begins
constexpr size_t kMostHeader = 1 << 16;

struct Type {
  absl::string_view name;
  v1::Scalar dtype;
  int bytes;
};
constexpr Type kTypes[] = {
    {"|b1", v1::SCALAR_BOOL, 1},    {"|i1", v1::SCALAR_INT8, 1},    {"|u1", v1::SCALAR_UINT8, 1},
    {"<i2", v1::SCALAR_INT16, 2},   {"<u2", v1::SCALAR_UINT16, 2},  {"<i4", v1::SCALAR_INT32, 4},
    {"<u4", v1::SCALAR_UINT32, 4},  {"<i8", v1::SCALAR_INT64, 8},   {"<u8", v1::SCALAR_UINT64, 8},
    {"<f2", v1::SCALAR_FLOAT16, 2}, {"<f4", v1::SCALAR_FLOAT32, 4}, {"<f8", v1::SCALAR_FLOAT64, 8},
};

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("no array that can be read: ", what));
}

// Reads a literal of Python's as numpy.lib.format writes it: {'descr': '<f4', ...}.
class Header {
 public:
  explicit Header(absl::string_view text) : text_(text) {}

  absl::Status Read() {
    BEAMD_RETURN_IF_ERROR(Expect('{'));
    while (!Takes('}')) {
      BEAMD_ASSIGN_OR_RETURN(const std::string key, String());
      BEAMD_RETURN_IF_ERROR(Expect(':'));
      if (key == "descr") {
        if (Peek() == '[') return Wrong("its elements are records");
        BEAMD_ASSIGN_OR_RETURN(descr_, String());
      } else if (key == "fortran_order") {
        BEAMD_ASSIGN_OR_RETURN(fortran_order_, Bool());
      } else if (key == "shape") {
        BEAMD_RETURN_IF_ERROR(Shape());
      } else {
        return Wrong(absl::StrCat("its header has \"", key, "\""));
      }
      if (!Takes(',') && Peek() != '}') return Wrong("its header isn't a dictionary");
    }
    if (Peek() != '\0') return Wrong("something follows its header");
    if (!descr_ || !fortran_order_ || !has_shape_) return Wrong("its header isn't complete");
    return absl::OkStatus();
  }

  const std::string& descr() const { return *descr_; }
  bool fortran_order() const { return *fortran_order_; }
  const std::vector<int64_t>& shape() const { return shape_; }

 private:
  char Peek() {
    while (!text_.empty() && absl::ascii_isspace(static_cast<unsigned char>(text_[0]))) {
      text_.remove_prefix(1);
    }
    return text_.empty() ? '\0' : text_[0];
  }
  bool Takes(char c) {
    if (Peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  absl::Status Expect(char c) {
    return Takes(c) ? absl::OkStatus()
                    : Wrong(absl::StrCat("its header lacks a ", absl::string_view(&c, 1)));
  }
  absl::StatusOr<std::string> String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Wrong("its header lacks a string");
    text_.remove_prefix(1);
    const size_t end = text_.find(quote);
    if (end == absl::string_view::npos) return Wrong("a string of its header has no end");
    std::string value(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return value;
  }
  absl::StatusOr<bool> Bool() {
    Peek();
    if (absl::ConsumePrefix(&text_, "True")) return true;
    if (absl::ConsumePrefix(&text_, "False")) return false;
    return Wrong("fortran_order is neither True nor False");
  }
  absl::Status Shape() {
    has_shape_ = true;
    BEAMD_RETURN_IF_ERROR(Expect('('));
    while (!Takes(')')) {
      Peek();
      const size_t digits = std::min(text_.find_first_not_of("0123456789"), text_.size());
      int64_t size = 0;
      if (!absl::SimpleAtoi(text_.substr(0, digits), &size)) {
        return Wrong("its shape isn't numbers");
      }
      text_.remove_prefix(digits);
      shape_.push_back(size);
      if (!Takes(',') && Peek() != ')') return Wrong("its shape isn't numbers");
    }
    return absl::OkStatus();
  }

  absl::string_view text_;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_order_;
  bool has_shape_ = false;
  std::vector<int64_t> shape_;
};

absl::StatusOr<Type> TypeOf(const std::string& descr) {
  for (const Type& type : kTypes) {
    if (type.name == descr) return type;
  }
  if (absl::StartsWith(descr, ">")) {
    return Wrong(
        absl::StrCat(descr, " is big-endian: save it with .astype(\"<", descr.substr(1), "\")"));
  }
  if (absl::StartsWith(descr, "|O")) return Wrong("it holds Python objects");
  return Wrong(absl::StrCat("no tensor has elements of ", descr));
}

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

std::string Describe(v1::Scalar dtype, const std::vector<int64_t>& shape) {
  const std::string& name = v1::Scalar_Name(dtype);
  return absl::StrCat(absl::AsciiStrToLower(absl::StripPrefix(absl::string_view(name), "SCALAR_")),
                      " (", absl::StrJoin(shape, ", "), ")");
}

absl::StatusOr<Npy> ParseNpy(absl::string_view bytes) {
  if (!absl::ConsumePrefix(&bytes, kMagic)) return Wrong("it isn't a .npy file");
  if (bytes.size() < 2) return Wrong("it is cut off");
  const int major = static_cast<uint8_t>(bytes[0]);
  if (major < 1 || major > 3) return Wrong(absl::StrCat("version ", major, " of the format"));
  bytes.remove_prefix(2);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (bytes.size() < length_bytes) return Wrong("it is cut off");
  const size_t length = LittleEndian(bytes.substr(0, length_bytes));
  bytes.remove_prefix(length_bytes);
  if (length > kMostHeader || length > bytes.size()) return Wrong("it is cut off");
  Header header(bytes.substr(0, length));
  BEAMD_RETURN_IF_ERROR(header.Read());
  bytes.remove_prefix(length);
  BEAMD_ASSIGN_OR_RETURN(const Type type, TypeOf(header.descr()));
  if (header.fortran_order() && header.shape().size() > 1) {
    return Wrong("it is in Fortran's order: save np.ascontiguousarray of it");
  }
  int64_t wanted = type.bytes;
  for (const int64_t size : header.shape()) {
    if (__builtin_mul_overflow(wanted, size, &wanted)) return Wrong("its shape is too large");
  }
  if (static_cast<uint64_t>(wanted) != bytes.size()) {
    return Wrong(absl::StrCat("it has ", bytes.size(), " bytes behind its header, ",
                              Describe(type.dtype, header.shape()), " has ", wanted));
  }
  return Npy{type.dtype, header.shape(), std::string(bytes)};
}

absl::StatusOr<std::string> NpyBytes(const Npy& array) {
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const Type& t) { return t.dtype == array.dtype; });
  if (type == std::end(kTypes)) {
    return absl::UnimplementedError(absl::StrCat("a .npy file has no ",
                                                 Describe(array.dtype, array.shape),
                                                 ": let the graph CAST it to float32"));
  }
  // A tuple of one has a comma behind it.
  std::string header =
      absl::StrCat("{'descr': '", type->name, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? ",), }" : "), }");
  const size_t before = kMagic.size() + 4;
  header.append(kAlignment - (before + header.size() + 1) % kAlignment, ' ');
  header.push_back('\n');
  std::string bytes(kMagic);
  bytes.append({'\x01', '\x00', static_cast<char>(header.size() & 0xFF),
                static_cast<char>(header.size() >> 8)});
  return absl::StrCat(bytes, header, array.content);
}

absl::StatusOr<Npy> ReadNpyFile(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadLocalFile(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Npy> array = ParseNpy(*bytes);
  if (array.ok()) return array;
  return absl::Status(array.status().code(), absl::StrCat(path, ": ", array.status().message()));
}

absl::Status WriteNpyFile(const std::string& path, const Npy& array) {
  const absl::StatusOr<std::string> bytes = NpyBytes(array);
  if (!bytes.ok()) {
    return absl::Status(bytes.status().code(), absl::StrCat(path, ": ", bytes.status().message()));
  }
  return WriteLocalFile(path, *bytes);
}

}  // namespace beamd
