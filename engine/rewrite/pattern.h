// The rule language.
//
//   constexpr Var<"x"> x;  constexpr CVar<"c0"> c0;  constexpr ScalarCVar<"n"> n;
//
//   Rule(x + 0, x)                                     declarative: both sides are patterns
//   Rule(x * c0 + x * c1, x * (c0 + c1))               repeated name = same node
//   Rule((any % y).as(base) % y, base)                 name an inner node
//   Rule(x.of(kInts) / n < m, x < m * n).When(Value(n) > 0 && Value(m) > 0)
//   Rule(x % n, Try(FoldMod, x, n)).When(Value(n) > 0) call a function; null means "not this one"
//   Rule(Node<Op::kGep>(Node<Op::kVectorize>(x)), [](const auto& m) { return m[x]; })
//
// Meaning: a rule applies to u if some way of matching the left side makes the guard true and the
// right side non-null. Ways are tried in a fixed order: operand order as written first, then
// swapped for commutative ops, leftmost operand varying slowest. A name that no path binds is a
// compile error.
//
// Literals: an integer matches a constant of that value of any dtype, but never -0.0; a floating
// literal matches a float constant of the same bits. On a right side both take their dtype from
// the operand beside them.
//
// How: a pattern is a type and matching is in continuation-passing style, so backtracking over
// operand orders is nested calls that inline away. Captures are an array on the stack. Nothing is
// allocated. Precedents: tinygrad's UPat, Halide's IRMatch.h, LLVM's PatternMatch.h.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "engine/uop/uop.h"

namespace beamd::pattern {

// ---- names: a compile-time string, and small sets of them ---------------------------------------

struct RuleName {
  char text[16] = {};
  constexpr RuleName() = default;
  template <size_t N>
  consteval RuleName(const char (&s)[N]) {  // Var<"x">
    static_assert(N <= sizeof(text), "rule variable names hold at most 15 characters");
    for (size_t i = 0; i < N; ++i) text[i] = s[i];
  }
  constexpr bool operator==(const RuleName&) const = default;
};

struct NameSet {
  RuleName names[12] = {};
  int size = 0;

  static constexpr NameSet Of(const RuleName& n) {
    NameSet s;
    s.names[s.size++] = n;
    return s;
  }
  constexpr int IndexOf(const RuleName& n) const {
    for (int i = 0; i < size; ++i) {
      if (names[i] == n) return i;
    }
    return -1;
  }
  constexpr bool Has(const RuleName& n) const { return IndexOf(n) >= 0; }
  constexpr bool Covers(const NameSet& other) const { return (other & *this).size == other.size; }
  constexpr NameSet operator|(const NameSet& other) const {
    NameSet s = *this;
    for (int i = 0; i < other.size; ++i) {
      if (!s.Has(other.names[i])) s.names[s.size++] = other.names[i];
    }
    return s;
  }
  constexpr NameSet operator&(const NameSet& other) const {
    NameSet s;
    for (int i = 0; i < size; ++i) {
      if (other.Has(names[i])) s.names[s.size++] = names[i];
    }
    return s;
  }
};

// The captures of one match. kMay: bound on some path; kMust: bound on every path.
template <NameSet kMay, NameSet kMust>
struct Match {
  UOp slot[kMay.size + 1] = {};

  template <class V>
  UOp operator[](const V&) const {
    static_assert(kMust.Has(V::kName), "this pattern does not bind that name on every path");
    return slot[kMay.IndexOf(V::kName)];
  }
  template <class V>
  UOp OrNull(const V&) const {  // for names bound in only some arms of Either()
    static_assert(kMay.Has(V::kName), "this pattern never binds that name");
    return slot[kMay.IndexOf(V::kName)];
  }
  // Binds N to u while k() runs, or insists that it is already u.
  template <RuleName N, class K>
  [[gnu::always_inline]] UOp Bind(UOp u, K&& k) {
    UOp& s = slot[kMay.IndexOf(N)];
    if (s) return s == u ? k() : nullptr;
    s = u;
    UOp out = k();
    if (!out) s = nullptr;
    return out;
  }
};

// ---- sets of scalars ----------------------------------------------------------------------------

// Looks at the scalar of a vector; a pointer is in no set.
struct ScalarSet {
  uint32_t bits = 0;

  template <std::same_as<Scalar>... Ss>
  static constexpr ScalarSet Of(Ss... s) {
    return ScalarSet{((1u << static_cast<int>(s)) | ... | 0u)};
  }
  constexpr bool Has(DType t) const {
    return !t.is_pointer() && ((bits >> static_cast<int>(t.scalar)) & 1) != 0;
  }
  constexpr ScalarSet operator|(ScalarSet other) const { return ScalarSet{bits | other.bits}; }
};
inline constexpr ScalarSet kBools = ScalarSet::Of(Scalar::kBool);
inline constexpr ScalarSet kSignedInts =
    ScalarSet::Of(Scalar::kInt8, Scalar::kInt16, Scalar::kInt32, Scalar::kInt64);
inline constexpr ScalarSet kUnsignedInts =
    ScalarSet::Of(Scalar::kUint8, Scalar::kUint16, Scalar::kUint32, Scalar::kUint64);
inline constexpr ScalarSet kInts = kSignedInts | kUnsignedInts;
inline constexpr ScalarSet kIntsAndBools = kInts | kBools;
inline constexpr ScalarSet kFloats =
    ScalarSet::Of(Scalar::kFloat16, Scalar::kBFloat16, Scalar::kFloat32, Scalar::kFloat64);

// ---- patterns -----------------------------------------------------------------------------------
// Each pattern type has: kMay, kMust (names), kRoots (ops it can match), kNeeds (ops some source
// must have), kBuildable (can it stand on a right side), and
//   MatchNode(u, m, k): for each way u matches, run k(); return the first non-null result.
//   Build(m, like):  the node it denotes; literals take their dtype from `like`.

template <class P>
concept Pattern = requires {
  typename std::remove_cvref_t<P>::PatternTag;
};

template <class P, RuleName N>
struct Named;
template <class P>
struct Typed;
template <class P, OpSet kOps>
struct Needing;

template <class Self>
struct Combinators {
  using PatternTag = void;
  static constexpr bool kBuildable = false;
  static constexpr NameSet kMay = {}, kMust = {};
  static constexpr OpSet kRoots = OpSet::All(), kNeeds = {};

  template <class V>
  constexpr auto as(const V&) const {
    return Named<Self, V::kName>{{}, self()};
  }
  constexpr auto of(ScalarSet scalars) const { return Typed<Self>{{}, self(), scalars}; }
  template <OpSet kOps>
  constexpr auto needing() const {
    return Needing<Self, kOps>{{}, self()};
  }

 private:
  constexpr const Self& self() const { return static_cast<const Self&>(*this); }
};

template <RuleName N, OpSet kOps, bool kScalarInt = false>
struct Capture : Combinators<Capture<N, kOps, kScalarInt>> {
  static constexpr RuleName kName = N;
  static constexpr bool kBuildable = true;
  static constexpr NameSet kMay = NameSet::Of(N), kMust = kMay;
  static constexpr OpSet kRoots = kOps;
  constexpr Capture() = default;
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    if (!kOps.Has(u.op())) return nullptr;
    if (kScalarInt && u.arg().kind() == Arg::Kind::kFloat) return nullptr;
    return m.template Bind<N>(u, k);
  }
  template <class M>
  UOp Build(const M& m, UOp) const {
    return m[*this];
  }
  void Print(std::string& s) const { s += N.text; }
};
template <RuleName N>
using Var = Capture<N, OpSet::All()>;  // any node
template <RuleName N>
using CVar = Capture<N, Op::kConst | Op::kVConst>;  // any constant
template <RuleName N>
using ScalarCVar = Capture<N, OpSet(Op::kConst), true>;  // one integer or bool: Value() is allowed

struct AnyNode : Combinators<AnyNode> {
  constexpr AnyNode() = default;
  template <class M, class K>
  UOp MatchNode(UOp, M&, K&& k) const {
    return k();
  }
  void Print(std::string& s) const { s += '_'; }
};
inline constexpr AnyNode any;

struct Literal : Combinators<Literal> {
  int64_t value;
  static constexpr bool kBuildable = true;
  static constexpr OpSet kRoots = Op::kConst;
  constexpr explicit Literal(int64_t v) : value(v) {}
  template <class M, class K>
  UOp MatchNode(UOp u, M&, K&& k) const {
    if (!u.is_const()) return nullptr;
    const Arg want =
        u.arg().kind() == Arg::Kind::kFloat
            ? Arg::Float(static_cast<double>(value))
            : (u.arg().kind() == Arg::Kind::kBool ? Arg::Bool(value != 0) : Arg::Int(value));
    return u.arg() == want ? k() : nullptr;
  }
  template <class M>
  UOp Build(const M&, UOp like) const {
    return like.ConstLike(value);
  }
  void Print(std::string& s) const { absl::StrAppend(&s, value); }
};

struct FloatLiteral : Combinators<FloatLiteral> {
  double value;
  static constexpr bool kBuildable = true;
  static constexpr OpSet kRoots = Op::kConst;
  constexpr explicit FloatLiteral(double v) : value(v) {}
  template <class M, class K>
  UOp MatchNode(UOp u, M&, K&& k) const {
    return u.is_const() && u.arg() == Arg::Float(value) ? k() : nullptr;
  }
  template <class M>
  UOp Build(const M&, UOp like) const {
    return like.graph().ConstFloat(like.dtype(), value);
  }
  void Print(std::string& s) const {
    absl::StrAppend(&s, std::signbit(value) ? "-" : "", std::abs(value), "f");
  }
};

template <class P, RuleName N>
struct Named : Combinators<Named<P, N>> {
  P p;
  static constexpr RuleName kName = N;
  static constexpr NameSet kMay = P::kMay | NameSet::Of(N), kMust = P::kMust | NameSet::Of(N);
  static constexpr OpSet kRoots = P::kRoots, kNeeds = P::kNeeds;
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    if (!kRoots.Has(u.op())) return nullptr;
    return m.template Bind<N>(u, [&] { return p.MatchNode(u, m, k); });
  }
  void Print(std::string& s) const {
    p.Print(s);
    absl::StrAppend(&s, ":", N.text);
  }
};

template <class P>
struct Typed : Combinators<Typed<P>> {
  P p;
  ScalarSet scalars;
  static constexpr bool kBuildable = P::kBuildable;
  static constexpr NameSet kMay = P::kMay, kMust = P::kMust;
  static constexpr OpSet kRoots = P::kRoots, kNeeds = P::kNeeds;
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    return scalars.Has(u.dtype()) ? p.MatchNode(u, m, k) : nullptr;
  }
  template <class M>
  UOp Build(const M& m, UOp like) const {
    return p.Build(m, like);
  }
  void Print(std::string& s) const { p.Print(s); }
};

// p, where some source must have each op of kOps (a cheap pre-test for rules whose function checks
// it).
template <class P, OpSet kOps>
struct Needing : Combinators<Needing<P, kOps>> {
  P p;
  static constexpr NameSet kMay = P::kMay, kMust = P::kMust;
  static constexpr OpSet kRoots = P::kRoots, kNeeds = P::kNeeds | kOps;
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    return p.MatchNode(u, m, k);
  }
  void Print(std::string& s) const { p.Print(s); }
};

template <class P>
inline constexpr OpSet kNeedFor = P::kRoots.IsSingle() ? P::kRoots : OpSet{};

template <class P>
inline constexpr bool kIsLiteral = std::is_same_v<P, Literal> || std::is_same_v<P, FloatLiteral>;

template <Op kOp, class A, class B>
struct Binary : Combinators<Binary<kOp, A, B>> {
  A a;
  B b;
  static constexpr bool kBuildable = A::kBuildable && B::kBuildable;
  static constexpr NameSet kMay = A::kMay | B::kMay, kMust = A::kMust | B::kMust;
  static constexpr OpSet kRoots = kOp, kNeeds = kNeedFor<A> | kNeedFor<B>;

  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    if (!u.is(kOp)) return nullptr;
    const UOp l = u.src(0), r = u.src(1);
    if (UOp out = a.MatchNode(l, m, [&] { return b.MatchNode(r, m, k); })) return out;
    if constexpr (kCommutative.Has(kOp) && !(std::is_same_v<A, B> && std::is_empty_v<A>)) {
      return a.MatchNode(r, m, [&] { return b.MatchNode(l, m, k); });
    }
    return nullptr;
  }
  template <class M>
  UOp Build(const M& m, UOp like) const {
    if constexpr (kIsLiteral<A>) {
      const UOp y = b.Build(m, like);
      return Alu(kOp, a.Build(m, y), y);
    } else {
      const UOp x = a.Build(m, like);
      return Alu(kOp, x, b.Build(m, x));
    }
  }
  void Print(std::string& s) const {
    s += '(';
    a.Print(s);
    absl::StrAppend(&s, " ", beamd::Name(kOp), " ");
    b.Print(s);
    s += ')';
  }
};

// Sources in order. kRest: more may follow.
template <OpSet kOps, bool kRest, class... Ps>
struct NodePattern : Combinators<NodePattern<kOps, kRest, Ps...>> {
  std::tuple<Ps...> ps;
  static constexpr NameSet kMay = (NameSet{} | ... | Ps::kMay),
                           kMust = (NameSet{} | ... | Ps::kMust);
  static constexpr OpSet kRoots = kOps, kNeeds = (OpSet{} | ... | kNeedFor<Ps>);

  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    if (!kOps.Has(u.op())) return nullptr;
    constexpr int kCount = sizeof...(Ps);
    if (kRest ? u.src_count() < kCount : u.src_count() != kCount) return nullptr;
    return MatchSources<0>(u, m, k);
  }
  void Print(std::string& s) const {
    if constexpr (kOps.IsSingle()) {
      constexpr int kBit =
          kOps.lo != 0 ? std::countr_zero(kOps.lo) : 64 + std::countr_zero(kOps.hi);
      absl::StrAppend(&s, beamd::Name(static_cast<Op>(kBit)), "(");
    } else {
      s += "node(";
    }
    std::apply([&](const auto&... p) { ((p.Print(s), s += ' '), ...); }, ps);
    s += kRest ? "...)" : ")";
  }

 private:
  template <size_t I, class M, class K>
  UOp MatchSources(UOp u, M& m, K&& k) const {
    if constexpr (I == sizeof...(Ps)) {
      return k();
    } else {
      return std::get<I>(ps).MatchNode(
          u.src(I), m, [&]() { return this->template MatchSources<I + 1>(u, m, k); });
    }
  }
};

// Any number of sources, each matching p. Captures in p force the sources to be one node.
template <OpSet kOps, class P>
struct EachPattern : Combinators<EachPattern<kOps, P>> {
  P p;
  static constexpr NameSet kMay = P::kMay, kMust = P::kMust;
  static constexpr OpSet kRoots = kOps, kNeeds = kNeedFor<P>;
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    if (!kOps.Has(u.op()) || u.src_count() == 0) return nullptr;
    if constexpr (kMay.size == 0) {
      for (const UOp s : u.src()) {
        if (!p.MatchNode(s, m, [&] { return u; })) return nullptr;
      }
      return k();
    } else {
      for (const UOp s : u.src()) {
        if (s != u.src(0)) return nullptr;
      }
      return p.MatchNode(u.src(0), m, k);
    }
  }
  void Print(std::string& s) const {
    s += "each(";
    p.Print(s);
    s += ')';
  }
};

template <class... Ps>
struct EitherPattern : Combinators<EitherPattern<Ps...>> {
  std::tuple<Ps...> ps;
  static constexpr NameSet kMay = (NameSet{} | ... | Ps::kMay), kMust = (kMay & ... & Ps::kMust);
  static constexpr OpSet kRoots = (OpSet{} | ... | Ps::kRoots);
  template <class M, class K>
  UOp MatchNode(UOp u, M& m, K&& k) const {
    UOp out = nullptr;
    std::apply([&](const auto&... p) { (void)((out = p.MatchNode(u, m, k)) || ...); }, ps);
    return out;
  }
  void Print(std::string& s) const {
    s += "either(";
    std::apply([&](const auto&... p) { ((p.Print(s), s += ' '), ...); }, ps);
    s += ')';
  }
};

// ---- building patterns --------------------------------------------------------------------------

template <class T>
constexpr auto Lift(const T& t) {
  if constexpr (Pattern<T>) {
    return t;
  } else if constexpr (std::floating_point<T>) {
    return FloatLiteral(t);
  } else {
    return Literal(static_cast<int64_t>(t));
  }
}
template <class A, class B>
concept Operands = (Pattern<A> && (Pattern<B> || std::is_arithmetic_v<B>)) ||
                   (std::is_arithmetic_v<A> && Pattern<B>);
template <Op kOp, class A, class B>
constexpr auto MakeBinary(const A& a, const B& b) {
  return Binary<kOp, decltype(Lift(a)), decltype(Lift(b))>{{}, Lift(a), Lift(b)};
}
#define BEAMD_PATTERN_OPERATOR(name, op) \
  template <class A, class B>            \
  requires Operands<A, B>                \
  constexpr auto name(const A& a, const B& b) { return MakeBinary<op>(a, b); }
BEAMD_PATTERN_OPERATOR(operator+, Op::kAdd)
BEAMD_PATTERN_OPERATOR(operator*, Op::kMul)
BEAMD_PATTERN_OPERATOR(operator/, Op::kIdiv)
BEAMD_PATTERN_OPERATOR(operator%, Op::kMod)
BEAMD_PATTERN_OPERATOR(operator<, Op::kCmpLt)
BEAMD_PATTERN_OPERATOR(operator!=, Op::kCmpNe)
BEAMD_PATTERN_OPERATOR(operator&, Op::kAnd)
BEAMD_PATTERN_OPERATOR(operator|, Op::kOr)
BEAMD_PATTERN_OPERATOR(operator^, Op::kXor)
BEAMD_PATTERN_OPERATOR(Max, Op::kMax)
#undef BEAMD_PATTERN_OPERATOR
template <Pattern A>
constexpr auto operator-(const A& a) {
  return a * -1;
}
// !a, for bool.
template <Pattern A>
constexpr auto Not(const A& a) {
  return MakeBinary<Op::kCmpNe>(a, 1);
}

template <OpSet kOps, class... Ps>
constexpr auto Node(const Ps&... ps) {
  return NodePattern<kOps, false, Ps...>{{}, {ps...}};
}
template <OpSet kOps, class... Ps>
constexpr auto NodeThenRest(const Ps&... ps) {
  return NodePattern<kOps, true, Ps...>{{}, {ps...}};
}
template <OpSet kOps, class P>
constexpr auto NodeOfEach(const P& p) {
  return EachPattern<kOps, P>{{}, p};
}
template <class... Ps>
constexpr auto Either(const Ps&... ps) {
  return EitherPattern<Ps...>{{}, {ps...}};
}

// ---- guards: expressions over a match -----------------------------------------------------------

template <class F>
struct Guard {
  F eval;
};
template <class F>
Guard(F) -> Guard<F>;

// The value of a scalar constant.
template <RuleName N>
constexpr auto Value(const ScalarCVar<N>& c) {
  return Guard{[c](const auto& m) { return m[c].int_value(); }};
}
// fn(m[x], ...), as a value in a guard.
template <class F, class... Vs>
constexpr auto Test(F fn, Vs... vs) {
  return Guard{[fn, vs...](const auto& m) { return fn(m[vs]...); }};
}
template <class F>
constexpr auto AsGuard(const Guard<F>& g) {
  return g;
}
constexpr auto AsGuard(int64_t v) {
  return Guard{[v](const auto&) { return v; }};
}
#define BEAMD_GUARD_OPERATOR(op)                                                         \
  template <class F, class T>                                                            \
  constexpr auto operator op(const Guard<F>& a, const T& b) {                            \
    return Guard{[a, b = AsGuard(b)](const auto& m) { return a.eval(m) op b.eval(m); }}; \
  }
BEAMD_GUARD_OPERATOR(+)
BEAMD_GUARD_OPERATOR(*)
BEAMD_GUARD_OPERATOR(%)
BEAMD_GUARD_OPERATOR(<)
BEAMD_GUARD_OPERATOR(<=)
BEAMD_GUARD_OPERATOR(>)
BEAMD_GUARD_OPERATOR(>=)
BEAMD_GUARD_OPERATOR(==)
BEAMD_GUARD_OPERATOR(!=)
BEAMD_GUARD_OPERATOR(&&)
BEAMD_GUARD_OPERATOR(||)
#undef BEAMD_GUARD_OPERATOR

// Try(fn, x, c) on a right side: fn(m[x], m[c]). Null: this match does not apply, keep looking.
template <class F, class... Vs>
constexpr auto Try(F fn, Vs... vs) {
  return [fn, vs...](const auto& m) -> UOp { return fn(m[vs]...); };
}

// ---- rules --------------------------------------------------------------------------------------

// Where a rule is written. Not std::source_location: clang-tidy 14 can't parse that.
struct SourceLine {
  const char* file;
  int line;
  static constexpr SourceLine Current(const char* f = __builtin_FILE(), int l = __builtin_LINE()) {
    return {f, l};
  }
};

struct Always {
  template <class M>
  constexpr bool eval(const M&) const {
    return true;
  }
};

template <class L, class R, class G = Always>
class Rule {
 public:
  constexpr Rule(L lhs, R rhs, SourceLine where = SourceLine::Current())
      : lhs_(lhs), rhs_(rhs), where_(where) {}
  constexpr Rule(L lhs, R rhs, G guard, SourceLine where)
      : lhs_(lhs), rhs_(rhs), guard_(guard), where_(where) {}
  template <class F>
  constexpr auto When(Guard<F> guard) const {
    return Rule<L, R, Guard<F>>(lhs_, rhs_, guard, where_);
  }

  static constexpr OpSet kRoots = L::kRoots, kNeeds = L::kNeeds;
  static constexpr bool kDeclarative = L::kBuildable && (Pattern<R> || std::integral<R>);
  SourceLine where() const { return where_; }

  UOp Apply(UOp u) const {
    Match<L::kMay, L::kMust> m;
    return lhs_.MatchNode(u, m, [&]() -> UOp { return guard_.eval(m) ? Result(m, u) : nullptr; });
  }
  // Both sides over given captures, for the soundness test. False if the left side doesn't match
  // what it would build, or the guard rejects it.
  bool Instantiate(std::span<const UOp> captures, UOp* before, UOp* after) const {
    if constexpr (kDeclarative) {
      Match<L::kMay, L::kMust> m;
      for (int i = 0; i < L::kMay.size; ++i) m.slot[i] = captures[i % captures.size()];
      *before = lhs_.Build(m, captures[0]);
      *after = Apply(*before);
      return static_cast<bool>(*after);
    }
    return false;
  }
  std::string ToString() const {
    std::string s;
    lhs_.Print(s);
    s += " -> ";
    if constexpr (Pattern<R>) {
      rhs_.Print(s);
    } else if constexpr (std::integral<R>) {
      absl::StrAppend(&s, rhs_);
    } else {
      s += "fn";
    }
    return s;
  }

 private:
  template <class M>
  UOp Result(const M& m, UOp u) const {
    if constexpr (Pattern<R>) {
      static_assert(R::kBuildable,
                    "the right side must be built from variables, literals and operators");
      static_assert(L::kMust.Covers(R::kMust),
                    "the right side uses a name the left side does not bind");
      return rhs_.Build(m, u);
    } else if constexpr (std::integral<R>) {
      return u.ConstLike(rhs_);
    } else {
      return rhs_(m);
    }
  }
  L lhs_;
  R rhs_;
  [[no_unique_address]] G guard_{};
  SourceLine where_;
};
template <class L, class R>
Rule(L, R) -> Rule<L, R>;

}  // namespace beamd::pattern
