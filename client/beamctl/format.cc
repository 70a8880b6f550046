#include "client/beamctl/format.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/json_string.h"
#include "engine/kernel/opt.h"

namespace beamd {
std::string TimeText(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g s", seconds);
}

std::string CountText(double count) {
  constexpr absl::string_view kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  size_t i = 0;
  while (count >= 999.5 && i + 1 < std::size(kPrefixes)) {
    count /= 1000;
    ++i;
  }
  return absl::StrFormat("%.3g%s", count, std::string(kPrefixes[i]));
}

std::vector<std::string> OptTexts(const WireOpts& wire) {
  std::vector<std::string> texts;
  for (const v1::Opt& from : wire) {
    Opt opt{.op = static_cast<OptOp>(from.op())};
    if (from.has_axis()) opt.axis = from.axis();
    if (from.has_amount()) opt.amount = from.amount();
    texts.push_back(ToString(opt));
  }
  return texts;
}

std::string OptsText(const WireOpts& opts) {
  return opts.empty() ? "-" : absl::StrJoin(OptTexts(opts), " ");
}

JsonLine& JsonLine::Text(absl::string_view key, absl::string_view value) {
  return Raw(key, JsonString(value));
}

JsonLine& JsonLine::Number(absl::string_view key, double value) {
  return Raw(key, absl::StrFormat("%.9g", value));
}

JsonLine& JsonLine::Bool(absl::string_view key, bool value) {
  return Raw(key, value ? "true" : "false");
}

JsonLine& JsonLine::Texts(absl::string_view key, const std::vector<std::string>& values) {
  const auto quote = [](std::string* out, const std::string& value) {
    out->append(JsonString(value));
  };
  return Raw(key, absl::StrCat("[", absl::StrJoin(values, ",", quote), "]"));
}

JsonLine& JsonLine::Raw(absl::string_view key, absl::string_view value) {
  absl::StrAppend(&text_, text_.empty() ? "{" : ",", JsonString(key), ":", value);
  return *this;
}

void JsonLine::Print() const { std::printf("%s}\n", text_.c_str()); }

TextTable::TextTable(std::vector<std::string> columns) {
  for (std::string& name : columns) {
    absl::string_view text = name;
    left_.push_back(absl::ConsumePrefix(&text, "<"));
    name = std::string(text);
  }
  rows_.push_back(std::move(columns));
}

void TextTable::Row(std::vector<std::string> cells) {
  cells.resize(left_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToText() const {
  std::vector<size_t> widths(left_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", left_[i] ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace beamd
