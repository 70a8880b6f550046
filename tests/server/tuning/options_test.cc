#include "server/tuning/options.h"

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/error_detail.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(DefaultSearchOptions, SetsEveryField) {
  const v1::SearchOptions options = DefaultSearchOptions();
  const auto& fields = *v1::SearchOptions::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    EXPECT_TRUE(options.GetReflection()->HasField(options, fields.field(i)))
        << fields.field(i)->name();
  }
}

TEST(ResolveOptions, TakesTheRequestsValuesAndZeroIsOne) {
  v1::SearchOptions request;
  request.set_width(0);
  request.set_padto(false);
  request.mutable_compile_timeout()->set_nanos(500);
  const v1::SearchOptions options = *ResolveOptions(request, DefaultSearchOptions());
  EXPECT_EQ(options.width(), 0);
  EXPECT_FALSE(options.padto());
  EXPECT_EQ(options.compile_timeout().seconds(), 0);
  EXPECT_EQ(options.compile_timeout().nanos(), 500);
  EXPECT_EQ(options.uops_max(), 3000);
}

TEST(ResolveOptions, TakesTheServersDefaults) {
  v1::SearchOptions defaults = DefaultSearchOptions();
  defaults.set_width(8);
  EXPECT_EQ(ResolveOptions({}, defaults)->width(), 8);
}

TEST(ResolveOptions, NamesTheFieldThatIsOutOfRange) {
  v1::SearchOptions request;
  request.set_width(100000);
  const absl::Status status = ResolveOptions(request, DefaultSearchOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->field, "search.width");
  EXPECT_EQ(detail->limit, 1024);
  EXPECT_EQ(detail->value, 100000);

  request.Clear();
  request.mutable_compile_timeout();
  EXPECT_FALSE(ResolveOptions(request, DefaultSearchOptions()).ok());
  request.Clear();
  request.set_min_progress_us(-1);
  EXPECT_FALSE(ResolveOptions(request, DefaultSearchOptions()).ok());
}

TEST(ResolveBudget, TakesWhatIsATime) {
  v1::TuneRequest request;
  EXPECT_EQ(*ResolveBudget(request), absl::InfiniteDuration());
  request.mutable_budget();
  EXPECT_EQ(*ResolveBudget(request), absl::ZeroDuration());
  request.mutable_budget()->set_seconds(INT64_MAX);
  EXPECT_GT(*ResolveBudget(request), absl::Hours(1));
  EXPECT_GT(absl::Now() + *ResolveBudget(request), absl::Now() + absl::Hours(1));
  request.mutable_budget()->set_seconds(-1);
  EXPECT_EQ(GetErrorDetail(ResolveBudget(request).status())->field, "budget");
  request.mutable_budget()->set_seconds(1);
  for (const int32_t nanos : {-1, 1'000'000'000}) {
    request.mutable_budget()->set_nanos(nanos);
    EXPECT_FALSE(ResolveBudget(request).ok()) << nanos;
  }
}

TEST(ResolveOptions, RefusesNanosOfMoreThanASecond) {
  v1::SearchOptions request;
  request.mutable_compile_timeout()->set_nanos(2'000'000'000);
  EXPECT_FALSE(ResolveOptions(request, DefaultSearchOptions()).ok());
}

TEST(KeyOptions, LeavesOutWhatChangesNoResult) {
  v1::SearchOptions a = DefaultSearchOptions();
  v1::SearchOptions b = a;
  b.set_debug(2);
  b.set_parallel(3);
  b.set_strict(true);
  EXPECT_EQ(KeyOptions(a).SerializeAsString(), KeyOptions(b).SerializeAsString());
  b.set_width(9);
  EXPECT_NE(KeyOptions(a).SerializeAsString(), KeyOptions(b).SerializeAsString());
}

}  // namespace
}  // namespace beamd
