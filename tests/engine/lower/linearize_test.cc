#include "engine/lower/linearize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/engine/lower/lowered.h"
#include "tests/testing/golden.h"

namespace beamd {
namespace {

using ::beamd::testing::Avx2;
using ::beamd::testing::ExpectGolden;
using ::beamd::testing::kSmallKernels;
using ::beamd::testing::Lowered;
using ::beamd::testing::SmallKernel;
using ::beamd::testing::TextOf;
using ::beamd::testing::Unroll;
using ::beamd::testing::Upcast;

// What program.h promises of every list.
TEST(Linearize, EveryOperandStandsBeforeItsUserInAnOpenLoop) {
  for (const SmallKernel& kernel : kSmallKernels) {
    const Lowered l(kernel.text, {});
    std::vector<bool> there(l.program().index_alignment.size());
    std::vector<std::vector<UOp>> open = {{}};
    for (const UOp u : l.program().ops) {
      for (const UOp s : u.src()) {
        // A register's loops come after it.
        if (u.is(Op::kAcc) && s.is(Op::kRange)) continue;
        ASSERT_TRUE(s.id() < there.size() && there[s.id()])
            << kernel.name << ": " << NodeText(u) << "\n"
            << l.Text();
      }
      if (u.is(Op::kEndLoop)) {
        ASSERT_EQ(open.back()[0], u.src(0)) << "loops cross";
        // What a loop made is gone with it, but for the sums that leave it.
        for (const UOp inner : open.back()) there[inner.id()] = inner.is(Op::kAssign);
        open.pop_back();
        continue;
      }
      if (u.is(Op::kRange)) open.emplace_back();
      open.back().push_back(u);
      if (u.id() < there.size()) there[u.id()] = true;
    }
    EXPECT_EQ(open.size(), 1u);
  }
}

TEST(Linearize, ALoadOfASlotPrecedesTheStoreToIt) {
  const Lowered l(TextOf("InPlace"), {Upcast(0, 4), Upcast(1, 4)});
  const std::vector<UOp> loads = l.Accesses(Op::kLoad, 0), stores = l.Accesses(Op::kStore, 0);
  ASSERT_GT(loads.size(), 1u);
  ASSERT_GT(stores.size(), 1u);
  for (const UOp load : loads) {
    for (const UOp store : stores) EXPECT_LT(l.Place(load), l.Place(store)) << l.Text();
  }
}

TEST(Linearize, InvariantWorkStandsOutsideTheLoop) {
  // The square root of a row's scale, in a sum over the row.
  const Lowered l(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (12,48) strides (48,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (12,48) strides (1,0) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = SQRT float32 (%7)
%9 = MAX float32 (%4, %8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (1)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))",
                  {});
  EXPECT_EQ(l.Depth(l.The(Op::kSqrt)), 1) << l.Text();
  EXPECT_EQ(l.Depth(l.The(Op::kMax)), 2);
  EXPECT_EQ(l.Depth(l.The(Op::kStore)), 1);
}

TEST(Linearize, ASumThatNoOutputAxisChangesRunsOnce) {
  // Every output is its element times the sum of all of slot 2.
  const Lowered l(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = DEFINE_GLOBAL global float32* slot 2
%5 = VIEW void view[shape (12,48) strides (0,1) offset 0]
%6 = LOAD float32 (%4, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = MUL float32 (%3, %7)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9))",
                  {});
  EXPECT_EQ(l.Depth(l.Accesses(Op::kLoad, 2)[0]), 1) << l.Text();
  EXPECT_EQ(l.Depth(l.The(Op::kMul)), 1);
}

TEST(Linearize, ARegisterStandsBeforeTheFirstOfItsLoops) {
  const Lowered l(TextOf("PaddedWindows"), {});
  const UOp acc = l.The(Op::kAcc);
  ASSERT_EQ(acc.src_count(), 3);
  for (int i = 1; i < acc.src_count(); ++i) EXPECT_LT(l.Place(acc), l.Place(acc.src(i)));
  EXPECT_EQ(l.Depth(acc), l.Depth(l.The(Op::kStore)));
}

TEST(Linearize, TheSliceRangeIsTheOutermostOutputLoop) {
  const Lowered l(TextOf("PaddedWindows"), {});
  const UOp slices = l.program().slice_range;
  ASSERT_TRUE(slices);
  EXPECT_EQ(l.Depth(slices), 0);
  EXPECT_TRUE(slices.src(0).is_const_int(4));
  EXPECT_EQ(l.program().image.slices, 4);
}

TEST(Linearize, AFullReductionHasOneSlice) {
  const Lowered l(TextOf("FullReduce"), {});
  EXPECT_FALSE(l.program().slice_range);
  EXPECT_EQ(l.program().image.slices, 1);
}

TEST(Linearize, AnAccessIsAlignedToWhatDividesItsIndex) {
  const Lowered l(TextOf("PaddedWindows"), {});
  for (const UOp u : l.All(Op::kLoad | Op::kStore)) {
    EXPECT_EQ(l.program().index_alignment[u.id()], 1) << l.Text();
  }
  // 72 elements by vectors of 8.
  const Lowered rows(TextOf("BFloatArithmetic"), {Upcast(0, 8)});
  EXPECT_EQ(rows.program().index_alignment[rows.The(Op::kStore).id()], 8) << rows.Text();
}

TEST(Linearize, ComputeOpsCountTurnsAndLanes) {
  // 4 rows of 16 windows of 9 products that are added.
  const double products = Lowered(TextOf("PaddedWindows"), {}).program().image.compute_ops;
  EXPECT_GE(products, 4 * 16 * 9 * 2);
  // Of 1 to 10 a row, the middle.
  EXPECT_LT(Lowered(TextOf("SymbolicSum"), {}).program().image.compute_ops, 12 * 10 * 2);
  // A product and a sum for each of 72, however many at once.
  for (const std::vector<Opt>& opts : {std::vector<Opt>(), {Upcast(0, 8)}, {Upcast(0, 3)}}) {
    const double ops = Lowered(TextOf("BFloatArithmetic"), opts).program().image.compute_ops;
    EXPECT_GE(ops, 144);
    // Places are computed too.
    EXPECT_LE(ops, 144 * 1.5);
  }
}

TEST(Linearize, Over64LoopsAreTooMany) {
  UOpGraph g;
  UOp index = g.Const(Scalar::kInt64, 0);
  for (int axis = 0; axis < 65; ++axis) {
    index = index + g.Make(Op::kRange, Scalar::kInt64, {g.Const(Scalar::kInt64, 2)},
                           g.Intern(RangeArg{RangeArg::Kind::kGlobal, axis, 0}));
  }
  EXPECT_EQ(Linearize(g.Make(Op::kSink, Scalar::kVoid, {index}), Avx2()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Linearize, GoldenRowSum) {
  ExpectGolden("linear/row_sum.uops", Lowered(TextOf("RowSum"), {Unroll(0, 8)}).Text());
}

TEST(Linearize, GoldenPad) {
  ExpectGolden("linear/pad.uops", Lowered(TextOf("PadReadsZeros"), {Upcast(1, 4)}).Text());
}

TEST(Linearize, GoldenMatmul) {
  ExpectGolden("linear/matmul.uops",
               Lowered(TextOf("IntegerMatmul"), {Upcast(1, 4), Upcast(0, 2)}).Text());
}

// ---- GPUs ----

std::string TextForCuda(absl::string_view text, const std::vector<Opt>& opts) {
  const TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  UOpGraph source, graph;
  Kernel kernel = Kernel::Create(ParseText(text, source).value(), caps).value();
  EXPECT_TRUE(kernel.ApplyAll(opts).ok());
  return ToText(Lower(kernel, graph, {}).value());
}

TEST(Linearize, GoldenGroupedSum) {
  ExpectGolden("linear/cuda_grouped_sum.uops",
               TextForCuda(TextOf("RowSum"), {{OptOp::kLocal, 0, 4}, {OptOp::kGroupTop, 0, 16}}));
}

// The maxima that a turn leaves in shared memory are read before the next turn's overwrite them.
TEST(Linearize, GoldenLoopOfGroups) {
  ExpectGolden("linear/cuda_loop_of_groups.uops",
               TextForCuda(TextOf("ReductionOfAReduction"), {{OptOp::kGroup, 1, 4}}));
}

TEST(Linearize, GoldenTensorCore) {
  ExpectGolden("linear/cuda_tensor_core.uops", TextForCuda(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (32,16,1) strides (16,1,0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (32,16,64) strides (64,0,1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = DEFINE_GLOBAL global float16* slot 2
%6 = VIEW void view[shape (32,16,64) strides (0,1,16) offset 0]
%7 = LOAD float16 (%5, %6)
%8 = MUL float16 (%4, %7)
%9 = CAST float32 (%8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (2)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))",
                                                           {{OptOp::kTc, 0, 0}}));
}

}  // namespace
}  // namespace beamd
