#include "server/services/lasting_answer.h"

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(LastingAnswer, IsAHitOrAMissOfWhatTheStoreHolds) {
  v1::LookupResponse response;
  EXPECT_TRUE(IsLasting(response));
  response.add_answers()->mutable_hit()->set_match(v1::MATCH_STRICT);
  response.add_answers()->mutable_miss()->set_reason(v1::MISS_REASON_NO_RECORD);
  EXPECT_TRUE(IsLasting(response));
}

TEST(LastingAnswer, IsNotWhatCouldNotBeRead) {
  v1::LookupResponse response;
  response.add_answers()->mutable_hit()->set_match(v1::MATCH_STRICT);
  response.add_answers()->mutable_miss()->set_reason(v1::MISS_REASON_UNREADABLE);
  EXPECT_FALSE(IsLasting(response));
}

TEST(LastingAnswer, IsNoError) {
  v1::LookupResponse response;
  response.add_answers()->mutable_error()->set_reason("DEVICE");
  response.add_answers()->mutable_hit()->set_match(v1::MATCH_STRICT);
  EXPECT_FALSE(IsLasting(response));
}

}  // namespace
}  // namespace beamd
