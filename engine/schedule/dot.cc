#include "engine/schedule/dot.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/uop/dot.h"

namespace beamd {
namespace {

std::string BufferLabel(const TensorBuffer& buffer, bool internal) {
  return absl::StrCat(
      buffer.size_elements, " ",
      buffer.image.is_image() ? ToString(buffer.image) : std::string(Name(buffer.dtype)), "\n",
      buffer.device, internal ? "\ninternal" : "");
}

std::string ItemLabel(const ScheduleItem& item, size_t index, absl::string_view name) {
  const absl::string_view kind = item.kind == ScheduleItem::Kind::kKernel ? "kernel"
                                 : item.kind == ScheduleItem::Kind::kCopy ? "copy"
                                                                          : "view";
  return absl::StrCat(index, " ", kind, name.empty() ? "" : "\n", name);
}

// Whether a kernel reads the slot before it writes there, or beside.
bool Loads(const ScheduleItem& item, size_t slot) {
  if (item.kind != ScheduleItem::Kind::kKernel) return false;
  return std::ranges::any_of(Toposort(item.ast), [&](UOp u) {
    return u.is(Op::kLoad) && u.src(0).data<BufferArg>().id == slot;
  });
}

}  // namespace

std::string ScheduleDot(const Schedule& schedule, std::span<const std::string> names) {
  Dot dot("schedule");
  absl::flat_hash_set<const TensorBuffer*> internal;
  for (const auto& buffer : schedule.internal) internal.insert(buffer.get());
  // A buffer's name, and how often it was written: a write makes a new node of it, so that the
  // picture has no cycles.
  struct State {
    size_t number = 0, writes = 0;
  };
  absl::flat_hash_map<const TensorBuffer*, State> states;
  const auto node = [](const State& state) {
    return absl::StrCat("buffer", state.number, "_", state.writes);
  };
  for (size_t i = 0; i < schedule.items.size(); ++i) {
    const ScheduleItem& item = schedule.items[i];
    const std::string name = absl::StrCat("item", i);
    dot.Node(name, ItemLabel(item, i, i < names.size() ? names[i] : ""),
             item.kind == ScheduleItem::Kind::kKernel ? Dot::Kind::kCompute : Dot::Kind::kMove);
    for (size_t slot = 0; slot < item.buffers.size(); ++slot) {
      const TensorBuffer* buffer = item.buffers[slot].get();
      const auto [it, fresh] = states.try_emplace(buffer, State{.number = states.size()});
      State& state = it->second;
      const bool written = slot < item.written.size() && item.written[slot];
      if (!written || Loads(item, slot)) {
        if (fresh) {
          dot.Node(node(state), BufferLabel(*buffer, internal.contains(buffer)),
                   Dot::Kind::kMemory);
        }
        dot.Edge(node(state), name, absl::StrCat(slot));
      }
      if (!written) continue;
      ++state.writes;
      dot.Node(node(state), BufferLabel(*buffer, internal.contains(buffer)), Dot::Kind::kMemory);
      dot.Edge(name, node(state), absl::StrCat(slot));
    }
  }
  return dot.Finish();
}

}  // namespace beamd
