#include "server/config/config_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

class Faults final : public google::protobuf::io::ErrorCollector {
 public:
  explicit Faults(const std::string& name) : name_(name) {}
  void AddError(int line, int /*column*/, const std::string& message) override {
    lines_.push_back(absl::StrCat(name_, ":", line + 1, ": ", message));
  }
  void AddWarning(int line, int column, const std::string& message) override {
    AddError(line, column, message);
  }
  void Add(const std::string& fault) { lines_.push_back(absl::StrCat(name_, ": ", fault)); }
  absl::Status status() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  const std::string& name_;
  std::vector<std::string> lines_;
};

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
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&faults);
  parser.ParseFromString(std::string(text), message.get());
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
