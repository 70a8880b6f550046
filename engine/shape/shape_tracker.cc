#include "engine/shape/shape_tracker.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// ---- VIEW nodes ----

class EntryReader {
 public:
  explicit EntryReader(UOp view) : view_(view) {}

  SInt operator()(const IntOrSrc& entry) const {
    return entry.src < 0 ? SInt(entry.value) : SInt(view_.src(entry.src));
  }
  Shape operator()(const std::vector<IntOrSrc>& entries) const {
    Shape values;
    for (const IntOrSrc& e : entries) values.push_back((*this)(e));
    return values;
  }

 private:
  UOp view_;
};

class EntryWriter {
 public:
  explicit EntryWriter(UOpGraph& graph) : graph_(graph) {}

  IntOrSrc operator()(const SInt& value) {
    if (value.is_number()) return {value.number(), -1};
    const UOp u = value.ToUOp(graph_);
    const auto found = std::ranges::find(src_, u);
    const auto at = static_cast<int32_t>(found - src_.begin());
    if (found == src_.end()) src_.push_back(u);
    return {0, at};
  }
  std::vector<IntOrSrc> operator()(const Shape& values) {
    std::vector<IntOrSrc> entries;
    for (const SInt& v : values) entries.push_back((*this)(v));
    return entries;
  }
  const std::vector<UOp>& src() const { return src_; }

 private:
  UOpGraph& graph_;
  std::vector<UOp> src_;
};

// ---- index expressions ----

bool NeedsLowerBound(const View& v, size_t axis) { return !ProvenEq((*v.mask)[axis].first, 0); }
bool NeedsUpperBound(const View& v, size_t axis) {
  return !ProvenEq((*v.mask)[axis].second, v.shape[axis]);
}

UOp FlatIndex(UOpGraph& graph, const View& v, std::span<const UOp> coordinates) {
  UOp index = v.offset.ToUOp(graph);
  for (size_t i = 0; i < v.shape.size(); ++i) {
    if (ProvenEq(v.shape[i], 1) || ProvenEq(v.strides[i], 0)) continue;
    index = index + coordinates[i] * v.strides[i].ToUOp(graph);
  }
  return index;
}

UOp AndMask(UOpGraph& graph, const View& v, std::span<const UOp> coordinates, UOp valid) {
  if (!v.mask) return valid;
  for (size_t i = 0; i < v.shape.size(); ++i) {
    const auto& [begin, end] = (*v.mask)[i];
    if (NeedsLowerBound(v, i)) valid = valid & Ge(coordinates[i], begin.ToUOp(graph));
    if (NeedsUpperBound(v, i)) valid = valid & (coordinates[i] < end.ToUOp(graph));
  }
  return valid;
}

// RANGE of `extent`, told from others by its axis.
UOp MakeRange(UOpGraph& graph, int axis, const SInt& extent) {
  return graph.Make(Op::kRange, Scalar::kInt64, {extent.ToUOp(graph)},
                    graph.Intern(RangeArg{RangeArg::Kind::kGlobal, axis, 0}));
}

// Row-major coordinates of `index`. Truncating: right where it isn't negative, as wherever the
// point is valid.
std::vector<UOp> Unflatten(UOpGraph& graph, UOp index, const Shape& shape) {
  std::vector<UOp> coordinates(shape.size());
  SInt step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const UOp above = step == 1 ? index : index / step.ToUOp(graph);
    coordinates[i] = Simplify(above % shape[i].ToUOp(graph));
    step = step * shape[i];
  }
  return coordinates;
}

// Coordinates of which a mask leaves [begin, end), written as begin + r with r a RANGE. Outside of
// a mask the index of a view may be negative, and truncating division of that folds little; in
// terms of r it is the index of valid points alone. What r stands for comes back at the end.
class ShiftedCoordinates {
 public:
  explicit ShiftedCoordinates(UOpGraph& graph) : graph_(graph) {}

  void Shift(const View& v, std::vector<UOp>& coordinates) {
    for (size_t i = 0; i < coordinates.size(); ++i) {
      const auto& [begin, end] = (*v.mask)[i];
      if (!ProvenLt(begin, end) || (!NeedsLowerBound(v, i) && !NeedsUpperBound(v, i))) continue;
      // Axes of kernels aren't negative.
      const UOp r = MakeRange(graph_, -1 - static_cast<int>(ranges_.size()), end - begin);
      const UOp shift = begin.ToUOp(graph_);
      ranges_.push_back(r);
      stands_for_.push_back(coordinates[i] - shift);
      coordinates[i] = r + shift;
    }
  }

  UOp Restore(UOp u) const {
    // A later coordinate is in terms of the earlier ones.
    for (size_t i = ranges_.size(); i-- > 0;) {
      u = Substitute(u, {&ranges_[i], 1}, {&stands_for_[i], 1});
    }
    return ranges_.empty() ? u : Simplify(u);
  }

 private:
  UOpGraph& graph_;
  std::vector<UOp> ranges_, stands_for_;
};

// The axes of the RANGEs below `u`.
std::vector<bool> AxesBelow(UOp u, size_t rank) {
  std::vector<bool> found(rank);
  for (const UOp n : Toposort(u)) {
    if (!n.is(Op::kRange)) continue;
    const int axis = n.data<RangeArg>().axis;
    if (axis >= 0 && axis < static_cast<int>(rank)) found[axis] = true;
  }
  return found;
}

// The factors of the linear terms of `u`, by the axes of RANGEs.
std::vector<std::optional<int64_t>> LinearFactors(UOp u, size_t rank) {
  std::vector<std::optional<int64_t>> factors(rank);
  std::vector<std::pair<UOp, int64_t>> pending = {{u, 1}};
  while (!pending.empty()) {
    const auto [n, factor] = pending.back();
    pending.pop_back();
    if (n.is(Op::kAdd)) {
      for (const UOp s : n.src()) pending.emplace_back(s, factor);
    } else if (n.is(Op::kMul) && n.src(1).is_const()) {
      pending.emplace_back(n.src(0), factor * n.src(1).int_value());
    } else if (n.is(Op::kMul) && n.src(0).is_const()) {
      pending.emplace_back(n.src(1), factor * n.src(0).int_value());
    } else if (n.is(Op::kRange)) {
      std::optional<int64_t>& f = factors[n.data<RangeArg>().axis];
      f = f.value_or(0) + factor;
    }
  }
  return factors;
}

// ---- the largest index ----

// Of a valid point of one view: each axis reaches its own end of the mask. -1 if there is none.
SInt LargestIndex(const View& v) {
  SInt largest = v.offset;
  for (size_t i = 0; i < v.shape.size(); ++i) {
    const auto [begin, end] = v.mask ? (*v.mask)[i] : std::pair(SInt(0), v.shape[i]);
    if (ProvenLe(end, begin)) return -1;
    // Not the larger of both ends where one is known to be: an axis that is empty for some value of
    // its variables touches nothing, and what is larger there doesn't count.
    const SInt& stride = v.strides[i];
    const SInt first = stride * begin;
    const SInt last = stride * (end - 1);
    largest = largest + (ProvenLe(0, stride)   ? last
                         : ProvenLe(stride, 0) ? first
                                               : Max(first, last));
  }
  return largest;
}

struct Interval {
  int64_t lo = 0, hi = 0;
  bool empty() const { return hi < lo; }
};

// Where a box of the last view's points lies in the buffer, seen through all views: the interval
// covers every valid point, and is exact for a single point.
Interval Image(const std::vector<View>& views, std::vector<Interval> box) {
  for (size_t k = views.size(); k-- > 0;) {
    const View& v = views[k];
    Interval index{v.offset.number(), v.offset.number()};
    for (size_t i = 0; i < box.size(); ++i) {
      if (v.mask) {
        box[i].lo = std::max(box[i].lo, (*v.mask)[i].first.number());
        box[i].hi = std::min(box[i].hi, (*v.mask)[i].second.number() - 1);
      }
      if (box[i].empty()) return {0, -1};
      const int64_t stride = v.strides[i].number();
      index.lo += stride * (stride > 0 ? box[i].lo : box[i].hi);
      index.hi += stride * (stride > 0 ? box[i].hi : box[i].lo);
    }
    if (k == 0) return index;
    const Shape& below = views[k - 1].shape;
    box.resize(below.size());
    // A valid point is inside the view below.
    int64_t size = 1;
    for (const SInt& s : below) size *= s.number();
    index = {std::max(index.lo, int64_t{0}), std::min(index.hi, size - 1)};
    if (index.empty()) return index;
    for (size_t i = below.size(); i-- > 0;) {
      const int64_t extent = below[i].number();
      const Interval above{index.lo / extent, index.hi / extent};
      box[i] = above.lo == above.hi ? Interval{index.lo % extent, index.hi % extent}
                                    : Interval{0, extent - 1};
      index = above;
    }
  }
  return {0, -1};
}

// The largest index of a valid point, -1 if there is none: boxes of points are halved, the most
// promising first, until a single point reaches its box's bound. After `kBoxes` the bound itself.
int64_t LargestIndex(const std::vector<View>& views) {
  constexpr int kBoxes = 2000;
  struct Box {
    int64_t bound;
    std::vector<Interval> sides;
    bool operator<(const Box& o) const { return bound < o.bound; }
  };
  std::priority_queue<Box> boxes;
  const auto push = [&](std::vector<Interval> sides) {
    const Interval image = Image(views, sides);
    if (!image.empty()) boxes.push({image.hi, std::move(sides)});
  };
  std::vector<Interval> all;
  for (const SInt& s : views.back().shape) all.push_back({0, s.number() - 1});
  push(std::move(all));
  for (int n = 0; !boxes.empty(); ++n) {
    const Box top = boxes.top();
    const auto widest = std::ranges::max_element(
        top.sides, {}, [](const Interval& side) { return side.hi - side.lo; });
    if (n == kBoxes || widest == top.sides.end() || widest->lo == widest->hi) return top.bound;
    boxes.pop();
    const size_t axis = widest - top.sides.begin();
    const int64_t middle = widest->lo + (widest->hi - widest->lo) / 2;
    std::vector<Interval> half = top.sides;
    half[axis].hi = middle;
    push(half);
    half[axis] = {middle + 1, top.sides[axis].hi};
    push(std::move(half));
  }
  return -1;
}

bool AllNumbers(const View& v) {
  const auto is_number = [](const std::pair<SInt, SInt>& m) {
    return m.first.is_number() && m.second.is_number();
  };
  return AllNumbers(v.shape) && AllNumbers(v.strides) && v.offset.is_number() &&
         (!v.mask || std::ranges::all_of(*v.mask, is_number));
}

// Axes that the mask of a single view leaves a condition on.
std::vector<bool> MaskedAxes(const View& v) {
  std::vector<bool> masked(v.shape.size());
  if (!v.mask) return masked;
  for (size_t i = 0; i < masked.size(); ++i) {
    const auto& [begin, end] = (*v.mask)[i];
    if (ProvenLe(end, begin)) return std::vector<bool>(masked.size());  // nowhere valid
    masked[i] = !ProvenLe(begin, 0) || !ProvenLe(v.shape[i], end);
  }
  return masked;
}

// The RANGE of each axis.
std::vector<UOp> Ranges(UOpGraph& graph, const Shape& shape) {
  std::vector<UOp> ranges;
  for (size_t i = 0; i < shape.size(); ++i) {
    ranges.push_back(MakeRange(graph, static_cast<int>(i), shape[i]));
  }
  return ranges;
}

}  // namespace

ShapeTracker ShapeTracker::FromShape(const Shape& shape) {
  return ShapeTracker({View::Create(shape)});
}

ShapeTracker ShapeTracker::FromUOp(UOp view) {
  const EntryReader read(view);
  std::vector<View> views;
  for (const ViewArg& v : view.data<ViewsArg>().views) {
    std::optional<Mask> mask;
    if (v.mask) {
      mask.emplace();
      for (const auto& [begin, end] : *v.mask) mask->emplace_back(read(begin), read(end));
    }
    views.push_back(View::Create(read(v.shape), read(v.strides), read(v.offset), std::move(mask)));
  }
  return ShapeTracker(std::move(views));
}

UOp ShapeTracker::ToUOp(UOpGraph& graph) const {
  EntryWriter write(graph);
  ViewsArg arg;
  for (const View& v : views_) {
    ViewArg& out = arg.views.emplace_back();
    out.shape = write(v.shape);
    out.strides = write(v.strides);
    out.offset = write(v.offset);
    if (!v.mask) continue;
    out.mask.emplace();
    for (const auto& [begin, end] : *v.mask) {
      const IntOrSrc first = write(begin);
      out.mask->emplace_back(first, write(end));
    }
  }
  return graph.Make(Op::kView, Scalar::kVoid, write.src(), graph.Intern(std::move(arg)));
}

bool ShapeTracker::masked() const {
  return std::ranges::any_of(views_, [](const View& v) { return v.mask.has_value(); });
}

int64_t ShapeTracker::RealSize() const {
  if (std::ranges::find(shape(), SInt(0)) != shape().end()) return 0;
  if (views_.size() == 1) return std::max<int64_t>(LargestIndex(views_[0]).max(), -1) + 1;
  const auto all_numbers = [](const View& v) { return AllNumbers(v); };
  if (std::ranges::all_of(views_, all_numbers)) return LargestIndex(views_) + 1;
  UOpGraph graph;
  const IndexedUOps at = ToIndexedUOps(graph, Ranges(graph, shape()));
  if (at.valid.is_const_int(0)) return 0;
  // Both bounds hold: that of the expression, and that of the view at the buffer alone.
  const int64_t largest =
      std::min(BoundsOf(SimplifyGiven(at.index, at.valid)).max, LargestIndex(views_[0]).max());
  return std::max<int64_t>(largest, -1) + 1;
}

IndexedUOps ShapeTracker::ToIndexedUOps(UOpGraph& graph, std::span<const UOp> idxs) const {
  BEAMD_CHECK(idxs.size() == shape().size(), "one index an axis");
  ShiftedCoordinates shifted(graph);
  UOp index, valid = graph.Bool(true);
  std::vector<UOp> coordinates(idxs.begin(), idxs.end());
  for (size_t k = views_.size(); k-- > 0;) {
    const bool last = k + 1 == views_.size();
    const View view = last ? views_[k] : views_[k].Minify();
    if (!last) coordinates = Unflatten(graph, index, view.shape);
    valid = beamd::Simplify(AndMask(graph, view, coordinates, valid));
    index = beamd::Simplify(FlatIndex(graph, view, coordinates));
    if (k == 0 || !view.mask || BoundsOf(index).min >= 0) continue;
    shifted.Shift(view, coordinates);
    index = beamd::Simplify(FlatIndex(graph, view, coordinates));
  }
  return {shifted.Restore(index), shifted.Restore(valid)};
}

IndexedUOps ShapeTracker::ToIndexedUOps(std::span<const UOp> idxs) const {
  BEAMD_CHECK(!idxs.empty(), "without axes the graph must be named");
  return ToIndexedUOps(idxs[0].graph(), idxs);
}

std::vector<std::optional<SInt>> ShapeTracker::RealStrides(bool ignore_valid) const {
  const View& last = views_.back();
  const size_t rank = last.shape.size();
  std::vector<std::optional<SInt>> strides(last.strides.begin(), last.strides.end());
  if (views_.size() == 1 && !last.mask) return strides;

  std::vector<bool> masked = MaskedAxes(last);
  if (views_.size() == 1) {
    for (std::optional<SInt>& stride : strides) {
      if (!stride->is_number()) stride.reset();
    }
  } else {
    strides.assign(rank, SInt(0));
    if (std::ranges::find(last.shape, SInt(0)) != last.shape.end()) return strides;
    UOpGraph graph;
    const IndexedUOps at = ToIndexedUOps(graph, Ranges(graph, last.shape));
    const UOp index = SimplifyGiven(at.index, SimplifyValid(at.valid));
    const std::vector<std::optional<int64_t>> linear = LinearFactors(index, rank);
    const std::vector<bool> used = AxesBelow(index, rank);
    masked = AxesBelow(at.valid, rank);
    for (size_t i = 0; i < rank; ++i) {
      if (!used[i]) continue;
      strides[i].reset();
      if (linear[i]) strides[i] = *linear[i];
    }
  }
  for (size_t i = 0; !ignore_valid && i < rank; ++i) {
    if (masked[i]) strides[i].reset();
  }
  return strides;
}

std::vector<int> ShapeTracker::UnitStrideAxes(bool ignore_valid) const {
  std::vector<int> axes;
  const std::vector<std::optional<SInt>> strides = RealStrides(ignore_valid);
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == SInt(1)) axes.push_back(static_cast<int>(i));
  }
  return axes;
}

bool ShapeTracker::AxisIsMasked(int axis) const {
  if (views_.size() == 1) return MaskedAxes(views_[0])[axis];
  UOpGraph graph;
  const IndexedUOps at = ToIndexedUOps(graph, Ranges(graph, shape()));
  return AxesBelow(at.valid, shape().size())[axis];
}

ShapeTracker ShapeTracker::Simplify() const {
  ShapeTracker st = *this;
  std::vector<View>& views = st.views_;
  while (views.size() >= 2) {
    std::optional<View> merged = views[views.size() - 2].Compose(views.back());
    if (!merged) break;
    views.pop_back();
    views.back() = *std::move(merged);
  }
  return st;
}

ShapeTracker ShapeTracker::Compose(const ShapeTracker& outer) const {
  ShapeTracker st = *this;
  // One view at a time merges more.
  for (const View& v : outer.views_) {
    st.views_.push_back(v);
    st = st.Simplify();
  }
  return st;
}

std::optional<ShapeTracker> ShapeTracker::Invert(const Shape& out_shape) const {
  std::vector<View> inverted;
  for (size_t k = views_.size(); k-- > 0;) {
    std::optional<View> v = views_[k].Invert(k > 0 ? views_[k - 1].shape : out_shape);
    if (!v) return std::nullopt;
    inverted.push_back(*std::move(v));
  }
  return ShapeTracker(std::move(inverted)).Reshape(out_shape);
}

ShapeTracker ShapeTracker::WithLast(View last) const {
  ShapeTracker st = *this;
  st.views_.back() = std::move(last);
  return st;
}

ShapeTracker ShapeTracker::Pad(std::span<const std::pair<SInt, SInt>> amounts) const {
  return WithLast(views_.back().Pad(amounts));
}

ShapeTracker ShapeTracker::Shrink(std::span<const std::pair<SInt, SInt>> ranges) const {
  return WithLast(views_.back().Shrink(ranges));
}

ShapeTracker ShapeTracker::Expand(const Shape& new_shape) const {
  return WithLast(views_.back().Expand(new_shape));
}

ShapeTracker ShapeTracker::Permute(std::span<const int> order) const {
  return WithLast(views_.back().Permute(order));
}

ShapeTracker ShapeTracker::Flip(std::span<const int> axes) const {
  return WithLast(views_.back().Flip(axes));
}

ShapeTracker ShapeTracker::Stride(std::span<const int64_t> multiples) const {
  return WithLast(views_.back().Stride(multiples));
}

ShapeTracker ShapeTracker::Reshape(const Shape& new_shape) const {
  if (std::optional<View> merged = views_.back().Reshape(new_shape)) {
    return WithLast(*std::move(merged));
  }
  ShapeTracker st = *this;
  st.views_.push_back(View::Create(new_shape));
  return st;
}

std::string ToString(const ShapeTracker& st) {
  const auto view = [](std::string* out, const View& v) { out->append(ToString(v)); };
  return absl::StrCat("ShapeTracker(", absl::StrJoin(st.views(), ", ", view), ")");
}

}  // namespace beamd
