#include "engine/shape/movements.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace beamd {
namespace {

bool Same(const Shape& a, const Shape& b) { return std::ranges::equal(a, b, ProvenEq); }

// The movements so far, without those that do nothing.
class Mover {
 public:
  explicit Mover(Shape shape) : shape_(std::move(shape)) {}

  const Shape& shape() const { return shape_; }
  std::vector<Movement> Take() { return std::move(moves_); }

  void Reshape(Shape to) {
    // Of two in a row the second says all.
    if (!moves_.empty() && moves_.back().op == Op::kReshape) {
      moves_.pop_back();
      shape_ = std::move(before_reshape_);
    }
    if (Same(shape_, to)) return;
    before_reshape_ = std::exchange(shape_, to);
    moves_.push_back({Op::kReshape, std::move(to)});
  }
  void Expand(const Shape& to) {
    if (Same(shape_, to)) return;
    shape_ = to;
    moves_.push_back({Op::kExpand, to});
  }
  void Permute(const std::vector<int>& order) {
    if (std::ranges::is_sorted(order)) return;
    Movement move{Op::kPermute, {}};
    Shape to;
    for (const int axis : order) {
      move.values.push_back(axis);
      to.push_back(shape_[axis]);
    }
    shape_ = std::move(to);
    moves_.push_back(std::move(move));
  }
  void Flip(const std::vector<int>& axes) {
    if (axes.empty()) return;
    moves_.push_back({Op::kFlip, Shape(axes.begin(), axes.end())});
  }
  void Pad(const Mask& amounts) {
    Movement move{Op::kPad, {}};
    bool moves = false;
    for (size_t i = 0; i < shape_.size(); ++i) {
      const auto& [before, after] = amounts[i];
      moves = moves || !ProvenEq(before, 0) || !ProvenEq(after, 0);
      move.values.insert(move.values.end(), {before, after});
      shape_[i] = before + shape_[i] + after;
    }
    if (moves) moves_.push_back(std::move(move));
  }
  void Shrink(size_t axis, const SInt& begin, const SInt& end) {
    if (ProvenEq(begin, 0) && ProvenEq(end, shape_[axis])) return;
    // Of several axes in a row one SHRINK.
    Movement move{Op::kShrink, {}};
    if (!moves_.empty() && moves_.back().op == Op::kShrink && shrunk_[axis] == 0) {
      move = std::move(moves_.back());
      moves_.pop_back();
    } else {
      shrunk_.assign(shape_.size(), 0);
      for (const SInt& size : shape_) move.values.insert(move.values.end(), {0, size});
    }
    shrunk_[axis] = 1;
    move.values[2 * axis] = begin;
    move.values[2 * axis + 1] = end;
    shape_[axis] = end - begin;
    moves_.push_back(std::move(move));
  }

  // On the last axis.
  void ShrinkLast(const SInt& begin, const SInt& end) { Shrink(shape_.size() - 1, begin, end); }
  void PadLast(const SInt& after) {
    Mask amounts(shape_.size());
    amounts.back().second = after;
    Pad(amounts);
  }
  // In place of the last axis stand `sizes`.
  void SplitLast(const Shape& sizes) {
    Shape to = shape_;
    to.pop_back();
    to.insert(to.end(), sizes.begin(), sizes.end());
    Reshape(std::move(to));
  }

 private:
  Shape shape_;
  Shape before_reshape_;     // of the last move, if that is a RESHAPE
  std::vector<int> shrunk_;  // by axis: the last move, if that is a SHRINK, cuts it
  std::vector<Movement> moves_;
};

struct Axis {
  int place = 0;  // among the view's axes; kPoint: one place on an axis of what is viewed
  SInt size;
  SInt stride;  // above 0
};
constexpr int kPoint = -1;

// Behind those with larger strides.
void Insert(const Axis& axis, std::vector<Axis>& axes) {
  const auto at = std::ranges::find_if(
      axes, [&](const Axis& other) { return ProvenLt(other.stride, axis.stride); });
  axes.insert(at, axis);
}

// A view that begins somewhere inside may have dropped axes of `shape` on which it stays at one
// place: they are cut as what they are, where they can be.
void InsertPoints(const Shape& shape, std::vector<Axis>& axes) {
  SInt stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const bool walked =
        std::ranges::any_of(axes, [&](const Axis& axis) { return ProvenEq(axis.stride, stride); });
    if (!walked && ProvenLt(1, stride) && ProvenLt(1, shape[i])) {
      Insert({kPoint, 1, stride}, axes);
    }
    stride = stride * shape[i];
  }
}

// Takes `axis` out of the last axis of `mover`, whose elements from `offset` on the axis and those
// of smaller strides walk; `span` is what these reach, the first element included. What is left of
// the last axis stays behind it.
bool TakeAxis(const Axis& axis, const SInt& span, SInt& offset, Mover& mover) {
  const SInt length = mover.shape().back();
  const SInt &size = axis.size, &stride = axis.stride;
  const SInt row = offset / stride, column = offset % stride;
  const size_t place = mover.shape().size() - 1;
  if (ProvenEq(length % stride, 0) && ProvenLe(0, offset) && ProvenLe(column + span, stride)) {
    mover.SplitLast({length / stride, stride});
    mover.Shrink(place, row, row + size);
    offset = column;
    return true;
  }
  if (axis.place == kPoint) return true;  // what is left needs no cut here
  const SInt reach = (size - 1) * stride + span;
  if (ProvenLe(span, stride)) {
    const SInt end = offset + size * stride;
    if (ProvenLe(end, length)) {
      mover.ShrinkLast(offset, end);
    } else {
      mover.ShrinkLast(offset, offset + reach);
      mover.PadLast(stride - span);
    }
    mover.SplitLast({size, stride});
    offset = 0;
    return true;
  }
  if (!AllNumbers(std::vector<SInt>{size, stride, span})) return false;
  // Copies side by side: a step of reach + stride goes on by `stride` in the next copy.
  const SInt step = reach + stride;
  const SInt copies = (size * step + reach - 1) / reach;
  mover.ShrinkLast(offset, offset + reach);
  mover.SplitLast({1, reach});
  Shape expanded = mover.shape();
  expanded[place] = copies;
  mover.Expand(expanded);
  Shape flat(expanded.begin(), expanded.end() - 2);
  flat.push_back(copies * reach);
  mover.Reshape(std::move(flat));
  mover.ShrinkLast(0, size * step);
  mover.SplitLast({size, step});
  mover.ShrinkLast(0, span);
  offset = 0;
  return true;
}

// Adds what `view` does to the elements of `mover`, row-major.
bool AddView(const View& view, Mover& mover) {
  const SInt elements = Prod(mover.shape());
  if (view.contiguous && ProvenEq(view.size(), elements)) {
    mover.Reshape(view.shape);
    return true;
  }
  const size_t rank = view.shape.size();
  // What is valid, and what is around it.
  Shape inner = view.shape;
  Mask around(rank);
  SInt offset = view.offset;
  std::vector<Axis> axes;  // that move, the largest stride first
  std::vector<int> flipped;
  bool empty = false;
  for (size_t i = 0; i < rank; ++i) {
    if (view.mask) {
      const auto& [begin, end] = (*view.mask)[i];
      inner[i] = end - begin;
      around[i] = {begin, view.shape[i] - end};
      offset = offset + begin * view.strides[i];
    }
    empty = empty || ProvenEq(inner[i], 0);
    SInt stride = view.strides[i];
    if (ProvenEq(inner[i], 1) || ProvenEq(stride, 0)) continue;
    if (stride.max() < 0) {
      offset = offset + (inner[i] - 1) * stride;
      stride = 0 - stride;
      flipped.push_back(static_cast<int>(i));
    }
    if (stride.min() <= 0) return false;
    Insert({static_cast<int>(i), inner[i], stride}, axes);
  }
  if (!ProvenEq(offset, 0)) InsertPoints(mover.shape(), axes);
  mover.Reshape({elements});
  if (empty) {
    mover.ShrinkLast(0, 0);
    mover.Reshape(inner);
    mover.Pad(around);
    return true;
  }
  std::vector<SInt> spans(axes.size() + 1, 1);  // of the axes from each on
  for (size_t k = axes.size(); k-- > 0;) {
    spans[k] = spans[k + 1] + (axes[k].size - 1) * axes[k].stride;
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    if (k + 1 == axes.size() && ProvenEq(axes[k].stride, 1)) {
      mover.ShrinkLast(offset, offset + axes[k].size);
      mover.SplitLast({axes[k].size, 1});
      offset = 0;
      break;
    }
    if (!TakeAxis(axes[k], spans[k + 1], offset, mover)) return false;
  }
  // Of the last axis one element is left to be.
  mover.ShrinkLast(offset, offset + 1);
  std::erase_if(axes, [](const Axis& axis) { return axis.place == kPoint; });
  Shape walked;
  for (const Axis& axis : axes) walked.push_back(axis.size);
  mover.Reshape(std::move(walked));
  std::vector<int> order(axes.size());
  for (size_t k = 0; k < axes.size(); ++k) order[k] = static_cast<int>(k);
  std::ranges::sort(order, {}, [&](int k) { return axes[k].place; });
  mover.Permute(order);
  Shape ones(rank, 1);
  for (const Axis& axis : axes) ones[axis.place] = axis.size;
  mover.Reshape(std::move(ones));
  mover.Flip(flipped);
  mover.Expand(inner);
  mover.Pad(around);
  return true;
}

}  // namespace

std::optional<std::vector<Movement>> MovementsOf(const ShapeTracker& st, const Shape& base) {
  Mover mover(base);
  for (const View& view : st.views()) {
    if (!AddView(view, mover)) return std::nullopt;
  }
  BEAMD_CHECK(Same(mover.shape(), st.shape()), "movements end in the shape of the view");
  return mover.Take();
}

}  // namespace beamd
