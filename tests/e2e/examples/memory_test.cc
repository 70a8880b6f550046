// Whose memory an output is: its own, but for what is named or assigned to.
#include <cstdint>
#include <vector>

#include "client/thin/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

using ::testing::ElementsAre;

class MemoryTest : public ::testing::Test {
 protected:
  std::vector<float> Values(const Tensor& t) {
    const absl::StatusOr<std::vector<float>> values = t.ToVector<float>(*session_);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<float>();
  }
  absl::Status Computed(const std::vector<Tensor>& tensors) {
    return Compute(*session_, tensors).status();
  }
  static uint64_t Handle(const Tensor& t) {
    return t.buffer() == nullptr ? 0 : t.buffer()->handle();
  }

  const std::unique_ptr<Session> session_ = testing::ExampleSession();
  const Tensor x_ = Tensor::From<float>({1, 2, 3, 4}, {4});
};

TEST_F(MemoryTest, OfAGradientIsItsOwn) {
  const Tensor y = Tensor::From<float>({5, 6, 7, 8}, {4});
  const absl::StatusOr<RunReport> report =
      Compute(*session_, {(x_ * y).Sum()}, {.gradients_of = {x_, y}});
  ASSERT_TRUE(report.ok()) << report.status();
  // The values are the other factor's, the memory isn't.
  EXPECT_NE(Handle(report->gradients[0]), Handle(y));
  EXPECT_NE(Handle(report->gradients[1]), Handle(x_));
  ASSERT_TRUE(Computed({y.Assign(y * 0)}).ok());
  EXPECT_THAT(Values(report->gradients[0]), ElementsAre(5, 6, 7, 8));
}

TEST_F(MemoryTest, OfEqualOutputsIsEachItsOwn) {
  const Tensor a = x_ + 1, b = x_ + 1, moved = x_.Reshape({2, 2});
  const absl::Status status = Computed({a, b, moved});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_NE(Handle(a), Handle(b));
  EXPECT_NE(Handle(moved), Handle(x_));
  ASSERT_TRUE(Computed({a.Assign(0), x_.Assign(0)}).ok());
  EXPECT_THAT(Values(b), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Values(moved), ElementsAre(1, 2, 3, 4));
}

TEST_F(MemoryTest, OfAPartIsACopy) {
  const Tensor matrix = Tensor::Arange(32, 0, 1, kFloat32).Reshape({2, 16}).Contiguous();
  const Tensor twice = matrix * 2;
  // Consecutive elements of something that is an output itself, of something that isn't, of memory.
  const Tensor of_output = twice.Slice(0, 1, 2),
               of_other = (matrix + 1).Contiguous().Slice(0, 1, 2);
  absl::Status status = Computed({twice, of_output, of_other, matrix});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Values(of_output)[15], 62);
  EXPECT_EQ(Values(of_other)[0], 17);
  const Tensor of_memory = matrix.Slice(0, 1, 2), flipped = matrix.Flip({1});
  status = Computed({of_memory, flipped});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(Computed({matrix.Assign(-1), twice.Assign(-1)}).ok());
  EXPECT_EQ(Values(of_memory)[3], 19);
  EXPECT_EQ(Values(flipped)[0], 15);
  EXPECT_EQ(Values(of_output)[0], 32);
}

TEST_F(MemoryTest, OfWhatIsAssignedToIsThat) {
  ASSERT_TRUE(Computed({x_}).ok());
  const Tensor part = x_.Reshape({2, 2}).Slice(1, 1, 2).Assign(9), after = part + 1;
  const absl::Status status = Computed({part, after});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(Values(x_), ElementsAre(1, 9, 3, 9));
  EXPECT_THAT(Values(part), ElementsAre(9, 9));
  EXPECT_THAT(Values(after), ElementsAre(10, 10));
}

}  // namespace
}  // namespace beamd::thin
