#include "engine/kernel/kernel.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/kernel/facts.h"

namespace beamd {
namespace {

constexpr int64_t kMaxUnroll = 32, kMaxUpcast = 16;
// Of a target that states no limit.
constexpr int64_t kMaxGroupItems = 1024;

absl::Status Illegal(absl::string_view why) { return absl::FailedPreconditionError(why); }

bool IsOne(const SInt& v) { return v.is_number() && v.number() == 1; }
bool IsZero(const SInt& v) { return v.is_number() && v.number() == 0; }

// The number of a size that opts have made one.
int64_t MaxOf(const SInt& v) { return v.is_number() ? v.number() : v.max(); }

// Does an axis of stride `outer` go on where one of `size` and `stride` ends? 0.10.0 compares
// expressions by structure, unsimplified, and so never finds that of symbolic ones.
bool Continues(const SInt& outer, const SInt& size, const SInt& stride) {
  return outer.is_number() && size.is_number() && stride.is_number() &&
         outer.number() == size.number() * stride.number();
}

// Groups of axes of `from` whose products are the sizes of `to`; nullopt where an axis straddles.
std::optional<std::vector<std::vector<int>>> Contraction(const Shape& from,
                                                         std::span<const int64_t> to) {
  std::vector<int64_t> from_products;
  int64_t product = 1;
  for (const SInt& s : from) {
    if (!s.is_number()) return std::nullopt;
    from_products.push_back(product *= s.number());
  }
  std::vector<int> ends;
  product = 1;
  for (int64_t s : to) {
    product *= s;
    auto it = std::find(from_products.begin(), from_products.end(), product);
    if (product != 1 && it == from_products.end()) return std::nullopt;
    ends.push_back(product == 1 ? 0 : static_cast<int>(it - from_products.begin()) + 1);
  }
  if (!ends.empty()) ends.back() = static_cast<int>(from.size());
  std::vector<std::vector<int>> groups;
  int begin = 0;
  for (int end : ends) {
    std::vector<int>& group = groups.emplace_back();
    for (int axis = begin; axis < end; ++axis) group.push_back(axis);
    begin = end;
  }
  return groups;
}

}  // namespace

absl::string_view ToString(AxisColor color) {
  static constexpr std::array<absl::string_view, 8> kNames = {"blue",  "BLUE", "cyan",    "green",
                                                              "white", "red",  "magenta", "yellow"};
  return kNames[static_cast<int>(color)];
}

Kernel::Kernel(std::shared_ptr<const Facts> facts) : facts_(std::move(facts)) {}

absl::StatusOr<Kernel> Kernel::Create(UOp sink, const TargetCaps& caps) {
  std::vector<TrackerPtr> trackers;
  BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<const Facts> facts, Facts::Of(sink, caps, trackers));
  Kernel kernel(std::move(facts));
  kernel.trackers_ = std::move(trackers);

  // Reduced axes go last.
  std::vector<int> order, reduced;
  for (int i = 0; i < kernel.shape_len(); ++i) {
    (ProvenEq(kernel.full_shape()[i], kernel.output_shape()[i]) ? order : reduced).push_back(i);
  }
  order.insert(order.end(), reduced.begin(), reduced.end());
  kernel.Permute(order);
  kernel.DropOnes();
  kernel.MergeAdjacent();
  return kernel;
}

UOp Kernel::ast() const { return facts_->ast; }
const TargetCaps& Kernel::caps() const { return *facts_->caps; }
const std::vector<UOp>& Kernel::bufs() const { return facts_->bufs; }
const std::vector<UOp>& Kernel::reduceops() const { return facts_->reduceops; }
int Kernel::full_buf_index() const { return facts_->full_buf_index; }
const Shape& Kernel::full_shape() const { return trackers_[facts_->full_buf_index]->shape(); }

int Kernel::first_reduce() const {
  const Shape& output = output_shape();
  const Shape& full = full_shape();
  const int end = first_upcast();
  for (int i = 0; i < end; ++i) {
    if (!ProvenEq(output[i], full[i])) return i;
  }
  return end;
}

std::vector<int> Kernel::UpcastInMidReduceAxes() const {
  std::vector<int> axes;
  const int begin = first_reduce();
  for (int i = begin; i < begin + group_for_reduces_; ++i) {
    if (full_shape()[i] == output_shape()[i]) axes.push_back(i);
  }
  return axes;
}

std::vector<int> Kernel::Float4Axes(int i) const {
  std::vector<int> axes;
  for (int axis : trackers_[i]->UnitStrideAxes()) {
    if (axis >= first_upcast() && IsZero(trackers_[i]->shape()[axis] % 4)) {
      axes.push_back(axis - first_upcast());
    }
  }
  return axes;
}

std::vector<AxisColor> Kernel::colors() const {
  const Shape& output = output_shape();
  const Shape& full = full_shape();
  const int reduce = first_reduce(), upcast = first_upcast(), rank = shape_len();
  std::vector<AxisColor> colors;
  colors.reserve(rank);
  for (int i = 0; i < rank; ++i) {
    if (i < reduce - local_dims_) {
      colors.push_back(dont_use_locals_ ? AxisColor::kBlueUpper : AxisColor::kBlue);
    } else if (i < reduce) {
      colors.push_back(AxisColor::kCyan);
    } else if (i < reduce + group_for_reduces_) {
      colors.push_back(full[i] == output[i] ? AxisColor::kWhite : AxisColor::kGreen);
    } else if (i < upcast) {
      colors.push_back(AxisColor::kRed);
    } else {
      colors.push_back(full[i] == output[i] ? AxisColor::kYellow : AxisColor::kMagenta);
    }
  }
  return colors;
}

int64_t Kernel::UpcastProduct() const {
  int64_t product = 1;
  for (int i = first_upcast(); i < shape_len(); ++i) product *= MaxOf(full_shape()[i]);
  return tensor_core_ == nullptr ? product : product / tensor_core_->ElementsPerThread();
}

int64_t Kernel::LocalProduct() const {
  int64_t product = 1;
  const int reduce = first_reduce();
  for (int i = reduce - local_dims_; i < reduce + group_for_reduces_; ++i) {
    product *= MaxOf(full_shape()[i]);
  }
  return product;
}

std::string Kernel::name() const {
  std::string name = facts_->reduceops.empty() ? "E" : "r";
  if (facts_->ast.src_count() > 1) absl::StrAppend(&name, facts_->ast.src_count());
  for (const SInt& size : full_shape()) {
    name += '_';
    for (char c : ToString(size)) {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
        name += c;
      } else {
        absl::StrAppendFormat(&name, "%02X", static_cast<unsigned char>(c));
      }
    }
  }
  return name;
}

template <typename F>
void Kernel::MapTrackers(F f) {
  std::vector<TrackerPtr> mapped;
  mapped.reserve(trackers_.size());
  for (size_t i = 0; i < trackers_.size(); ++i) {
    // Few trackers, many of them shared: the source of a reduction has that of a load.
    const size_t first =
        std::find(trackers_.begin(), trackers_.begin() + i, trackers_[i]) - trackers_.begin();
    mapped.push_back(first < i ? mapped[first]
                               : std::make_shared<const ShapeTracker>(f(*trackers_[i], i)));
  }
  trackers_ = std::move(mapped);
}

void Kernel::Permute(const std::vector<int>& order) {
  if (std::is_sorted(order.begin(), order.end())) return;
  MapTrackers([&](const ShapeTracker& st, size_t) { return st.Permute(order); });
}

void Kernel::ShiftTo(int axis, int64_t amount, bool top, int insert_before) {
  const int moved = top ? axis : axis + 1;
  if (moved < insert_before) ++insert_before;  // counted with both parts in place
  std::vector<int> order(shape_len() + 1);
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + moved);
  order.insert(order.begin() + (moved < insert_before ? insert_before - 1 : insert_before), moved);
  const bool in_order = std::is_sorted(order.begin(), order.end());
  MapTrackers([&](const ShapeTracker& st, size_t) {
    Shape shape;
    shape.reserve(order.size());
    const Shape& old = st.shape();
    shape.insert(shape.end(), old.begin(), old.begin() + axis);
    if (IsOne(old[axis])) {
      shape.insert(shape.end(), 2, SInt(1));
    } else {
      const SInt rest = old[axis] / SInt(amount);
      shape.push_back(top ? SInt(amount) : rest);
      shape.push_back(top ? rest : SInt(amount));
    }
    shape.insert(shape.end(), old.begin() + axis + 1, old.end());
    ShapeTracker split = st.Reshape(shape);
    return in_order ? split : split.Permute(order);
  });
}

bool Kernel::DropOnes() {
  const Shape& full = full_shape();
  std::vector<bool> one(full.size());
  std::transform(full.begin(), full.end(), one.begin(), IsOne);
  if (std::find(one.begin(), one.end(), true) == one.end()) return false;
  const int reduce = first_reduce();
  local_dims_ -= std::count(one.begin() + reduce - local_dims_, one.begin() + reduce, true);
  upcasted_ -= std::count(one.begin() + first_upcast(), one.end(), true);
  MapTrackers([&](const ShapeTracker& st, size_t) {
    Shape shape;
    for (size_t i = 0; i < one.size(); ++i) {
      if (!one[i]) shape.push_back(st.shape()[i]);
    }
    return st.Reshape(shape);
  });
  return true;
}

void Kernel::MergeAdjacent() {
  const int rank = shape_len();
  if (rank == 0) return;
  struct Column {
    const Shape* shape;
    std::vector<std::optional<SInt>> strides;
    Shape merged;
  };
  std::vector<Column> columns;
  for (const TrackerPtr& st : trackers_) {
    columns.push_back({&st->shape(), st->RealStrides(), {st->shape()[0]}});
  }
  // An image's axes must stay apart: a column with the strides inside each of them forbids merging
  // across.
  const Shape output = output_shape();
  if (const DType image = bufs()[0].src(0).dtype(); image.is_image()) {
    const std::array<int64_t, 3> texels = {image.image_height, image.image_width, 4};
    if (auto groups = Contraction(output, texels)) {
      std::vector<std::optional<SInt>> strides;
      for (const std::vector<int>& group : *groups) {
        Shape piece;
        for (int axis : group) piece.push_back(output[axis]);
        for (const SInt& stride : StridesForShape(piece)) strides.emplace_back(stride);
      }
      if (static_cast<int>(strides.size()) == rank) {
        columns.push_back({&output, std::move(strides), {output[0]}});
      }
    }
  }
  const int reduce = first_reduce();
  for (int i = 1; i < rank; ++i) {
    bool merge = i != reduce;
    for (const Column& column : columns) {
      const std::optional<SInt>&stride = column.strides[i], &last = column.strides[i - 1];
      merge = merge && stride && last &&
              (IsZero(*stride) ? IsZero(*last) : Continues(*last, (*column.shape)[i], *stride));
    }
    for (Column& column : columns) {
      const SInt& size = (*column.shape)[i];
      if (merge) {
        column.merged.back() = column.merged.back() * size;
      } else {
        column.merged.push_back(size);
      }
    }
  }
  if (columns[0].merged.size() == output.size()) return;
  MapTrackers([&](const ShapeTracker& st, size_t i) { return st.Reshape(columns[i].merged); });
}

absl::Status Kernel::CheckSharedMemory(int64_t amount) const {
  const Shape& output = output_shape();
  const Shape& full = full_shape();
  int64_t bytes = amount * facts_->accumulator_bytes * LocalProduct();
  for (int i = first_upcast(); i < shape_len(); ++i) {
    if (full[i] == output[i]) bytes *= MaxOf(full[i]);
  }
  if (bytes > caps().shared_bytes) {
    return Illegal(
        absl::StrCat("needs ", bytes, " bytes of shared memory of ", caps().shared_bytes));
  }
  return absl::OkStatus();
}

absl::Status Kernel::PadTo(int axis, int64_t amount) {
  if (facts_->has_variables) return Illegal("PADTO of a kernel with variables");
  if (axis >= first_upcast()) return Illegal("PADTO of an upcast axis");
  if (axis >= first_reduce()) {
    if (!facts_->reduceops.empty() && !facts_->first_reduce_pads) {
      return Illegal("PADTO of a reduction that is not an ADD of pad-safe work");
    }
    for (size_t i = 0; i < facts_->reduceops.size(); ++i) {
      const int at = static_cast<int>(facts_->bufs.size() + 2 * i);
      if (tracker(at).shape()[axis] == tracker(at + 1).shape()[axis]) continue;
      if (!facts_->ignores_masked[i]) return Illegal("PADTO would change a reduction's result");
    }
  }
  bool pads = false;
  for (const TrackerPtr& st : trackers_) {
    const SInt& size = st->shape()[axis];
    if (IsOne(size)) continue;
    if (size.number() <= amount / 4) return Illegal("PADTO more than quadruples the work");
    pads = pads || size.number() % amount != 0;
  }
  if (!pads) return Illegal("PADTO pads nothing");
  MapTrackers([&](const ShapeTracker& st, size_t) {
    const SInt& size = st.shape()[axis];
    if (IsOne(size) || size.number() % amount == 0) return st;
    std::vector<std::pair<SInt, SInt>> pad(st.shape().size());
    pad[axis].second = amount - size.number() % amount;
    return st.Pad(pad);
  });
  return absl::OkStatus();
}

absl::Status Kernel::Apply(const Opt& opt) {
  if (opt.op == OptOp::kTc) {
    if (!opt.axis || !opt.amount) return Illegal("an axis and an amount are needed");
    if (*opt.axis < 0 || *opt.amount < 0) return Illegal("a negative axis or amount");
    BEAMD_RETURN_IF_ERROR(ApplyTensorCore(*opt.axis, *opt.amount));
  } else {
    BEAMD_RETURN_IF_ERROR(Change(opt));
  }
  applied_opts_.push_back(opt);
  return absl::OkStatus();
}

absl::Status Kernel::Change(const Opt& opt) {
  const TargetCaps& caps = this->caps();
  const Shape& full = full_shape();
  const int reduce = first_reduce(), upcast = first_upcast(), globals = reduce - local_dims_;
  const int group_end = reduce + group_for_reduces_;

  if (opt.op == OptOp::kNoLocals) {
    if (!caps.has_local) return Illegal("NOLOCALS: the target has no locals");
    if (dont_use_locals_) return Illegal("NOLOCALS twice");
    if (local_dims_ != 0 || group_for_reduces_ != 0) return Illegal("NOLOCALS after locals");
    if (opt.amount) {
      const int64_t most = caps.local_max ? std::ranges::max(*caps.local_max) : kMaxGroupItems;
      if (*opt.amount < 1 || *opt.amount > most) return Illegal("NOLOCALS of no such group");
      group_items_ = *opt.amount;
    }
    dont_use_locals_ = true;
    return absl::OkStatus();
  }
  if (!opt.axis || !opt.amount) return Illegal("an axis and an amount are needed");
  if (*opt.axis < 0 || *opt.amount < 0) return Illegal("a negative axis or amount");

  int64_t axis64 = *opt.axis;
  if (opt.op == OptOp::kUnroll) axis64 += reduce;
  if (opt.op == OptOp::kGroup || opt.op == OptOp::kGroupTop) axis64 += group_end;
  if (axis64 >= shape_len()) return Illegal("no such axis");
  const int axis = static_cast<int>(axis64);

  int64_t amount = *opt.amount;
  if (opt.op != OptOp::kSwap) {
    if (amount == 0) {
      if (!full[axis].is_number()) return Illegal("the whole of a symbolic axis");
      amount = full[axis].number();
    }
    if (amount <= 1) return Illegal("an amount of one changes nothing");
    if (opt.op != OptOp::kPadTo && !IsZero(full[axis] % SInt(amount))) {
      return Illegal("the amount does not divide the axis");
    }
  }
  const bool groups = opt.op == OptOp::kGroup || opt.op == OptOp::kGroupTop;
  if (dont_use_locals_ && (groups || opt.op == OptOp::kLocal || opt.op == OptOp::kUpcastMid)) {
    return Illegal("the kernel uses no locals");
  }
  if (!facts_->reduceops.empty() &&
      (groups || (group_for_reduces_ != 0 && opt.op != OptOp::kPadTo))) {
    BEAMD_RETURN_IF_ERROR(CheckSharedMemory(amount));
  }

  switch (opt.op) {
    case OptOp::kLocal:
      if (!caps.has_local) return Illegal("the target has no locals");
      if (axis >= globals) return Illegal("LOCAL takes from global axes");
      ShiftTo(axis, amount, false, reduce);
      ++local_dims_;
      break;
    case OptOp::kGroup:
    case OptOp::kGroupTop:
      if (!caps.has_local || !caps.has_shared) return Illegal("the target has no shared memory");
      if (axis < group_end || axis >= upcast) return Illegal("GROUP takes from reduce axes");
      if (tensor_core_ != nullptr) return Illegal("GROUP with tensor cores");
      if (facts_->parallel_reduces) return Illegal("GROUP with two reductions of one axis");
      ShiftTo(axis, amount, opt.op == OptOp::kGroupTop, group_end);
      ++group_for_reduces_;
      break;
    case OptOp::kUnroll: {
      if (axis >= upcast) return Illegal("the axis is upcast already");
      if (amount > kMaxUnroll) return Illegal(absl::StrCat("UNROLL over ", kMaxUnroll));
      const bool whole = full[axis] == SInt(amount);
      // The axis disappears: it no longer counts as part of a group, and where it was the first
      // reduce axis DropOnes will find it among the locals.
      if (whole && axis == reduce) ++local_dims_;
      if (whole && axis < group_end) --group_for_reduces_;
      ShiftTo(axis, amount, false, shape_len());
      ++upcasted_;
      break;
    }
    case OptOp::kUpcast:
      if (axis >= reduce) return Illegal("UPCAST takes from axes that are not reduced");
      if (tensor_core_ != nullptr && axis >= globals &&
          axis < globals + tensor_core_->ThreadAxes()) {
        return Illegal("UPCAST of a tensor core's threads");
      }
      if (amount > kMaxUpcast) return Illegal(absl::StrCat("UPCAST over ", kMaxUpcast));
      ShiftTo(axis, amount, false, shape_len());
      ++upcasted_;
      break;
    case OptOp::kUpcastMid: {
      if (!facts_->bufs[0].src(0).dtype().is_image() || !Float4Axes(0).empty() ||
          group_for_reduces_ == 0 || reduce > 2 || ProvenLe(Prod(output_shape()), 1)) {
        return Illegal("UPCASTMID is for grouped reductions into an image");
      }
      const std::vector<int> axes = tracker(0).UnitStrideAxes();
      if (axes.size() != 1 || axes[0] != axis) return Illegal("UPCASTMID needs the unit stride");
      if (amount != 4) return Illegal("UPCASTMID takes four");
      ShiftTo(axis, amount, false, group_end);
      ++group_for_reduces_;
      break;
    }
    case OptOp::kSwap: {
      if (axis >= amount || amount >= globals) return Illegal("SWAP takes two global axes");
      std::vector<int> order(shape_len());
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[axis], order[amount]);
      Permute(order);
      for (std::optional<int>& tiles : tile_axes_) {
        if (tiles) tiles = order[*tiles];
      }
      break;
    }
    case OptOp::kPadTo:
      BEAMD_RETURN_IF_ERROR(PadTo(axis, amount));
      break;
    case OptOp::kUnspecified:
    case OptOp::kTc:
    case OptOp::kNoLocals:
    default:
      return Illegal("an unknown opt");
  }
  if (!DropOnes()) return absl::OkStatus();
  // Only `axis` can have become one.
  for (std::optional<int>& tiles : tile_axes_) {
    if (!tiles || *tiles < axis) continue;
    if (*tiles == axis) {
      tiles.reset();
    } else {
      --*tiles;
    }
  }
  return absl::OkStatus();
}

std::optional<std::array<int, kTileDims>> Kernel::ProductAxes(int index, const TensorCore& core,
                                                              int choice, int level) const {
  UOp product = reduceops()[index].src(0);
  if (core.in != core.out) {
    if (!product.is(Op::kCast) || product.dtype() != DType(core.out)) return std::nullopt;
    product = product.src(0);
  }
  if (!product.is(Op::kMul)) return std::nullopt;
  std::array<std::vector<std::optional<SInt>>, 2> strides;
  for (int i = 0; i < 2; ++i) {
    UOp factor = product.src(i);
    if (factor.dtype() != DType(core.in)) return std::nullopt;
    if (level >= 1 && factor.is(Op::kCast)) {
      factor = factor.src(0);
    } else if (!factor.is(Op::kLoad)) {
      return std::nullopt;
    }
    const auto buf = std::find(bufs().begin(), bufs().end(), factor);
    if (buf == bufs().end()) return std::nullopt;
    strides[i] = tracker(static_cast<int>(buf - bufs().begin())).RealStrides();
  }

  const int reduce = first_reduce(), rank = shape_len();
  if (rank - reduce > 1 && level < 1) return std::nullopt;
  // N are axes along which the first factor repeats, M those of the second.
  std::array<std::vector<int>, 2> repeats;
  for (int i = 0; i < 2; ++i) {
    for (int axis = 0; axis < reduce; ++axis) {
      if (strides[i][axis] && IsZero(*strides[i][axis])) repeats[i].push_back(axis);
    }
  }
  const int64_t ks = rank - reduce, ms = static_cast<int64_t>(repeats[kTileM].size());
  const int64_t at = static_cast<int64_t>(repeats[kTileN].size()) * ms * ks - 1 - choice;
  if (at < 0) return std::nullopt;
  const std::array<int, kTileDims> axes = {repeats[kTileN][at / ks / ms],
                                           repeats[kTileM][at / ks % ms],
                                           reduce + static_cast<int>(at % ks)};
  for (int i = 0; i < kTileDims; ++i) {
    if (level < 2 && !IsZero(full_shape()[axes[i]] % SInt(core.dims[i]))) return std::nullopt;
  }
  return axes;
}

absl::Status Kernel::ApplyTensorCore(int choice, int level) {
  if (caps().tensor_cores == TensorCoreUse::kOff) return Illegal("tensor cores are off");
  const std::span<const TensorCore> cores = TensorCoresOf(caps());
  if (cores.empty()) return Illegal("the target has no tensor cores");
  if (!applied_opts_.empty()) return Illegal("TC comes first");
  if (reduceops().empty() || reduceops()[0].data<ReduceArg>().op != Op::kAdd) {
    return Illegal("TC is for sums");
  }
  for (const TensorCore& core : cores) {
    const auto axes = ProductAxes(0, core, choice, level);
    for (int i = 1; i < static_cast<int>(reduceops().size()); ++i) {
      if (ProductAxes(i, core, choice, level) != axes) return Illegal("TC of different reductions");
    }
    if (!axes) continue;
    Kernel tiled = *this;
    BEAMD_RETURN_IF_ERROR(tiled.Tile(core, *axes));
    *this = std::move(tiled);
    return absl::OkStatus();
  }
  return Illegal("no tensor core fits");
}

absl::Status Kernel::Tile(const TensorCore& core, const std::array<int, kTileDims>& axes) {
  const Shape full = full_shape();
  for (int i = 0; i < kTileDims; ++i) {
    if (IsZero(full[axes[i]] % SInt(core.dims[i]))) continue;
    BEAMD_RETURN_IF_ERROR(Change({OptOp::kPadTo, axes[i], core.dims[i]}));
  }
  tile_axes_ = {axes[kTileN], axes[kTileM]};
  for (const TensorCore::Split& split : core.splits) {
    std::optional<int> axis = axes[kTileK] - first_reduce();
    if (split.dim != kTileK) axis = tile_axes_[split.dim];
    if (!axis) return Illegal("one axis is too short for both sides of a tile");
    BEAMD_RETURN_IF_ERROR(Change({split.op, *axis, split.amount}));
  }
  tensor_core_ = &core;
  return absl::OkStatus();
}

absl::Status Kernel::ApplyAll(const std::vector<Opt>& opts) {
  for (size_t i = 0; i < opts.size(); ++i) {
    if (absl::Status status = Apply(opts[i]); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("opt ", i, ", ", ToString(opts[i]), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace beamd
