#include "engine/uop/kernel_hash.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/uop/sizes.h"
#include "engine/uop/structure_hash.h"
#include "engine/uop/view_index.h"

namespace beamd {
namespace {

// Changes with the meaning of the digest: every key in every store changes with it.
constexpr absl::string_view kScheme = "beamd kernel 1";

bool IsNumber(const IntOrSrc& v, int64_t value) { return v.src < 0 && v.value == value; }

ViewArg CanonicalView(const ViewArg& view, SizeRenumber& renumber) {
  ViewArg out;
  const size_t rank = view.shape.size();
  for (const IntOrSrc& dim : view.shape) out.shape.push_back(renumber(dim));
  for (size_t i = 0; i < rank; ++i) {
    out.strides.push_back(IsNumber(view.shape[i], 1) ? IntOrSrc() : renumber(view.strides[i]));
  }
  out.offset = renumber(view.offset);
  if (!view.mask) return out;
  const bool covers = std::ranges::equal(
      *view.mask, view.shape,
      [](const auto& m, const auto& dim) { return IsNumber(m.first, 0) && m.second == dim; });
  if (covers) return out;
  out.mask.emplace();
  for (const auto& [begin, end] : *view.mask) {
    const IntOrSrc first = renumber(begin);
    out.mask->emplace_back(first, renumber(end));
  }
  return out;
}

// Buffers of which an access isn't proven to stay inside the stated size.
absl::flat_hash_set<UOp> OpenBuffers(std::span<const UOp> nodes) {
  absl::flat_hash_set<UOp> open;
  for (const UOp u : nodes) {
    if (!u.is(Op::kLoad | Op::kPreload | Op::kStore) || !u.src(0).has_data<BufferArg>()) continue;
    const uint64_t size = u.src(0).data<BufferArg>().size_elements;
    if (size == 0 || !u.src(1).is(Op::kView)) continue;
    const IndexBounds b = IndexBoundsOf(u.src(1));
    const bool proven =
        b.empty || (b.inside && b.index.min >= 0 && static_cast<uint64_t>(b.index.max) < size);
    if (!proven) open.insert(u.src(0));
  }
  return open;
}

}  // namespace

UOp CanonicalKernel(UOp u, UOpGraph& graph) {
  const std::vector<UOp> nodes = Toposort(u);
  const absl::flat_hash_set<UOp> open = OpenBuffers(nodes);
  absl::flat_hash_map<UOp, UOp> done;
  std::vector<UOp> src;
  for (const UOp n : nodes) {
    src.clear();
    for (const UOp s : n.src()) src.push_back(done.at(s));
    Arg arg = n.arg();
    if (n.has_data<ViewsArg>()) {
      SizeRenumber renumber(src, *SizesBegin(n.op()));
      ViewsArg views;
      for (const ViewArg& view : n.data<ViewsArg>().views) {
        views.views.push_back(CanonicalView(view, renumber));
      }
      const std::vector<UOp> renumbered = renumber.TakeSources();
      src.assign(renumbered.begin(), renumbered.end());
      arg = graph.Intern(std::move(views));
    } else if (n.is(Op::kDefineGlobal) && n.has_data<BufferArg>() &&
               (n.dtype().is_image() || !open.contains(n))) {
      BufferArg buffer = n.data<BufferArg>();
      buffer.size_elements = 0;
      arg = graph.Intern(std::move(buffer));
    } else if (arg.data() != nullptr) {
      arg = graph.Intern(*arg.data());
    }
    done[n] = graph.Make(n.op(), n.dtype(), src, arg);
  }
  return done.at(u);
}

Digest KernelHash(UOp u) {
  UOpGraph graph;
  return StructureHash(CanonicalKernel(u, graph), kScheme);
}

}  // namespace beamd
