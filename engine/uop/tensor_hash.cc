#include "engine/uop/tensor_hash.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/uop/sizes.h"
#include "engine/uop/structure_hash.h"

namespace beamd {
namespace {

constexpr absl::string_view kScheme = "beamd tensor graph 1";

// Numbers in the order in which they are asked for.
class Ids {
 public:
  uint64_t operator()(uint64_t id) { return ids_.try_emplace(id, ids_.size()).first->second; }

 private:
  absl::flat_hash_map<uint64_t, uint64_t> ids_;
};

void Renumber(std::vector<IntOrSrc>& values, SizeRenumber& renumber) {
  for (IntOrSrc& v : values) v = renumber(v);
}

}  // namespace

UOp CanonicalTensorGraph(UOp u, UOpGraph& graph) {
  Ids buffers, empties;
  absl::flat_hash_map<UOp, UOp> done;
  std::vector<UOp> src;
  for (const UOp n : Toposort(u)) {
    src.clear();
    for (const UOp s : n.src()) src.push_back(done.at(s));
    SizeRenumber renumber(src, SizesBegin(n.op()).value_or(n.src_count()));
    Arg arg = n.arg();
    if (n.has_data<BufferArg>()) {
      BufferArg buffer = n.data<BufferArg>();
      buffer.id = n.is(Op::kEmpty) ? empties(buffer.id) : buffers(buffer.id);
      buffer.size_elements = 0;
      Renumber(buffer.shape, renumber);
      arg = graph.Intern(std::move(buffer));
    } else if (n.has_data<IntsArg>()) {
      IntsArg ints = n.data<IntsArg>();
      if (n.is(Op::kFlip)) std::ranges::sort(ints.values, {}, &IntOrSrc::value);
      Renumber(ints.values, renumber);
      arg = graph.Intern(std::move(ints));
    } else if (n.has_data<ViewsArg>()) {
      ViewsArg views = n.data<ViewsArg>();
      for (ViewArg& view : views.views) {
        Renumber(view.shape, renumber);
        Renumber(view.strides, renumber);
        view.offset = renumber(view.offset);
      }
      arg = graph.Intern(std::move(views));
    } else if (arg.data() != nullptr) {
      arg = graph.Intern(*arg.data());
    }
    const std::vector<UOp> sources = renumber.TakeSources();
    done[n] = graph.Make(n.op(), n.dtype(), sources, arg);
  }
  return done.at(u);
}

Digest TensorGraphHash(UOp u) {
  UOpGraph graph;
  return StructureHash(CanonicalTensorGraph(u, graph), kScheme);
}

}  // namespace beamd
