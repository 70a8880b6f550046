#include "server/services/validate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;

absl::Status CheckEnum(const EnumDescriptor& type, int number, const std::string& path) {
  if (type.FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(path, " has no enumerator ", number),
                         {.reason = "UNKNOWN_ENUMERATOR", .field = path, .value = number});
}

// Labels, ids and names; the largest that mean something are keys of 64 characters and labels.
constexpr int kMostTextBytes = 1024;

absl::Status CheckText(size_t bytes, const std::string& path) {
  if (bytes <= kMostTextBytes) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(path, " has ", bytes, " bytes, at most ", kMostTextBytes),
                         {.reason = "TEXT_BYTES",
                          .field = path,
                          .limit = kMostTextBytes,
                          .value = static_cast<int64_t>(bytes)});
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
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        std::string scratch;
        const std::string& text =
            field->is_repeated()
                ? reflection.GetRepeatedStringReference(message, field, i, &scratch)
                : reflection.GetStringReference(message, field, &scratch);
        BEAMD_RETURN_IF_ERROR(CheckText(text.size(), place));
      }
    }
  }
  return absl::OkStatus();
}

// Takes one of `left` for each message, text or list that the bytes hold; false once none is left,
// or where the bytes are no such message.
bool CountElements(CodedInputStream& in, const Descriptor& type, int64_t& left) {
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    uint32_t bytes = 0;
    if (--left < 0 || !in.ReadVarint32(&bytes)) return false;
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!in.Skip(static_cast<int>(bytes))) return false;
      continue;
    }
    if (!in.IncrementRecursionDepth()) return false;
    const CodedInputStream::Limit limit = in.PushLimit(static_cast<int>(bytes));
    if (!CountElements(in, *field->message_type(), left) || in.BytesUntilLimit() != 0) return false;
    in.PopLimit(limit);
    in.DecrementRecursionDepth();
  }
  return true;
}

}  // namespace

absl::Status CheckElements(google::protobuf::io::ZeroCopyInputStream& bytes,
                           const Descriptor& type) {
  CodedInputStream in(&bytes);
  int64_t left = kMostElements;
  // Bytes that are no message are left to who parses them.
  if (CountElements(in, type, left) || left >= 0) return absl::OkStatus();
  return InvalidArgument(
      absl::StrCat("the request holds more than ", kMostElements, " messages and texts"),
      {.reason = "TOO_MANY", .limit = kMostElements, .value = kMostElements + 1});
}

absl::Status CheckKnown(const Message& request) { return Check(request, ""); }

}  // namespace beamd
