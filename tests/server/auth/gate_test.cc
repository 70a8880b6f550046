#include "server/auth/gate.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(Gate, LetsARoleDoWhatTheOnesBeforeCan) {
  Gate gate({});
  const Principal reader{"r", Role::kReader};
  const Principal submitter{"s", Role::kSubmitter};
  EXPECT_TRUE(gate.Admit(reader, "Tuner.Lookup", kStart).ok());
  EXPECT_TRUE(gate.Admit(submitter, "Tuner.Lookup", kStart).ok());
  EXPECT_TRUE(gate.Admit(submitter, "Tuner.Tune", kStart).ok());
  const absl::Status refused = gate.Admit(reader, "Tuner.Tune", kStart);
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(GetErrorDetail(refused)->reason, "ROLE");
}

TEST(Gate, WantsAnAdminForWhatItDoesntKnow) {
  Gate gate({});
  EXPECT_TRUE(absl::IsPermissionDenied(gate.Admit({"i", Role::kImporter}, "Tuner.Future", kStart)));
  EXPECT_TRUE(gate.Admit({"a", Role::kAdmin}, "Tuner.Future", kStart).ok());
}

TEST(Gate, WithoutAnAccessFileHostsAreAdmins) {
  const Gate gate({});
  EXPECT_EQ(gate.Identify({.host = "10.0.0.7"})->name, "10.0.0.7");
  EXPECT_EQ(gate.Identify({.host = "local", .uid = uint32_t{3}})->name, "uid:3");
  EXPECT_EQ(gate.Identify({.host = "local"})->role, Role::kAdmin);
}

TEST(Gate, WithoutAnAccessFileACertificateIsCalledByItsName) {
  const Gate gate({});
  const auto principal =
      gate.Identify({.host = "10.0.0.7", .certificate_names = {"alice", "alice.lab"}});
  ASSERT_TRUE(principal.ok()) << principal.status();
  EXPECT_EQ(principal->name, "alice");
  EXPECT_EQ(principal->role, Role::kAdmin);
}

TEST(Gate, TakesANewAccessFile) {
  Gate gate({});
  gate.SetAccess(std::make_shared<Access>(*Access::Parse("uid:3 reader")));
  EXPECT_EQ(gate.Identify({.uid = uint32_t{3}})->role, Role::kReader);
  EXPECT_FALSE(gate.Identify({.host = "10.0.0.7"}).ok());
  gate.SetAccess(std::make_shared<Access>(*Access::Parse("uid:3 admin")));
  EXPECT_EQ(gate.Identify({.uid = uint32_t{3}})->role, Role::kAdmin);
}

TEST(Gate, BoundsTheRateOfEachPrincipalAlone) {
  Gate gate({.calls_per_second = 10, .burst = 5});
  const Principal a{"a", Role::kAdmin};
  const auto admitted = [&](const Principal& who, absl::Time now) {
    int count = 0;
    while (count < 100 && gate.Admit(who, "Tuner.Lookup", now).ok()) ++count;
    return count;
  };
  EXPECT_EQ(admitted(a, kStart), 5);
  EXPECT_EQ(admitted({"b", Role::kAdmin}, kStart), 5);
  EXPECT_EQ(admitted(a, kStart + absl::Milliseconds(250)), 2);
  EXPECT_EQ(admitted(a, kStart + absl::Hours(1)), 5);
  // A clock that steps back gives nothing and takes nothing.
  EXPECT_EQ(admitted(a, kStart), 0);
  const std::optional<ErrorDetail> detail = GetErrorDetail(gate.Admit(a, "Tuner.Lookup", kStart));
  EXPECT_EQ(detail->reason, "RATE");
  EXPECT_EQ(detail->limit, 10);
}

TEST(Gate, BoundsTheStreamsOfEachPrincipal) {
  Gate gate({.streams = 2});
  const Principal a{"a", Role::kAdmin};
  std::vector<Gate::Stream> open;
  open.reserve(2);
  for (int i = 0; i < 2; ++i) open.push_back(*gate.OpenStream(a));
  const absl::Status refused = gate.OpenStream(a).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(GetErrorDetail(refused)->limit, 2);
  EXPECT_EQ(GetErrorDetail(refused)->value, 3);
  EXPECT_TRUE(gate.OpenStream({"b", Role::kAdmin}).ok());
  open.pop_back();
  EXPECT_TRUE(gate.OpenStream(a).ok());
}

TEST(Gate, ForgetsStrangersThatAreGone) {
  Gate gate({.calls_per_second = 1, .burst = 1});
  absl::Time now = kStart;
  // As many hosts as one likes; the one that keeps calling keeps its account.
  for (int i = 0; i < 20000; ++i) {
    now += absl::Milliseconds(1);
    EXPECT_TRUE(gate.Admit({absl::StrCat(i), Role::kAdmin}, "Tuner.Lookup", now).ok());
  }
  EXPECT_FALSE(gate.Admit({"19999", Role::kAdmin}, "Tuner.Lookup", now).ok());
}

}  // namespace
}  // namespace beamd
