#include "engine/base/command_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

bool ParseCores(const std::string& text, std::vector<int>* value) {
  std::vector<int> numbers;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return false;
  }
  *value = std::move(numbers);
  return true;
}

}  // namespace

void CommandLine::Add(std::string name, std::string* value, std::string help) {
  flags_.push_back({.name = std::move(name),
                    .help = std::move(help),
                    .otherwise = *value,
                    .kind = FlagKind::kString,
                    .set = [value](const std::string& text) {
                      *value = text;
                      return true;
                    }});
}

void CommandLine::Add(std::string name, int64_t* value, std::string help) {
  flags_.push_back(
      {.name = std::move(name),
       .help = std::move(help),
       .otherwise = absl::StrCat(*value),
       .kind = FlagKind::kInt,
       .set = [value](const std::string& text) { return absl::SimpleAtoi(text, value); }});
}

void CommandLine::Add(std::string name, double* value, std::string help) {
  flags_.push_back(
      {.name = std::move(name),
       .help = std::move(help),
       .otherwise = absl::StrCat(*value),
       .kind = FlagKind::kDouble,
       .set = [value](const std::string& text) { return absl::SimpleAtod(text, value); }});
}

void CommandLine::Add(std::string name, bool* value, std::string help) {
  flags_.push_back(
      {.name = std::move(name),
       .help = std::move(help),
       .otherwise = *value ? "true" : "false",
       .kind = FlagKind::kBool,
       .set = [value](const std::string& text) { return absl::SimpleAtob(text, value); }});
}

void CommandLine::Add(std::string name, absl::Duration* value, std::string help) {
  flags_.push_back(
      {.name = std::move(name),
       .help = std::move(help),
       .otherwise = absl::FormatDuration(*value),
       .kind = FlagKind::kDuration,
       .set = [value](const std::string& text) { return absl::ParseDuration(text, value); }});
}

void CommandLine::Add(std::string name, std::vector<int>* value, std::string help) {
  flags_.push_back({.name = std::move(name),
                    .help = std::move(help),
                    .otherwise = absl::StrJoin(*value, ","),
                    .kind = FlagKind::kInts,
                    .set = [value](const std::string& text) { return ParseCores(text, value); }});
}

void CommandLine::Add(std::string name, std::vector<std::string>* value, std::string help) {
  flags_.push_back({.name = std::move(name),
                    .help = std::move(help),
                    .otherwise = absl::StrJoin(*value, ","),
                    .kind = FlagKind::kStrings,
                    .set = [value](const std::string& text) {
                      for (const absl::string_view part : absl::StrSplit(text, ',')) {
                        value->emplace_back(part);
                      }
                      return true;
                    }});
}

const CommandLine::Flag* CommandLine::Find(std::string name) const {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::StatusOr<std::vector<std::string>> CommandLine::Parse(
    const std::vector<std::string>& args) const {
  std::vector<std::string> rest;
  std::vector<std::string> faults;
  for (const Flag& flag : flags_) flag.given = false;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view text = args[i];
    if (text == "--") {
      rest.insert(rest.end(), args.begin() + static_cast<int64_t>(i) + 1, args.end());
      break;
    }
    if (!absl::ConsumePrefix(&text, "--")) {
      rest.push_back(args[i]);
      continue;
    }
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const Flag* flag = Find(parts[0]);
    std::string value = parts.size() == 2 ? parts[1] : "";
    if (flag == nullptr && parts.size() == 1 && absl::ConsumePrefix(&text, "no")) {
      flag = Find(std::string(text));
      if (flag != nullptr && flag->kind != FlagKind::kBool) flag = nullptr;
      value = "false";
    } else if (flag != nullptr && parts.size() == 1 && flag->kind == FlagKind::kBool) {
      value = "true";
    } else if (flag != nullptr && parts.size() == 1) {
      if (i + 1 == args.size()) {
        faults.push_back(absl::StrCat("--", parts[0], " wants a value"));
        break;
      }
      value = args[++i];
    }
    if (flag == nullptr) {
      faults.push_back(absl::StrCat("no flag ", args[i]));
    } else if (absl::Status status = Set(flag->name, value); !status.ok()) {
      faults.emplace_back(status.message());
    } else {
      flag->given = true;
    }
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  return rest;
}

absl::Status CommandLine::Set(const std::string& name, const std::string& value) const {
  const Flag* flag = Find(name);
  if (flag == nullptr) return absl::InvalidArgumentError(absl::StrCat("no flag --", name));
  if (flag->set(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag->name, " can't be \"", value, "\""));
}

std::vector<std::pair<std::string, FlagKind>> CommandLine::Flags() const {
  std::vector<std::pair<std::string, FlagKind>> flags;
  flags.reserve(flags_.size());
  for (const Flag& flag : flags_) flags.emplace_back(flag.name, flag.kind);
  return flags;
}

bool CommandLine::Given(const std::string& name) const {
  const Flag* flag = Find(name);
  BEAMD_CHECK(flag != nullptr, name);
  return flag->given;
}

std::vector<std::string> CommandLine::AllGiven() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) {
    if (flag.given) names.push_back(flag.name);
  }
  return names;
}

std::string CommandLine::Help() const {
  std::string text = absl::StrCat("usage: ", usage_, "\n");
  for (const Flag& flag : flags_) {
    absl::StrAppend(&text, "  --", flag.name, flag.kind == FlagKind::kBool ? "" : "=VALUE",
                    "\n      ", flag.help);
    if (!flag.otherwise.empty()) absl::StrAppend(&text, " (", flag.otherwise, ")");
    text += "\n";
  }
  return text;
}

}  // namespace beamd
