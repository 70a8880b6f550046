#include "engine/uop/store_points.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace beamd {

StorePoints::StorePoints(ViewIndex view) : view_(std::move(view)) {}

absl::StatusOr<StorePoints> StorePoints::Create(ViewIndex view) {
  StorePoints result(std::move(view));
  if (result.view_.views().size() == 1 && result.PlanDigits()) return result;
  constexpr int64_t kMaxPoints = int64_t{1} << 26;
  if (result.view_.WalkLength() > kMaxPoints) {
    return absl::ResourceExhaustedError(
        "a store whose elements can only be found by walking too many points");
  }
  result.digits_.clear();
  result.walked_ = true;
  result.view_.ForEachValid([&](std::span<const int64_t> point, int64_t element, bool) {
    result.points_[element].assign(point.begin(), point.end());  // the last one stays
    return true;
  });
  return result;
}

bool StorePoints::Find(int64_t element, std::vector<int64_t>& point) const {
  if (walked_) {
    const auto it = points_.find(element);
    if (it == points_.end()) return false;
    point = it->second;
    return true;
  }
  const ViewIndex::View& v = view_.views()[0];
  point.resize(v.shape.size());
  int64_t rest = element - v.offset;
  for (size_t i = 0; i < point.size(); ++i) {
    const auto [begin, end] = v.valid[i];
    if (begin >= end) return false;
    // Axes that don't move the index: the last coordinate.
    point[i] = end - 1;
    // Each digit counts from the end at which its axis adds least.
    rest -= v.strides[i] * (v.strides[i] >= 0 ? begin : end - 1);
  }
  for (const int axis : digits_) {
    const auto [begin, end] = v.valid[axis];
    const int64_t stride = std::abs(v.strides[axis]);
    if (rest < 0) return false;
    const int64_t digit = std::min(rest / stride, end - begin - 1);
    rest -= digit * stride;
    point[axis] = v.strides[axis] > 0 ? begin + digit : end - 1 - digit;
  }
  return rest == 0;
}

// The axes by falling stride, if each stride is beyond the reach of all smaller ones: an index is
// then a number whose digits are the coordinates.
bool StorePoints::PlanDigits() {
  const ViewIndex::View& v = view_.views()[0];
  for (size_t i = 0; i < v.shape.size(); ++i) {
    if (v.strides[i] != 0 && v.valid[i].second - v.valid[i].first > 1) {
      digits_.push_back(static_cast<int>(i));
    }
  }
  std::ranges::sort(digits_, {}, [&](int axis) { return -std::abs(v.strides[axis]); });
  __int128 reach = 0;
  for (auto axis = digits_.rbegin(); axis != digits_.rend(); ++axis) {
    const __int128 stride = std::abs(v.strides[*axis]);
    if (stride <= reach) return false;
    reach += stride * (v.valid[*axis].second - v.valid[*axis].first - 1);
  }
  return true;
}

}  // namespace beamd
