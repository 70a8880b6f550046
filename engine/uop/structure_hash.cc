#include "engine/uop/structure_hash.h"

#include <string>
#include <variant>

namespace beamd {
namespace {

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

Digest StructureHash(UOp root, absl::string_view scheme) {
  std::vector<Digest> digest(root.graph().size());
  for (const UOp n : Toposort(root)) {
    // Names and not numbers of ops and dtypes: numbers of the engine may change.
    Hasher h;
    h.Add(scheme).Add(Name(n.op())).Add(ToString(n.dtype()));
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
