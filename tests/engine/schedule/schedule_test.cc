#include "engine/schedule/schedule.h"

#include <array>
#include <string>

#include "engine/base/option.h"
#include "engine/uop/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using testing::HasSubstr;

class ScheduleTest : public testing::Test {
 protected:
  LazyBuffer Empty(const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return LazyBuffer::Empty(context_, shape, dtype, "cpu:0");
  }
  static LazyBuffer Sum(const LazyBuffer& b, int axis) {
    return b.Reduce(Op::kAdd, std::span(&axis, 1));
  }
  static Schedule Schedule_(std::vector<LazyBuffer> roots) {
    absl::StatusOr<Schedule> schedule = CreateSchedule(roots);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    for (const ScheduleItem& item : schedule->items) {
      if (!item.ast) continue;
      EXPECT_TRUE(VerifyKernel(item.ast).ok()) << VerifyKernel(item.ast);
    }
    return *std::move(schedule);
  }
  static int Count(UOp ast, Op op) {
    int n = 0;
    for (UOp u : Toposort(ast)) n += u.is(op) ? 1 : 0;
    return n;
  }

  LazyContext context_;
};

TEST_F(ScheduleTest, ElementwiseOperationsAreOneKernel) {
  const LazyBuffer a = Empty({4, 4});
  const LazyBuffer b = Empty({4, 4});
  const Schedule s = Schedule_({(a * b + a).Alu(Op::kSqrt)});
  ASSERT_EQ(s.kernel_count(), 1);
  EXPECT_EQ(s.items[0].buffers.size(), 3u);
  EXPECT_TRUE(s.items[0].written[0]);
  EXPECT_FALSE(s.items[0].written[1]);
  EXPECT_TRUE(s.internal.empty());
}

TEST_F(ScheduleTest, RealisedAndConstantRootsNeedNothing) {
  EXPECT_TRUE(Schedule_({Empty({4})}).items.empty());
  EXPECT_TRUE(
      Schedule_({LazyBuffer::Const(context_, 1, {4}, Scalar::kFloat32, "cpu:0")}).items.empty());
}

TEST_F(ScheduleTest, AReductionTakesWhatIsBeforeAndBehindIt) {
  const LazyBuffer a = Empty({4, 8});
  const Schedule s = Schedule_({Sum(a * a, 1).Alu(Op::kSqrt)});
  ASSERT_EQ(s.kernel_count(), 1);
  EXPECT_EQ(Count(s.items[0].ast, Op::kReduceAxis), 1);
}

TEST_F(ScheduleTest, AnExpandedValueIsStoredFirst) {
  const LazyBuffer a = Empty({4, 8});
  const LazyBuffer sum = a + Sum(a, 1).Expand({4, 8});
  const Schedule s = Schedule_({sum});
  ASSERT_EQ(s.kernel_count(), 2);
  ASSERT_EQ(s.internal.size(), 1u);
  EXPECT_TRUE(s.items[0].buffers[0] == s.internal[0]);
}

TEST_F(ScheduleTest, ResultsOfOneReductionShareItsKernel) {
  const LazyBuffer sum = Sum(Empty({4, 8}), 1);
  const std::vector<LazyBuffer> roots{sum.Alu(Op::kSqrt), sum.Alu(Op::kExp2)};
  EXPECT_EQ(Schedule_(roots).kernel_count(), 1);
  ScopedOption off(options::kMultiOutput, 0);
  EXPECT_EQ(Schedule_(roots).kernel_count(), 2);
}

TEST_F(ScheduleTest, OneReductionAKernel) {
  const LazyBuffer a = Empty({4, 8});
  const int axis = 1;
  EXPECT_EQ(Schedule_({Sum(a, 1) + a.Reduce(Op::kMax, {&axis, 1})}).kernel_count(), 2);
  EXPECT_EQ(Schedule_({Sum(Sum(a, 1), 0)}).kernel_count(), 2);
}

TEST_F(ScheduleTest, APermutedResultStaysInItsReductionsKernel) {
  const std::array<int, 2> order{1, 0};
  const LazyBuffer sum = Sum(Empty({4, 5, 8}), 2).Reshape({4, 5});
  const Schedule s = Schedule_({sum.Permute(order).Contiguous()});
  EXPECT_LE(s.kernel_count(), 2);
  EXPECT_EQ(Schedule_({sum.Alu(Op::kSqrt)}).kernel_count(), 1);
}

TEST_F(ScheduleTest, PaddingNeedsAValueThatIsZeroWhereItsSourcesAre) {
  const std::array<std::pair<SInt, SInt>, 1> pad{{{1, 1}}};
  const LazyBuffer a = Empty({6});
  const LazyBuffer b = Empty({8});
  EXPECT_EQ(Schedule_({a.Alu(Op::kSqrt).Pad(pad) + b}).kernel_count(), 1);
  EXPECT_EQ(Schedule_({a.Alu(Op::kExp2).Pad(pad) + b}).kernel_count(), 2);
  // A masked constant is 0 as well: exp2(0) * 0.
  EXPECT_EQ(Schedule_({(a.Alu(Op::kExp2) * ConstValue(3)).Pad(pad) + b}).kernel_count(), 1);
  EXPECT_EQ(Schedule_({(a.Alu(Op::kRecip) * ConstValue(3)).Pad(pad) + b}).kernel_count(), 2);
  const LazyBuffer key = Empty({6}, Scalar::kUint64);
  const LazyBuffer wide = Empty({8}, Scalar::kUint64);
  const LazyBuffer bits = key.Alu(Op::kThreefry, key);
  EXPECT_EQ(Schedule_({bits.Pad(pad) + wide}).kernel_count(), 2);
  EXPECT_EQ(Schedule_({bits.Alu(Op::kAnd, bits.ConstLike(255)).Pad(pad) + wide}).kernel_count(), 1);
}

TEST_F(ScheduleTest, PaddingIsPositiveZeroInTheNodesDtype) {
  const std::array<std::pair<SInt, SInt>, 1> pad{{{1, 0}}};
  const auto kernels = [&](const LazyBuffer& x) {
    return Schedule_({x.Pad(pad).Contiguous()}).kernel_count();
  };
  const auto times = [](LazyBuffer x, int n) {
    const LazyBuffer one = x;
    for (int i = 1; i < n; ++i) x = x + one;
    return x;
  };
  const LazyBuffer x = Empty({4});
  EXPECT_EQ(kernels(x * ConstValue(3)), 1);
  // -0.0, and what bits it has.
  EXPECT_EQ(kernels(x.Alu(Op::kNeg)), 2);
  EXPECT_EQ(kernels(x.Alu(Op::kNeg).Bitcast(Scalar::kInt32)), 2);
  EXPECT_EQ(kernels(x.Alu(Op::kNeg) + x), 1);
  // inf - inf, where 65536 - 65536 is no float16 operation.
  LazyBuffer e = Empty({4}, Scalar::kFloat16);
  for (int i = 0; i < 5; ++i) e = e.Alu(Op::kExp2);
  EXPECT_EQ(kernels(e.Alu(Op::kSub, e)), 2);
  // 41 (1/41) isn't 1 in float32.
  const LazyBuffer one = x.Alu(Op::kExp2);
  const LazyBuffer n = times(one, 41);
  EXPECT_EQ(kernels((n.Alu(Op::kRecip) * n).Alu(Op::kSub, one)), 2);
  EXPECT_EQ(kernels((one.Alu(Op::kRecip) * one).Alu(Op::kSub, one)), 1);
  // 2^54 + 1 - 2^54, which double rounds to 0.
  const LazyBuffer o = one.Cast(Scalar::kInt64);
  LazyBuffer p = o;
  for (int i = 0; i < 54; ++i) p = p + p;
  EXPECT_EQ(kernels((p + o).Alu(Op::kSub, p)), 2);
  EXPECT_EQ(kernels((p + o).Alu(Op::kSub, p).Alu(Op::kSub, o)), 1);
}

TEST_F(ScheduleTest, LongSharedChainsAreComputedOnce) {
  const LazyBuffer a = Empty({4, 4});
  LazyBuffer x = a;
  for (int i = 0; i < 40; ++i) x = x * a;
  EXPECT_EQ(Schedule_({x + Sum(x, 1).Expand({4, 4})}).kernel_count(), 3);
  const LazyBuffer y = a * a;
  EXPECT_EQ(Schedule_({y + Sum(y, 1).Expand({4, 4})}).kernel_count(), 2);
}

TEST_F(ScheduleTest, EqualKernelsAreOneNode) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer b = Empty({4});
  const Schedule s = Schedule_({a.Alu(Op::kSqrt), b.Alu(Op::kSqrt)});
  ASSERT_EQ(s.kernel_count(), 2);
  EXPECT_TRUE(s.items[0].ast == s.items[1].ast);
}

TEST_F(ScheduleTest, OldValuesAreReadBeforeAnAssign) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer doubled = a + a;
  const LazyBuffer after = a.Assign(Empty({4}) * ConstValue(3));
  const Schedule s = Schedule_({after, doubled});
  ASSERT_EQ(s.kernel_count(), 2);
  EXPECT_TRUE(s.items[0].outputs[0] == doubled);
  EXPECT_TRUE(s.items[1].buffers[0] == a.buffer());
}

TEST_F(ScheduleTest, AnAssignMayReadWhereItWrites) {
  const LazyBuffer a = Empty({4, 4});
  const Schedule s = Schedule_({a.Assign(a + ConstValue(1.0))});
  ASSERT_EQ(s.kernel_count(), 1);
  EXPECT_EQ(s.items[0].buffers.size(), 1u);
}

TEST_F(ScheduleTest, AnAssignDoesNotJoinAReductionOverItsTarget) {
  const LazyBuffer w = Empty({8});
  const LazyBuffer wide = w.Reshape({8, 1}).Expand({8, 4});
  const LazyBuffer gradient = Sum(Empty({8, 4}) * wide, 1).Reshape({8});
  EXPECT_EQ(Schedule_({w.Assign(w + gradient)}).kernel_count(), 2);

  // A moment may.
  const LazyBuffer moment = Empty({8});
  const LazyBuffer moment_after = moment.Assign(moment + gradient);
  const Schedule s = Schedule_({moment_after, w.Assign(w - moment_after)});
  ASSERT_EQ(s.kernel_count(), 2);
  EXPECT_TRUE(s.items[0].buffers[0] == moment.buffer());
  EXPECT_TRUE(s.items[1].buffers[0] == w.buffer());
}

TEST_F(ScheduleTest, AnAssignThatReadsElsewhereIsRefused) {
  const std::array<int, 2> order{1, 0};
  const LazyBuffer a = Empty({4, 4});
  const std::vector<LazyBuffer> roots{a.Assign(a + a.Permute(order))};
  const absl::Status status = CreateSchedule(roots).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("ASSIGN to a float32 tensor of shape (4, 4)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Contiguous()"));
}

TEST_F(ScheduleTest, BothTheOldAndTheNewValueInOneKernelAreRefused) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer after = a.Assign(Empty({4}) + ConstValue(1.0));
  const std::vector<LazyBuffer> roots{after + a};
  const absl::Status status = CreateSchedule(roots).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("both before and after"));
}

TEST_F(ScheduleTest, AWindowOfWhatIsOverwrittenIsRefused) {
  const LazyBuffer a = Empty({4, 16});
  const std::array<std::pair<SInt, SInt>, 2> first{{{0, 2}, {0, 16}}};
  const std::array<std::pair<SInt, SInt>, 2> last{{{2, 4}, {0, 16}}};
  const LazyBuffer window = a.Shrink(last).Contiguous();
  ASSERT_EQ(window.op(), Op::kBufferView);
  const std::vector<LazyBuffer> roots{a.Shrink(first).Assign(window + ConstValue(1.0))};
  const absl::Status status = CreateSchedule(roots).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Clone()"));
}

TEST_F(ScheduleTest, ReadersOfAWindowComeBeforeAnAssignToTheWhole) {
  const LazyBuffer a = Empty({4, 16});
  const std::array<std::pair<SInt, SInt>, 2> last{{{2, 4}, {0, 16}}};
  const LazyBuffer doubled = a.Shrink(last).Contiguous() * ConstValue(2.0);
  const LazyBuffer after = a.Assign(Empty({4, 16}) + ConstValue(1.0));
  const Schedule s = Schedule_({after, doubled});
  ASSERT_EQ(s.kernel_count(), 2);
  EXPECT_TRUE(s.items.back().outputs[0] == after.base());
}

TEST_F(ScheduleTest, ACycleThroughAnAssignIsNamed) {
  // x reads the new a and is stored (expanded) before y, which reads the old one together with it.
  const LazyBuffer a = Empty({4});
  const LazyBuffer after = a.Assign(Empty({4}) + ConstValue(1.0));
  const LazyBuffer x = Sum(after, 0).Contiguous();
  const LazyBuffer y = x.Expand({4}) + a;
  const std::vector<LazyBuffer> roots{y, x};
  const absl::Status status = CreateSchedule(roots).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ASSIGN"));
}

TEST_F(ScheduleTest, ResultsThatReadEachOtherThroughAnotherKernelAreKernelsOfTheirOwn) {
  const LazyBuffer sum = Sum(Empty({6}), 0);
  const LazyBuffer less = sum.Alu(Op::kNeg), same = less.Alu(Op::kNeg);
  // Both negations are stored to be expanded, and the last reads one of them and the sum.
  const Schedule s =
      Schedule_({less.Expand({4}).Contiguous(), same.Expand({4}).Contiguous(), same + sum});
  EXPECT_LE(s.kernel_count(), 6);
}

TEST_F(ScheduleTest, CopiesAndWindowsAreItemsWithoutAKernel) {
  const LazyBuffer a = Empty({4, 16});
  const std::array<std::pair<SInt, SInt>, 2> rows{{{1, 3}, {0, 16}}};
  const Schedule s = Schedule_({a.Shrink(rows).Contiguous(), (a + a).CopyTo("cpu:1")});
  EXPECT_EQ(s.kernel_count(), 1);
  EXPECT_EQ(s.items.size(), 3u);
}

TEST_F(ScheduleTest, VariablesAreNamed) {
  const UOp n = context_.Variable("n", 1, 10);
  const LazyBuffer a = Empty({SInt(n), 2});
  EXPECT_EQ(Schedule_({a + a}).variables, std::vector<std::string>{"n"});
}

TEST_F(ScheduleTest, AChainOf20000IsScheduledWithoutRecursion) {
  LazyBuffer x = Empty({4});
  const LazyBuffer y = Empty({4});
  for (int i = 0; i < 20'000; ++i) x = i % 2 == 0 ? x + y : x * y;
  absl::StatusOr<Schedule> s = CreateSchedule(std::vector<LazyBuffer>{x});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->kernel_count(), 1);
}

TEST_F(ScheduleTest, AGraphOf20000NodesWithReductionsIsScheduled) {
  LazyBuffer x = Empty({4, 4});
  const LazyBuffer y = Empty({4, 4});
  for (int i = 0; i < 10'000; ++i) x = i % 10 == 0 ? x + Sum(x, 1).Expand({4, 4}) : x * y;
  absl::StatusOr<Schedule> s = CreateSchedule(std::vector<LazyBuffer>{x});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_GT(s->kernel_count(), 999);
  EXPECT_LT(s->kernel_count(), 2'002);
}

}  // namespace
}  // namespace beamd
