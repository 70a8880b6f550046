#include "engine/symbolic/int_eval.h"

#include <algorithm>
#include <vector>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/linear.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

bool Less(int64_t a, int64_t b, Scalar s) {
  return s == Scalar::kUint64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

int64_t Divide(int64_t a, int64_t b, Scalar s) {
  if (b == 0) return 0;
  if (s == Scalar::kUint64) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  }
  return b == -1 ? NegWrap(a) : a / b;
}

int64_t Modulo(int64_t a, int64_t b, Scalar s) {
  if (b == 0) return 0;
  if (s == Scalar::kUint64) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  }
  return b == -1 ? 0 : a % b;
}

int64_t ShiftRight(int64_t a, uint64_t amount, Scalar s) {
  const bool out = amount >= static_cast<uint64_t>(Bits(s));
  if (IsUnsigned(s)) return out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> amount);
  return out ? (a < 0 ? -1 : 0) : a >> amount;
}

}  // namespace

std::optional<int64_t> EvalIntOp(UOp u, std::span<const int64_t> v) {
  if (!IsIntegral(u.dtype())) return std::nullopt;
  for (const UOp s : u.src()) {
    if (!IsIntegral(s.dtype())) return std::nullopt;
  }
  const Scalar s = u.is(kComparison) ? u.src(0).scalar() : u.scalar();
  const auto wrapped = [&](uint64_t bits) {
    return WrapInt(static_cast<int64_t>(bits), u.scalar());
  };
  const auto bits = [&](int i) { return static_cast<uint64_t>(v[i]); };
  switch (u.op()) {
    case Op::kCast:
      return wrapped(bits(0));
    case Op::kNeg:
      return wrapped(-bits(0));
    case Op::kAdd:
      return wrapped(bits(0) + bits(1));
    case Op::kSub:
      return wrapped(bits(0) - bits(1));
    case Op::kMul:
      return wrapped(bits(0) * bits(1));
    case Op::kIdiv:
      return wrapped(Divide(v[0], v[1], s));
    case Op::kMod:
      return wrapped(Modulo(v[0], v[1], s));
    case Op::kMax:
      return Less(v[0], v[1], s) ? v[1] : v[0];
    case Op::kCmpLt:
      return Less(v[0], v[1], s) ? 1 : 0;
    case Op::kCmpNe:
      return v[0] != v[1] ? 1 : 0;
    case Op::kXor:
      return v[0] ^ v[1];
    case Op::kOr:
      return v[0] | v[1];
    case Op::kAnd:
      return v[0] & v[1];
    case Op::kShl:
      return bits(1) >= static_cast<uint64_t>(Bits(s)) ? 0 : wrapped(bits(0) << bits(1));
    case Op::kShr:
      return ShiftRight(v[0], bits(1), s);
    case Op::kWhere:
      return v[0] != 0 ? v[1] : v[2];
    case Op::kMulAcc:
      return wrapped(bits(0) * bits(1) + bits(2));
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> EvaluateInt(UOp u, const std::vector<UOp>& leaves,
                                   const std::vector<int64_t>& values) {
  const std::vector<UOp> order = Toposort(u);
  uint32_t size = 0;
  for (const UOp n : order) size = std::max(size, n.id() + 1);
  std::vector<std::optional<int64_t>> value(size);
  for (const UOp n : order) {
    if (n.is_const() && n.arg().kind() != Arg::Kind::kFloat) value[n.id()] = n.int_value();
    const auto leaf = std::find(leaves.begin(), leaves.end(), n);
    if (leaf != leaves.end()) value[n.id()] = values[leaf - leaves.begin()];
    if (value[n.id()] || !n.is(kAlu | Op::kCast)) continue;
    int64_t v[3] = {};
    bool known = n.src_count() <= 3;
    for (int i = 0; known && i < n.src_count(); ++i) {
      const std::optional<int64_t>& s = value[n.src(i).id()];
      known = s.has_value();
      v[i] = s.value_or(0);
    }
    if (known) value[n.id()] = EvalIntOp(n, v);
  }
  return value[u.id()];
}

}  // namespace beamd
