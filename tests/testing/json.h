// A reader of JSON for test data. Keeps the text of each value, so that a part of a line can be
// handed to another parser as it is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd::testing {

// What is asked for and isn't there is the null value; a value asked for as another kind is 0, ""
// or empty. So `line["outputs"][0]["slot"].Int()` needs no checks where the file's form is known.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  // The value that `text` is. It borrows from `text`.
  static absl::StatusOr<JsonValue> Parse(absl::string_view text);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  // As it stands in the text.
  absl::string_view raw() const { return raw_; }

  bool Bool() const { return kind_ == Kind::kBool && raw_ == "true"; }
  // Of a number or a text that spells one: protobuf's JSON quotes 64-bit integers.
  int64_t Int() const;
  // Also of "NaN", "Infinity" and "-Infinity".
  double Double() const;
  const std::string& String() const { return text_; }
  // Elements of an array, values of an object.
  const std::vector<JsonValue>& items() const { return items_; }
  const std::vector<std::string>& keys() const { return keys_; }
  const JsonValue& operator[](absl::string_view key) const;
  const JsonValue& operator[](size_t index) const;
  bool Has(absl::string_view key) const { return !(*this)[key].raw().empty(); }
  std::vector<int64_t> Ints() const;

 private:
  friend class JsonReader;

  Kind kind_ = Kind::kNull;
  absl::string_view raw_;
  std::string text_;
  std::vector<JsonValue> items_;
  std::vector<std::string> keys_;
};

}  // namespace beamd::testing
