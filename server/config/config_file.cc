#include "server/config/config_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace beamd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::FieldDescriptorProto;

constexpr size_t kFileBytes = 1 << 20;
constexpr size_t kMostFaults = 100;

FieldDescriptorProto::Type TypeOf(FlagKind kind) {
  switch (kind) {
    case FlagKind::kInt:
    case FlagKind::kInts:
      return FieldDescriptorProto::TYPE_INT64;
    case FlagKind::kDouble:
      return FieldDescriptorProto::TYPE_DOUBLE;
    case FlagKind::kBool:
      return FieldDescriptorProto::TYPE_BOOL;
    case FlagKind::kString:
    case FlagKind::kStrings:
    case FlagKind::kDuration:
      return FieldDescriptorProto::TYPE_STRING;
  }
  return FieldDescriptorProto::TYPE_STRING;
}

// A message with a field a flag.
google::protobuf::FileDescriptorProto Schema(const CommandLine& line) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("config");
  google::protobuf::DescriptorProto& message = *file.add_message_type();
  message.set_name("Config");
  int number = 0;
  for (const auto& [name, kind] : line.Flags()) {
    FieldDescriptorProto& field = *message.add_field();
    field.set_name(name);
    field.set_number(++number);
    field.set_type(TypeOf(kind));
    const bool repeated = kind == FlagKind::kInts || kind == FlagKind::kStrings;
    field.set_label(repeated ? FieldDescriptorProto::LABEL_REPEATED
                             : FieldDescriptorProto::LABEL_OPTIONAL);
  }
  return file;
}

// Faults by line, each once.
class Faults {
 public:
  explicit Faults(const std::string& name) : name_(name) {}
  void Add(int line, const std::string& message) {
    by_line_.insert({line, absl::StrCat(name_, ":", line + 1, ": ", message)});
  }
  void Add(const std::string& fault) { others_.push_back(absl::StrCat(name_, ": ", fault)); }
  size_t size() const { return by_line_.size(); }
  absl::Status status() const {
    std::vector<std::string> lines;
    for (const auto& [line, fault] : by_line_) lines.push_back(fault);
    lines.insert(lines.end(), others_.begin(), others_.end());
    if (lines.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  }

 private:
  const std::string& name_;
  std::set<std::pair<int, std::string>> by_line_;
  std::vector<std::string> others_;
};

// One run of the parser, which ends with the first thing that it can't read; fields that it doesn't
// know it passes over.
class Attempt final : public google::protobuf::io::ErrorCollector {
 public:
  Attempt(const std::vector<std::string>& lines, google::protobuf::Message& message) {
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(this);
    parser.AllowUnknownField(true);
    ok = parser.ParseFromString(absl::StrJoin(lines, "\n"), &message);
  }
  void AddError(int at, int /*column*/, const std::string& message) override {
    if (why.empty()) line = at, why = message;
  }
  void AddWarning(int at, int /*column*/, const std::string& message) override {
    unknown.emplace_back(at, message);
  }

  bool ok = false;
  int line = 0;  // where it ended
  std::string why;
  std::vector<std::pair<int, std::string>> unknown;
};

// The line that ended an attempt: it is where the parser stopped, or, where that had to look ahead,
// before. -1: none.
int FaultyLine(const Attempt& attempt, std::vector<std::string>& lines,
               google::protobuf::Message& message) {
  constexpr int kLookAhead = 3;
  int nearest = -1;
  int at = std::min(attempt.line, static_cast<int>(lines.size()) - 1);
  for (int tried = 0; at >= 0 && tried < kLookAhead; --at) {
    if (lines[at].empty()) continue;
    ++tried;
    if (nearest < 0) nearest = at;
    std::string line = std::exchange(lines[at], "");
    const Attempt without(lines, message);
    lines[at] = std::move(line);
    if (without.ok || without.why != attempt.why) return at;
  }
  return nearest;
}

// A line at fault is left out, and the rest parsed again, until nothing ends it.
void ParseAll(absl::string_view text, google::protobuf::Message& message, Faults& faults) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  while (faults.size() < kMostFaults) {
    const Attempt attempt(lines, message);
    for (const auto& [line, why] : attempt.unknown) faults.Add(line, why);
    if (attempt.ok) return;
    const int line = FaultyLine(attempt, lines, message);
    faults.Add(std::max(line, 0), attempt.why);
    if (line < 0) return;
    lines[line].clear();
  }
  // What is known of a text that is no config sets nothing.
  message.Clear();
}

std::string ValueText(const google::protobuf::Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  if (field.is_repeated()) {
    std::vector<std::string> parts;
    for (int i = 0; i < values.FieldSize(message, &field); ++i) {
      parts.push_back(absl::StrCat(values.GetRepeatedInt64(message, &field, i)));
    }
    return absl::StrJoin(parts, ",");
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(values.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(absl::SixDigits(values.GetDouble(message, &field)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return values.GetBool(message, &field) ? "true" : "false";
    default:
      return values.GetString(message, &field);
  }
}

}  // namespace

absl::Status ApplyConfig(const std::string& name, absl::string_view text, const CommandLine& line) {
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* file = pool.BuildFile(Schema(line));
  BEAMD_CHECK(file != nullptr, "flags make no message");
  google::protobuf::DynamicMessageFactory factory(&pool);
  const std::unique_ptr<google::protobuf::Message> message(
      factory.GetPrototype(file->message_type(0))->New());
  Faults faults(name);
  ParseAll(text, *message, faults);
  std::vector<const FieldDescriptor*> given;
  message->GetReflection()->ListFields(*message, &given);
  for (const FieldDescriptor* field : given) {
    const absl::Status set = line.Set(field->name(), ValueText(*message, *field));
    if (!set.ok()) faults.Add(std::string(set.message()));
  }
  return faults.status();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::InvalidArgumentError(absl::StrCat("can't read ", path));
  std::string text(kFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return absl::InvalidArgumentError(absl::StrCat("can't read ", path));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is over ", kFileBytes, " bytes, too long for what it is"));
  }
  return text;
}

}  // namespace beamd
