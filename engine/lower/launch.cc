#include "engine/lower/launch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

constexpr int kDims = 3;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
using Limits = std::array<int64_t, kDims>;

// Saturates.
int64_t MaxProduct(std::span<const SInt> extents) {
  int64_t product = 1;
  for (const SInt& e : extents) {
    if (__builtin_mul_overflow(product, std::max<int64_t>(e.max(), 0), &product)) return kUnlimited;
  }
  return product;
}

// `index` counts the points of `extents`; its coordinates.
void TakeApart(UOp index, std::span<const SInt> extents, std::vector<UOp>& out) {
  std::vector<UOp> coordinates(extents.size());
  for (size_t i = extents.size(); i-- > 1;) {
    const UOp extent = extents[i].ToUOp(index.graph());
    coordinates[i] = Simplify(index % extent);
    index = index / extent;
  }
  coordinates[0] = Simplify(index);
  out.insert(out.end(), coordinates.begin(), coordinates.end());
}

// Where each dimension's axes begin, outermost first, if neighbours share `dims` dimensions within
// the limits.
std::optional<std::vector<size_t>> Partition(std::span<const SInt> extents, int dims,
                                             const Limits& limits) {
  const size_t n = extents.size();
  const auto fits = [&](size_t begin, size_t end, int dim) {
    return MaxProduct(extents.subspan(begin, end - begin)) <= limits[dim];
  };
  if (dims == 1) {
    if (fits(0, n, 0)) return std::vector<size_t>{0};
    return std::nullopt;
  }
  // The fastest axes share x, whose limit is the widest; so the cuts are tried from the outside.
  for (size_t first = 1; first + dims - 2 < n; ++first) {
    if (dims == 2) {
      if (fits(0, first, 1) && fits(first, n, 0)) return std::vector<size_t>{0, first};
      continue;
    }
    for (size_t second = first + 1; second < n; ++second) {
      if (fits(0, first, 2) && fits(first, second, 1) && fits(second, n, 0)) {
        return std::vector<size_t>{0, first, second};
      }
    }
  }
  return std::nullopt;
}

// Sizes of x, y and z that together hold `count`, as little more than that as is found.
std::optional<Limits> Cover(int64_t count, const Limits& limits) {
  const auto rounded_up = [](int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); };
  Limits sizes = {1, 1, 1};
  const int64_t rows = rounded_up(count, limits[0]);
  sizes[2] = rounded_up(rows, limits[1]);
  if (sizes[2] > limits[2]) return std::nullopt;
  const int64_t plane = rounded_up(count, sizes[2]);
  sizes[1] = rounded_up(plane, limits[0]);
  // A few rows more may divide it.
  constexpr int64_t kTried = 256;
  for (int64_t y = sizes[1]; y <= std::min(limits[1], sizes[1] + kTried); ++y) {
    if (plane % y != 0) continue;
    sizes[1] = y;
    break;
  }
  sizes[0] = rounded_up(plane, sizes[1]);
  return sizes;
}

// Work-items of a group that an axis of `extent` is split into: the most up to kMostItems that
// divide it, whole waves rather than more.
int64_t GroupSize(int64_t extent, int wave_size) {
  constexpr int64_t kMostItems = 256;
  int64_t any = 1, waves = 0;
  for (int64_t n = 1; n <= std::min(kMostItems, extent); ++n) {
    if (extent % n != 0) continue;
    any = n;
    if (n % wave_size == 0) waves = n;
  }
  return waves != 0 ? waves : any;
}

int64_t LargestDivisor(int64_t extent, int64_t most) {
  int64_t n = std::min(extent, most);
  while (n > 1 && extent % n != 0) --n;
  return std::max<int64_t>(n, 1);
}

// How dimensions are split into groups.
struct Groups {
  int64_t items;  // of a group, at most; 0: what seems best
  int wave_size;
  Limits limits;
};

class Planner {
 public:
  // `groups`: how dimensions are split into them; none: they aren't.
  Planner(UOpGraph& g, absl::string_view prefix, const std::optional<Limits>& limits,
          const std::optional<Groups>& groups = std::nullopt)
      : g_(g),
        prefix_(prefix),
        groups_(groups),
        limits_(limits.value_or(Limits{kUnlimited, kUnlimited, kUnlimited})) {}

  absl::StatusOr<GridPlan> Run(std::span<const SInt> all) {
    std::vector<SInt> extents;
    for (const SInt& e : all) {
      if (!(e == SInt(1))) extents.push_back(e);
    }
    std::vector<UOp> indices;
    if (!extents.empty()) BEAMD_RETURN_IF_ERROR(Place(extents, indices));
    auto next = indices.begin();
    for (const SInt& e : all) {
      plan_.indices.push_back(e == SInt(1) ? g_.Const(Scalar::kInt64, 0) : *next++);
    }
    return std::move(plan_);
  }

 private:
  UOp Special(int dim, int64_t most, UOp extent) {
    const Arg name = g_.Intern(absl::StrCat(prefix_, dim));
    const UOp special =
        g_.Make(Op::kSpecial, Scalar::kInt64, {g_.Const(Scalar::kInt64, most)}, name);
    if (extent != special.src(0)) {
      plan_.specials.push_back(special);
      plan_.bounded.push_back(g_.Make(Op::kSpecial, Scalar::kInt64, {extent}, name));
      return special;
    }
    const int64_t items = group_[dim];
    if (items == 1) return special;
    const auto index = [&](absl::string_view of, int64_t size) {
      return g_.Make(Op::kSpecial, Scalar::kInt64, {g_.Const(Scalar::kInt64, size)},
                     g_.Intern(absl::StrCat(of, dim)));
    };
    return index("g", most / items) * items + index("l", items);
  }

  // Chooses the group of a grid of these sizes, x first; a size of 1 isn't split.
  void ChooseGroup(const Limits& sizes) {
    if (!groups_) return;
    if (groups_->items == 0) {
      group_[0] = GroupSize(sizes[0], groups_->wave_size);
      return;
    }
    int64_t left = groups_->items;
    for (int dim = 0; dim < kDims; ++dim) {
      group_[dim] = LargestDivisor(sizes[dim], std::min(left, groups_->limits[dim]));
      left /= group_[dim];
    }
  }

  absl::Status Place(std::span<const SInt> extents, std::vector<UOp>& indices) {
    std::optional<std::vector<size_t>> begins;
    for (int dims = static_cast<int>(std::min<size_t>(kDims, extents.size())); dims > 0 && !begins;
         --dims) {
      begins = Partition(extents, dims, limits_);
    }
    if (!begins) return Spread(extents, indices);
    begins->push_back(extents.size());
    const size_t dims = begins->size() - 1;
    const auto axes_of = [&](size_t d) {
      return extents.subspan((*begins)[d], (*begins)[d + 1] - (*begins)[d]);
    };
    Limits sizes = {1, 1, 1};
    for (size_t d = 0; d < dims; ++d) {
      if (const SInt size = Prod(axes_of(d)); size.is_number()) {
        sizes[dims - 1 - d] = size.number();
      }
    }
    ChooseGroup(sizes);
    for (size_t d = 0; d < dims; ++d) {
      const std::span<const SInt> axes = axes_of(d);
      TakeApart(Special(static_cast<int>(dims - 1 - d), MaxProduct(axes), Prod(axes).ToUOp(g_)),
                axes, indices);
    }
    return absl::OkStatus();
  }

  // One index over all of `extents`, spread over the dimensions. Where they hold more, the kernel's
  // x ends where its row does: at what is left.
  absl::Status Spread(std::span<const SInt> extents, std::vector<UOp>& indices) {
    const int64_t most = MaxProduct(extents);
    const std::optional<Limits> sizes = most < kUnlimited ? Cover(most, limits_) : std::nullopt;
    if (!sizes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a launch of ", most == kUnlimited ? "2^63 or more" : absl::StrCat(most),
                       " work-groups, over the target's limits"));
    }
    const auto [x, y, z] = *sizes;
    ChooseGroup({x, 1, 1});
    const auto whole = [&](int64_t size) { return g_.Const(Scalar::kInt64, size); };
    UOp row = Special(1, y, whole(y));
    if (z > 1) row = row + Special(2, z, whole(z)) * y;
    UOp width = whole(x);
    const SInt count = Prod(extents);
    if (!count.is_number() || x * y * z != count.number()) {
      const UOp left = count.ToUOp(g_) - row * x;
      width = Where(left < x, left, width);
    }
    TakeApart(Special(0, x, width) + row * x, extents, indices);
    return absl::OkStatus();
  }

  UOpGraph& g_;
  const absl::string_view prefix_;
  const std::optional<Groups> groups_;
  Limits group_ = {1, 1, 1};
  const Limits limits_;
  GridPlan plan_;
};

}  // namespace

absl::StatusOr<GridPlan> PlanGrid(UOpGraph& graph, std::span<const SInt> extents,
                                  const TargetCaps& caps, std::optional<int64_t> group_items) {
  std::optional<Groups> groups;
  if (group_items) {
    groups = Groups{*group_items, caps.wave_size,
                    caps.local_max.value_or(Limits{kUnlimited, kUnlimited, kUnlimited})};
  }
  return Planner(graph, "g", caps.global_max, groups).Run(extents);
}

absl::StatusOr<std::vector<UOp>> PlanGroup(UOpGraph& graph, std::span<const SInt> extents,
                                           const TargetCaps& caps) {
  for (const SInt& e : extents) {
    if (!e.is_number()) return absl::InvalidArgumentError("a local axis is symbolic");
  }
  if (caps.local_max) {
    const int64_t items = MaxProduct(extents), most = std::ranges::max(*caps.local_max);
    if (items > most) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a work-group of ", items, " work-items, the target takes ", most));
    }
  }
  BEAMD_ASSIGN_OR_RETURN(GridPlan plan, Planner(graph, "l", caps.local_max).Run(extents));
  return std::move(plan.indices);
}

}  // namespace beamd
