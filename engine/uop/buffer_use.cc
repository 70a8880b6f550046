#include "engine/uop/buffer_use.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"

namespace beamd {

absl::StatusOr<std::vector<BufferUse>> BufferUses(UOp sink, const VariableValues& variables) {
  constexpr int64_t kMaxPoints = int64_t{1} << 26;
  absl::flat_hash_map<uint64_t, BufferUse> uses;
  for (const UOp u : Toposort(sink)) {
    if (!u.is(Op::kLoad | Op::kPreload | Op::kStore)) continue;
    if (!u.src(0).has_data<BufferArg>() || !u.src(1).is(Op::kView)) {
      return absl::InvalidArgumentError("an access to what is no buffer of the kernel");
    }
    const BufferArg& arg = u.src(0).data<BufferArg>();
    BufferUse& use = uses[arg.id];
    use.slot = arg.id;
    use.dtype = u.src(0).dtype();
    (u.is(Op::kStore) ? use.stored : use.loaded) = true;
    if (arg.size_elements != 0 || use.dtype.is_image()) {
      use.elements = std::max(static_cast<int64_t>(arg.size_elements), ImageElements(use.dtype));
      continue;
    }
    BEAMD_ASSIGN_OR_RETURN(const ViewIndex view, ViewIndex::Create(u.src(1), variables));
    const IndexBounds bounds = IndexBoundsOf(view);
    if (bounds.empty || bounds.index.max < use.elements) continue;
    const ViewIndex once = view.WithoutRepeats();
    if (bounds.exact || once.WalkLength() > kMaxPoints) {
      use.elements = bounds.index.max + 1;
      continue;
    }
    once.ForEachValid([&](std::span<const int64_t>, int64_t element, bool) {
      use.elements = std::max(use.elements, element + 1);
      return true;
    });
  }
  std::vector<BufferUse> ordered;
  for (const auto& [slot, use] : uses) ordered.push_back(use);
  std::ranges::sort(ordered, {}, &BufferUse::slot);
  return ordered;
}

}  // namespace beamd
