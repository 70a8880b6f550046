// Where the points of a VIEW lie in its buffer: the plain reading of a chain of views, a point at a
// time, and bounds over all points. Slow next to engine/shape, which rewrites chains into index
// expressions, and independent of it: the evaluator and the checks of client graphs stand on this.
//
// The last view has the points; its index counts the elements of the one before it in row-major
// order, and so on down to the first, whose index counts the elements of the buffer. A point is
// valid if no view on the way masks it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/uop/uop.h"

namespace beamd {

using VariableValues = absl::flat_hash_map<std::string, int64_t>;

// Bounds, inclusive, kept inside half of what 64 bits count.
struct Interval {
  int64_t min = 0, max = 0;
  bool operator==(const Interval&) const = default;
};

// The value of a size: CONST, DEFINE_VAR, CAST and kIntAlu over them. InvalidArgument for a
// variable without value, or for anything else.
absl::StatusOr<int64_t> SizeValue(UOp expr, const VariableValues& values);
// Bounds of a size over all values of its variables; those of its type where nothing better is
// known.
Interval SizeBounds(UOp expr);

// A chain of views with numbers in it.
class ViewIndex {
 public:
  struct View {
    std::vector<int64_t> shape, strides;
    int64_t offset = 0;
    std::vector<std::pair<int64_t, int64_t>> valid;  // an axis: [begin, end), inside the shape
  };

  // `view` is a VIEW node, or an ASSIGN with views. InvalidArgument where a size becomes negative.
  static absl::StatusOr<ViewIndex> Create(UOp view, const VariableValues& values);

  // Of the points.
  const std::vector<int64_t>& shape() const { return views_.back().shape; }
  const std::vector<View>& views() const { return views_; }

  // The element of the buffer; nullopt if masked. `point` has one coordinate an axis, inside the
  // shape. An index outside of an inner view wraps into it.
  std::optional<int64_t> Index(std::span<const int64_t> point) const;
  // As Index, but an index that leaves an inner view is told: `left_view` is set true then.
  std::optional<int64_t> Index(std::span<const int64_t> point, bool* left_view) const;

  // Calls `visit(point, element, left_view)` for each valid point in row-major order, until it
  // returns false.
  template <typename Visit>
  void ForEachValid(Visit visit) const;
  // Points that ForEachValid walks, the masked ones of inner views included; saturates.
  int64_t WalkLength() const;
  // This chain with one coordinate left on each axis that doesn't move the index.
  ViewIndex WithoutRepeats() const;

 private:
  std::vector<View> views_;
};

// What is known of the elements that the valid points of a VIEW address, over all values of the
// variables.
struct IndexBounds {
  bool empty = false;    // no point is ever valid
  Interval index;        // not narrower than the truth
  bool exact = false;    // both ends are reached
  bool inside = true;    // every index on the way is proven to stay inside its inner view
  bool sizes_ok = true;  // no size can be negative
};
IndexBounds IndexBoundsOf(UOp view);
IndexBounds IndexBoundsOf(const ViewIndex& view);

template <typename Visit>
void ViewIndex::ForEachValid(Visit visit) const {
  const View& last = views_.back();
  const int rank = static_cast<int>(last.shape.size());
  std::vector<int64_t> point(rank);
  for (int i = 0; i < rank; ++i) {
    if (last.valid[i].first >= last.valid[i].second) return;
    point[i] = last.valid[i].first;
  }
  while (true) {
    bool left_view = false;
    if (const std::optional<int64_t> element = Index(point, &left_view)) {
      if (!visit(std::span<const int64_t>(point), *element, left_view)) return;
    }
    int axis = rank - 1;
    while (axis >= 0 && ++point[axis] == last.valid[axis].second) {
      point[axis] = last.valid[axis].first;
      --axis;
    }
    if (axis < 0) return;
  }
}

}  // namespace beamd
