#include "server/services/trace.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

constexpr char kId[] = "0af7651916cd43dd8448eb211c80319c";

TEST(TraceFromHeader, KeepsTheTraceAndMakesASpan) {
  const Trace trace = TraceFromHeader(std::string("00-") + kId + "-b7ad6b7169203331-00");
  EXPECT_EQ(trace.id, kId);
  EXPECT_NE(trace.span, "b7ad6b7169203331");
  EXPECT_EQ(trace.parent, "b7ad6b7169203331");
  EXPECT_FALSE(trace.sampled);
  EXPECT_EQ(trace.Header(), std::string("00-") + kId + "-" + trace.span + "-00");
  EXPECT_TRUE(TraceFromHeader(std::string("00-") + kId + "-b7ad6b7169203331-01").sampled);
}

TEST(TraceFromHeader, ReadsWhatLaterVersionsAppendTo) {
  EXPECT_EQ(TraceFromHeader(std::string("cc-") + kId + "-b7ad6b7169203331-01-more").id, kId);
}

TEST(TraceFromHeader, StartsOneWhereTheHeaderIsNone) {
  const std::string id(kId);
  for (const std::string& header : std::vector<std::string>{
           "", "00-", "00-" + id, "00-" + id + "-b7ad6b7169203331",
           "ff-" + id + "-b7ad6b7169203331-01", "00-" + id + "-b7ad6b7169203331-01-more",
           "00-" + id + "-b7ad6b716920333g-01", "00-" + id + "-0000000000000000-01",
           "00-" + std::string(32, '0') + "-b7ad6b7169203331-01",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}) {
    const Trace trace = TraceFromHeader(header);
    EXPECT_NE(trace.id, id) << header;
    EXPECT_EQ(trace.id.size(), 32) << header;
    // A header that is well formed itself.
    EXPECT_EQ(TraceFromHeader(trace.Header()).id, trace.id);
  }
  EXPECT_NE(TraceFromHeader("").id, TraceFromHeader("").id);
}

}  // namespace
}  // namespace beamd
