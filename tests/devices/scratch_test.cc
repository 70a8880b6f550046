#include "devices/scratch.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "devices/cpu/device.h"
#include "engine/dtype/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Lt;

template <typename T>
std::vector<T> Filled(Scalar scalar, int64_t count, int32_t slot = 0, uint64_t seed = 0) {
  std::vector<T> elements(count);
  FillSeeded(scalar, count, slot, seed, elements.data());
  return elements;
}

template <typename T>
size_t Distinct(const std::vector<T>& elements) {
  return std::set<T>(elements.begin(), elements.end()).size();
}

TEST(FillSeeded, StaysInItsRangeAndUsesAllOfIt) {
  const std::vector<float> f32 = Filled<float>(Scalar::kFloat32, 100000);
  EXPECT_THAT(f32, Each(AllOf(Ge(-1), Lt(1))));
  EXPECT_GT(Distinct(f32), 99000u);
  EXPECT_THAT(Filled<double>(Scalar::kFloat64, 1000), Each(AllOf(Ge(-1), Lt(1))));
  const std::vector<int16_t> i16 = Filled<int16_t>(Scalar::kInt16, 100000);
  EXPECT_THAT(i16, Each(AllOf(Ge(-100), Le(100))));
  EXPECT_EQ(Distinct(i16), 201u);
  const std::vector<uint8_t> u8 = Filled<uint8_t>(Scalar::kUint8, 100000);
  EXPECT_THAT(u8, Each(Le(200)));
  EXPECT_EQ(Distinct(u8), 201u);
  const std::vector<uint8_t> bools = Filled<uint8_t>(Scalar::kBool, 100000);
  EXPECT_THAT(bools, Each(Le(1)));
  EXPECT_EQ(Distinct(bools), 2u);
}

TEST(FillSeeded, IsAFunctionOfSeedSlotAndPlace) {
  const std::vector<float> all = Filled<float>(Scalar::kFloat32, 50000, 1, 2);
  const std::vector<float> first = Filled<float>(Scalar::kFloat32, 7, 1, 2);
  EXPECT_EQ(first, std::vector<float>(all.begin(), all.begin() + 7));
  EXPECT_NE(Filled<float>(Scalar::kFloat32, 7, 2, 2), first);
  EXPECT_NE(Filled<float>(Scalar::kFloat32, 7, 1, 3), first);
}

// An index that is off by a row is seen, however long rows are.
TEST(FillSeeded, DoesNotRepeatItself) {
  const std::vector<float> all = Filled<float>(Scalar::kFloat32, 1 << 18);
  for (const size_t apart : {1, 3, 64, 1000, 4096, 8192, 12288, 65536}) {
    size_t alike = 0;
    double product = 0;
    for (size_t i = apart; i < all.size(); ++i) {
      alike += all[i] == all[i - apart] ? 1 : 0;
      product += double{all[i]} * all[i - apart];
    }
    EXPECT_LT(alike, 10u) << apart;
    // Unrelated numbers: the mean of products of numbers in [-1, 1).
    EXPECT_LT(std::abs(product / static_cast<double>(all.size())), 0.05) << apart;
  }
}

class Scratch : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = *OpenCpuDevice();
  const KernelImage::Buffer uses_[3] = {
      {.slot = 0, .scalar = Scalar::kInt32, .size_elements = 100, .read = false, .written = true},
      {.slot = 1, .scalar = Scalar::kInt32, .size_elements = 100, .read = true, .written = true},
      {.slot = 2, .scalar = Scalar::kInt32, .size_elements = 100, .read = true, .written = false}};
  ScratchBuffers scratch_ = *ScratchBuffers::Create(*device_, uses_, 5);
};

TEST_F(Scratch, HoldsAPatternWhereOnlyOutputsGoAndSeededValuesElsewhere) {
  int32_t pattern = 0;
  std::memcpy(&pattern, scratch_.Pattern(0), sizeof(pattern));
  for (const size_t i : {0, 1, 2}) {
    std::vector<int32_t> want = Filled<int32_t>(Scalar::kInt32, 100, uses_[i].slot, 5);
    if (i == 0) want.assign(100, pattern);
    const std::string bytes(reinterpret_cast<const char*>(want.data()), 400);
    EXPECT_EQ(*scratch_.Content(i), bytes) << i;
    EXPECT_EQ(scratch_.Initial(i), bytes) << i;
  }
  EXPECT_EQ(scratch_.Pattern(1), nullptr);
  EXPECT_EQ(scratch_.Pattern(2), nullptr);
}

TEST_F(Scratch, WhatWasTakenStaysWhileOthersAreWritten) {
  const std::string ones(400, 1), twos(400, 2);
  for (const size_t i : {0, 1}) {
    ASSERT_TRUE(scratch_.pointers()[i]->Write(0, std::as_bytes(std::span(ones))).ok());
  }
  const Buffer* const read = scratch_.pointers()[2];
  const absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> taken = scratch_.TakeWritten();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)[2], nullptr);
  EXPECT_EQ(scratch_.pointers()[2], read);
  ASSERT_TRUE(scratch_.Reset().ok());
  EXPECT_TRUE(scratch_.CheckGuards().ok());
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(*scratch_.Content(i), scratch_.Initial(i)) << i;
    ASSERT_TRUE(scratch_.pointers()[i]->Write(0, std::as_bytes(std::span(twos))).ok());
    std::string storage;
    const absl::StatusOr<const void*> kept = scratch_.View(*(*taken)[i], i, storage);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(std::memcmp(*kept, ones.data(), ones.size()), 0) << i;
  }
}

TEST_F(Scratch, SeesAWriteBehindABuffersEnd) {
  EXPECT_TRUE(scratch_.CheckGuards().ok());
  const std::string byte(1, 0);
  ASSERT_TRUE(scratch_.pointers()[1]->Write(400, std::as_bytes(std::span(byte))).ok());
  EXPECT_TRUE(absl::IsOutOfRange(scratch_.CheckGuards()));
}

TEST_F(Scratch, SeesAWriteBeforeABuffersBegin) {
  static_cast<char*>(scratch_.pointers()[1]->mapped())[-1] = 0;
  EXPECT_TRUE(absl::IsOutOfRange(scratch_.CheckGuards()));
}

}  // namespace
}  // namespace beamd
