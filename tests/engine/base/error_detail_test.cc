#include "engine/base/error_detail.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"

namespace beamd {
namespace {

TEST(ErrorDetail, ComesBackFromTheStatusThatCarriesIt) {
  const ErrorDetail detail{"TOO_MANY_NODES", 7, "nodes[7].src", 20000, -5};
  const absl::Status status = InvalidArgument("node 7: no", detail);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "node 7: no");
  EXPECT_EQ(GetErrorDetail(status), detail);
}

TEST(ErrorDetail, LeavesOutWhatIsUnstated) {
  const ErrorDetail detail{.reason = "EMPTY_GRAPH"};
  const std::optional<ErrorDetail> back = GetErrorDetail(InvalidArgument("no nodes", detail));
  ASSERT_TRUE(back.has_value());
  EXPECT_FALSE(back->node || back->limit || back->value);
  EXPECT_EQ(back->reason, "EMPTY_GRAPH");
  EXPECT_EQ(back->field, "");
}

TEST(ErrorDetail, KeepsTextThatLooksLikeSyntax) {
  const ErrorDetail detail{.reason = "A=B\nnode=3", .field = "\"x\\=\t\n\x01"};
  EXPECT_EQ(GetErrorDetail(InvalidArgument("m", detail)), detail);
}

TEST(ErrorDetail, IsAbsentFromPlainAndDamagedStatuses) {
  EXPECT_EQ(GetErrorDetail(absl::InternalError("x")), std::nullopt);
  absl::Status damaged = absl::InternalError("x");
  damaged.SetPayload(kErrorDetailUrl, absl::Cord("node=seven\n"));
  EXPECT_EQ(GetErrorDetail(damaged), std::nullopt);
}

TEST(ErrorDetail, ReplacesAnEarlierOne) {
  absl::Status status = InvalidArgument("m", {.reason = "ONE"});
  status = WithDetail(status, {.reason = "TWO"});
  EXPECT_EQ(GetErrorDetail(status)->reason, "TWO");
}

}  // namespace
}  // namespace beamd
