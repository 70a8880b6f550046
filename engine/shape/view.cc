#include "engine/shape/view.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t CeilDiv(int64_t a, int64_t b) { return -FloorDiv(-a, b); }

bool HasZero(const Shape& shape) { return std::ranges::find(shape, SInt(0)) != shape.end(); }

int64_t MaxSize(const Shape& shape) {
  SInt size = 1;
  for (const SInt& s : shape) size = size * s.max();
  return size.number();
}

bool MaskIsFull(const Mask& mask, const Shape& shape) {
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != std::pair(SInt(0), shape[i])) return false;
  }
  return true;
}

void ZeroUnitAxes(const Shape& shape, Shape& strides) {
  for (size_t i = 0; i < strides.size(); ++i) {
    if (shape[i] == 1) strides[i] = 0;
  }
}

View NothingValid(const Shape& shape) {
  return View::Create(shape, Shape(shape.size()), 0, Mask(shape.size()));
}

// A run of axes that one stride walks.
struct Run {
  SInt size;
  SInt stride;
  SInt strided_size;  // of the trailing axes that aren't broadcast: beyond it the stride is 0
};

std::vector<Run> MergeAxes(const View& v) {
  std::vector<Run> runs;
  // An axis of which one element counts joins whatever follows it.
  bool joins = false;
  for (size_t i = 0; i < v.shape.size(); ++i) {
    const SInt& size = v.shape[i];
    const SInt& stride = v.strides[i];
    if (i > 0 && size == 1) continue;
    const SInt strided = stride == 0 ? SInt(0) : size;
    if (i > 0 && (joins || runs.back().stride == size * stride)) {
      Run& last = runs.back();
      const SInt merged = joins ? size : last.strided_size * size;
      last = {last.size * size, stride, stride == 0 ? SInt(0) : merged};
    } else {
      runs.push_back({size, stride, strided});
    }
    joins = v.mask ? (*v.mask)[i].second - (*v.mask)[i].first == 1 : size == 1;
  }
  return runs;
}

// Hands out the entries of a list from the last to the first, then `after` for ever.
template <typename T>
class Backwards {
 public:
  Backwards(const std::vector<T>& values, T after)
      : values_(values), left_(values.size()), after_(std::move(after)) {}
  T Next() { return left_ == 0 ? after_ : values_[--left_]; }
  size_t left() const { return left_; }

 private:
  const std::vector<T>& values_;
  size_t left_;
  T after_;
};

// The mask of `new_shape` that leaves the same elements valid; nullopt if a box can't say it, or
// if a size that decides it is an expression.
std::optional<Mask> ReshapeMask(const Mask& mask, const Shape& old_shape, const Shape& new_shape) {
  for (const auto& [begin, end] : mask) {
    if (!begin.is_number() || !end.is_number()) return std::nullopt;
  }
  for (const auto& [begin, end] : mask) {
    if (ProvenLe(end, begin)) return Mask(new_shape.size());
  }
  using Range = std::pair<SInt, SInt>;
  Backwards<Range> masks(mask, Range(0, 1));
  Backwards<SInt> old_sizes(old_shape, 1);
  Backwards<SInt> new_sizes(new_shape, 1);
  Mask result(new_shape.size());
  // `range` masks an axis of old_size positions, `step` of them make one of the new axis.
  SInt step = 1, old_size = old_sizes.Next(), new_size = new_sizes.Next();
  Range range = masks.Next();
  for (size_t done = 0; done < new_shape.size();) {
    const auto [begin, end] = range;
    const SInt next_step = new_size * step;
    Range& out = result[new_shape.size() - 1 - done];
    if (old_size == next_step) {
      out = {begin / step, (end - 1) / step + 1};
      ++done;
      step = 1;
      old_size = old_sizes.Next();
      new_size = new_sizes.Next();
      range = masks.Next();
    } else if (ProvenLt(next_step, old_size)) {
      // Split. A box remains only where the range keeps within one step or covers whole ones.
      if (!AllNumbers(std::array{old_size, next_step})) return std::nullopt;
      const bool cuts = begin % next_step != 0 || end % next_step != 0;
      if (cuts && begin / next_step != (end - 1) / next_step) return std::nullopt;
      if (old_size % next_step != 0) return std::nullopt;
      out = {begin % next_step / step, (end - 1) % next_step / step + 1};
      ++done;
      step = next_step;
      new_size = new_sizes.Next();
    } else if (ProvenLt(old_size, next_step)) {
      // Join with the axis before: either this one is whole or that one has a single element.
      const Range before = masks.Next();
      if (range != Range(0, old_size) && before.second - before.first != 1) return std::nullopt;
      range = {before.first * old_size + begin, (before.second - 1) * old_size + end};
      old_size = old_size * old_sizes.Next();
    } else {
      return std::nullopt;
    }
  }
  while (masks.left() > 0) {
    if (masks.Next() != Range(0, 1)) return Mask(new_shape.size());
  }
  return result;
}

// Row-major coordinates of `position`.
Shape Unravel(const Shape& shape, SInt position) {
  Shape coordinates;
  for (const SInt& stride : StridesForShape(shape)) {
    SInt here = 0;
    if (position.is_number() && stride.is_number()) {
      if (stride != 0) here = FloorDiv(position.number(), stride.number());
    } else {
      here = position / stride;
    }
    position = position - here * stride;
    coordinates.push_back(here);
  }
  return coordinates;
}

// What [begin, end) of every axis leaves, with `mask` (in the new coordinates) besides the old one.
View Resize(const View& v, std::span<const std::pair<SInt, SInt>> ranges,
            std::optional<Mask> mask) {
  BEAMD_CHECK(ranges.size() == v.shape.size(), "one range an axis");
  SInt offset = v.offset;
  Shape shape;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [begin, end] = ranges[i];
    offset = offset + v.strides[i] * begin;
    shape.push_back(end - begin);
  }
  if (v.mask) {
    Mask moved;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto& begin = ranges[i].first;
      SInt lo = Max(0, Min((*v.mask)[i].first - begin, shape[i]));
      SInt hi = Max(0, Min((*v.mask)[i].second - begin, shape[i]));
      if (mask) {
        lo = Max(lo, (*mask)[i].first);
        hi = Min(hi, (*mask)[i].second);
      }
      moved.emplace_back(lo, hi);
    }
    mask = std::move(moved);
  }
  return View::Create(std::move(shape), v.strides, offset, std::move(mask));
}

// One axis of an inner view, or a run of them merged, as the axes of an outer view walk it: the
// position is origin + sum of steps[i] * (index i of the outer view) + what stands apart.
struct Walk {
  SInt size = 1;
  SInt origin;
  Shape steps;
  // Bounds of the parts that aren't in origin and steps.
  SInt apart_least, apart_greatest;
  bool bounded = true;
  SInt least, greatest;  // of the position, by Settle

  explicit Walk(size_t rank) : steps(rank) {}

  size_t moving() const { return steps.size() - std::ranges::count(steps, SInt(0)); }

  // False if the sign of a step isn't known.
  bool Settle(const Shape& shape) {
    least = origin + apart_least;
    greatest = origin + apart_greatest;
    for (size_t i = 0; i < steps.size(); ++i) {
      const SInt far = steps[i] * (shape[i] - 1);
      if (ProvenLe(0, far)) {
        greatest = greatest + far;
      } else if (ProvenLe(far, 0)) {
        least = least + far;
      } else {
        return false;
      }
    }
    return bounded;
  }

  // Puts the axis before in front. Its steps join those here only if nothing else moves it: 0.10.0
  // doesn't multiply a sum out, and a tighter bound would merge views that it keeps apart.
  void Prepend(Walk axis, const Shape& shape) {
    const size_t terms = axis.moving() + (axis.origin == 0 ? 0 : 1);
    if (size == 1 || terms <= 1) {
      origin = origin + axis.origin * size;
      for (size_t i = 0; i < steps.size(); ++i) steps[i] = steps[i] + axis.steps[i] * size;
    } else {
      bounded = axis.Settle(shape) && bounded;
      apart_least = apart_least + axis.least * size;
      apart_greatest = apart_greatest + axis.greatest * size;
    }
    size = size * axis.size;
  }
};

}  // namespace

Shape StridesForShape(const Shape& shape) {
  Shape strides(shape.size());
  SInt stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = shape[i] == 1 ? SInt(0) : stride;
    stride = stride * shape[i];
  }
  return strides;
}

View View::Create(Shape shape, std::optional<Shape> strides, SInt offset,
                  std::optional<Mask> mask) {
  BEAMD_CHECK(!strides || strides->size() == shape.size(), "one stride an axis");
  BEAMD_CHECK(!mask || mask->size() == shape.size(), "one mask range an axis");
  View v;
  v.shape = std::move(shape);
  if (HasZero(v.shape)) {
    v.strides.resize(v.shape.size());
    v.contiguous = true;
    return v;
  }
  const Shape row_major = StridesForShape(v.shape);
  if (strides) {
    ZeroUnitAxes(v.shape, *strides);
    v.strides = *std::move(strides);
  } else {
    v.strides = row_major;
  }
  v.offset = offset;
  if (mask && MaskIsFull(*mask, v.shape)) mask.reset();
  if (mask) {
    for (const auto& [begin, end] : *mask) {
      if (!ProvenLe(end, begin)) continue;
      v.strides.assign(v.shape.size(), 0);
      v.offset = 0;
      mask->assign(v.shape.size(), {});
      break;
    }
    // An axis with one valid element doesn't move.
    for (size_t i = 0; i < mask->size(); ++i) {
      const auto& [begin, end] = (*mask)[i];
      if (!ProvenLe(end, begin + 1)) continue;
      v.offset = v.offset + v.strides[i] * begin;
      v.strides[i] = 0;
    }
    v.mask = std::move(mask);
  }
  v.contiguous = v.offset == 0 && !v.mask && v.strides == row_major;
  return v;
}

SInt View::size() const { return Prod(shape); }

View View::Pad(std::span<const std::pair<SInt, SInt>> amounts) const {
  BEAMD_CHECK(amounts.size() == shape.size(), "one pair an axis");
  bool pads = false;
  Mask ranges, inside;
  for (size_t i = 0; i < amounts.size(); ++i) {
    const auto& [before, after] = amounts[i];
    pads |= !ProvenEq(before, 0) || !ProvenEq(after, 0);
    ranges.emplace_back(0 - before, shape[i] + after);
    inside.emplace_back(before, shape[i] + before);
  }
  return pads ? Resize(*this, ranges, std::move(inside)) : *this;
}

View View::Shrink(std::span<const std::pair<SInt, SInt>> ranges) const {
  return Resize(*this, ranges, std::nullopt);
}

View View::Expand(const Shape& new_shape) const {
  BEAMD_CHECK(new_shape.size() == shape.size(), "one size an axis");
  if (HasZero(shape)) return Create(new_shape);
  std::optional<Mask> new_mask = mask;
  for (size_t i = 0; new_mask && i < shape.size(); ++i) {
    if (!ProvenNe(shape[i], new_shape[i])) continue;
    std::pair<SInt, SInt>& m = (*new_mask)[i];
    const bool whole = m == std::pair(SInt(0), SInt(1));
    m = {0, whole ? new_shape[i] : SInt(0)};
  }
  return Create(new_shape, strides, offset, std::move(new_mask));
}

View View::Permute(std::span<const int> order) const {
  BEAMD_CHECK(order.size() == shape.size(), "one place an axis");
  Shape new_shape, new_strides;
  std::optional<Mask> new_mask;
  if (mask) new_mask.emplace();
  for (const int axis : order) {
    new_shape.push_back(shape[axis]);
    new_strides.push_back(strides[axis]);
    if (mask) new_mask->push_back((*mask)[axis]);
  }
  return Create(std::move(new_shape), std::move(new_strides), offset, std::move(new_mask));
}

View View::Flip(std::span<const int> axes) const {
  std::vector<int64_t> multiples(shape.size(), 1);
  for (const int axis : axes) multiples[axis] = -1;
  return Stride(multiples);
}

View View::Stride(std::span<const int64_t> multiples) const {
  BEAMD_CHECK(multiples.size() == shape.size(), "one multiple an axis");
  Shape new_shape, new_strides;
  SInt new_offset = offset;
  std::optional<Mask> new_mask;
  if (mask) new_mask.emplace();
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t m = multiples[i], step = m < 0 ? -m : m;
    const auto steps = [step](const SInt& extent) { return (extent + (step - 1)) / step; };
    new_shape.push_back(steps(shape[i]));
    new_strides.push_back(strides[i] * m);
    if (m < 0) new_offset = new_offset + (shape[i] - 1) * strides[i];
    if (!mask) continue;
    const auto& [begin, end] = (*mask)[i];
    new_mask->emplace_back(steps(m > 0 ? begin : shape[i] - end),
                           steps(m > 0 ? end : shape[i] - begin));
  }
  return Create(std::move(new_shape), std::move(new_strides), new_offset, std::move(new_mask));
}

std::optional<View> View::Reshape(const Shape& new_shape) const {
  if (shape == new_shape) return *this;
  if (HasZero(shape)) return Create(new_shape);
  const bool numbers = AllNumbers(shape);
  BEAMD_CHECK(!numbers || !ProvenNe(Prod(shape), Prod(new_shape)), "a reshape keeps the size");
  if (new_shape.empty() && mask) {
    for (const auto& [begin, end] : *mask) {
      if (begin == end) return std::nullopt;
    }
  }
  if (contiguous) return Create(new_shape);
  if (numbers && !AllNumbers(new_shape)) return std::nullopt;

  // From the last axis: each run must be used up by whole new axes.
  const std::vector<Run> runs = MergeAxes(*this);
  Backwards<SInt> new_sizes(new_shape, 0);
  Shape new_strides;  // last axis first
  for (size_t i = runs.size(); i-- > 0;) {
    SInt stride = runs[i].stride, taken = 1;
    while (!ProvenLt(runs[i].size, taken) && !ProvenEq(taken, runs[i].size)) {
      const SInt size = new_sizes.Next();
      if (ProvenLe(size, 0)) break;
      new_strides.push_back(stride);
      if (ProvenEq(size, 1)) continue;
      taken = taken * size;
      stride = ProvenLe(runs[i].strided_size, taken) ? SInt(0) : stride * size;
    }
    if (!ProvenEq(taken, runs[i].size)) return std::nullopt;
  }
  new_strides.resize(new_shape.size());
  std::ranges::reverse(new_strides);

  if (!mask) return Create(new_shape, std::move(new_strides), offset);
  std::optional<Mask> new_mask = ReshapeMask(*mask, shape, new_shape);
  if (!new_mask) return std::nullopt;
  // The first valid element stays where it is.
  SInt new_offset = offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    new_offset = new_offset + (*mask)[i].first * strides[i];
  }
  for (size_t i = 0; i < new_shape.size(); ++i) {
    const auto& [begin, end] = (*new_mask)[i];
    if (end - begin == 1) new_strides[i] = 0;
    new_offset = new_offset - begin * new_strides[i];
  }
  return Create(new_shape, std::move(new_strides), new_offset, std::move(new_mask));
}

std::optional<View> View::Compose(const View& outer) const {
  // Without elements there is nothing to project (0.10.0 recurses for ever on some of these).
  if (contiguous || HasZero(outer.shape)) return outer;
  if (outer.contiguous && outer.shape == shape) return *this;
  if (outer.contiguous && MaxSize(outer.shape) == MaxSize(shape)) {
    if (std::optional<View> reshaped = Reshape(outer.shape)) return reshaped;
  }
  const size_t rank = outer.shape.size();
  if (outer.mask) {
    // Drop what is masked, then pad it back.
    Mask padding;
    for (size_t i = 0; i < rank; ++i) {
      const auto& [begin, end] = (*outer.mask)[i];
      if (ProvenLe(end, begin)) return NothingValid(outer.shape);
      padding.emplace_back(begin, outer.shape[i] - end);
    }
    const std::optional<View> merged = Compose(outer.Shrink(*outer.mask));
    if (!merged) return std::nullopt;
    return merged->Pad(padding);
  }

  // How a step along each axis of `outer` moves along each axis of this view.
  const Shape origin = Unravel(shape, outer.offset);
  std::vector<Walk> walks(shape.size(), Walk(rank));
  Shape new_strides(rank);
  for (size_t i = 0; i < rank; ++i) {
    if (outer.strides[i] == 0) continue;
    const Shape next = Unravel(shape, outer.offset + outer.strides[i]);
    for (size_t j = 0; j < shape.size(); ++j) {
      walks[j].steps[i] = next[j] - origin[j];
      new_strides[i] = new_strides[i] + walks[j].steps[i] * strides[j];
    }
  }

  // Axes of this view merge, from the last, until the coordinate stays inside: merging as few as
  // will do leaves the mask more to stand on.
  if (!AllNumbers(outer.shape)) return std::nullopt;
  Shape extents;  // last axis first
  Walk merged(rank);
  for (size_t j = shape.size(); j-- > 0;) {
    walks[j].size = shape[j];
    walks[j].origin = origin[j];
    merged.Prepend(walks[j], outer.shape);
    if (merged.Settle(outer.shape) && ProvenLe(0, merged.least) &&
        ProvenLt(merged.greatest, merged.size)) {
      extents.push_back(merged.size);
      merged = Walk(rank);
    }
  }
  if (!merged.Settle(outer.shape) || !ProvenEq(merged.least, 0) || !ProvenEq(merged.greatest, 0)) {
    return std::nullopt;
  }
  std::ranges::reverse(extents);
  if (extents != shape) {
    const std::optional<View> reshaped = Reshape(extents);
    if (!reshaped) return std::nullopt;
    if (reshaped->shape != shape) return reshaped->Compose(outer);
  }

  if (mask) {
    // Bring the mask over to `outer`, an axis at a time.
    Mask projected;
    for (const SInt& s : outer.shape) projected.emplace_back(0, s);
    bool fails = false;
    for (size_t j = 0; j < shape.size(); ++j) {
      const auto& [begin, end] = (*mask)[j];
      Walk& walk = walks[j];
      if (walk.Settle(outer.shape) && ProvenLe(begin, walk.least) && ProvenLt(walk.greatest, end)) {
        continue;
      }
      if (!AllNumbers(std::array{walk.origin, begin, end})) {
        fails = true;
        continue;
      }
      const size_t moving = walk.moving();
      if (moving == 0 && rank > 0) {
        projected[0].second = 0;
        continue;
      }
      const auto only = std::ranges::find_if(walk.steps, [](const SInt& s) { return s != 0; });
      if (moving != 1 || !only->is_number()) {
        fails = true;
        continue;
      }
      const int64_t step = only->number();
      const int64_t first = begin.number() - walk.origin.number();
      const int64_t last = end.number() - walk.origin.number() - 1;
      auto& [lo, hi] = projected[only - walk.steps.begin()];
      lo = std::max(lo.number(), CeilDiv(step > 0 ? first : last, step));
      hi = std::min(hi.number(), FloorDiv(step > 0 ? last : first, step) + 1);
    }
    if (!MaskIsFull(projected, outer.shape)) {
      return Compose(Create(outer.shape, outer.strides, outer.offset, std::move(projected)));
    }
    if (fails) return std::nullopt;
  }

  SInt new_offset = offset;
  for (size_t j = 0; j < shape.size(); ++j) new_offset = new_offset + origin[j] * strides[j];
  return Create(outer.shape, std::move(new_strides), new_offset);
}

std::optional<View> View::Invert(const Shape& out_shape) const {
  if (!AllNumbers(strides)) return std::nullopt;
  View v = Create(shape);
  if (mask) v = v.Shrink(*mask);
  std::vector<int64_t> multiples;
  std::vector<int> order(shape.size());
  for (const SInt& stride : strides) multiples.push_back(stride.number() < 0 ? -1 : 1);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [this](int axis) { return std::abs(strides[axis].number()); });
  v = v.Stride(multiples).Permute(order);
  if (!ProvenEq(v.size(), Prod(out_shape))) return std::nullopt;
  return v;
}

View View::Minify() const {
  Shape merged;
  for (const Run& run : MergeAxes(*this)) merged.push_back(run.size);
  return Reshape(merged).value_or(*this);
}

std::string ToString(const View& view) {
  const auto text = [](std::string* out, const SInt& v) { out->append(ToString(v)); };
  std::string s = absl::StrCat("View(shape=(", absl::StrJoin(view.shape, ", ", text),
                               "), strides=(", absl::StrJoin(view.strides, ", ", text),
                               "), offset=", ToString(view.offset), ", mask=");
  if (view.mask) {
    const auto range = [](std::string* out, const std::pair<SInt, SInt>& m) {
      absl::StrAppend(out, "(", ToString(m.first), ", ", ToString(m.second), ")");
    };
    absl::StrAppend(&s, "(", absl::StrJoin(*view.mask, ", ", range), ")");
  } else {
    s += "None";
  }
  return absl::StrCat(s, ", contiguous=", view.contiguous ? "True" : "False", ")");
}

}  // namespace beamd
