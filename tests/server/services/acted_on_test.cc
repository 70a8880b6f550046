#include "server/services/acted_on.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {
namespace {

AuditObject Named(const google::protobuf::Message& message) {
  AuditObject object;
  NameActedOn(message, object);
  return object;
}

// A field that was renamed would be missed silently.
TEST(ActedOn, NamesFieldsThatThereAre) {
  // Messages whose files are linked in are found by name.
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  (void)v1::ReleaseDeviceRequest::descriptor();
  (void)v1::OpenSessionRequest::descriptor();
  (void)v1::CancelJobRequest::descriptor();
  for (const NamingField& field : NamingFields()) {
    const auto* message = pool->FindMessageTypeByName(absl::StrCat("beamd.v1.", field.message));
    for (const absl::string_view part : absl::StrSplit(field.path, '.')) {
      ASSERT_NE(message, nullptr) << field.message << " " << field.path;
      const auto* const found = message->FindFieldByName(std::string(part));
      ASSERT_NE(found, nullptr) << field.message << " " << field.path;
      message = found->message_type();
    }
    EXPECT_EQ(message, nullptr) << field.message << " " << field.path;
  }
}

TEST(ActedOn, TellsWhatIsThere) {
  v1::TuneRequest request;
  EXPECT_EQ(Named(request), AuditObject());
  request.set_mode(v1::TUNE_MODE_NOW);
  request.mutable_device()->set_id("cpu:0");
  EXPECT_EQ(Named(request), (AuditObject{{"device", "cpu:0"}, {"mode", "TUNE_MODE_NOW"}}));
  v1::RunResponse response;
  for (int i = 1; i <= 2; ++i) response.add_outputs()->mutable_buffer()->set_handle(i);
  EXPECT_EQ(Named(response), (AuditObject{{"handles", "1,2"}}));
}

TEST(ActedOn, CountsWhatIsTooManyToTell) {
  v1::FreeRequest request;
  request.set_session("s");
  for (int i = 1; i <= 100; ++i) request.add_handles(i);
  EXPECT_EQ(Named(request),
            (AuditObject{{"session", "s"},
                         {"handles", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,... of 100"}}));
}

TEST(ActedOn, ALaterMessageKnowsMore) {
  v1::TuneRequest request;
  request.mutable_device()->set_id("cpu");
  v1::TuneAccepted accepted;
  accepted.set_device("cpu:0");
  accepted.set_job("4711");
  AuditObject object;
  NameActedOn(request, object);
  NameActedOn(accepted, object);
  EXPECT_EQ(object, (AuditObject{{"device", "cpu:0"}, {"job", "4711"}}));
}

}  // namespace
}  // namespace beamd
