// Opts don't change what a kernel computes: the evaluator's values of the optimised graph are those
// of the graph itself.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/kernel/kernel.h"
#include "engine/search/actions.h"
#include "engine/uop/evaluator.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kElementwise;
using ::beamd::testing::Parsed;
using ::beamd::testing::Target;

constexpr int kElements = 64;

// (8,4) = (8,12) times (12,4), of integers, so that no rounding hides a wrong element.
constexpr absl::string_view kIntMatmul = R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (8,4,1) strides (4,1,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (8,4,12) strides (3,0,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = DEFINE_GLOBAL global int32* slot 2
%6 = VIEW void view[shape (8,4,12) strides (0,1,4) offset 0]
%7 = LOAD int32 (%5, %6)
%8 = MUL int32 (%4, %7)
%9 = REDUCE_AXIS int32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))";

// A padded window, reduced: two views and masks.
constexpr absl::string_view kWindow = R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (9,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (14) strides (1) offset -2 mask (2:12)] view[shape (9,6) strides (1,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = VALID bool (%3)
%6 = CONST int32 3
%7 = CONST int32 0
%8 = WHERE int32 (%5, %6, %7)
%9 = ADD int32 (%4, %8)
%10 = REDUCE_AXIS int32 (%9) ADD axes (1)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))";

class Meaning : public ::testing::TestWithParam<absl::string_view> {};

TEST_P(Meaning, IsThatOfTheGraphWhateverTheOpts) {
  UOpGraph graph;
  const UOp sink = Parsed(GetParam(), graph);
  // Four bytes an element, whatever the dtype; small numbers as floats too.
  std::mt19937 random(1);
  std::vector<std::vector<char>> contents;
  EvalInputs inputs;
  for (UOp u : Toposort(sink)) {
    if (!u.is(Op::kDefineGlobal)) continue;
    std::vector<char>& content = contents.emplace_back(size_t{16} * kElements * 4);
    for (size_t i = 0; i < content.size(); i += 4) {
      const int32_t number = static_cast<int32_t>(random() % 201) - 100;
      const float real = static_cast<float>(random() % 100 + 1);
      std::memcpy(&content[i],
                  u.scalar() == Scalar::kFloat32 ? static_cast<const void*>(&real) : &number, 4);
    }
    inputs.buffers[u.data<BufferArg>().id] = {nullptr, static_cast<int64_t>(content.size() / 4),
                                              u.scalar()};
  }
  size_t next = 0;
  for (UOp u : Toposort(sink)) {
    if (u.is(Op::kDefineGlobal)) {
      inputs.buffers[u.data<BufferArg>().id].data = contents[next++].data();
    }
  }
  auto values = [&](UOp root) {
    absl::StatusOr<Evaluator> evaluator = Evaluator::Create(root, inputs);
    EXPECT_TRUE(evaluator.ok()) << evaluator.status() << "\n" << ToText(root);
    std::vector<EvalValue> got =
        evaluator.ok() ? evaluator->EvaluateAll(0).value() : std::vector<EvalValue>();
    return got;
  };
  const std::vector<EvalValue> want = values(sink);

  for (int walk = 0; walk < 40; ++walk) {
    Kernel kernel = Kernel::Create(sink, Target(TargetKind::kCuda)).value();
    for (int step = 0; step < 4; ++step) {
      std::vector<Kernel> legal;
      for (auto& [number, after] : LegalActions(kernel, {})) {
        // The evaluator knows no shared memory.
        if (after.group_for_reduces() == 0) legal.push_back(std::move(after));
      }
      if (legal.empty()) break;
      kernel = legal[random() % legal.size()];
    }
    UOpGraph optimised;
    const std::vector<EvalValue> got = values(kernel.OptimizedAst(optimised));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].integer, want[i].integer) << ToString(kernel.applied_opts()) << " at " << i;
      ASSERT_NE(CompareFloat(got[i].real, want[i]), Comparison::kDifferent)
          << ToString(kernel.applied_opts()) << " at " << i;
    }
  }
}

absl::string_view Columns() {
  static const std::string text = ColumnReduce("ADD", "SQRT");
  return text;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Meaning,
                         ::testing::Values(kIntMatmul, kWindow, kElementwise, Columns()));

}  // namespace
}  // namespace beamd
