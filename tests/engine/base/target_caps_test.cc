#include "engine/base/target_caps.h"

#include "absl/status/status.h"
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

TEST(CudaTarget, TakesTheNewestPtxOfTheDriver) {
  EXPECT_EQ(CudaTarget(8, 0, 11080)->features, "+ptx78");
  EXPECT_EQ(CudaTarget(9, 0, 12040)->features, "+ptx84");
  EXPECT_EQ(CudaTarget(9, 0, 12060)->features, "+ptx85");
  EXPECT_EQ(CudaTarget(9, 0, 13010)->features, "+ptx90");
  EXPECT_EQ(CudaTarget(9, 0, 13010)->arch, "sm_90");
}

TEST(CudaTarget, RefusesADriverOlderThanTheGpu) {
  EXPECT_TRUE(absl::IsUnavailable(CudaTarget(9, 0, 11070).status()));
  EXPECT_TRUE(CudaTarget(9, 0, 11080).ok());
  EXPECT_TRUE(absl::IsUnavailable(CudaTarget(12, 0, 12070).status()));
  EXPECT_TRUE(absl::IsUnavailable(CudaTarget(7, 0, 8000).status()));
  EXPECT_TRUE(absl::IsUnavailable(CudaTarget(3, 5, 12000).status()));
}

TEST(ComputeCapability, IsInTheNameOfAnNvidiaGpu) {
  EXPECT_EQ(ComputeCapability("sm_75"), 75);
  EXPECT_EQ(ComputeCapability("sm_120"), 120);
  for (const char* other : {"", "sm_", "sm_-8", "sm_90a", "gfx1100", "80"}) {
    EXPECT_EQ(ComputeCapability(other), 0) << other;
  }
}

TEST(HipTarget, NamesTheArchitectureAlone) {
  EXPECT_EQ(HipTarget("gfx90a:sramecc+:xnack-", 6)->arch, "gfx90a");
  EXPECT_EQ(HipTarget("gfx90a:sramecc+:xnack-", 6)->wave_size, 64);
  EXPECT_EQ(HipTarget("gfx1100", 6)->wave_size, 32);
  EXPECT_TRUE(absl::IsUnavailable(HipTarget("", 6).status()));
}

TEST(HipTarget, WritesCodeObjectsThatTheRuntimeReads) {
  EXPECT_EQ(HipTarget("gfx90a", 5)->code_object_version, 4);
  EXPECT_EQ(HipTarget("gfx90a", 6)->code_object_version, 5);
}

}  // namespace
}  // namespace beamd
