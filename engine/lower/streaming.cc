#include "engine/lower/streaming.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Larger than what a core is left of the last-level cache on the machines we know.
constexpr int64_t kStreamedBytes = int64_t{32} << 20;

// Elements that `index` moves on when the range does; 0 if that isn't plain.
int64_t StepOf(UOp index, UOp range) {
  int64_t step = 0;
  for (const UOp term : SplitAssociative(index, Op::kAdd)) {
    if (term == range) step += 1;
    if (term.is(Op::kMul) && term.src(0) == range && term.src(1).is_const()) {
      step += term.src(1).int_value();
    }
  }
  return step;
}

bool IsStreamed(const KernelImage::Buffer& b) {
  return b.written && !b.read && b.size_elements >= kStreamedBytes / SizeBytes(b.scalar);
}

}  // namespace

void MarkStreamedStores(LinearProgram& program) {
  std::map<int32_t, bool> streamed_slots;
  for (const KernelImage::Buffer& b : program.image.buffers) {
    if (IsStreamed(b)) streamed_slots[b.slot] = true;
  }
  if (streamed_slots.empty()) return;
  struct Group {
    int64_t step = 0, lanes = 0;
    std::vector<UOp> stores;
  };
  // By innermost loop and slot. A guarded store leaves gaps; so does a loop that steps further than
  // it stores.
  std::map<std::pair<uint32_t, int32_t>, Group> groups;
  std::vector<UOp> loops;
  for (const UOp u : program.ops) {
    if (u.is(Op::kRange)) loops.push_back(u);
    if (u.is(Op::kEndLoop)) loops.pop_back();
    if (!u.is(Op::kStore) || loops.empty() || u.src(0).src_count() > 2) continue;
    const auto slot = static_cast<int32_t>(u.src(0).src(0).data<BufferArg>().id);
    if (!streamed_slots.contains(slot)) continue;
    Group& g = groups[{loops.back().id(), slot}];
    g.step = StepOf(u.src(0).src(1), loops.back());
    g.lanes += u.src(1).lanes();
    g.stores.push_back(u);
  }
  for (const auto& [unused, g] : groups) {
    if (g.step != g.lanes) continue;
    if (program.streamed.empty()) program.streamed.resize(program.index_alignment.size());
    for (const UOp store : g.stores) program.streamed[store.id()] = true;
  }
}

}  // namespace beamd
