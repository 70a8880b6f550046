// What a node carries besides its sources. Small arguments sit in the node; the others are interned
// by their graph, so that within one graph equal arguments are one address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/uop/op.h"

namespace beamd {

// An integer, or a reference to a source of the node that carries it (a symbolic size).
struct IntOrSrc {
  int64_t value = 0;
  int32_t src = -1;  // not negative: the value is that of this source; `value` is then 0

  bool operator==(const IntOrSrc&) const = default;
};

// One view: how the indices of `shape` address elements. mask: [begin, end) an axis, or none.
struct ViewArg {
  std::vector<IntOrSrc> shape;
  std::vector<IntOrSrc> strides;  // elements
  IntOrSrc offset;                // elements
  std::optional<std::vector<std::pair<IntOrSrc, IntOrSrc>>> mask;

  bool operator==(const ViewArg&) const = default;
};

// VIEW, and ASSIGN into a view of its target. Applied first to last; the last one's shape is seen.
struct ViewsArg {
  std::vector<ViewArg> views;
  bool operator==(const ViewsArg&) const = default;
};

// REDUCE_AXIS, REDUCE. op: kAdd, kMul or kMax; axes sorted.
struct ReduceArg {
  Op op = Op::kAdd;
  std::vector<int32_t> axes;
  bool operator==(const ReduceArg&) const = default;
};

// DEFINE_VAR. Bounds are inclusive.
struct VariableArg {
  std::string name;
  int64_t min = 0, max = 0;
  bool operator==(const VariableArg&) const = default;
};

// SINK of an optimised kernel.
struct KernelInfo {
  int32_t local_dims = 0;
  int32_t upcasted = 0;
  bool dont_use_locals = false;
  bool operator==(const KernelInfo&) const = default;
};

// DEFINE_GLOBAL (id is the slot; size 0 means the largest valid index + 1), BUFFER, EMPTY.
struct BufferArg {
  uint64_t id = 0;
  uint64_t size_elements = 0;
  std::vector<IntOrSrc> shape;
  std::string device;
  bool operator==(const BufferArg&) const = default;
};

// RESHAPE, EXPAND: the new shape; PERMUTE: the order; FLIP: the axes; PAD, SHRINK: two an axis.
struct IntsArg {
  std::vector<IntOrSrc> values;
  bool operator==(const IntsArg&) const = default;
};

// VCONST: the value of each lane (floats as the bits of a double). GEP: the lanes taken.
struct LanesArg {
  std::vector<int64_t> lanes;
  bool operator==(const LanesArg&) const = default;
};

// RANGE: which axis of the optimised kernel it walks, and how.
struct RangeArg {
  enum class Kind : uint8_t {
    kGlobal,  // a loop, or a grid index on a GPU
    kReduce,  // a loop around an accumulator
    kUpcast,  // unrolled, belongs to the output
    kUnroll,  // unrolled, belongs to a reduction
    kLocal,   // a local index on a GPU
    kGroup,   // a local index that belongs to a reduction
  };
  Kind kind = Kind::kGlobal;
  int32_t axis = 0;
  int32_t stage = 0;  // reductions that need another's result walk their axes again, a stage later
  bool operator==(const RangeArg&) const = default;
};

// A name: DEFINE_LOCAL, SPECIAL, COPY (the device).
using ArgData = std::variant<ViewsArg, ReduceArg, VariableArg, KernelInfo, std::string, IntsArg,
                             BufferArg, LanesArg, RangeArg>;

// The argument of a node: nothing, a number, or a pointer to interned data.
class Arg {
 public:
  enum class Kind : uint8_t { kNone, kInt, kFloat, kBool, kData };

  constexpr Arg() = default;
  static constexpr Arg Int(int64_t v) { return Arg(Kind::kInt, static_cast<uint64_t>(v)); }
  static constexpr Arg Bool(bool v) { return Arg(Kind::kBool, v ? 1 : 0); }
  // Every NaN becomes the one quiet NaN; -0.0 and 0.0 stay apart.
  static Arg Float(double v);
  static Arg Data(const ArgData* interned) {
    return Arg(Kind::kData, reinterpret_cast<uint64_t>(interned));
  }

  constexpr Kind kind() const { return kind_; }
  constexpr bool has_value() const { return kind_ != Kind::kNone; }
  constexpr int64_t as_int() const { return static_cast<int64_t>(word_); }
  constexpr bool as_bool() const { return word_ != 0; }
  double as_float() const;
  const ArgData* data() const {
    return kind_ == Kind::kData ? reinterpret_cast<const ArgData*>(word_) : nullptr;
  }
  constexpr uint64_t word() const { return word_; }
  constexpr bool operator==(const Arg&) const = default;

 private:
  constexpr Arg(Kind kind, uint64_t word) : kind_(kind), word_(word) {}
  Kind kind_ = Kind::kNone;
  uint64_t word_ = 0;
};

// A hash of the content, the same in every process.
uint64_t ContentHash(const ArgData& data);

}  // namespace beamd
