#include "server/metrics/metrics.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, CountsCallsByMethodAndCode) {
  Metrics metrics;
  metrics.CallEnded("Tuner.Lookup", "OK", absl::Microseconds(300));
  metrics.CallEnded("Tuner.Lookup", "OK", absl::Seconds(20));
  metrics.CallEnded("Tuner.Tune", "CANCELLED", absl::Seconds(1));
  const std::string text = metrics.Scrape();
  EXPECT_THAT(text, HasSubstr("# TYPE beamd_requests_total counter"));
  EXPECT_THAT(text, HasSubstr("beamd_requests_total{code=\"OK\",method=\"Tuner.Lookup\"} 2"));
  EXPECT_THAT(text, HasSubstr("beamd_requests_total{code=\"CANCELLED\",method=\"Tuner.Tune\"} 1"));
  EXPECT_THAT(text, HasSubstr("beamd_request_duration_seconds_bucket{code=\"OK\",method=\"Tuner."
                              "Lookup\",le=\"0.0005\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("beamd_request_duration_seconds_count{code=\"OK\",method=\"Tuner.Lookup\"} "
                        "2"));
}

TEST(Metrics, CountsCandidatesDevicesAndTheStore) {
  Metrics metrics;
  metrics.CandidateEnded("failed", "compile_timeout");
  metrics.CacheAnswered("strict");
  metrics.Compiled(absl::Milliseconds(4));
  metrics.Ran("cpu:0", absl::Milliseconds(250));
  metrics.Ran("cpu:0", absl::Milliseconds(250));
  metrics.StoreUsed("write", absl::Milliseconds(2));
  const std::string text = metrics.Scrape();
  EXPECT_THAT(text,
              HasSubstr("beamd_candidates_total{outcome=\"failed\",reason=\"compile_timeout\"} 1"));
  EXPECT_THAT(text, HasSubstr("beamd_cache_answers_total{match=\"strict\"} 1"));
  EXPECT_THAT(text, HasSubstr("beamd_compile_duration_seconds_bucket{le=\"0.005\"} 1"));
  EXPECT_THAT(text, HasSubstr("beamd_device_busy_seconds_total{device=\"cpu:0\"} 0.5"));
  EXPECT_THAT(text,
              HasSubstr("beamd_store_operation_duration_seconds_count{operation=\"write\"} 1"));
}

TEST(Metrics, AsksItsSourcesAtEachScrape) {
  Metrics metrics;
  double length = 1;
  metrics.AddSource([&](std::vector<Sample>& out) {
    out.push_back({.name = "beamd_queue_length", .help = "Jobs that wait.", .value = length});
    for (const char* reason : {"crash", "timeout"}) {
      out.push_back({.name = "beamd_children_replaced_total",
                     .help = "Children replaced.",
                     .kind = Sample::kCounter,
                     .labels = {{"reason", reason}},
                     .value = 3});
    }
  });
  EXPECT_THAT(metrics.Scrape(), HasSubstr("beamd_queue_length 1\n"));
  length = 2;
  const std::string text = metrics.Scrape();
  EXPECT_THAT(text, HasSubstr("beamd_queue_length 2\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE beamd_children_replaced_total counter\n"
                              "beamd_children_replaced_total{reason=\"crash\"} 3"));
}

TEST(Metrics, AreCountedFromManyThreads) {
  Metrics metrics;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) metrics.CallEnded("Tuner.Lookup", "OK", absl::Seconds(0));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(metrics.Scrape(), HasSubstr("method=\"Tuner.Lookup\"} 4000\n"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("Tuner.Tune")));
}

}  // namespace
}  // namespace beamd
