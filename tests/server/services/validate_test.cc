#include "server/services/validate.h"

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/error_detail.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {
namespace {

void AddUnknown(google::protobuf::Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
}

ErrorDetail DetailOf(const google::protobuf::Message& message) {
  return GetErrorDetail(CheckKnown(message)).value_or(ErrorDetail());
}

TEST(CheckKnown, AcceptsWhatThisBuildKnows) {
  v1::LookupRequest request;
  request.add_queries()->set_match(v1::MATCH_POLICY_ANY);
  request.mutable_queries(0)->mutable_search()->set_width(3);
  EXPECT_TRUE(CheckKnown(request).ok());
}

TEST(CheckKnown, NamesTheMessageWithAnUnknownField) {
  v1::LookupRequest request;
  request.add_queries();
  AddUnknown(*request.add_queries()->mutable_search());
  EXPECT_EQ(DetailOf(request).reason, "UNKNOWN_FIELD");
  EXPECT_EQ(DetailOf(request).field, "queries[1].search");
  EXPECT_EQ(DetailOf(request).value, 99);
}

TEST(CheckKnown, NamesTheFieldWithAnUnknownEnumerator) {
  v1::ShowRequest request;
  request.add_opts()->set_op(static_cast<v1::OptOp>(55));
  EXPECT_EQ(DetailOf(request).reason, "UNKNOWN_ENUMERATOR");
  EXPECT_EQ(DetailOf(request).field, "opts[0].op");
  EXPECT_EQ(DetailOf(request).value, 55);
}

TEST(CheckKnown, LeavesGraphsToWhoNamesTheirNodes) {
  v1::TuneRequest request;
  AddUnknown(*request.mutable_graph()->add_nodes());
  EXPECT_TRUE(CheckKnown(request).ok());
}

TEST(CheckKnown, RefusesLongTextsNamingLimitAndValue) {
  v1::TuneRequest request;
  request.set_label(std::string(1024, 'x'));
  EXPECT_TRUE(CheckKnown(request).ok());
  request.set_label(std::string(1025, 'x'));
  EXPECT_EQ(DetailOf(request).reason, "TEXT_BYTES");
  EXPECT_EQ(DetailOf(request).field, "label");
  EXPECT_EQ(DetailOf(request).limit, 1024);
  EXPECT_EQ(DetailOf(request).value, 1025);
  v1::ResolveRequest keys;
  keys.add_keys("k");
  keys.add_keys(std::string(5000, 'k'));
  EXPECT_EQ(DetailOf(keys).field, "keys[1]");
}

absl::Status Counted(const std::string& bytes, const google::protobuf::Descriptor& type) {
  google::protobuf::io::ArrayInputStream in(bytes.data(), static_cast<int>(bytes.size()));
  return CheckElements(in, type);
}

TEST(CheckElements, CountsWhatIsSmallOnTheWireAndLargeInMemory) {
  // `queries`, empty, again and again.
  std::string bytes;
  for (int64_t i = 0; i < kMostElements; ++i) bytes += {'\x0a', '\x00'};
  EXPECT_TRUE(Counted(bytes, *v1::LookupRequest::descriptor()).ok());
  bytes += {'\x0a', '\x00'};
  const absl::Status status = Counted(bytes, *v1::LookupRequest::descriptor());
  EXPECT_EQ(GetErrorDetail(status).value_or(ErrorDetail()).reason, "TOO_MANY");
  EXPECT_EQ(GetErrorDetail(status).value_or(ErrorDetail()).limit, kMostElements);
  // The same as nodes of a graph, one level down.
  v1::TuneRequest request;
  for (int64_t i = 0; i < kMostElements; ++i) request.mutable_graph()->add_nodes();
  EXPECT_FALSE(Counted(request.SerializeAsString(), *v1::TuneRequest::descriptor()).ok());
}

TEST(CheckElements, LeavesWhatIsNoMessageToWhoParsesIt) {
  for (const std::string& bytes :
       {std::string("\x0a\x7f"), std::string("\xff\xff\xff"), std::string("\x0a\x02\x0a\x7f")}) {
    EXPECT_TRUE(Counted(bytes, *v1::LookupRequest::descriptor()).ok());
  }
  v1::LookupRequest request;
  *request.add_queries()->mutable_graph()->add_nodes()->mutable_name_arg() = "x";
  EXPECT_TRUE(Counted(request.SerializeAsString(), *v1::LookupRequest::descriptor()).ok());
}

}  // namespace
}  // namespace beamd
