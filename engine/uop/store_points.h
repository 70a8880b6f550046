// Which point of a kernel writes a given element: the inverse of a STORE's view.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/uop/view_index.h"

namespace beamd {

class StorePoints {
 public:
  // Views whose index is a number with the coordinates as digits are inverted by dividing; for
  // others every point is walked once. ResourceExhausted if those are more than 2^26.
  static absl::StatusOr<StorePoints> Create(ViewIndex view);

  // The point that writes `element` last, in row-major order; false if none does.
  bool Find(int64_t element, std::vector<int64_t>& point) const;

 private:
  explicit StorePoints(ViewIndex view);
  bool PlanDigits();

  ViewIndex view_;
  std::vector<int> digits_;  // axes by falling stride
  bool walked_ = false;
  absl::flat_hash_map<int64_t, std::vector<int64_t>> points_;  // by element, if walked
};

}  // namespace beamd
