#include "server/services/acted_on.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace beamd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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
    {"ShowRequest", "device.arch", "arch"},
    {"ShowRequest", "pass", "pass"},
    {"TuneAccepted", "job", "job"},
    {"TuneAccepted", "key", "key"},
    {"TuneAccepted", "kernel_hash", "kernel"},
    {"TuneAccepted", "device", "device"},
    {"TuneRequest", "device.id", "device"},
    {"TuneRequest", "mode", "mode"},
    {"TuneRequest", "label", "label"},
    {"TuneResult", "record.generation", "generation"},
    {"WatchJobRequest", "id", "job"},
};

constexpr size_t kMostTold = 16;

// Of a field that isn't repeated, or of one of its values. Empty where it says nothing.
std::string TextOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool one = !field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = one ? reflection.GetString(message, &field)
                             : reflection.GetRepeatedString(message, &field, index);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t number = one ? reflection.GetUInt64(message, &field)
                                  : reflection.GetRepeatedUInt64(message, &field, index);
      return number == 0 ? "" : absl::StrCat(number);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* const value = one ? reflection.GetEnum(message, &field)
                                    : reflection.GetRepeatedEnum(message, &field, index);
      return value->number() == 0 ? "" : value->name();
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

}  // namespace beamd
