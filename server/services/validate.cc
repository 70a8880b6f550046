#include "server/services/validate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {
namespace {

using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

absl::Status CheckEnum(const EnumDescriptor& type, int number, const std::string& path) {
  if (type.FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(path, " has no enumerator ", number),
                         {.reason = "UNKNOWN_ENUMERATOR", .field = path, .value = number});
}

absl::Status Check(const Message& message, const std::string& path) {
  if (message.GetDescriptor() == v1::Graph::descriptor()) return absl::OkStatus();
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    const int number = unknown.field(0).number();
    return InvalidArgument(
        absl::StrCat(path.empty() ? "the request" : path, " has an unknown field ", number),
        {.reason = "UNKNOWN_FIELD", .field = path, .value = number});
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string place = field->is_repeated() ? absl::StrCat(name, "[", i, "]") : name;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        BEAMD_RETURN_IF_ERROR(Check(field->is_repeated()
                                        ? reflection.GetRepeatedMessage(message, field, i)
                                        : reflection.GetMessage(message, field),
                                    place));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        BEAMD_RETURN_IF_ERROR(CheckEnum(*field->enum_type(),
                                        field->is_repeated()
                                            ? reflection.GetRepeatedEnumValue(message, field, i)
                                            : reflection.GetEnumValue(message, field),
                                        place));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKnown(const Message& request) { return Check(request, ""); }

}  // namespace beamd
