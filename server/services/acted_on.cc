#include "server/services/acted_on.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/services/shortened.h"

namespace beamd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr NamingField kFields[] = {
    {"BeginUploadRequest", "session", "session"},
    {"BeginUploadRequest", "handle", "handle"},
    {"BeginUploadResponse", "handle", "handle"},
    {"CancelJobRequest", "id", "job"},
    {"CloseSessionRequest", "session", "session"},
    {"DownloadRequest", "session", "session"},
    {"DownloadRequest", "handle", "handle"},
    {"FreeRequest", "session", "session"},
    {"FreeRequest", "handles", "handles"},
    {"ImportResponse", "imported", "imported"},
    {"ImportResponse", "kept", "kept"},
    {"ImportResponse", "refused_count", "refused"},
    {"Job", "key", "key"},
    {"Job", "device", "device"},
    {"KeepAliveRequest", "session", "session"},
    {"OpenSessionRequest", "device.id", "device"},
    {"OpenSessionRequest", "device.kind", "kind"},
    {"OpenSessionRequest", "device.arch", "arch"},
    {"OpenSessionRequest", "label", "label"},
    {"ReleaseDeviceRequest", "id", "device"},
    {"ReplayRequest", "key", "key"},
    {"ReplayRequest", "generation", "generation"},
    {"ReplayRequest", "job", "job"},
    {"ReplayRequest", "candidate", "candidate"},
    {"RunRequest", "session", "session"},
    {"RunResponse", "outputs.buffer.handle", "handles"},
    {"Session", "id", "session"},
    {"Session", "device", "device"},
    {"ShowRequest", "device.id", "device"},
    {"ShowRequest", "device.kind", "kind"},
    {"ShowRequest", "device.arch", "arch"},
    {"ShowRequest", "pass", "pass"},
    {"TuneAccepted", "job", "job"},
    {"TuneAccepted", "key", "key"},
    {"TuneAccepted", "kernel_hash", "kernel"},
    {"TuneAccepted", "device", "device"},
    {"TuneBatchRequest", "item.id", "item"},
    {"TuneBatchRequest", "item.request.device.id", "device"},
    {"TuneBatchRequest", "item.request.device.kind", "kind"},
    {"TuneBatchRequest", "item.request.device.arch", "arch"},
    {"TuneBatchRequest", "item.request.mode", "mode"},
    {"TuneBatchRequest", "item.request.label", "label"},
    {"TuneRequest", "device.id", "device"},
    {"TuneRequest", "device.kind", "kind"},
    {"TuneRequest", "device.arch", "arch"},
    {"TuneRequest", "mode", "mode"},
    {"TuneRequest", "label", "label"},
    {"TuneResult", "record.generation", "generation"},
    {"WatchJobRequest", "id", "job"},
};

constexpr size_t kMostTold = 16;
// Of a text, in bytes: as long as a request's may be.
constexpr size_t kMostText = 1024;
// Of bytes that nothing has checked: fields that are looked at, and what one may hold.
constexpr int kMostFields = 1 << 16;
constexpr uint32_t kMostFieldBytes = 1 << 20;

// Of a field that isn't repeated, or of one of its values. Empty where it says nothing.
std::string TextOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool one = !field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = one ? reflection.GetString(message, &field)
                             : reflection.GetRepeatedString(message, &field, index);
      if (field.type() == FieldDescriptor::TYPE_BYTES) text = absl::BytesToHexString(text);
      return Shortened(std::move(text), kMostText);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t number = one ? reflection.GetUInt64(message, &field)
                                  : reflection.GetRepeatedUInt64(message, &field, index);
      return number == 0 ? "" : absl::StrCat(number);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = one ? reflection.GetEnumValue(message, &field)
                             : reflection.GetRepeatedEnumValue(message, &field, index);
      const auto* const value = field.enum_type()->FindValueByNumber(number);
      if (value == nullptr) return absl::StrCat(number);
      return number == 0 ? "" : value->name();
    }
    default:
      return "";
  }
}

struct Found {
  std::vector<std::string> first;
  int64_t count = 0;
};

void Collect(const Message& message, const std::vector<std::string>& path, size_t at,
             Found& found) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(path[at]);
  if (field == nullptr) return;
  const Reflection& reflection = *message.GetReflection();
  const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
  for (int i = 0; i < count; ++i) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (at + 1 == path.size()) return;
      Collect(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                   : reflection.GetMessage(message, field),
              path, at + 1, found);
      continue;
    }
    std::string text = TextOf(message, *field, i);
    if (text.empty()) continue;
    ++found.count;
    if (found.first.size() < kMostTold) found.first.push_back(std::move(text));
  }
}

using Path = std::vector<std::string>;

std::vector<Path> PathsOf(const Descriptor& type) {
  std::vector<Path> paths;
  for (const NamingField& field : kFields) {
    if (field.message == type.name()) paths.push_back(absl::StrSplit(field.path, '.'));
  }
  return paths;
}

// What `in` holds of the paths, from their part `at` on, as fields of `type`; `left` fields are
// looked at. False where the bytes end or are no message before that.
bool Pick(CodedInputStream& in, const Descriptor& type, const std::vector<Path>& paths, size_t at,
          int& left, UnknownFieldSet& picked) {
  while (const uint32_t tag = in.ReadTag()) {
    if (--left < 0) return false;
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const FieldDescriptor* const field = type.FindFieldByNumber(number);
    std::vector<Path> through;
    if (field != nullptr) {
      std::copy_if(paths.begin(), paths.end(), std::back_inserter(through),
                   [&](const Path& p) { return at < p.size() && p[at] == field->name(); });
    }
    const auto wire = WireFormatLite::GetTagWireType(tag);
    if (field == nullptr || through.empty() ||
        (wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED &&
         wire != WireFormatLite::WIRETYPE_VARINT)) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    if (wire == WireFormatLite::WIRETYPE_VARINT) {
      uint64_t value = 0;
      if (!in.ReadVarint64(&value)) return false;
      picked.AddVarint(number, value);
      continue;
    }
    uint32_t bytes = 0;
    if (!in.ReadVarint32(&bytes) || bytes > INT32_MAX) return false;
    const auto size = static_cast<int>(bytes);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const CodedInputStream::Limit limit = in.PushLimit(size);
      Pick(in, *field->message_type(), through, at + 1, left, *picked.AddGroup(number));
      const bool skipped = in.Skip(std::max(in.BytesUntilLimit(), 0));
      in.PopLimit(limit);
      if (!skipped || left < 0) return false;
      continue;
    }
    std::string text;
    if (bytes > kMostFieldBytes) {
      if (!in.Skip(size)) return false;
    } else if (!in.ReadString(&text, size)) {
      return false;
    } else if (field->type() != FieldDescriptor::TYPE_STRING ||
               google::protobuf::internal::IsStructurallyValidUTF8(text.data(), size)) {
      picked.AddLengthDelimited(number, text);
    }
  }
  return true;
}

// As bytes of the message: groups are the messages in it.
void Append(const UnknownFieldSet& picked, std::string& bytes) {
  UnknownFieldSet flat;
  for (int i = 0; i < picked.field_count(); ++i) {
    const UnknownField& field = picked.field(i);
    if (field.type() == UnknownField::TYPE_GROUP) {
      Append(field.group(), *flat.AddLengthDelimited(field.number()));
    } else {
      flat.AddField(field);
    }
  }
  flat.SerializeToString(&bytes);
}

}  // namespace

std::span<const NamingField> NamingFields() { return kFields; }

void NameActedOn(const Message& message, AuditObject& object) {
  const absl::string_view type(message.GetDescriptor()->name());
  for (const NamingField& field : kFields) {
    if (field.message != type) continue;
    Found found;
    Collect(message, absl::StrSplit(field.path, '.'), 0, found);
    std::string text = absl::StrJoin(found.first, ",");
    if (found.count > static_cast<int64_t>(kMostTold)) {
      absl::StrAppend(&text, ",... of ", found.count);
    }
    SetNamed(object, field.name, text);
  }
}

void NameActedOn(google::protobuf::io::ZeroCopyInputStream& bytes, const Message& type,
                 AuditObject& object) {
  const std::vector<Path> paths = PathsOf(*type.GetDescriptor());
  if (paths.empty()) return;
  CodedInputStream in(&bytes);
  UnknownFieldSet picked;
  int left = kMostFields;
  Pick(in, *type.GetDescriptor(), paths, 0, left, picked);
  std::string named;
  Append(picked, named);
  const std::unique_ptr<Message> message(type.New());
  // What doesn't parse, a field of another type say, is left out with what follows it.
  static_cast<void>(message->ParsePartialFromString(named));
  NameActedOn(*message, object);
}

}  // namespace beamd
