#include "engine/shape/sint.h"

#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Integer nodes below `u` made int64, variables under their names and bounds; bool stays bool.
UOp WidenToInt64(UOp u) {
  std::vector<UOp> order = Toposort(u);
  absl::flat_hash_map<UOp, UOp> wide;
  std::vector<UOp> src;
  for (const UOp n : order) {
    src.clear();
    for (const UOp s : n.src()) src.push_back(wide.at(s));
    const DType dtype = IsInt(n.scalar()) ? DType(Scalar::kInt64) : n.dtype();
    const bool drops = n.is(Op::kCast) && src[0].dtype() == dtype;
    wide[n] = drops ? src[0] : u.graph().Make(n.op(), dtype, src, n.arg());
  }
  return wide.at(u);
}

int64_t DivNumbers(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  return a / b;
}

int64_t ModNumbers(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

absl::string_view Sign(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kMul:
      return "*";
    case Op::kIdiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kCmpLt:
      return "<";
    case Op::kCmpNe:
      return "!=";
    default:
      return "";
  }
}

}  // namespace

SInt::SInt(UOp expr) : expr_(Simplify(WidenToInt64(expr))) {
  if (!expr_.is_const()) return;
  value_ = expr_.int_value();
  expr_ = nullptr;
}

int64_t SInt::number() const {
  BEAMD_CHECK(is_number(), "this size is an expression");
  return value_;
}

UOp SInt::ToUOp(UOpGraph& graph) const {
  return expr_ ? graph.Import(expr_) : graph.Const(Scalar::kInt64, value_);
}

int64_t SInt::min() const { return expr_ ? BoundsOf(expr_).min : value_; }
int64_t SInt::max() const { return expr_ ? BoundsOf(expr_).max : value_; }

SInt SInt::Expression(Op op, const SInt& a, const SInt& b) {
  UOpGraph& graph = (a.expr_ ? a.expr_ : b.expr_).graph();
  const UOp x = a.ToUOp(graph), y = b.ToUOp(graph);
  return SInt(op == Op::kSub ? x - y : Alu(op, x, y));
}

SInt operator/(const SInt& a, const SInt& b) {
  if (SInt::BothNumbers(a, b)) return DivNumbers(a.value_, b.value_);
  return SInt::Expression(Op::kIdiv, a, b);
}

SInt operator%(const SInt& a, const SInt& b) {
  if (SInt::BothNumbers(a, b)) return ModNumbers(a.value_, b.value_);
  return SInt::Expression(Op::kMod, a, b);
}

SInt Max(const SInt& a, const SInt& b) {
  if (ProvenLe(a, b)) return b;
  if (ProvenLe(b, a)) return a;
  return SInt::Expression(Op::kMax, a, b);
}

SInt Min(const SInt& a, const SInt& b) { return 0 - Max(0 - a, 0 - b); }

bool ProvenLt(const SInt& a, const SInt& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  return a.max() < b.min() || (a - b).max() < 0;
}

bool ProvenLe(const SInt& a, const SInt& b) {
  if (a.is_number() && b.is_number()) return a.number() <= b.number();
  return a == b || a.max() <= b.min() || (a - b).max() <= 0;
}

bool ProvenEq(const SInt& a, const SInt& b) {
  if (a == b) return true;
  if (a.is_number() && b.is_number()) return false;
  const SInt difference = a - b;
  return difference.min() == 0 && difference.max() == 0;
}

bool ProvenNe(const SInt& a, const SInt& b) {
  if (a.is_number() && b.is_number()) return a.number() != b.number();
  return ProvenLt(a, b) || ProvenLt(b, a);
}

SInt Prod(std::span<const SInt> values) {
  SInt product = 1;
  for (const SInt& v : values) product = product * v;
  return product;
}

bool AllNumbers(std::span<const SInt> values) {
  for (const SInt& v : values) {
    if (!v.is_number()) return false;
  }
  return true;
}

std::string ToString(const SInt& v) {
  if (v.is_number()) return absl::StrCat(v.number());
  // A client's expression may share nodes, so that its text grows with 2^depth.
  constexpr size_t kLongest = 1000;
  absl::flat_hash_map<UOp, std::string> text;
  for (const UOp n : Toposort(v.expr())) {
    std::string& t = text[n];
    if (n.is_const()) {
      t = absl::StrCat(n.int_value());
    } else if (n.is(Op::kDefineVar)) {
      t = n.data<VariableArg>().name;
    } else if (n.src_count() == 2 && !Sign(n.op()).empty()) {
      t = absl::StrCat("(", text.at(n.src(0)), Sign(n.op()), text.at(n.src(1)), ")");
    } else {
      absl::StrAppend(&t, Name(n.op()), "(");
      for (int i = 0; i < n.src_count(); ++i) {
        absl::StrAppend(&t, i == 0 ? "" : ",", text.at(n.src(i)));
      }
      absl::StrAppend(&t, ")");
    }
    if (t.size() > kLongest) t = "...";
  }
  return text.at(v.expr());
}

}  // namespace beamd
