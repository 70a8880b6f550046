#include "engine/uop/kernel_hash.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/uop/view_index.h"

namespace beamd {
namespace {

// Changes with the meaning of the digest: every key in every store changes with it.
constexpr absl::string_view kScheme = "beamd kernel 1";

bool IsNumber(const IntOrSrc& v, int64_t value) { return v.src < 0 && v.value == value; }

// Gives the sources that an argument uses new places, in order of use.
class Renumber {
 public:
  Renumber(std::span<const UOp> old, int fixed)
      : old_(old), src_(old.begin(), old.begin() + fixed) {}

  IntOrSrc operator()(const IntOrSrc& v) {
    if (v.src < 0) return v;
    const auto at = std::ranges::find(src_, old_[v.src]);
    if (at != src_.end()) return {0, static_cast<int32_t>(at - src_.begin())};
    src_.push_back(old_[v.src]);
    return {0, static_cast<int32_t>(src_.size() - 1)};
  }
  std::vector<UOp>& src() { return src_; }

 private:
  std::span<const UOp> old_;
  std::vector<UOp> src_;
};

ViewArg CanonicalView(const ViewArg& view, Renumber& renumber) {
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

// Adds the fields of an argument. Sources that it names are numbers among the node's own.
class ArgHash {
 public:
  explicit ArgHash(Hasher& hasher) : h_(hasher) {}

  void operator()(const ViewsArg& a) {
    Count(a.views.size());
    for (const ViewArg& v : a.views) {
      Ints(v.shape);
      Ints(v.strides);
      Int(v.offset);
      Count(v.mask ? 1 : 0);
      if (!v.mask) continue;
      for (const auto& [begin, end] : *v.mask) {
        Int(begin);
        Int(end);
      }
    }
  }
  void operator()(const ReduceArg& a) {
    h_.Add(Name(a.op));
    Count(a.axes.size());
    for (const int32_t axis : a.axes) Number(axis);
  }
  void operator()(const VariableArg& a) {
    h_.Add(a.name);
    Number(a.min);
    Number(a.max);
  }
  void operator()(const KernelInfo& a) {
    Number(a.local_dims);
    Number(a.upcasted);
    Number(a.dont_use_locals ? 1 : 0);
  }
  void operator()(const std::string& a) { h_.Add(a); }
  void operator()(const IntsArg& a) { Ints(a.values); }
  void operator()(const BufferArg& a) {
    Count(a.id);
    Count(a.size_elements);
    Ints(a.shape);
    h_.Add(a.device);
  }
  void operator()(const LanesArg& a) {
    Count(a.lanes.size());
    for (const int64_t lane : a.lanes) Number(lane);
  }
  void operator()(const RangeArg& a) {
    Number(static_cast<int64_t>(a.kind));
    Number(a.axis);
    Number(a.stage);
  }

 private:
  void Count(uint64_t v) { h_.Add(v); }
  void Number(int64_t v) { h_.Add(static_cast<uint64_t>(v)); }
  void Int(const IntOrSrc& v) {
    Number(v.src);
    Number(v.value);
  }
  void Ints(const std::vector<IntOrSrc>& values) {
    Count(values.size());
    for (const IntOrSrc& v : values) Int(v);
  }

  Hasher& h_;
};

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
      // An ASSIGN has two sources before its sizes, a VIEW none.
      Renumber renumber(src, n.is(Op::kAssign) ? 2 : 0);
      ViewsArg views;
      for (const ViewArg& view : n.data<ViewsArg>().views) {
        views.views.push_back(CanonicalView(view, renumber));
      }
      std::vector<UOp> renumbered = std::move(renumber.src());
      src = std::move(renumbered);
      arg = graph.Intern(std::move(views));
    } else if (n.is(Op::kDefineGlobal) && n.has_data<BufferArg>() && !open.contains(n)) {
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
  const UOp root = CanonicalKernel(u, graph);
  std::vector<Digest> digest(graph.size());
  for (const UOp n : Toposort(root)) {
    // Names and not numbers of ops and dtypes: numbers of the engine may change.
    Hasher h;
    h.Add(kScheme).Add(Name(n.op())).Add(ToString(n.dtype()));
    h.Add(static_cast<uint64_t>(n.arg().kind()));
    if (n.arg().data() != nullptr) {
      ArgHash add(h);
      std::visit(add, *n.arg().data());
    } else {
      h.Add(n.arg().word());
    }
    h.Add(static_cast<uint64_t>(n.src_count()));
    for (const UOp s : n.src()) h.Add(digest[s.id()]);
    digest[n.id()] = h.Finish();
  }
  return digest[root.id()];
}

}  // namespace beamd
