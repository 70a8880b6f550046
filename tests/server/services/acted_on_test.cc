#include "server/services/acted_on.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
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

AuditObject NamedOff(const std::string& bytes, const google::protobuf::Message& type) {
  AuditObject object;
  google::protobuf::io::ArrayInputStream in(bytes.data(), static_cast<int>(bytes.size()), 7);
  NameActedOn(in, type, object);
  return object;
}

// A field that was renamed would be missed silently.
TEST(ActedOn, NamesFieldsThatThereAre) {
  // Messages whose files are linked in are found by name.
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  (void)v1::ReleaseDeviceRequest::descriptor();
  (void)v1::OpenSessionRequest::descriptor();
  (void)v1::CancelJobRequest::descriptor();
  (void)v1::TuneBatchRequest::descriptor();
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

TEST(ActedOn, ReadsRequestsOffTheirBytes) {
  v1::FreeRequest free;
  free.set_session("s");
  for (int i = 1; i <= 100; ++i) free.add_handles(i);
  EXPECT_EQ(NamedOff(free.SerializeAsString(), free), Named(free));
  v1::TuneBatchRequest batch;
  batch.mutable_item()->set_id("7");
  v1::TuneRequest& tune = *batch.mutable_item()->mutable_request();
  tune.mutable_device()->set_kind("cuda");
  tune.set_label("mine");
  for (int i = 0; i < 100; ++i) tune.mutable_graph()->add_nodes()->add_src(i);
  EXPECT_EQ(NamedOff(batch.SerializeAsString(), batch),
            (AuditObject{{"item", "7"}, {"kind", "cuda"}, {"label", "mine"}}));
  EXPECT_EQ(NamedOff("", batch), AuditObject());
  EXPECT_EQ(NamedOff(batch.SerializeAsString(), v1::ListJobsRequest()), AuditObject());
}

// Whatever a check finds wrong, what stands beside it has a name.
TEST(ActedOn, ReadsWhatNoCheckPasses) {
  v1::TuneRequest request;
  request.mutable_device()->set_id("cpu:0");
  request.set_label("mine");
  const AuditObject named{{"device", "cpu:0"}, {"label", "mine"}};
  const std::string good = request.SerializeAsString();
  // A graph that is none, before and behind; a field that nobody knows; a message that is cut off.
  EXPECT_EQ(NamedOff("\x0a\x03\xff\xff\xff" + good, request), named);
  EXPECT_EQ(NamedOff(good + "\x0a\x03\xff\xff\xff", request), named);
  EXPECT_EQ(NamedOff(good + "\xf8\x7f\x01", request), named);
  EXPECT_EQ(NamedOff(good + "\x0a\x7f", request), named);
  EXPECT_EQ(NamedOff(good + "\x07", request), named);
  // A device that is none.
  EXPECT_EQ(NamedOff("\x1a\x02\x0a\x7f" + request.SerializeAsString(), request), named);
  // An enumerator that nobody knows has its number.
  request.set_mode(static_cast<v1::TuneMode>(99));
  EXPECT_EQ(NamedOff(request.SerializeAsString(), request),
            (AuditObject{{"device", "cpu:0"}, {"mode", "99"}, {"label", "mine"}}));
  // Neither a long text nor one that isn't UTF-8 gets into the audit.
  request.set_label(std::string(5000, 'x'));
  EXPECT_EQ(NamedOff(request.SerializeAsString(), request).back().second,
            std::string(1024, 'x') + "...");
  EXPECT_EQ(NamedOff("\x42\x02\xff\xff" + good, request), named);
  EXPECT_EQ(NamedOff(good + "\x42\x02\xff\xff", request), named);
}

TEST(ActedOn, SurvivesAnyBytes) {
  std::mt19937 random(1);
  v1::TuneBatchRequest request;
  request.mutable_item()->set_id("7");
  request.mutable_item()->mutable_request()->mutable_device()->set_id("cpu:0");
  request.mutable_item()->mutable_request()->set_label("mine");
  const std::string good = request.SerializeAsString();
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good.substr(0, good.size() - random() % 8);
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    for (const auto& [name, value] : NamedOff(bytes, request)) EXPECT_FALSE(value.empty()) << name;
  }
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
