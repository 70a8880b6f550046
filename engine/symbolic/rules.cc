#include "engine/rewrite/pattern.h"
#include "engine/rewrite/rule_table.h"
#include "engine/symbolic/fold.h"
#include "engine/symbolic/memo.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

using namespace pattern;  // NOLINT: rule files speak this language

constexpr Var<"x"> x;
constexpr Var<"y"> y;
constexpr Var<"z"> z;
constexpr Var<"c"> c;
constexpr Var<"u"> u;
constexpr Var<"base"> base;
constexpr ScalarCVar<"n"> n;
constexpr ScalarCVar<"m"> m;

// n * m as the dtype of the constants, where both are positive and it fits.
bool ProductFits(UOp n, UOp m) {
  const Int128 product = Int128{n.int_value()} * m.int_value();
  return n.int_value() > 0 && m.int_value() > 0 && n.scalar() != Scalar::kUint64 &&
         product <= FullRange(n.scalar()).max;
}

bool NeverZero(UOp u) {
  const Bounds b = BoundsNow(u);
  return b.min > 0 || (b.max < 0 && u.scalar() != Scalar::kUint64);
}

// x * y is the integer product: it doesn't wrap.
bool IsExactProduct(UOp x, UOp y) {
  const Bounds a = BoundsNow(x), b = BoundsNow(y), full = FullRange(x.scalar());
  if (x.scalar() == Scalar::kUint64) return false;
  for (const Int128 p : {Int128{a.min} * b.min, Int128{a.min} * b.max, Int128{a.max} * b.min,
                         Int128{a.max} * b.max}) {
    if (p < full.min || p > full.max) return false;
  }
  return true;
}

bool IsMinInt(UOp n) { return n.int_value() == MinInt(n.scalar()); }

// x & n -> x, where n keeps every bit that x may have.
UOp DropMask(UOp x, UOp n) {
  const int64_t mask = n.int_value();
  const Bounds b = BoundsNow(x);
  return mask >= 0 && (mask & (mask + 1)) == 0 && b.min >= 0 && b.max <= mask ? x : UOp();
}

}  // namespace

const RuleTable& SymbolicRules() {
  static const RuleTable rules{
      "symbolic",
      // constants, and what bounds decide
      Rule(NodeOfEach<kAlu | Op::kCast>(Node<Op::kConst | Op::kVConst>()).as(u),
           Try(FoldConstants, u)),
      Rule(NodeThenRest<kAlu>(any).as(u).of(kIntsAndBools), Try(FoldSingleValue, u)),
      // casts
      Rule(Node<Op::kCast>(any).as(u), Try(FoldCast, u)),
      // floats: what holds for NaN, infinities and -0.0 too
      Rule(x.of(kFloats) * 1, x),
      Rule(x.of(kFloats) + -0.0, x),
      // bools: + and max are or, * is and
      Rule(x.of(kBools) + y, x | y),
      Rule(Max(x.of(kBools), y), x | y),
      Rule(x.of(kBools) * y, x & y),
      Rule(Not(Not(x.of(kBools))), x),
      Rule(x.of(kBools) != 0, x),
      Rule(x & x, x),
      Rule(x | x, x),
      Rule(x | (x & any), x),
      Rule(x & (x | any), x),
      Rule(x.of(kIntsAndBools) ^ x, 0),
      Rule(Node<Op::kAnd | Op::kOr>(any, any).as(u).of(kBools), Try(NormaliseLogic, u)),
      // sums and products
      Rule(Node<Op::kAdd | Op::kSub>(any, any).as(u).of(kInts), Try(NormaliseSum, u)),
      Rule(Node<Op::kMul>(any, any).as(u).of(kInts), Try(NormaliseProduct, u)),
      Rule(Node<Op::kNeg>(any).as(u).of(kInts), Try(NormaliseProduct, u)),
      // bits
      Rule(x.of(kInts) & n, Try(DropMask, x, n)),
      Rule((x & n) & m, x & (n & m)),
      Rule((x | n) | m, x | (n | m)),
      Rule((x ^ n) ^ m, x ^ (n ^ m)),
      Rule(x.of(kInts) | 0, x),
      Rule(x.of(kInts) ^ 0, x),
      // division
      Rule(x / 1, x),
      Rule(x.of(kSignedInts) / -1, -x),
      Rule(x.of(kInts) / x, 1).When(Test(NeverZero, x)),
      Rule((x.of(kInts) * y) / y, x).When(Test(NeverZero, y) && Test(IsExactProduct, x, y)),
      Rule((x.of(kInts) / n) / m, x / (n * m)).When(Test(ProductFits, n, m)),
      Rule(x.of(kSignedInts) / n, -(x / -n)).When(Value(n) < -1 && Test(IsMinInt, n) == 0),
      Rule(Node<Op::kIdiv>(any, Node<Op::kConst>()).as(u).of(kInts), Try(FoldDiv, u)),
      // remainder
      Rule(x.of(kInts) % x, 0),
      Rule((any % y).as(base) % y, base),
      Rule((x.of(kInts) * y) % y, 0).When(Test(IsExactProduct, x, y)),
      Rule(x.of(kSignedInts) % n, x % -n).When(Value(n) < -1 && Test(IsMinInt, n) == 0),
      Rule(Node<Op::kMod>(any, Node<Op::kConst>()).as(u).of(kInts), Try(FoldMod, u)),
      // maximum
      Rule(Max(x, x), x),
      Rule(Max(Max(x, n), m), Max(x, Max(n, m))),
      Rule(Node<Op::kMax>(any, any).as(u).of(kInts), Try(FoldMax, u)),
      // comparisons
      Rule(x < x, 0),
      Rule(x.of(kIntsAndBools) != x, 0),
      Rule(Node<Op::kCmpLt>(x.of(kInts), any).as(u), Try(FoldLess, u)),
      Rule(Node<Op::kCmpNe>(x.of(kInts), any).as(u), Try(FoldNotEqual, u)),
      // selections
      Rule(Node<Op::kWhere>(any, x, x), x),
      Rule(Node<Op::kWhere>(n, x, y),
           [](const auto& at) { return at[n].int_value() != 0 ? at[x] : at[y]; }),
      Rule(Node<Op::kWhere>(x.of(kBools), Literal(1).of(kBools), Literal(0).of(kBools)), x),
      Rule(Node<Op::kWhere>(x.of(kBools), Literal(0).of(kBools), Literal(1).of(kBools)), Not(x)),
      // one order for what may be ordered
      Rule(Node<kCommutative>(any, any).as(u), Try(OrderOperands, u)),
  };
  return rules;
}

}  // namespace beamd
