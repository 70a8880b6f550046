#include "tests/testing/json.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd::testing {

class JsonReader {
 public:
  explicit JsonReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<JsonValue> ReadAll() {
    JsonValue value;
    BEAMD_RETURN_IF_ERROR(Read(value, 0));
    SkipSpace();
    if (pos_ != text_.size()) return Fault("the text goes on");
    return value;
  }

 private:
  absl::Status Fault(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("JSON, byte ", pos_, ": ", what));
  }
  void SkipSpace() {
    while (pos_ < text_.size() && absl::StrContains(" \t\r\n", text_[pos_])) ++pos_;
  }
  bool Accept(char c) {
    SkipSpace();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }

  absl::Status Read(JsonValue& value, int depth) {
    constexpr int kMaxDepth = 64;
    if (depth > kMaxDepth) return Fault("nested too deep");
    SkipSpace();
    const size_t start = pos_;
    if (Accept('{')) {
      value.kind_ = JsonValue::Kind::kObject;
      BEAMD_RETURN_IF_ERROR(ReadItems(value, '}', depth));
    } else if (Accept('[')) {
      value.kind_ = JsonValue::Kind::kArray;
      BEAMD_RETURN_IF_ERROR(ReadItems(value, ']', depth));
    } else if (pos_ < text_.size() && text_[pos_] == '"') {
      value.kind_ = JsonValue::Kind::kString;
      BEAMD_RETURN_IF_ERROR(ReadString(value.text_));
    } else {
      while (pos_ < text_.size() && !absl::StrContains(",]} \t\r\n", text_[pos_])) ++pos_;
      const absl::string_view word = text_.substr(start, pos_ - start);
      double number = 0;
      if (word == "true" || word == "false") {
        value.kind_ = JsonValue::Kind::kBool;
      } else if (absl::SimpleAtod(word, &number)) {
        value.kind_ = JsonValue::Kind::kNumber;
      } else if (word != "null") {
        return Fault("no value");
      }
    }
    value.raw_ = text_.substr(start, pos_ - start);
    return absl::OkStatus();
  }

  absl::Status ReadItems(JsonValue& value, char close, int depth) {
    if (Accept(close)) return absl::OkStatus();
    do {
      if (close == '}') {
        SkipSpace();
        BEAMD_RETURN_IF_ERROR(ReadString(value.keys_.emplace_back()));
        if (!Accept(':')) return Fault("no ':'");
      }
      BEAMD_RETURN_IF_ERROR(Read(value.items_.emplace_back(), depth + 1));
    } while (Accept(','));
    return Accept(close) ? absl::OkStatus()
                         : Fault(absl::StrCat("no '", std::string(1, close), "'"));
  }

  // Escapes but those of code points, which the data doesn't have.
  absl::Status ReadString(std::string& out) {
    if (!Accept('"')) return Fault("no text");
    for (; pos_ < text_.size() && text_[pos_] != '"'; ++pos_) {
      if (text_[pos_] != '\\') {
        out.push_back(text_[pos_]);
        continue;
      }
      constexpr absl::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
      ++pos_;
      const size_t i = pos_ < text_.size() ? kEscapes.find(text_[pos_]) : kEscapes.npos;
      if (i == kEscapes.npos) return Fault("an escape that isn't read");
      out.push_back(kMeant[i]);
    }
    return Accept('"') ? absl::OkStatus() : Fault("the text doesn't end");
  }

  absl::string_view text_;
  size_t pos_ = 0;
};

namespace {

const JsonValue& Null() {
  static const JsonValue null;
  return null;
}

}  // namespace

absl::StatusOr<JsonValue> JsonValue::Parse(absl::string_view text) {
  return JsonReader(text).ReadAll();
}

int64_t JsonValue::Int() const {
  const absl::string_view spelled = kind_ == Kind::kString ? absl::string_view(text_) : raw_;
  int64_t value = 0;
  if (absl::SimpleAtoi(spelled, &value)) return value;
  uint64_t large = 0;
  if (absl::SimpleAtoi(spelled, &large)) return static_cast<int64_t>(large);
  const double real = Double();
  return std::abs(real) < 0x1p63 ? static_cast<int64_t>(real) : 0;
}

double JsonValue::Double() const {
  const absl::string_view spelled = kind_ == Kind::kString ? absl::string_view(text_) : raw_;
  double value = 0;
  return absl::SimpleAtod(spelled, &value) ? value : 0;  // takes NaN and Infinity too
}

const JsonValue& JsonValue::operator[](absl::string_view key) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return items_[i];
  }
  return Null();
}

const JsonValue& JsonValue::operator[](size_t index) const {
  return index < items_.size() ? items_[index] : Null();
}

std::vector<int64_t> JsonValue::Ints() const {
  std::vector<int64_t> values;
  for (const JsonValue& item : items_) values.push_back(item.Int());
  return values;
}

}  // namespace beamd::testing
