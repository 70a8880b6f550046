// What a call acted on, for the audit: the fields of requests and answers that name it.
#pragma once

#include <span>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "server/auth/audit.h"

namespace beamd {

// A field that names something.
struct NamingField {
  absl::string_view message;  // of beamd.v1
  absl::string_view path;     // "record.generation"; fields on the way may be repeated
  absl::string_view name;     // in the audit
};
std::span<const NamingField> NamingFields();

// Adds what the message's naming fields hold, but for what is absent, 0 or empty. Of many values it
// tells the first and how many there are; long texts are cut.
void NameActedOn(const google::protobuf::Message& message, AuditObject& object);
// The same of a request's bytes, which nothing has checked yet: whatever refuses it, and be it no
// such message, the audit knows what it named. Reads naming fields alone, as far as the bytes hold.
void NameActedOn(google::protobuf::io::ZeroCopyInputStream& bytes,
                 const google::protobuf::Message& type, AuditObject& object);

}  // namespace beamd
