#include "server/workers/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace beamd {
namespace {

using ::testing::ElementsAre;

TEST(Codec, CapsArriveAsTheyWere) {
  std::vector<TargetCaps> all;
  for (const TargetKind kind : {TargetKind::kCpu, TargetKind::kCuda, TargetKind::kHip}) {
    all.push_back(CorpusTarget(kind));
  }
  // None of its fields at its default.
  all.push_back({.kind = TargetKind::kCuda,
                 .arch = "sm_90",
                 .features = "+ptx84",
                 .has_local = true,
                 .has_shared = true,
                 .shared_bytes = 1,
                 .global_max = {{2, 3, 4}},
                 .local_max = {{5, 6, 7}},
                 .vector_bytes = 8,
                 .wave_size = 9,
                 .code_object_version = 10,
                 .code_form = CodeForm::kBitcode,
                 .tensor_cores = TensorCoreUse::kShapes,
                 .allow_tf32 = true});
  for (const TargetCaps& caps : all) EXPECT_EQ(FromFrame(ToFrame(caps)), caps) << caps.arch;
}

TEST(Codec, OptsArriveWithWhatTheyLeaveOut) {
  const std::vector<Opt> opts = {{OptOp::kTc, 0, 2}, {OptOp::kSwap, 1, 3}, {OptOp::kNoLocals}};
  EXPECT_EQ(FromWire(ToWire(opts)), opts);
}

TEST(Codec, ImagesArriveAsTheyWere) {
  const KernelImage image{
      .kind = TargetKind::kHip,
      .code = std::string("\0code", 5),
      .entry = "kernel",
      .buffers = {{.slot = 0, .scalar = Scalar::kFloat16, .size_elements = 7, .written = true},
                  {.slot = 2, .scalar = Scalar::kInt64, .size_elements = 1, .read = true}},
      .variables = {{.name = "n", .min = 1, .max = 9}},
      .slices = 3,
      .global_size = {4, 5, 6},
      .local_size = {32, 2, 1},
      .shared_bytes = 1024,
      .uop_count = 77,
      .compute_ops = 1.5,
      .bytes = 2.5};
  const KernelImage arrived = FromFrame(ToFrame(image));
  EXPECT_EQ(arrived.Hash(), image.Hash());
  EXPECT_EQ(arrived.code, image.code);
  EXPECT_EQ(arrived.entry, "kernel");
  ASSERT_EQ(arrived.buffers.size(), 2u);
  EXPECT_TRUE(arrived.buffers[0].written);
  EXPECT_FALSE(arrived.buffers[1].written);
  EXPECT_EQ(arrived.buffers[1].scalar, Scalar::kInt64);
  ASSERT_EQ(arrived.variables.size(), 1u);
  EXPECT_EQ(arrived.variables[0].max, 9);
  EXPECT_EQ(arrived.slices, 3);
  EXPECT_THAT(arrived.global_size, ElementsAre(4, 5, 6));
  EXPECT_THAT(arrived.local_size, ElementsAre(32, 2, 1));
  EXPECT_EQ(arrived.shared_bytes, 1024);
  EXPECT_EQ(arrived.uop_count, 77);
  EXPECT_EQ(arrived.compute_ops, 1.5);
  EXPECT_EQ(arrived.bytes, 2.5);
}

}  // namespace
}  // namespace beamd
