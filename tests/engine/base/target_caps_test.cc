#include "engine/base/target_caps.h"

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(CpuTarget, ListsWhatIsThereFirst) {
  const TargetCaps caps = CpuTarget("some", {{"aes", false}, {"avx", true}, {"sse4.2", true}});
  EXPECT_EQ(caps.kind, TargetKind::kCpu);
  EXPECT_EQ(caps.arch, "some");
  EXPECT_EQ(caps.features, "+avx,+sse4.2,-aes");
}

TEST(CpuTarget, TakesTheWidestVectorThatIsThere) {
  EXPECT_EQ(CpuTarget("", {}).vector_bytes, 16);
  EXPECT_EQ(CpuTarget("", {{"avx", false}}).vector_bytes, 16);
  EXPECT_EQ(CpuTarget("", {{"avx", true}, {"avx512vl", false}}).vector_bytes, 32);
  EXPECT_EQ(CpuTarget("", {{"avx", true}, {"avx512vl", true}}).vector_bytes, 64);
}

}  // namespace
}  // namespace beamd
