#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/tensor/tensor_testing.h"

namespace beamd::testing {
namespace {

using ::testing::HasSubstr;

class BackwardTest : public TensorTest {
 protected:
  Tensor Leaf(const Values& values, Scalar dtype = Scalar::kFloat32) {
    return Vector(values, dtype).set_requires_grad(true);
  }
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_F(BackwardTest, ReachesEveryLeafThatRequiresAGradient) {
  Tensor x = Leaf({1, 2, 3});
  Tensor w = Leaf({4, 5, 6});
  const Tensor data = Vector({7, 8, 9});
  ASSERT_TRUE((x * w * data).Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {28, 40, 54});
  ExpectNear(Read(w.grad()), {7, 16, 27});
  EXPECT_FALSE(data.grad().defined());
  EXPECT_FALSE(x.grad().requires_grad().value());
}

TEST_F(BackwardTest, AddsUpOverUsesAndOverCalls) {
  Tensor x = Leaf({3});
  ASSERT_TRUE((x * x + x).Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {7});
  ASSERT_TRUE((x * 2).Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {9});
  x.clear_grad();
  ASSERT_TRUE((x * 2).Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {2});
}

TEST_F(BackwardTest, TakesAGradientForWhatIsNoScalar) {
  Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  ASSERT_TRUE(y.Backward(Vector({10, 20})).ok());
  ExpectNear(Read(x.grad()), {30, 60});
  ExpectNear(Read(y.grad()), {10, 20});
}

TEST_F(BackwardTest, RequiringIsInheritedAsIn0100) {
  const Tensor undecided = Vector({1});
  const Tensor no = Vector({1}).set_requires_grad(false);
  const Tensor yes = Leaf({1});
  EXPECT_EQ((undecided + no).requires_grad(), std::nullopt);
  EXPECT_EQ((no + no).requires_grad(), false);
  EXPECT_EQ((undecided + yes).requires_grad(), true);
  EXPECT_EQ((undecided + 1).requires_grad(), std::nullopt);
  EXPECT_EQ(yes.Detach().requires_grad(), false);
}

TEST_F(BackwardTest, NothingIsRecordedUnderNoGrad) {
  Tensor x = Leaf({1, 2});
  context_.no_grad = true;
  const Tensor y = (x * 2).Sum();
  context_.no_grad = false;
  EXPECT_EQ(y.requires_grad(), true);
  ASSERT_TRUE(y.Backward().ok());
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(BackwardTest, TheRecordingIsFreedUnlessKept) {
  Tensor x = Leaf({2});
  const Tensor middle = x * x;
  const Tensor y = middle.Sum();
  ASSERT_TRUE(y.Backward(Tensor(), /*retain_graph=*/true).ok());
  ASSERT_TRUE(y.Backward().ok());
  ExpectNear(Read(x.grad()), {8});
  const absl::Status again = y.Backward();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(again), HasSubstr("backward: an earlier backward freed"));
  // Also where only a part below was freed.
  const absl::Status part = (middle * 2).Sum().Backward();
  EXPECT_EQ(part.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(part), HasSubstr("freed a part"));
  ExpectNear(Read(x.grad()), {8});
}

TEST_F(BackwardTest, FreeingTheRecordingFreesItsNodes) {
  const size_t before = context_.live_nodes();
  {
    Tensor x = Leaf({2});
    Tensor y = x;
    for (int i = 0; i < 50; ++i) y = (y * 1.5).Sin();
    ASSERT_TRUE(y.Sum().Backward().ok());
  }
  EXPECT_EQ(context_.live_nodes(), before);
}

TEST_F(BackwardTest, ConditionsPassNothingOn) {
  Tensor x = Leaf({-1, 2});
  ASSERT_TRUE(x.Gt(0).Where(x, x * 10).Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {10, 1});
}

TEST_F(BackwardTest, ErrorsSayWhatIsMissing) {
  Tensor x = Leaf({1, 2});
  const auto check = [](const absl::Status& status, absl::StatusCode code, const std::string& why) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(Message(status), "backward: " + why);
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  check((x * 2).Backward(), kInvalid, "a tensor of shape (2) is no scalar and needs a gradient");
  check(Vector({1}, Scalar::kInt32).set_requires_grad(true).Sum().Backward(), kInvalid,
        "a value of int32 has no gradient");
  check(Vector({1}).Sum().Backward(), kPrecondition,
        "nothing is recorded: no input requires a gradient");
  check((x * 2).Backward(Vector({1, 2, 3})), kInvalid,
        "a gradient of shape (3) for a tensor of (2)");
  check((x * 2).Backward(Vector({1, 2}, Scalar::kFloat64)), kInvalid,
        "a gradient of float64 for a tensor of float32");
  check(x.Int().Idiv(2).Float().Sum().Backward(), absl::StatusCode::kUnimplemented,
        "IDiv has no gradient");
  check(x.Int().Xor(2).Float().Sum().Backward(), absl::StatusCode::kUnimplemented,
        "Xor has no gradient");
  x.set_grad(Vector({1, 2, 3}));
  EXPECT_EQ((x * 2).Sum().Backward().code(), kInvalid);
}

TEST_F(BackwardTest, AFailedBackwardChangesNoGradient) {
  Tensor x = Leaf({1, 2});
  Tensor y = Leaf({3, 4});
  const Tensor loss = (x.Int().Idiv(2).Float() + y).Sum();
  EXPECT_FALSE(loss.Backward().ok());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
}

TEST_F(BackwardTest, GradientLeavesGradsAlone) {
  Tensor x = Leaf({1, 2});
  Tensor y = Leaf({3, 4});
  const Tensor product = x * y;
  const Tensor loss = product.Square().Sum();
  const std::vector<Tensor> targets = {y, product, x};
  const absl::StatusOr<std::vector<Tensor>> gradients = loss.Gradient(targets);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ExpectNear(Read((*gradients)[0]), {6, 32});
  ExpectNear(Read((*gradients)[1]), {6, 16});
  ExpectNear(Read((*gradients)[2]), {18, 64});
  EXPECT_FALSE(x.grad().defined());
  // Nothing is freed.
  ASSERT_TRUE(loss.Gradient(targets).ok());
  const Tensor stranger = Vector({1});
  EXPECT_EQ(Message(loss.Gradient({&stranger, 1}).status()),
            "gradient: no gradient reaches target 0, which does not require one");
  const Tensor integer = Vector({1}, Scalar::kInt32);
  EXPECT_THAT(Message(loss.Gradient({&integer, 1}).status()),
              HasSubstr("gradient: target 0 is of int32"));
}

TEST_F(BackwardTest, CopiesPassGradientsToWhatTheyCopied) {
  Tensor x = Leaf({1, 2});
  ASSERT_TRUE((x * 2).Clone().Sum().Backward().ok());
  ExpectNear(Read(x.grad()), {2, 2});
  x.clear_grad();
  ASSERT_TRUE((x * 3).To("cpu:1").Sum().Backward().ok());
  EXPECT_EQ(x.grad().device(), "cpu:0");
  ExpectNear(Read(x.grad()), {3, 3});
  // The copy of a leaf is a leaf of its own.
  x.clear_grad();
  Tensor copy = x.Clone();
  ASSERT_TRUE((copy * 5).Sum().Backward().ok());
  EXPECT_FALSE(x.grad().defined());
  ExpectNear(Read(copy.grad()), {5, 5});
}

TEST_F(BackwardTest, GradientsOfSymbolicShapes) {
  const UOp n = context_.Variable("n", 1, 4);
  ASSERT_TRUE(context_.Bind(n, 3).ok());
  Tensor x = Make({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}).set_requires_grad(true);
  Tensor w = Make({10, 20}, {2, 1}).set_requires_grad(true);
  const Tensor part = x.Shrink({std::nullopt, {{0, SInt(n)}}});
  const Tensor loss = (part * part * w).Sum();
  const absl::Status status = loss.Backward();
  ASSERT_TRUE(status.ok()) << status;
  ExpectNear(Read(loss), {10 * (1 + 4 + 9) + 20 * (25 + 36 + 49)});
  ExpectNear(Read(x.grad()), {20, 40, 60, 0, 200, 240, 280, 0});
  ExpectNear(Read(w.grad()), {14, 110});
  EXPECT_FALSE((part + x).ok());
}

TEST_F(BackwardTest, ChainsOf20000NeedNoStack) {
  constexpr int kDepth = 20000;
  Tensor x = Leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) y = y + x;
    ASSERT_TRUE(y.Sum().Backward().ok());
  }
  ASSERT_TRUE(x.grad().ok());
  ExpectNear(Read(x.grad()), {kDepth + 1.0});
  x.clear_grad();
  {
    // Dropped without a backward.
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) y = y.Sin();
  }
  {
    // A chain of gradients that are no longer leaves of anything.
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) {
      Tensor next = Vector({1});
      next.set_grad(y);
      y = next;
    }
  }
}

}  // namespace
}  // namespace beamd::testing
