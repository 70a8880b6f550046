#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/uop/int_alu.h"
#include "engine/uop/verify.h"
#include "engine/uop/view_index.h"

namespace beamd {
namespace {

// Ops that stand in a kernel that isn't optimised yet.
constexpr OpSet kKernelOps = kAlu | Op::kSink | Op::kStore | Op::kLoad | Op::kPreload |
                             Op::kDefineGlobal | Op::kDefineVar | Op::kView | Op::kValid |
                             Op::kConst | Op::kAssign | Op::kReduceAxis | Op::kCast | Op::kBitcast;

// Steps of enumerating that one kernel may cost, about 50 ns each.
constexpr int64_t kMaxSteps = 2000000;
// Combinations of values of variables that are looked at one by one.
constexpr int64_t kMaxCombinations = 4096;
constexpr int kMaxReductionDepth = 64;

class KernelCheck {
 public:
  KernelCheck(UOp sink, std::span<const UOp> wire_nodes)
      : sink_(sink), nodes_(Toposort(sink)), index_(sink.graph().size(), -1) {
    int64_t next = 0;
    for (const UOp u : wire_nodes.empty() ? std::span<const UOp>(nodes_) : wire_nodes) {
      if (index_[u.id()] < 0) index_[u.id()] = next;
      ++next;
    }
  }

  absl::Status Run() {
    BEAMD_RETURN_IF_ERROR(CheckNodes());
    BEAMD_RETURN_IF_ERROR(CheckNames());
    BEAMD_RETURN_IF_ERROR(CheckShapes());
    return CheckMemory();
  }

 private:
  using Dim = std::pair<int64_t, UOp>;  // a number, or an expression
  using Dims = std::vector<Dim>;
  // A LOAD, PRELOAD or STORE.
  struct Access {
    UOp node, view;
    const BufferArg* buffer;
  };

  absl::Status Fault(UOp u, absl::string_view reason, absl::string_view what,
                     absl::string_view field = "", std::optional<int64_t> limit = {},
                     std::optional<int64_t> value = {}) const {
    return NodeError(index_[u.id()], u.op(), what,
                     {.reason = std::string(reason),
                      .field = std::string(field),
                      .limit = limit,
                      .value = value});
  }

  // ---- what each node is ----

  absl::Status CheckNodes() {
    if (!sink_.is(Op::kSink)) return Fault(sink_, "NO_SINK", "the root is no SINK", "op");
    for (const UOp u : nodes_) {
      if (!u.is(kKernelOps)) return Fault(u, "OP", "is not an op of a submitted kernel", "op");
      BEAMD_RETURN_IF_ERROR(VerifyNode(u, index_[u.id()]));
      if (u.lanes() != 1) {
        return Fault(u, "LANES", "a submitted kernel has no vectors", "dtype.lanes", 1, u.lanes());
      }
      if (u.is(Op::kLoad | Op::kPreload | Op::kStore)) {
        if (!u.is(Op::kStore) && u.src_count() != 2) {
          return Fault(u, "ARITY", "a submitted kernel's load waits for nothing", "src", 2,
                       u.src_count());
        }
        accesses_.push_back({u, u.src(1), &u.src(0).data<BufferArg>()});
      }
      if (u.is(Op::kAssign) && !u.src(0).is(Op::kDefineGlobal)) {
        return Fault(u, "BUFFER", absl::StrCat("source 0 is no buffer: ", Name(u.src(0).op())),
                     "src[0]");
      }
      if (u.is(Op::kView | Op::kAssign)) BEAMD_RETURN_IF_ERROR(CheckSizes(u));
      if (u.is(Op::kSink) && (u != sink_ || u.arg().has_value())) {
        return Fault(u, "WRONG_ARG", "the kernel is optimised already", "kernel_info");
      }
    }
    for (int i = 0; i < sink_.src_count(); ++i) {
      if (sink_.src(i).is(Op::kStore)) continue;
      return Fault(sink_, "NO_STORE", absl::StrCat("source ", i, " is no STORE"),
                   absl::StrCat("src[", i, "]"));
    }
    return absl::OkStatus();
  }

  // Sizes are integer arithmetic over variables.
  absl::Status CheckSizes(UOp u) const {
    const int first = u.is(Op::kAssign) ? 2 : 0;
    if (u.src_count() <= first) return absl::OkStatus();
    for (const UOp n : Toposort(u.src().subspan(first))) {
      if (n.is(kIntAlu | Op::kConst | Op::kDefineVar | Op::kCast) && !IsFloat(n.scalar())) continue;
      return Fault(u, "SYMBOLIC", absl::StrCat("a size holds a ", Name(n.op())), "view_arg");
    }
    return absl::OkStatus();
  }

  absl::Status CheckNames() {
    absl::flat_hash_map<uint64_t, UOp> slots;
    absl::flat_hash_map<absl::string_view, UOp> variables;
    for (const UOp u : nodes_) {
      if (u.is(Op::kDefineGlobal)) {
        const auto [it, fresh] = slots.emplace(u.data<BufferArg>().id, u);
        if (fresh) continue;
        return Fault(u, "SLOT",
                     absl::StrCat("slot ", u.data<BufferArg>().id, " is defined differently by ",
                                  "node ", index_[it->second.id()]),
                     "int_arg or buffer_arg");
      }
      if (u.is(Op::kDefineVar)) {
        const auto [it, fresh] = variables.emplace(u.data<VariableArg>().name, u);
        if (!fresh) {
          return Fault(u, "VARIABLE",
                       absl::StrCat("the variable ", u.data<VariableArg>().name,
                                    " is defined differently by node ", index_[it->second.id()]),
                       "var_arg");
        }
        variables_.push_back(u);
      }
    }
    return absl::OkStatus();
  }

  // ---- shapes ----

  absl::Status CheckShapes() {
    std::vector<std::optional<Dims>> shapes(sink_.graph().size());
    std::vector<int> depth(sink_.graph().size());
    std::optional<Dims> full;
    for (const UOp u : nodes_) {
      if (u.is(Op::kSink)) continue;
      std::optional<Dims>& shape = shapes[u.id()];
      // Expressions inside a view have no shape, and no part in the kernel's.
      if (u.is(Op::kView)) {
        shape = DimsOf(u);
        continue;
      }
      for (int i = 0; i < u.src_count() && !(u.is(Op::kAssign) && i >= 2); ++i) {
        depth[u.id()] = std::max(depth[u.id()], depth[u.src(i).id()]);
        const std::optional<Dims>& other = shapes[u.src(i).id()];
        if (!other) continue;
        if (shape && !SameDims(*shape, *other)) {
          return Fault(u, "SHAPE",
                       absl::StrCat("source ", i, " has shape ", ToString(*other), ", another has ",
                                    ToString(*shape)),
                       absl::StrCat("src[", i, "]"));
        }
        if (!shape) shape = other;
      }
      if (u.is(Op::kReduceAxis)) {
        if (++depth[u.id()] > kMaxReductionDepth) {
          return Fault(u, "DEPTH",
                       absl::StrCat("reductions of reductions, over ", kMaxReductionDepth, " deep"),
                       "src", kMaxReductionDepth, depth[u.id()]);
        }
        BEAMD_RETURN_IF_ERROR(ReduceShape(u, shape));
      }
      if (shape) BEAMD_RETURN_IF_ERROR(MergeFull(u, *shape, full));
    }
    for (int i = 1; i < sink_.src_count(); ++i) {
      const Dims &first = *shapes[sink_.src(0).id()], &other = *shapes[sink_.src(i).id()];
      if (SameDims(first, other)) continue;
      return Fault(
          sink_.src(i), "SHAPE",
          absl::StrCat("stores shape ", ToString(other), ", the first STORE has ", ToString(first)),
          "src[1]");
    }
    return absl::OkStatus();
  }

  absl::Status ReduceShape(UOp u, std::optional<Dims>& shape) const {
    const std::vector<int32_t>& axes = u.data<ReduceArg>().axes;
    if (!shape) return Fault(u, "SHAPE", "reduces a value without a shape", "src[0]");
    for (size_t i = 0; i < axes.size(); ++i) {
      if (static_cast<size_t>(axes[i]) >= shape->size()) {
        return Fault(u, "AXES", absl::StrCat("there is no axis ", axes[i]),
                     absl::StrCat("reduce_arg.axes[", i, "]"),
                     static_cast<int64_t>(shape->size()) - 1, axes[i]);
      }
      (*shape)[axes[i]] = {1, UOp()};
    }
    return absl::OkStatus();
  }

  // Every shape has the kernel's rank, and on each axis 1 or the kernel's size.
  absl::Status MergeFull(UOp u, const Dims& shape, std::optional<Dims>& full) const {
    if (!full) full = shape;
    if (full->size() != shape.size()) {
      return Fault(u, "RANK",
                   absl::StrCat("has rank ", shape.size(), ", others have ", full->size()), "",
                   static_cast<int64_t>(full->size()), static_cast<int64_t>(shape.size()));
    }
    const Dim one{1, UOp()};
    for (size_t i = 0; i < shape.size(); ++i) {
      if ((*full)[i] == one) (*full)[i] = shape[i];
      if (shape[i] == one || SameDim(shape[i], (*full)[i])) continue;
      return Fault(u, "SHAPE",
                   absl::StrCat("axis ", i, " of ", ToString(shape), " is neither 1 nor that of ",
                                ToString(*full)));
    }
    return absl::OkStatus();
  }

  static Dims DimsOf(UOp view) {
    Dims dims;
    for (const IntOrSrc& dim : view.data<ViewsArg>().views.back().shape) {
      dims.push_back(dim.src < 0 ? Dim{dim.value, UOp()} : Dim{0, view.src(dim.src)});
    }
    return dims;
  }

  bool SameDims(const Dims& a, const Dims& b) const {
    return std::ranges::equal(a, b, [&](const Dim& x, const Dim& y) { return SameDim(x, y); });
  }
  // Expressions that are spelt differently are the same where they agree for the least, a middle
  // and the greatest value of every variable.
  bool SameDim(const Dim& a, const Dim& b) const {
    if (a == b) return true;
    if (!a.second && !b.second) return false;
    return std::ranges::all_of(Combinations(3), [&](const VariableValues& values) {
      const auto value = [&](const Dim& dim) {
        return dim.second ? SizeValue(dim.second, values).value_or(-1) : dim.first;
      };
      return value(a) == value(b);
    });
  }

  static std::string ToString(const Dims& dims) {
    return absl::StrCat("(",
                        absl::StrJoin(dims, ",",
                                      [](std::string* out, const Dim& dim) {
                                        absl::StrAppend(out,
                                                        dim.second ? "?" : absl::StrCat(dim.first));
                                      }),
                        ")");
  }

  // ---- memory ----

  // Every combination of values of the variables, `values_each` of each: its ends and what lies
  // evenly between.
  std::vector<VariableValues> Combinations(int64_t values_each) const {
    std::vector<VariableValues> all(1);
    for (const UOp u : variables_) {
      const VariableArg& var = u.data<VariableArg>();
      const auto width = static_cast<uint64_t>(var.max) - static_cast<uint64_t>(var.min);
      const auto steps = static_cast<int64_t>(
          std::min<uint64_t>(width, static_cast<uint64_t>(std::max<int64_t>(values_each - 1, 1))));
      std::vector<VariableValues> more;
      for (int64_t step = 0; step <= steps; ++step) {
        const auto at = steps == 0 ? 0 : static_cast<unsigned __int128>(width) * step / steps;
        for (VariableValues values : all) {
          values[var.name] =
              static_cast<int64_t>(static_cast<uint64_t>(var.min) + static_cast<uint64_t>(at));
          more.push_back(std::move(values));
        }
        if (static_cast<int64_t>(more.size()) > kMaxCombinations) break;
      }
      all = std::move(more);
    }
    return all;
  }
  // All of them where they are few enough; else the ends and the middle.
  const std::vector<VariableValues>& Combinations() {
    if (!combinations_.empty()) return combinations_;
    double count = 1;
    for (const UOp u : variables_) {
      const VariableArg& var = u.data<VariableArg>();
      count *= static_cast<double>(var.max) - static_cast<double>(var.min) + 1;
    }
    combinations_ = Combinations(count <= kMaxCombinations ? kMaxCombinations : 3);
    return combinations_;
  }

  absl::Status CheckMemory() {
    for (const UOp u : nodes_) {
      if (u.is(Op::kValid) && u.src(0).is(Op::kView)) {
        BEAMD_RETURN_IF_ERROR(CheckAccess({u, u.src(0), nullptr}));
      }
    }
    for (const Access& access : accesses_) BEAMD_RETURN_IF_ERROR(CheckAccess(access));
    for (const Access& store : accesses_) {
      if (!store.node.is(Op::kStore)) continue;
      for (const Access& other : accesses_) {
        if (other.buffer->id != store.buffer->id || other.node == store.node) continue;
        if (other.node.is(Op::kStore)) {
          return Fault(store.node, "STORED_TWICE",
                       absl::StrCat("slot ", store.buffer->id, " is stored by another STORE"),
                       "src[0]");
        }
        BEAMD_RETURN_IF_ERROR(CheckLoadOfStored(other, store));
      }
    }
    return absl::OkStatus();
  }

  absl::Status OutOfBuffer(const Access& access, int64_t element, int64_t size) const {
    return Fault(access.node, "INDEX_OUT_OF_BUFFER",
                 element < 0 ? absl::StrCat("index ", element, " is below the buffer in slot ",
                                            access.buffer->id)
                             : absl::StrCat("index ", element, " leaves the buffer in slot ",
                                            access.buffer->id, " of ", size, " elements"),
                 "src[1]", size > 0 ? std::optional<int64_t>(size - 1) : std::nullopt, element);
  }

  // Elements that the buffer has: what is stated, an image's texels, or as many as are used.
  static int64_t SizeOf(const Access& access) {
    constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
    if (access.buffer == nullptr) return kUnknown;
    const DType dtype = access.node.src(0).dtype();
    if (access.buffer->size_elements > 0) return static_cast<int64_t>(access.buffer->size_elements);
    if (dtype.is_image()) return ImageElements(dtype);
    return kUnknown;
  }

  absl::Status CheckAccess(const Access& access) {
    const int64_t size = SizeOf(access);
    const bool any_index = access.buffer == nullptr;
    const auto fits = [&](const IndexBounds& b) {
      return b.empty || (b.inside && (any_index || (b.index.min >= 0 && b.index.max < size)));
    };
    const IndexBounds bounds = IndexBoundsOf(access.view);
    if (bounds.sizes_ok && fits(bounds)) return absl::OkStatus();
    if (bounds.exact) {
      return OutOfBuffer(access, bounds.index.min < 0 ? bounds.index.min : bounds.index.max, size);
    }
    for (const VariableValues& values : Combinations()) {
      if (--steps_ < 0) return absl::OkStatus();
      const absl::StatusOr<ViewIndex> view = ViewIndex::Create(access.view, values);
      if (!view.ok()) {
        return Fault(access.node, "NEGATIVE_SIZE", view.status().message(), "view_arg");
      }
      const IndexBounds known = IndexBoundsOf(*view);
      if (fits(known)) continue;
      const ViewIndex once = view->WithoutRepeats();
      if (once.WalkLength() > steps_) continue;  // undecided
      absl::Status status;
      once.ForEachValid([&](std::span<const int64_t>, int64_t element, bool left_view) {
        if (left_view) {
          status = Fault(access.node, "INDEX_OUT_OF_VIEW",
                         "an index leaves the view that it counts in", "view_arg");
        } else if (!any_index && (element < 0 || element >= size)) {
          status = OutOfBuffer(access, element, size);
        }
        return status.ok();
      });
      steps_ -= once.WalkLength();
      BEAMD_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  absl::Status CheckLoadOfStored(const Access& load, const Access& store) {
    if (load.view == store.view) return absl::OkStatus();
    const IndexBounds loaded = IndexBoundsOf(load.view), stored = IndexBoundsOf(store.view);
    if (loaded.empty || stored.empty || loaded.index.max < stored.index.min ||
        stored.index.max < loaded.index.min) {
      return absl::OkStatus();
    }
    for (const VariableValues& values : Combinations()) {
      if (--steps_ < 0) return absl::OkStatus();
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex from, ViewIndex::Create(load.view, values));
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex to, ViewIndex::Create(store.view, values));
      if (SameElements(from, to)) continue;
      const int64_t steps =
          std::min(from.WalkLength(), kMaxSteps) + std::min(to.WalkLength(), kMaxSteps);
      if (steps > steps_) continue;  // undecided
      steps_ -= steps;
      absl::flat_hash_set<int64_t> elements;
      to.ForEachValid([&](std::span<const int64_t>, int64_t element, bool) {
        elements.insert(element);
        return true;
      });
      absl::Status status;
      std::vector<int64_t> at;
      from.ForEachValid([&](std::span<const int64_t> point, int64_t element, bool) {
        // The store's point: reduced axes are of size 1 there.
        at.assign(point.begin(), point.end());
        for (size_t i = 0; i < at.size(); ++i) at[i] = to.shape()[i] == 1 ? 0 : at[i];
        if (to.Index(at) == element || !elements.contains(element)) return true;
        status = Fault(load.node, "LOADS_WHAT_ANOTHER_POINT_STORES",
                       absl::StrCat("reads element ", element, " of slot ", load.buffer->id,
                                    ", which another point stores"),
                       "src[1]", {}, element);
        return false;
      });
      BEAMD_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // Proven without walking: wherever `from` is valid, `to` is and has the same element.
  static bool SameElements(const ViewIndex& from, const ViewIndex& to) {
    if (from.views().size() != 1 || to.views().size() != 1) return false;
    const ViewIndex::View &a = from.views()[0], &b = to.views()[0];
    int64_t offset = b.offset;
    for (size_t i = 0; i < a.shape.size(); ++i) {
      const auto [begin, end] = a.valid[i];
      if (begin >= end) return true;  // nothing is loaded
      const bool one = b.shape[i] == 1;
      const int64_t stride = one ? 0 : b.strides[i];
      if (one ? b.valid[i].second != 1 || b.valid[i].first != 0
              : begin < b.valid[i].first || end > b.valid[i].second) {
        return false;
      }
      // On an axis with one valid coordinate only the element there counts.
      if (end - begin > 1 && a.strides[i] != stride) return false;
      offset += (stride - a.strides[i]) * begin;
    }
    return offset == a.offset;
  }

  UOp sink_;
  std::vector<UOp> nodes_;
  std::vector<int64_t> index_;  // by id: the number that errors give the node
  std::vector<Access> accesses_;
  std::vector<UOp> variables_;
  std::vector<VariableValues> combinations_;
  int64_t steps_ = kMaxSteps;
};

}  // namespace

absl::Status VerifyKernel(UOp sink, std::span<const UOp> wire_nodes) {
  return KernelCheck(sink, wire_nodes).Run();
}

}  // namespace beamd
