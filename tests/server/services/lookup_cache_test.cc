#include "server/services/lookup_cache.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using Cache = LookupCache<std::string>;

Cache::Answer Make(const std::string& bytes) {
  return {bytes, std::make_shared<const Matches>(Matches{"strict"})};
}

TEST(LookupCache, AnswersAsLongAsNothingIsWritten) {
  Cache cache(1 << 20);
  const Digest a = HashBytes("a");
  EXPECT_FALSE(cache.Find(a, 7));
  cache.Put(a, 7, Make("answer"), 6);
  ASSERT_TRUE(cache.Find(a, 7));
  EXPECT_EQ(cache.Find(a, 7)->bytes, "answer");
  EXPECT_EQ(cache.Find(a, 7)->matches->front(), "strict");
  EXPECT_FALSE(cache.Find(HashBytes("b"), 7));
  EXPECT_FALSE(cache.Find(a, 8));
}

TEST(LookupCache, ForgetsWhatIsOld) {
  Cache cache(1 << 20);
  const Digest a = HashBytes("a");
  const Digest b = HashBytes("b");
  cache.Put(a, 7, Make("old"), 3);
  cache.Put(b, 8, Make("new"), 3);
  EXPECT_FALSE(cache.Find(a, 7));
  EXPECT_FALSE(cache.Find(a, 8));
  // It was being made when the record was written.
  cache.Put(a, 7, Make("late"), 4);
  EXPECT_FALSE(cache.Find(a, 8));
  EXPECT_TRUE(cache.Find(b, 8));
}

TEST(LookupCache, KeepsWhatIsAskedForWithinItsBytes) {
  Cache cache(100 * 512);
  const Digest hot = HashBytes("hot");
  cache.Put(hot, 1, Make("hot"), 256);
  for (int i = 0; i < 1000; ++i) {
    cache.Put(HashBytes(absl::StrCat(i)), 1, Make("cold"), 256);
    ASSERT_TRUE(cache.Find(hot, 1)) << i;
    ASSERT_LE(cache.bytes(), 100 * 512);
  }
  EXPECT_FALSE(cache.Find(HashBytes("0"), 1));
  EXPECT_TRUE(cache.Find(HashBytes("999"), 1));
  cache.Put(HashBytes("huge"), 1, Make("huge"), 1 << 20);
  EXPECT_FALSE(cache.Find(HashBytes("huge"), 1));
  EXPECT_TRUE(cache.Find(hot, 1));
}

}  // namespace
}  // namespace beamd
