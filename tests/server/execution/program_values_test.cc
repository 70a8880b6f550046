// The values of the recorded programs, fused and compiled, against each node by itself.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/lazy/lazy_buffer.h"
#include "engine/tensor/tensor.h"
#include "engine/uop/evaluator.h"
#include "gtest/gtest.h"
#include "tests/testing/lazy_evaluator.h"
#include "tests/testing/lazy_runtime.h"
#include "tests/testing/programs.h"

namespace beamd {
namespace {

using beamd::testing::LazyEvaluator;
using beamd::testing::LazyRuntime;

// A number in [0, 1) for each element of each input.
double Uniform(uint32_t input, uint32_t element) {
  uint32_t x = element * 2654435761u + (input * 2246822519u + 374761393u);
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return (x >> 8) / 16777216.0;
}

// Floats in [-1, 1), integers in [0, 10), which every index of the programs allows.
void Fill(const Tensor& t, uint32_t input) {
  TensorBuffer& buffer = *t.lazydata().base().buffer();
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.size_bytes()));
  const int width = SizeBytes(buffer.dtype);
  for (int64_t i = 0; i < buffer.size_elements; ++i) {
    const double u = Uniform(input, static_cast<uint32_t>(i));
    std::byte* at = bytes.data() + i * width;
    if (IsFloat(buffer.dtype)) {
      StoreFloat(2 * u - 1, buffer.dtype, at);
    } else {
      StoreInt(static_cast<int64_t>(10 * u), buffer.dtype, at);
    }
  }
  buffer.memory = std::make_shared<HostMemory>(std::move(bytes));
}

class ProgramValues : public ::testing::TestWithParam<std::string> {};

TEST_P(ProgramValues, EqualEachNodeByItself) {
  LazyRuntime lazy;
  Program program = MakeProgram(GetParam(), lazy.context);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    Fill(program.inputs[i], static_cast<uint32_t>(i));
  }
  LazyEvaluator evaluator(
      [](const TensorBuffer& buffer) {
        const auto* host = dynamic_cast<const HostMemory*>(buffer.memory.get());
        EXPECT_NE(host, nullptr);
        return host->bytes;
      },
      {});
  std::vector<LazyBuffer> roots;
  for (Tensor& t : program.outputs) {
    ASSERT_TRUE(t.ok()) << t.status();
    roots.push_back(t.Contiguous().lazydata());
    evaluator.Add(roots.back());
  }
  ASSERT_TRUE(lazy.runtime->Realize(roots).ok());
  int64_t checked = 0;
  int64_t undecided = 0;
  for (const LazyBuffer& root : roots) {
    const int64_t size = root.size().number();
    std::vector<std::byte> got(static_cast<size_t>(size * SizeBytes(root.dtype())));
    ASSERT_TRUE(lazy.runtime->Read(*root.base().buffer(), got).ok());
    const int64_t samples = std::min<int64_t>(size, 150);
    for (int64_t k = 0; k < samples; ++k) {
      const int64_t at = k * (size - 1) / std::max<int64_t>(1, samples - 1);
      const EvalValue want = evaluator.At(root, at);
      const Comparison c = CompareElement(got.data() + at * SizeBytes(root.dtype()), want);
      ++checked;
      undecided += c == Comparison::kUndecided ? 1 : 0;
      ASSERT_NE(c, Comparison::kDifferent) << "element " << at << ": want " << want.real << " "
                                           << want.integer << " within " << 2 * want.error;
    }
  }
  EXPECT_GE(checked, 1);
  EXPECT_LE(undecided * 10, checked);
}

INSTANTIATE_TEST_SUITE_P(All, ProgramValues, ::testing::ValuesIn(ProgramNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace beamd
