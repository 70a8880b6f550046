// Lists of numbers in and out of tensors, over the context of a World.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/engine/tensor/tensor_world.h"

namespace beamd::testing {

// Row-major.
using Values = std::vector<double>;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline TensorOptions Typed(Scalar dtype) { return {.dtype = dtype}; }

// Element by element; NaN equals NaN, infinities by sign.
inline void ExpectNear(const Values& got, const Values& want, double tolerance = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
    }
  }
}

class TensorTest : public ::testing::Test {
 protected:
  Tensor Make(const Values& values, const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return Tensor::From(context_, values, shape, Typed(dtype));
  }
  Tensor Vector(const Values& values, Scalar dtype = Scalar::kFloat32) {
    return Make(values, {static_cast<int64_t>(values.size())}, dtype);
  }

  static Values Read(const Tensor& tensor) {
    const absl::StatusOr<std::vector<std::byte>> bytes = tensor.ToBytes();
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    Values values;
    if (!bytes.ok()) return values;
    const Scalar dtype = tensor.dtype();
    for (size_t at = 0; at < bytes->size(); at += static_cast<size_t>(SizeBytes(dtype))) {
      const std::byte* const element = &(*bytes)[at];
      if (IsFloat(dtype)) {
        values.push_back(LoadFloat(element, dtype));
      } else if (dtype == Scalar::kUint64) {
        values.push_back(static_cast<double>(static_cast<uint64_t>(LoadInt(element, dtype))));
      } else {
        values.push_back(static_cast<double>(LoadInt(element, dtype)));
      }
    }
    return values;
  }

  // The gradients of sum(weights * f(inputs)), weights of 0.5 to 1.5, against central differences
  // in float64.
  void CheckGradient(const std::vector<Values>& inputs, const std::vector<Shape>& shapes,
                     const std::function<Tensor(const std::vector<Tensor>&)>& f,
                     double tolerance = 1e-7) {
    const auto make = [&](const std::vector<Values>& values) {
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < values.size(); ++i) {
        tensors.push_back(Make(values[i], shapes[i], Scalar::kFloat64));
      }
      return tensors;
    };
    std::vector<Tensor> leaves = make(inputs);
    for (Tensor& leaf : leaves) leaf.set_requires_grad(true);
    const Tensor result = f(leaves);
    ASSERT_TRUE(result.ok()) << result.status();
    Values weights(Read(result).size());
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = 0.5 + 0.25 * static_cast<double>(i % 5);
    const Tensor gradient = Make(weights, result.shape(), result.dtype());
    const absl::Status status = result.Backward(gradient);
    ASSERT_TRUE(status.ok()) << status;
    const auto loss = [&](const std::vector<Values>& at) {
      const Values values = Read(f(make(at)));
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
      return sum;
    };
    constexpr double kStep = 1e-5;
    for (size_t input = 0; input < inputs.size(); ++input) {
      const Values found = Read(leaves[input].grad());
      ASSERT_EQ(found.size(), inputs[input].size());
      for (size_t i = 0; i < found.size(); ++i) {
        std::vector<Values> above = inputs;
        std::vector<Values> below = inputs;
        above[input][i] += kStep;
        below[input][i] -= kStep;
        const double want = (loss(above) - loss(below)) / (2 * kStep);
        EXPECT_NEAR(found[i], want, tolerance * std::max(1.0, std::abs(want)))
            << "input " << input << ", element " << i;
      }
    }
  }

  World world_;
  LazyContext& context_ = world_.context;
};

}  // namespace beamd::testing
