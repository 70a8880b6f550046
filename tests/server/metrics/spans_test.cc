#include "server/metrics/spans.h"

#include <cstdio>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(SpanFile, WritesOtlpsNames) {
  const std::string path = ::testing::TempDir() + "spans";
  std::remove(path.c_str());
  const auto file = SpanFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Write({.trace = "0af7",
                  .id = "01",
                  .parent = "",
                  .name = "Tuner.Lookup",
                  .begin = absl::FromUnixNanos(5),
                  .end = absl::FromUnixNanos(7),
                  .code = "OK"});
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}),
            R"({"traceId":"0af7","spanId":"01","parentSpanId":"","name":"Tuner.Lookup",)"
            R"("startTimeUnixNano":"5","endTimeUnixNano":"7","code":"OK"})"
            "\n");
  EXPECT_FALSE(SpanFile::Open("/nonexistent/spans").ok());
}

}  // namespace
}  // namespace beamd
