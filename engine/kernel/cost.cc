#include "engine/kernel/cost.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/shape/shape_tracker.h"

namespace beamd {
namespace {

double Elements(const Shape& shape) {
  double elements = 1;
  for (const SInt& size : shape) elements *= static_cast<double>(size.max());
  return elements;
}

}  // namespace

KernelCost CostOf(UOp sink) {
  KernelCost cost;
  // By id. Constants, and the expressions inside views, have none.
  std::vector<std::optional<Shape>> shapes(sink.graph().size());
  std::vector<double> seen(shapes.size());  // of views: elements, at most
  // By slot: what is loaded of it, and what is stored.
  absl::flat_hash_map<uint64_t, std::pair<double, double>> touched;
  for (const UOp u : Toposort(sink)) {
    std::optional<Shape>& shape = shapes[u.id()];
    if (u.is(Op::kView)) {
      const ShapeTracker st = ShapeTracker::FromUOp(u);
      shape = st.shape();
      seen[u.id()] = std::min(static_cast<double>(st.RealSize()), Elements(*shape));
      continue;
    }
    for (const UOp s : u.src()) {
      if (!shape) shape = shapes[s.id()];
    }
    if (u.is(Op::kLoad | Op::kPreload | Op::kStore)) {
      const UOp buffer = u.src(0);
      auto& [loaded, stored] = touched[buffer.data<BufferArg>().id];
      double& bytes = u.is(Op::kStore) ? stored : loaded;
      bytes = std::max(bytes, seen[u.src(1).id()] * SizeBytes(buffer.dtype().scalar));
    }
    if (!shape) continue;
    if (u.is(kAlu)) cost.operations += Elements(*shape) * (u.is(Op::kMulAcc) ? 2 : 1);
    if (u.is(Op::kReduceAxis)) {
      cost.operations += Elements(*shape);
      for (const int32_t axis : u.data<ReduceArg>().axes) (*shape)[axis] = 1;
    }
  }
  for (const auto& [slot, bytes] : touched) cost.bytes += bytes.first + bytes.second;
  return cost;
}

}  // namespace beamd
