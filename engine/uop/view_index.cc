#include "engine/uop/view_index.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/uop/int_alu.h"

namespace beamd {
namespace {

// Wide enough for a product of two bounds; every result is clamped back.
using Wide = __int128;
constexpr int64_t kFar = int64_t{1} << 62;

int64_t Clamp(Wide v) { return static_cast<int64_t>(std::clamp<Wide>(v, -kFar, kFar)); }
Interval Clamp(Wide min, Wide max) { return {Clamp(min), Clamp(max)}; }

Interval Add(Interval a, Interval b) { return Clamp(Wide{a.min} + b.min, Wide{a.max} + b.max); }
Interval Multiply(Interval a, Interval b) {
  const Wide corners[] = {Wide{a.min} * b.min, Wide{a.min} * b.max, Wide{a.max} * b.min,
                          Wide{a.max} * b.max};
  return Clamp(*std::ranges::min_element(corners), *std::ranges::max_element(corners));
}
Interval Divide(Interval a, Interval b) {
  if (b.min <= 0 && b.max >= 0) {
    const int64_t most = std::max(Clamp(-Wide{a.min}), a.max);
    return {-most, most};
  }
  const int64_t corners[] = {a.min / b.min, a.min / b.max, a.max / b.min, a.max / b.max};
  return {*std::ranges::min_element(corners), *std::ranges::max_element(corners)};
}
Interval Remainder(Interval a, Interval b) {
  const int64_t most = std::max({Clamp(-Wide{b.min}), b.max, int64_t{1}}) - 1;
  if (a.min >= 0 && a.max <= most && b.min == b.max) return a;
  return {a.min < 0 ? -most : 0, a.max > 0 ? most : 0};
}

Interval RangeOf(Scalar s) {
  if (s == Scalar::kUint64) return {0, kFar};
  return Clamp(MinInt(s), MaxInt(s));
}

absl::Status NoSize(UOp u) {
  return absl::InvalidArgumentError(absl::StrCat("a size holds a ", Name(u.op())));
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t FloorMod(int64_t a, int64_t b) { return a - FloorDiv(a, b) * b; }

// index + stride * at; wraps, as symbolic sizes may reach beyond 64 bits.
int64_t Sum(int64_t index, int64_t stride, int64_t at) {
  return static_cast<int64_t>(static_cast<uint64_t>(index) +
                              static_cast<uint64_t>(stride) * static_cast<uint64_t>(at));
}

const ViewsArg& ViewsOf(UOp view) { return view.data<ViewsArg>(); }

// A view with bounds in place of numbers.
struct BoundedView {
  std::vector<Interval> shape, strides;
  Interval offset;
  std::vector<Interval> valid;  // of the coordinates that can be valid; min > max: none can
};

// The bounds of the indices that `view` gives for coordinates in `at`, which are narrowed to its
// valid ones; false if there are none.
bool IndexRange(const BoundedView& view, std::vector<Interval>& at, Interval* index) {
  *index = view.offset;
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = {std::max(at[i].min, view.valid[i].min), std::min(at[i].max, view.valid[i].max)};
    if (at[i].min > at[i].max) return false;
    *index = Add(*index, Multiply(view.strides[i], at[i]));
  }
  return true;
}

// The coordinates in `view` of its elements `index`, in row-major order; `inside` becomes false
// unless all of them are proven to be elements of it.
std::vector<Interval> Unravel(const BoundedView& view, Interval index, bool* inside) {
  std::vector<Interval> at(view.shape.size());
  Interval block{1, 1};  // elements behind one step of the axis
  for (size_t i = at.size(); i-- > 0;) {
    const Interval dim = view.shape[i];
    at[i] = {0, std::max<int64_t>(dim.max - 1, 0)};
    const bool known = block.min == block.max && block.min > 0 && dim.min == dim.max && dim.min > 0;
    const Wide whole = Wide{block.min} * dim.min;
    if (known && index.min >= 0 && index.min / whole == index.max / whole) {
      at[i] = {static_cast<int64_t>(index.min / block.min % dim.min),
               static_cast<int64_t>(index.max / block.min % dim.min)};
    }
    block = Multiply(block, dim);
  }
  if (index.min < 0 || index.max >= block.min) *inside = false;
  return at;
}

IndexBounds IndexBoundsOf(std::span<const BoundedView> views, bool numbers) {
  IndexBounds bounds;
  for (const BoundedView& v : views) {
    for (const Interval dim : v.shape) {
      if (dim.min < 0) bounds.sizes_ok = false;
    }
  }
  const BoundedView& last = views.back();
  std::vector<Interval> at(last.shape.size());
  for (size_t i = 0; i < at.size(); ++i) at[i] = {0, last.shape[i].max - 1};
  for (size_t i = views.size(); i-- > 0;) {
    if (!IndexRange(views[i], at, &bounds.index)) {
      bounds.empty = true;
      return bounds;
    }
    if (i > 0) at = Unravel(views[i - 1], bounds.index, &bounds.inside);
  }
  bounds.exact = numbers && views.size() == 1;
  return bounds;
}

}  // namespace

absl::StatusOr<int64_t> SizeValue(UOp expr, const VariableValues& values) {
  absl::flat_hash_map<UOp, int64_t> done;
  for (const UOp u : Toposort(expr)) {
    int64_t value = 0;
    if (u.is_const() && !IsFloat(u.scalar())) {
      value = u.int_value();
    } else if (u.is(Op::kDefineVar)) {
      const auto it = values.find(u.data<VariableArg>().name);
      if (it == values.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("no value for the variable ", u.data<VariableArg>().name));
      }
      value = it->second;
    } else if (u.is(Op::kCast) && IsInt(u.scalar()) && !IsFloat(u.src(0).scalar())) {
      value = WrapInt(done.at(u.src(0)), u.scalar());
    } else if (u.is(kIntAlu) && !IsFloat(u.src(0).scalar())) {
      value = IntAlu(u.op(), u.src(0).scalar(), done.at(u.src(0)),
                     u.src_count() > 1 ? done.at(u.src(1)) : 0);
    } else {
      return NoSize(u);
    }
    done[u] = value;
  }
  return done.at(expr);
}

Interval SizeBounds(UOp expr) {
  absl::flat_hash_map<UOp, Interval> done;
  for (const UOp u : Toposort(expr)) {
    if (IsFloat(u.scalar()) || u.dtype().is_void() || u.dtype().is_pointer()) {
      done[u] = {-kFar, kFar};
      continue;
    }
    const Interval range = RangeOf(u.scalar());
    const auto src = [&](int i) { return done.at(u.src(i)); };
    Interval bounds = range;
    switch (u.op()) {
      case Op::kConst:
        bounds = Clamp(u.int_value(), u.int_value());
        break;
      case Op::kDefineVar:
        bounds = Clamp(u.data<VariableArg>().min, u.data<VariableArg>().max);
        break;
      case Op::kAdd:
        bounds = Add(src(0), src(1));
        break;
      case Op::kSub:
        bounds = Add(src(0), Clamp(-Wide{src(1).max}, -Wide{src(1).min}));
        break;
      case Op::kNeg:
        bounds = Clamp(-Wide{src(0).max}, -Wide{src(0).min});
        break;
      case Op::kMul:
        bounds = Multiply(src(0), src(1));
        break;
      case Op::kMax:
        bounds = {std::max(src(0).min, src(1).min), std::max(src(0).max, src(1).max)};
        break;
      case Op::kIdiv:
        bounds = Divide(src(0), src(1));
        break;
      case Op::kMod:
        bounds = Remainder(src(0), src(1));
        break;
      case Op::kCast:
        bounds = src(0);
        break;
      default:
        break;
    }
    // What leaves the type wraps, and can then be anything in it.
    if (bounds.min < range.min || bounds.max > range.max) bounds = range;
    done[u] = bounds;
  }
  return done.at(expr);
}

absl::StatusOr<ViewIndex> ViewIndex::Create(UOp view, const VariableValues& values) {
  std::vector<std::optional<int64_t>> of_source(view.src_count());
  absl::Status status;
  const auto number = [&](const IntOrSrc& v) -> int64_t {
    if (v.src < 0) return v.value;
    if (!of_source[v.src]) {
      const absl::StatusOr<int64_t> value = SizeValue(view.src(v.src), values);
      if (!value.ok()) status = value.status();
      of_source[v.src] = value.ok() ? *value : 0;
    }
    return *of_source[v.src];
  };
  ViewIndex result;
  for (const ViewArg& arg : ViewsOf(view).views) {
    View& v = result.views_.emplace_back();
    v.offset = number(arg.offset);
    for (size_t i = 0; i < arg.shape.size(); ++i) {
      const int64_t dim = number(arg.shape[i]);
      if (dim < 0) {
        return absl::InvalidArgumentError(absl::StrCat("axis ", i, " of a view has size ", dim));
      }
      v.shape.push_back(dim);
      v.strides.push_back(number(arg.strides[i]));
      const int64_t begin = arg.mask ? number((*arg.mask)[i].first) : 0;
      const int64_t end = arg.mask ? number((*arg.mask)[i].second) : dim;
      v.valid.emplace_back(std::max<int64_t>(begin, 0), std::min(end, dim));
    }
  }
  BEAMD_RETURN_IF_ERROR(status);
  return result;
}

std::optional<int64_t> ViewIndex::Index(std::span<const int64_t> point) const {
  bool left_view = false;
  return Index(point, &left_view);
}

std::optional<int64_t> ViewIndex::Index(std::span<const int64_t> point, bool* left_view) const {
  const View& last = views_.back();
  int64_t index = last.offset;
  for (size_t i = 0; i < point.size(); ++i) {
    if (point[i] < last.valid[i].first || point[i] >= last.valid[i].second) return std::nullopt;
    index = Sum(index, last.strides[i], point[i]);
  }
  for (size_t n = views_.size() - 1; n-- > 0;) {
    const View& v = views_[n];
    int64_t rest = index;
    index = v.offset;
    for (size_t i = v.shape.size(); i-- > 0;) {
      const int64_t at = FloorMod(rest, std::max<int64_t>(v.shape[i], 1));
      rest = FloorDiv(rest, std::max<int64_t>(v.shape[i], 1));
      if (at < v.valid[i].first || at >= v.valid[i].second) return std::nullopt;
      index = Sum(index, v.strides[i], at);
    }
    if (rest != 0) *left_view = true;
  }
  return index;
}

int64_t ViewIndex::WalkLength() const {
  Wide length = 1;
  for (const auto& [begin, end] : views_.back().valid) {
    length = Clamp(length * std::max<int64_t>(end - begin, 0));
  }
  return static_cast<int64_t>(length);
}

ViewIndex ViewIndex::WithoutRepeats() const {
  ViewIndex once = *this;
  View& last = once.views_.back();
  for (size_t i = 0; i < last.shape.size(); ++i) {
    auto& [begin, end] = last.valid[i];
    if (last.strides[i] == 0 && end > begin) end = begin + 1;
  }
  return once;
}

IndexBounds IndexBoundsOf(UOp view) {
  std::vector<std::optional<Interval>> of_source(view.src_count());
  bool numbers = true;
  const auto bounds = [&](const IntOrSrc& v) -> Interval {
    if (v.src < 0) return Clamp(v.value, v.value);
    numbers = false;
    if (!of_source[v.src]) of_source[v.src] = SizeBounds(view.src(v.src));
    return *of_source[v.src];
  };
  std::vector<BoundedView> views;
  for (const ViewArg& arg : ViewsOf(view).views) {
    BoundedView& v = views.emplace_back();
    v.offset = bounds(arg.offset);
    for (size_t i = 0; i < arg.shape.size(); ++i) {
      const Interval dim = bounds(arg.shape[i]);
      v.shape.push_back(dim);
      v.strides.push_back(bounds(arg.strides[i]));
      const int64_t begin = arg.mask ? bounds((*arg.mask)[i].first).min : 0;
      const int64_t end = arg.mask ? bounds((*arg.mask)[i].second).max : dim.max;
      v.valid.push_back({std::max<int64_t>(begin, 0), std::min(end, dim.max) - 1});
    }
  }
  return IndexBoundsOf(views, numbers);
}

IndexBounds IndexBoundsOf(const ViewIndex& view) {
  std::vector<BoundedView> views;
  for (const ViewIndex::View& from : view.views()) {
    BoundedView& v = views.emplace_back();
    v.offset = Clamp(from.offset, from.offset);
    for (size_t i = 0; i < from.shape.size(); ++i) {
      v.shape.push_back({from.shape[i], from.shape[i]});
      v.strides.push_back(Clamp(from.strides[i], from.strides[i]));
      v.valid.push_back({from.valid[i].first, from.valid[i].second - 1});
    }
  }
  return IndexBoundsOf(views, true);
}

}  // namespace beamd
