#include "server/services/validate.h"

#include <optional>

#include "engine/base/error_detail.h"
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

}  // namespace
}  // namespace beamd
