#include "engine/lower/streaming.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/engine/lower/lowered.h"

namespace beamd {
namespace {

using ::beamd::testing::Lowered;
using ::beamd::testing::Upcast;

// 64 MiB.
constexpr absl::string_view kLarge = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4096,4096) strides (4096,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4096,4096) strides (4096,1) offset 0 mask (0:4096,0:4095)]
%4 = LOAD float32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))";

// How many of the stores are streamed, "1 of 1".
std::string Streamed(const std::vector<std::pair<absl::string_view, absl::string_view>>& edits,
                     const std::vector<Opt>& opts) {
  const Lowered l(absl::StrReplaceAll(kLarge, edits), opts);
  const std::vector<bool>& streamed = l.program().streamed;
  const std::vector<UOp> stores = l.All(Op::kStore);
  int count = 0;
  for (const UOp u : stores) count += u.id() < streamed.size() && streamed[u.id()] ? 1 : 0;
  return absl::StrCat(count, " of ", stores.size());
}

TEST(MarkStreamedStores, OnesThatFillALargeBufferAreStreamed) {
  EXPECT_EQ(Streamed({}, {Upcast(1, 8)}), "1 of 1");
}

TEST(MarkStreamedStores, ABufferThatACacheKeepsIsNot) {
  EXPECT_EQ(Streamed({{"4096,4096", "1024,4096"}, {"0:4096,", "0:1024,"}}, {Upcast(1, 8)}),
            "0 of 1");
}

TEST(MarkStreamedStores, ABufferThatIsReadTooIsNot) {
  EXPECT_EQ(Streamed({{"(%2, %3)", "(%0, %3)"}}, {Upcast(1, 8)}), "0 of 1");
}

TEST(MarkStreamedStores, GuardedStoresLeaveGaps) {
  EXPECT_EQ(Streamed({{"(%0, %1, %4)", "(%0, %3, %4)"}}, {Upcast(1, 8)}), "0 of 1");
}

TEST(MarkStreamedStores, ALoopThatStepsOverWhatItDoesNotStoreLeavesGaps) {
  // Transposed: each of 8 at once is a row further.
  EXPECT_EQ(Streamed({{"view[shape (4096,4096) strides (4096,1) offset 0]",
                       "view[shape (4096,4096) strides (1,4096) offset 0]"}},
                     {Upcast(0, 8)}),
            "0 of 8");
  // Two rows at once: each turn fills a line of both, but not one after the other.
  EXPECT_EQ(Streamed({}, {Upcast(0, 2), Upcast(1, 8)}), "0 of 2");
}

}  // namespace
}  // namespace beamd
