#include "tests/testing/interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/tensor_core.h"
#include "engine/uop/int_alu.h"
#include "engine/uop/text.h"

namespace beamd::testing {
namespace {

// A scalar: floats are `real`, all else `integer`.
struct Cell {
  double real = 0;
  int64_t integer = 0;
};

// A node's value: cell [item * lanes + lane].
struct Value {
  int lanes = 1;
  std::vector<Cell> cells;
  const Cell& at(int64_t item, int lane) const {
    return cells[item * lanes + (lanes == 1 ? 0 : lane)];
  }
};

// Who touched an element last. A barrier begins an epoch.
struct Touch {
  int64_t group = -1, item = -1, epoch = -1;
  bool several_items = false, several_groups = false;
};

struct Memory {
  Scalar scalar = Scalar::kVoid;
  std::vector<Cell> cells;
  std::vector<char> written;
  std::vector<Touch> reads, writes;

  Memory(Scalar s, int64_t elements)
      : scalar(s), cells(elements), written(elements), reads(elements), writes(elements) {}
};

// Truncates and saturates; NaN gives 0.
int64_t Truncated(double value, Scalar to) {
  if (std::isnan(value)) return 0;
  if (to == Scalar::kUint64) {
    if (value <= 0) return 0;
    if (value >= 0x1p64) return -1;
    return static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  if (value <= static_cast<double>(MinInt(to))) return MinInt(to);
  if (value >= static_cast<double>(MaxInt(to))) return MaxInt(to);
  return static_cast<int64_t>(value);
}

Cell CastCell(Cell a, Scalar from, Scalar to) {
  if (IsFloat(from) && IsFloat(to)) return {RoundToFloat(a.real, to), 0};
  if (IsFloat(to)) {
    const double exact = from == Scalar::kUint64
                             ? static_cast<double>(static_cast<uint64_t>(a.integer))
                             : static_cast<double>(a.integer);
    return {RoundToFloat(exact, to), 0};
  }
  if (!IsFloat(from)) return {0, WrapInt(a.integer, to)};
  if (to == Scalar::kBool) return {0, a.real != 0 ? 1 : 0};
  return {0, Truncated(a.real, to)};
}

Cell BitcastCell(Cell a, Scalar from, Scalar to) {
  char bytes[8] = {};
  IsFloat(from) ? StoreFloat(a.real, from, bytes) : StoreInt(a.integer, from, bytes);
  if (IsFloat(to)) return {LoadFloat(bytes, to), 0};
  return {0, LoadInt(bytes, to)};
}

double MaxOf(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return std::max(a, b);
}

double FloatAlu(Op op, double a, double b, double c) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kFdiv:
      return a / b;
    case Op::kNeg:
      return -a;
    case Op::kRecip:
      return 1 / a;
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kExp2:
      return std::exp2(a);
    case Op::kLog2:
      return std::log2(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kMax:
      return MaxOf(a, b);
    case Op::kMulAcc:
      return std::fma(a, b, c);
    default:
      BEAMD_CHECK(false, Name(op));
      return 0;
  }
}

class Interpreter {
 public:
  Interpreter(const LinearProgram& program, const TargetCaps& caps,
              const std::vector<int64_t>& variables)
      : program_(program), caps_(caps), variables_(variables) {
    uint32_t size = 0;
    for (const UOp u : program.ops) size = std::max(size, u.id() + 1);
    values_.resize(size);
    for (const UOp u : program.ops) {
      if (u.is(Op::kAssign)) assign_of_[u.src(0)] = u;
    }
    const auto& local = program.image.local_size;
    items_ = local[0] * local[1] * local[2];
  }

  absl::Status Run(std::vector<std::string>& buffers) {
    const KernelImage& image = program_.image;
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      const KernelImage::Buffer& b = image.buffers[i];
      Memory& memory = global_.emplace(b.slot, Memory(b.scalar, b.size_elements)).first->second;
      for (int64_t e = 0; e < b.size_elements; ++e) {
        const char* at = &buffers[i][e * SizeBytes(b.scalar)];
        memory.written[e] = 1;
        if (IsFloat(b.scalar)) {
          memory.cells[e].real = LoadFloat(at, b.scalar);
        } else {
          memory.cells[e].integer = LoadInt(at, b.scalar);
        }
      }
    }
    const auto [x, y, z] = image.global_size;
    for (group_ = 0; group_ < x * y * z; ++group_) {
      group_index_ = {group_ % x, group_ / x % y, group_ / x / y};
      BEAMD_RETURN_IF_ERROR(RunGroup());
    }
    for (size_t i = 0; i < image.buffers.size(); ++i) {
      const KernelImage::Buffer& b = image.buffers[i];
      const Memory& memory = global_.at(b.slot);
      for (int64_t e = 0; e < b.size_elements; ++e) {
        char* at = &buffers[i][e * SizeBytes(b.scalar)];
        IsFloat(b.scalar) ? StoreFloat(memory.cells[e].real, b.scalar, at)
                          : StoreInt(memory.cells[e].integer, b.scalar, at);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Loop {
    size_t begin;
    UOp range;
    int64_t index, extent;
    std::vector<UOp> assigns;
  };

  absl::Status Broken(UOp u, absl::string_view what) const {
    return absl::InternalError(absl::StrCat("%", u.id(), " ", NodeText(u), ": ", what));
  }

  absl::Status RunGroup() {
    shared_.clear();
    epoch_ = 0;
    for (Value& v : values_) v.cells.clear();
    std::vector<Loop> loops;
    for (size_t at = 0; at < program_.ops.size(); ++at) {
      const UOp u = program_.ops[at];
      switch (u.op()) {
        case Op::kSpecial: {
          BEAMD_ASSIGN_OR_RETURN(const bool past, Special(u));
          if (past) return absl::OkStatus();
          break;
        }
        case Op::kRange: {
          BEAMD_ASSIGN_OR_RETURN(const int64_t extent, Uniform(u, u.src(0)));
          if (extent <= 0) {
            at = EndOf(u);
            break;
          }
          loops.push_back({at, u, 0, extent, {}});
          SetAll(u, 0);
          break;
        }
        case Op::kEndLoop: {
          Loop& loop = loops.back();
          if (loop.range != u.src(0)) return Broken(u, "closes another loop");
          for (const UOp assign : loop.assigns) {
            values_[assign.src(0).id()] = values_[assign.id()];
          }
          loop.assigns.clear();
          if (++loop.index < loop.extent) {
            SetAll(loop.range, loop.index);
            at = loop.begin;
          } else {
            loops.pop_back();
          }
          break;
        }
        case Op::kAcc:
          BEAMD_RETURN_IF_ERROR(Have(u, u.src(0)));
          values_[u.id()] = Widened(u.src(0), u.lanes());
          values_[assign_of_.at(u).id()] = values_[u.id()];
          break;
        case Op::kAssign:
          BEAMD_RETURN_IF_ERROR(Have(u, u.src(1)));
          values_[u.id()] = Widened(u.src(1), u.lanes());
          if (loops.empty()) return Broken(u, "outside of a loop");
          loops.back().assigns.push_back(u);
          break;
        case Op::kBarrier:
          ++epoch_;
          break;
        default:
          BEAMD_RETURN_IF_ERROR(Step(u));
      }
    }
    return loops.empty() ? absl::OkStatus() : absl::InternalError("an open loop");
  }

  size_t EndOf(UOp range) const {
    return std::ranges::find_if(program_.ops,
                                [&](UOp u) { return u.is(Op::kEndLoop) && u.src(0) == range; }) -
           program_.ops.begin();
  }

  void SetAll(UOp u, int64_t value) {
    values_[u.id()] = {1, std::vector<Cell>(items_, Cell{0, value})};
  }
  absl::Status Have(UOp user, UOp u) const {
    if (!values_[u.id()].cells.empty()) return absl::OkStatus();
    return Broken(user, absl::StrCat("%", u.id(), " has no value yet"));
  }
  absl::StatusOr<int64_t> Uniform(UOp user, UOp u) const {
    BEAMD_RETURN_IF_ERROR(Have(user, u));
    const std::vector<Cell>& cells = values_[u.id()].cells;
    for (const Cell& c : cells) {
      if (c.integer != cells[0].integer) return Broken(user, "differs between work-items");
    }
    return cells[0].integer;
  }
  Value Widened(UOp u, int lanes) const {
    const Value& v = values_[u.id()];
    if (v.lanes == lanes) return v;
    Value wide{lanes, std::vector<Cell>(items_ * lanes)};
    for (int64_t t = 0; t < items_; ++t) {
      for (int l = 0; l < lanes; ++l) wide.cells[t * lanes + l] = v.at(t, l);
    }
    return wide;
  }

  // True where the group is at or past the extent.
  absl::StatusOr<bool> Special(UOp u) {
    const std::string& name = u.data<std::string>();
    const int dim = name[1] - '0';
    BEAMD_ASSIGN_OR_RETURN(const int64_t extent, Uniform(u, u.src(0)));
    if (name[0] == 'g') {
      SetAll(u, group_index_[dim]);
      if (group_index_[dim] < extent) return false;
      if (u.src(0).is_const()) return Broken(u, "a launch larger than the extent");
      return true;
    }
    const auto& local = program_.image.local_size;
    if (!u.src(0).is_const_int(local[dim])) return Broken(u, "not the size of the group");
    SetAll(u, 0);
    for (int64_t t = 0; t < items_; ++t) {
      const std::array<int64_t, 3> index = {t % local[0], t / local[0] % local[1],
                                            t / local[0] / local[1]};
      values_[u.id()].cells[t].integer = index[dim];
    }
    return false;
  }

  absl::Status Step(UOp u) {
    Value v{u.lanes(), {}};
    if (u.is(Op::kIndex | Op::kDefineGlobal | Op::kSink)) return absl::OkStatus();
    if (u.is(Op::kDefineLocal)) {
      shared_.emplace(u, Memory(u.scalar(), u.src(0).int_value()));
      return absl::OkStatus();
    }
    if (u.is(Op::kLoad | Op::kStore)) return Access(u);
    for (const UOp s : u.src()) BEAMD_RETURN_IF_ERROR(Have(u, s));
    if (u.is(Op::kWmma)) return Product(u);
    v.cells.resize(items_ * u.lanes());
    for (int64_t t = 0; t < items_; ++t) {
      for (int l = 0; l < u.lanes(); ++l) {
        BEAMD_ASSIGN_OR_RETURN(v.cells[t * u.lanes() + l], Compute(u, t, l));
      }
    }
    values_[u.id()] = std::move(v);
    return absl::OkStatus();
  }

  absl::StatusOr<Cell> Compute(UOp u, int64_t item, int lane) const {
    const auto in = [&](int i) { return values_[u.src(i).id()].at(item, lane); };
    switch (u.op()) {
      case Op::kConst:
        if (IsFloat(u.scalar())) return Cell{u.float_value(), 0};
        return Cell{0, u.int_value()};
      case Op::kVConst:
        return Cell{0, u.data<LanesArg>().lanes[lane]};
      case Op::kDefineVar: {
        const std::string& name = u.data<VariableArg>().name;
        const auto& all = program_.image.variables;
        const auto it = std::ranges::find(all, name, &KernelImage::Variable::name);
        if (it == all.end()) return Broken(u, "not in the image");
        return Cell{0, WrapInt(variables_[it - all.begin()], u.scalar())};
      }
      case Op::kCast:
        return CastCell(in(0), u.src(0).scalar(), u.scalar());
      case Op::kBitcast:
        return BitcastCell(in(0), u.src(0).scalar(), u.scalar());
      case Op::kWhere:
        return in(0).integer != 0 ? in(1) : in(2);
      case Op::kGep:
        return values_[u.src(0).id()].at(item, static_cast<int>(u.data<LanesArg>().lanes[lane]));
      case Op::kVectorize: {
        int rest = lane;
        for (const UOp s : u.src()) {
          if (rest < s.lanes()) return values_[s.id()].at(item, rest);
          rest -= s.lanes();
        }
        return Broken(u, "too few lanes");
      }
      default:
        break;
    }
    if (!u.is(kAlu)) return Broken(u, "not expected here");
    const Scalar s = u.src(0).scalar();
    const int count = u.src_count();
    const Cell a = in(0), b = count > 1 ? in(1) : Cell(), c = count > 2 ? in(2) : Cell();
    if (IsFloat(s) && u.is(Op::kCmpLt)) return Cell{0, a.real < b.real ? 1 : 0};
    if (IsFloat(s) && u.is(Op::kCmpNe)) return Cell{0, a.real == b.real ? 0 : 1};
    if (IsFloat(s)) return Cell{RoundToFloat(FloatAlu(u.op(), a.real, b.real, c.real), s), 0};
    if (u.is(Op::kMulAcc)) {
      return Cell{0, IntAlu(Op::kAdd, s, IntAlu(Op::kMul, s, a.integer, b.integer), c.integer)};
    }
    return Cell{0, IntAlu(u.op(), s, a.integer, b.integer)};
  }

  // ---- tensor cores ----

  // Of an element of a lane's vector, along each side of the tile.
  static std::array<int, kTileDims> Coordinates(const TensorCore::Layout& layout, int lane,
                                                int element) {
    std::array<int, kTileDims> at = {};
    const auto add = [&](std::span<const TensorCore::Bit> bits, int number) {
      for (size_t i = 0; i < bits.size(); ++i) {
        if (!bits[i].repeats()) at[bits[i].dim] |= (number >> i & 1) << bits[i].bit;
      }
    };
    add(layout.lane, lane);
    add(layout.element, element);
    return at;
  }

  // A wave at a time: what its lanes hold becomes matrices, by the layout that the table gives.
  absl::Status Product(UOp u) {
    const TensorCore& core = TensorCoresOf(caps_)[u.arg().as_int()];
    const int wave = 1 << core.c.lane.size();
    if (items_ % wave != 0) return Broken(u, "not by whole waves");
    const auto [columns, rows, depth] = core.dims;
    if (u.src(0).lanes() != core.a.elements() || u.src(1).lanes() != core.b.elements() ||
        u.src(2).lanes() != core.c.elements() || u.lanes() != core.c.elements()) {
      return Broken(u, "not a lane's vectors");
    }
    Value v{u.lanes(), std::vector<Cell>(items_ * u.lanes())};
    for (int64_t first = 0; first < items_; first += wave) {
      std::vector<std::optional<double>> a(rows * depth), b(depth * columns);
      for (int lane = 0; lane < wave; ++lane) {
        for (int e = 0; e < core.a.elements(); ++e) {
          const auto at = Coordinates(core.a, lane, e);
          auto& cell = a[at[kTileM] * depth + at[kTileK]];
          const double value = values_[u.src(0).id()].at(first + lane, e).real;
          if (cell && *cell != value) return Broken(u, "lanes that repeat A differ");
          cell = value;
        }
        for (int e = 0; e < core.b.elements(); ++e) {
          const auto at = Coordinates(core.b, lane, e);
          auto& cell = b[at[kTileK] * columns + at[kTileN]];
          const double value = values_[u.src(1).id()].at(first + lane, e).real;
          if (cell && *cell != value) return Broken(u, "lanes that repeat B differ");
          cell = value;
        }
      }
      for (int lane = 0; lane < wave; ++lane) {
        for (int e = 0; e < core.c.elements(); ++e) {
          const auto at = Coordinates(core.c, lane, e);
          double sum = values_[u.src(2).id()].at(first + lane, e).real;
          for (int k = 0; k < depth; ++k) {
            sum += a[at[kTileM] * depth + k].value() * b[k * columns + at[kTileN]].value();
          }
          v.cells[(first + lane) * u.lanes() + e].real = RoundToFloat(sum, u.scalar());
        }
      }
    }
    values_[u.id()] = std::move(v);
    return absl::OkStatus();
  }

  // ---- memory ----

  absl::Status Access(UOp u) {
    const UOp index = u.src(0), buffer = index.src(0);
    const bool load = u.is(Op::kLoad);
    const int lanes = load ? u.lanes() : u.src(1).lanes();
    BEAMD_RETURN_IF_ERROR(Have(u, index.src(1)));
    if (index.src_count() > 2) BEAMD_RETURN_IF_ERROR(Have(u, index.src(2)));
    if (!load) BEAMD_RETURN_IF_ERROR(Have(u, u.src(1)));
    Memory* memory = FindMemory(buffer);
    if (memory == nullptr) return Broken(u, "its buffer isn't there");
    const int32_t alignment = program_.index_alignment[u.id()];
    if (caps_.has_local && alignment % lanes != 0) return Broken(u, "not aligned to its lanes");
    Value v{lanes, std::vector<Cell>(items_ * lanes)};
    for (int64_t t = 0; t < items_; ++t) {
      const int64_t first = values_[index.src(1).id()].at(t, 0).integer;
      bool any = false;
      for (int l = 0; l < lanes; ++l) {
        if (index.src_count() > 2 && values_[index.src(2).id()].at(t, l).integer == 0) continue;
        any = true;
        const int64_t element = first + l;
        if (element < 0 || element >= static_cast<int64_t>(memory->cells.size())) {
          return absl::OutOfRangeError(absl::StrCat("%", u.id(), " ", NodeText(u), ": element ",
                                                    element, " of ", memory->cells.size()));
        }
        const bool shared = buffer.is(Op::kDefineLocal);
        BEAMD_RETURN_IF_ERROR(Race(u, *memory, element, t, shared));
        Cell& cell = memory->cells[element];
        if (load) {
          if (memory->written[element] == 0) return Broken(u, "reads what nobody has written");
          v.cells[t * lanes + l] = cell;
        } else {
          cell = values_[u.src(1).id()].at(t, l);
          memory->written[element] = 1;
        }
      }
      if (any && first % alignment != 0) return Broken(u, "less aligned than claimed");
    }
    if (load) values_[u.id()] = std::move(v);
    return absl::OkStatus();
  }

  Memory* FindMemory(UOp buffer) {
    if (buffer.is(Op::kDefineLocal)) {
      const auto it = shared_.find(buffer);
      return it == shared_.end() ? nullptr : &it->second;
    }
    const auto it = global_.find(static_cast<int32_t>(buffer.data<BufferArg>().id));
    return it == global_.end() ? nullptr : &it->second;
  }

  // Whether an earlier access of another work-item is unordered with this one.
  absl::Status Race(UOp u, Memory& memory, int64_t element, int64_t item, bool shared) {
    const auto conflicts = [&](const Touch& touch) {
      if (touch.item < 0) return false;
      if (!shared && (touch.several_groups || touch.group != group_)) return true;
      return touch.epoch == epoch_ && (touch.several_items || touch.item != item);
    };
    Touch& read = memory.reads[element];
    Touch& write = memory.writes[element];
    if (conflicts(write) || (u.is(Op::kStore) && conflicts(read))) {
      return absl::DataLossError(
          absl::StrCat("%", u.id(), " ", NodeText(u), ": a race for element ", element, " of ",
                       NodeText(u.src(0).src(0)), ", work-item ", item, " of group ", group_));
    }
    Touch& touch = u.is(Op::kLoad) ? read : write;
    Touch now{group_, item, epoch_, false, touch.several_groups};
    if (touch.item >= 0 && touch.group != group_) now.several_groups = true;
    if (touch.group == group_ && touch.epoch == epoch_) {
      now.several_items = touch.several_items || touch.item != item;
    }
    touch = now;
    return absl::OkStatus();
  }

  const LinearProgram& program_;
  const TargetCaps& caps_;
  const std::vector<int64_t>& variables_;
  std::vector<Value> values_;  // by node id
  absl::flat_hash_map<UOp, UOp> assign_of_;
  std::map<int32_t, Memory> global_;  // by slot
  absl::flat_hash_map<UOp, Memory> shared_;
  int64_t items_ = 1, group_ = 0, epoch_ = 0;
  std::array<int64_t, 3> group_index_ = {};
};

}  // namespace

absl::Status Interpret(const LinearProgram& program, const TargetCaps& caps,
                       std::vector<std::string>& buffers, const std::vector<int64_t>& variables) {
  return Interpreter(program, caps, variables).Run(buffers);
}

}  // namespace beamd::testing
