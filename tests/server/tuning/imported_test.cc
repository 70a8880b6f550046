#include "server/tuning/imported.h"

#include <limits>

#include "engine/base/error_detail.h"
#include "gtest/gtest.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

class Imported : public ::testing::Test {
 protected:
  void SetUp() override {
    record_.set_kernel_hash(kernel_.hash.Hex());
    record_.mutable_search()->set_width(3);
    record_.mutable_environment()->set_arch("znver3");
    const absl::StatusOr<v1::SearchOptions> search =
        ResolveOptions(record_.search(), DefaultSearchOptions());
    ASSERT_TRUE(search.ok()) << search.status();
    record_.set_key(HashTuningKey(kernel_.hash, KeyOptions(*search), record_.environment()).Hex());
    record_.set_best_s(1e-5);
    record_.mutable_verification()->set_verified(true);
  }
  // The field that is at fault; empty: none.
  std::string FieldOf(const v1::Record& record) {
    const absl::Status status = CheckImported(record, kernel_);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return GetErrorDetail(status)->field;
  }

  const ParsedKernel kernel_ = *ParseKernel(testing::AddKernel(64));
  v1::Record record_;
};

TEST_F(Imported, ARecordThatIsWhatItSaysIsTaken) { EXPECT_EQ(FieldOf(record_), ""); }

TEST_F(Imported, AnotherKernelsRecordIsRefused) {
  record_.set_kernel_hash(ParseKernel(testing::AddKernel(65))->hash.Hex());
  EXPECT_EQ(FieldOf(record_), "record.kernel_hash");
}

TEST_F(Imported, TheKeyIsOfItsOptionsAndItsPlace) {
  v1::Record other = record_;
  other.mutable_search()->set_width(4);
  EXPECT_EQ(FieldOf(other), "record.key");
  other = record_;
  other.mutable_environment()->set_arch("znver4");
  EXPECT_EQ(FieldOf(other), "record.key");
  other = record_;
  other.set_key(std::string(64, '0'));
  EXPECT_EQ(FieldOf(other), "record.key");
}

TEST_F(Imported, WhatWasNeverTimedOrCheckedIsRefused) {
  for (const double seconds :
       {0.0, -1.0, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::denorm_min()}) {
    v1::Record other = record_;
    other.set_best_s(seconds);
    EXPECT_EQ(FieldOf(other), "record.best_s") << seconds;
  }
  record_.mutable_verification()->set_verified(false);
  EXPECT_EQ(FieldOf(record_), "record.verification");
}

TEST_F(Imported, OptionsOutOfRangeAreRefused) {
  record_.mutable_search()->set_tc(17);
  EXPECT_FALSE(CheckImported(record_, kernel_).ok());
}

}  // namespace
}  // namespace beamd
