// How beamctl spells things: times, opts, lines of JSON, tables.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

// "134 us": three digits and a unit; "-" for none.
std::string TimeText(double seconds);
// "25.7 M", "1.05 k": three digits and a prefix.
std::string CountText(double count);

using WireOpts = google::protobuf::RepeatedPtrField<v1::Opt>;
std::vector<std::string> OptTexts(const WireOpts& wire);
// "UPCAST(0, 4) NOLOCALS"; "-" for none.
std::string OptsText(const WireOpts& opts);

// A line of JSON, member by member.
class JsonLine {
 public:
  JsonLine& Text(absl::string_view key, absl::string_view value);
  JsonLine& Number(absl::string_view key, double value);
  JsonLine& Bool(absl::string_view key, bool value);
  JsonLine& Texts(absl::string_view key, const std::vector<std::string>& values);
  // `value` is JSON.
  JsonLine& Raw(absl::string_view key, absl::string_view value);
  // On standard output.
  void Print() const;

 private:
  std::string text_;
};

// Rows of cells in columns as wide as they need to be.
class TextTable {
 public:
  // A column whose name begins with '<' is aligned to the left, others to the right.
  explicit TextTable(std::vector<std::string> columns);
  void Row(std::vector<std::string> cells);
  std::string ToText() const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace beamd
