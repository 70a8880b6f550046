#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/facts.h"
#include "engine/kernel/kernel.h"

namespace beamd {
namespace {

// Axes in [begin, end) along which a reduction's result and source differ.
std::vector<int32_t> ReducedAxes(const Shape& result, const Shape& source, int begin, int end) {
  std::vector<int32_t> axes;
  for (int i = begin; i < end; ++i) {
    if (!ProvenEq(result[i], source[i])) axes.push_back(i);
  }
  return axes;
}

UOp Reduce(UOp source, Op op, std::vector<int32_t> axes) {
  if (axes.empty()) return source;
  UOpGraph& graph = source.graph();
  return graph.Make(Op::kReduceAxis, source.dtype(), {source},
                    graph.Intern(ReduceArg{op, std::move(axes)}));
}

// LOAD(local, view, STORE(local, view, value)): `value` as every thread of the group sees it.
UOp ThroughLocal(UOp local, UOp view, UOp value) {
  UOpGraph& graph = value.graph();
  const UOp store = graph.Make(Op::kStore, DType(), {local, view, value});
  return graph.Make(Op::kLoad, value.dtype(), {local, view, store});
}

UOp ContiguousView(const Shape& shape, UOpGraph& graph) {
  return ShapeTracker::FromShape(shape).ToUOp(graph);
}

}  // namespace

UOp Kernel::OptimizedAst(UOpGraph& graph) const {
  const std::vector<UOp> nodes = Toposort(ast());
  std::vector<UOp> done(ast().graph().size());
  std::vector<int> buf_index(ast().graph().size(), -1);
  for (size_t i = 0; i < bufs().size(); ++i) buf_index[bufs()[i].id()] = static_cast<int>(i);

  const int reduce_begin = first_reduce(), group_end = reduce_begin + group_for_reduces_;
  int reductions = 0;  // Toposort is the order of reduceops
  auto reduce = [&](UOp u, UOp source) {
    const int index = reductions++;
    const Op op = u.data<ReduceArg>().op;
    const int at = static_cast<int>(bufs().size()) + 2 * index;
    const Shape &from = tracker(at + 1).shape(), &to = tracker(at).shape();
    const UOp partial = Reduce(source, op, ReducedAxes(to, from, group_end, shape_len()));
    const std::vector<int32_t> grouped = ReducedAxes(to, from, reduce_begin, group_end);
    if (grouped.empty()) return partial;

    // Threads of a group meet in shared memory: local axes, those of the group along which the
    // values differ, upcasts. Every thread then folds what it finds there, so that what follows has
    // the result; 0.10.0 lets one of them pass it on through shared memory again.
    Shape shape(shape_len(), SInt(1));
    for (int i = global_dims(); i < reduce_begin; ++i) shape[i] = from[i];
    for (int i = reduce_begin; i < group_end; ++i) shape[i] = from[i];
    for (int i = first_upcast(); i < shape_len(); ++i) shape[i] = to[i];
    const UOp local = graph.Make(Op::kDefineLocal, DType::Pointer(u.scalar(), AddressSpace::kLocal),
                                 {}, graph.Intern(absl::StrCat("temp", index + 1)));
    return Reduce(ThroughLocal(local, ContiguousView(shape, graph), partial), op, grouped);
  };

  for (UOp u : nodes) {
    UOp& out = done[u.id()];
    if (u.is(Op::kView)) continue;  // its user makes the new one
    std::vector<UOp> src;
    for (UOp s : u.src()) src.push_back(done[s.id()]);
    if (u.is(Op::kReduceAxis)) {
      out = reduce(u, src[0]);
      continue;
    }
    Arg arg = u.arg().data() ? graph.Intern(*u.arg().data()) : u.arg();
    if (buf_index[u.id()] >= 0) {
      src[u.is(Op::kValid) ? 0 : 1] = tracker(buf_index[u.id()]).ToUOp(graph);
    } else if (u.is(Op::kSink)) {
      arg = graph.Intern(KernelInfo{local_dims_, upcasted_, dont_use_locals_});
    }
    out = graph.Make(u.op(), u.dtype(), src, arg);
  }
  return done[ast().id()];
}

}  // namespace beamd
