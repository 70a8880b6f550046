// The updates' values are checked against NumPy in golden_test.cc.
#include "engine/tensor/nn/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/schedule/schedule.h"
#include "engine/tensor/nn/layers.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Optimizer, TakesEachParameterOnceAndLeavesBuffers) {
  LazyContext context;
  const Tensor a = Tensor::Ones(context, {2});
  const Tensor frozen = Tensor::Ones(context, {2}, {.requires_grad = false});
  const std::unique_ptr<LARS> optimizer = SGD({a, frozen, a, Tensor(), frozen});
  ASSERT_EQ(optimizer->params().size(), 1U);
  EXPECT_TRUE(optimizer->params()[0].is(a));
  EXPECT_EQ(a.requires_grad(), true);
  ASSERT_EQ(optimizer->buffers().size(), 1U);
  EXPECT_TRUE(optimizer->buffers()[0].is(frozen));
}

TEST(Optimizer, MistakesAreToldByStep) {
  testing::LazyRuntime lazy;
  EXPECT_EQ(SGD({})->Step().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Adam({})->Step().code(), absl::StatusCode::kInvalidArgument);

  Tensor a = Tensor::Ones(lazy.context, {2});
  const std::unique_ptr<LAMB> optimizer = Adam({a});
  EXPECT_THAT(optimizer->Step().message(), HasSubstr("parameter 0 has no gradient"));
  a.set_grad(Tensor::Ones(lazy.context, {3}));
  EXPECT_THAT(optimizer->Step().message(), HasSubstr("another shape"));
  a.set_grad(Tensor::Ones(lazy.context, {2}));
  EXPECT_THAT(optimizer->Step().message(), HasSubstr("not training"));
  lazy.context.training = true;
  EXPECT_TRUE(optimizer->Step().ok());
  optimizer->ZeroGrad();
  EXPECT_EQ(optimizer->Step().code(), absl::StatusCode::kFailedPrecondition);

  const std::unique_ptr<LARS> broken = SGD({Tensor::Failed(absl::InvalidArgumentError("why"))});
  EXPECT_THAT(broken->Step().message(), HasSubstr("why"));
}

TEST(Optimizer, TheRateCanChange) {
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  Tensor a = Tensor::Ones(lazy.context, {2});
  const std::unique_ptr<LARS> optimizer = SGD({a}, {.lr = 0.5});
  a.set_grad(Tensor::Ones(lazy.context, {2}));
  ASSERT_TRUE(optimizer->Step().ok());
  EXPECT_THAT(*a.ToVector<float>(), ElementsAre(0.5, 0.5));
  optimizer->lr.Assign(optimizer->lr * 0.5);
  ASSERT_TRUE(optimizer->Step().ok());
  EXPECT_THAT(*a.ToVector<float>(), ElementsAre(0.25, 0.25));
}

TEST(Optimizer, HalfFloatsStayHalfFloats) {
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  const TensorOptions half = {.dtype = Scalar::kFloat16};
  Tensor a = Tensor::Ones(lazy.context, {2}, half);
  const std::vector<Tensor> params = {a};
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  optimizers.push_back(SGD(params, {.lr = 0.25, .momentum = 0.5}));
  optimizers.push_back(SGD(params, {.lr = 0.25, .momentum = 0.5, .classic = true}));
  optimizers.push_back(std::make_unique<LARS>(params));
  optimizers.push_back(Adam(params));
  optimizers.push_back(std::make_unique<LAMB>(params));
  for (const auto& optimizer : optimizers) {
    a.set_grad(Tensor::Ones(lazy.context, {2}, half));
    for (int step = 0; step < 2; ++step) {
      const absl::Status stepped = optimizer->Step();
      ASSERT_TRUE(stepped.ok()) << stepped;
    }
    EXPECT_EQ(a.dtype(), Scalar::kFloat16);
  }
  EXPECT_LT(*a.Get({0}).Float().Item<float>(), 0);
}

TEST(OptimizerGroup, StepsAsOne) {
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  Tensor a = Tensor::Ones(lazy.context, {1});
  Tensor b = Tensor::Ones(lazy.context, {1});
  std::vector<std::unique_ptr<Optimizer>> parts;
  parts.push_back(SGD({a}, {.lr = 0.5}));
  parts.push_back(SGD({b}, {.lr = 0.25}));
  OptimizerGroup group(std::move(parts));
  EXPECT_EQ(group.size(), 2U);
  EXPECT_EQ(group[1].params().size(), 1U);
  a.set_grad(Tensor::Ones(lazy.context, {1}));
  EXPECT_EQ(group.Step().code(), absl::StatusCode::kFailedPrecondition);
  b.set_grad(Tensor::Ones(lazy.context, {1}));
  ASSERT_TRUE(group.Step().ok());
  EXPECT_THAT(*a.ToVector<float>(), ElementsAre(0.5));
  EXPECT_THAT(*b.ToVector<float>(), ElementsAre(0.75));
  group.ZeroGrad();
  EXPECT_FALSE(a.grad().defined());
}

// A training step of an MLP (784-256-10, batch 64), its second one: loss, gradients and update.
int KernelsOfAStep(
    const std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>& make) {
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  const Linear hidden(lazy.context, 784, 256);
  const Linear out(lazy.context, 256, 10);
  const std::unique_ptr<Optimizer> optimizer =
      make({hidden.weight, hidden.bias, out.weight, out.bias});
  const Tensor x = Tensor::Empty(lazy.context, {64, 784});
  const Tensor labels = Tensor::Empty(lazy.context, {64}, {.dtype = Scalar::kInt32});
  for (int step = 0;; ++step) {
    optimizer->ZeroGrad();
    const Tensor loss = out(hidden(x).Relu()).SparseCategoricalCrossentropy(labels);
    EXPECT_TRUE(loss.Backward().ok());
    if (step == 0) {
      EXPECT_TRUE(optimizer->Step().ok());
      continue;
    }
    const absl::StatusOr<std::vector<Tensor>> changed = optimizer->ScheduleStep();
    EXPECT_TRUE(changed.ok()) << changed.status();
    std::vector<LazyBuffer> roots = {loss.lazydata()};
    for (const Tensor& tensor : *changed) roots.push_back(tensor.lazydata());
    const absl::StatusOr<Schedule> schedule = CreateSchedule(roots);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    return schedule.ok() ? schedule->kernel_count() : 0;
  }
}

// Counted there with every tensor realised before.
TEST(Optimizer, AStepMakesNoMoreKernelsThanTinygrad) {
  using Params = const std::vector<Tensor>&;
  EXPECT_LE(KernelsOfAStep([](Params p) { return SGD(p); }), 19);
  EXPECT_LE(KernelsOfAStep([](Params p) { return SGD(p, {.momentum = 0.9}); }), 23);
  EXPECT_LE(KernelsOfAStep([](Params p) {
              return SGD(p, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
            }),
            23);
  EXPECT_LE(KernelsOfAStep([](Params p) { return std::make_unique<LARS>(p); }), 33);
  EXPECT_LE(KernelsOfAStep([](Params p) { return Adam(p); }), 19);
  EXPECT_LE(KernelsOfAStep([](Params p) { return AdamW(p); }), 19);
  EXPECT_LE(KernelsOfAStep([](Params p) {
              return std::make_unique<LAMB>(p, LAMBOptions{.weight_decay = 0.01});
            }),
            33);
}

}  // namespace
}  // namespace beamd::nn
