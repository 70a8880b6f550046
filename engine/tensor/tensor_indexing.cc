#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tensor/movement.h"
#include "engine/tensor/tensor_impl.h"
#include "engine/uop/op.h"

namespace beamd {
namespace {

// Of a kind that keeps the dtype of the tensor beside it.
ConstValue Zero(Scalar dtype) { return ConstValue(0).As(dtype); }

// The sum along `axes`, of whose elements all but one are 0.
Tensor OnlyOne(const Tensor& x, const Axes& axes) {
  if (!x.ok()) return x;
  return x.dtype() == Scalar::kBool ? x.Max(axes) : x.Sum(axes, /*keepdim=*/false, x.dtype());
}

// No signed dtype stands above uint64.
Tensor Signed(const Tensor& index) {
  return index.dtype() == Scalar::kUint64 ? index.Cast(Scalar::kInt64) : index;
}

// One entry of Get as the tensor's own axes have it: in order, none left out.
struct Entry {
  enum class Kind : uint8_t { kNewAxis, kAt, kSlice, kTensor };
  Kind kind = Kind::kSlice;
  SInt begin, end;   // but kNewAxis: what is kept of the axis
  int64_t step = 1;  // kSlice
  Tensor tensor;     // kTensor
  int axis = 0;      // but kNewAxis: of the tensor
};

template <typename... Parts>
absl::Status Fault(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status PlaceAt(const SInt& at, const SInt& size, Entry& entry) {
  const SInt from_front = at.max() < 0 ? at + size : at;
  if (!ProvenLe(0, from_front) || !ProvenLt(from_front, size)) {
    return Fault("index ", ToString(at), " is out of bounds on axis ", entry.axis, " of size ",
                 ToString(size));
  }
  entry.kind = Entry::Kind::kAt;
  entry.begin = from_front;
  entry.end = from_front + 1;
  return absl::OkStatus();
}

// As Python's slice.indices, then as an increasing range.
absl::Status PlaceSlice(const Slice& slice, const SInt& size, Entry& entry) {
  if (slice.step == 0) return Fault("a slice of axis ", entry.axis, " has step 0");
  const SInt begin = slice.begin.value_or(0), end = slice.end.value_or(size);
  if (slice.step == 1 && !(begin.is_number() && end.is_number() && size.is_number())) {
    if (!ProvenLe(0, begin) || !ProvenLe(begin, end) || !ProvenLe(end, size)) {
      return Fault("[", ToString(begin), ", ", ToString(end), ") isn't within axis ", entry.axis,
                   " of size ", ToString(size));
    }
    entry.begin = begin;
    entry.end = end;
    return absl::OkStatus();
  }
  if (!size.is_number() || !begin.is_number() || !end.is_number()) {
    return Fault("a slice of axis ", entry.axis, " with a step takes numbers, not expressions");
  }
  const int64_t n = size.number(), low = slice.step < 0 ? -1 : 0, high = slice.step < 0 ? n - 1 : n;
  const auto place = [&](const std::optional<SInt>& at, int64_t otherwise) {
    if (!at) return otherwise;
    const int64_t v = at->number();
    return std::clamp(v < 0 ? v + n : v, low, high);
  };
  const int64_t from = place(slice.begin, slice.step < 0 ? high : low);
  const int64_t to = place(slice.end, slice.step < 0 ? low : high);
  // A longer step takes no other elements.
  entry.step = std::clamp(slice.step, std::min<int64_t>(-n, -1), std::max<int64_t>(n, 1));
  if (slice.step > 0) {
    entry.begin = from;
    entry.end = std::max(from, to);
  } else {
    entry.begin = std::min(from, to) + 1;
    entry.end = from + 1;
  }
  return absl::OkStatus();
}

// A constant of no axes is a number.
const SInt* NumberOf(const Index& index, SInt& storage) {
  if (const SInt* at = std::get_if<SInt>(&index.value)) return at;
  const Tensor* t = std::get_if<Tensor>(&index.value);
  if (t == nullptr || t->ndim() != 0 || !t->lazydata().is_unmasked_const() || !IsInt(t->dtype())) {
    return nullptr;
  }
  storage = t->lazydata().const_value().as_int();
  return &storage;
}

absl::StatusOr<std::vector<Entry>> ResolveIndices(const Tensor& x,
                                                  const std::vector<Index>& indices) {
  int taken = 0, ellipses = 0;
  for (const Index& index : indices) {
    if (std::holds_alternative<Ellipsis>(index.value)) {
      ++ellipses;
    } else if (!std::holds_alternative<NewAxis>(index.value)) {
      ++taken;
    }
    const Tensor* t = std::get_if<Tensor>(&index.value);
    if (t != nullptr && !IsInt(t->dtype())) {
      return Fault("only integer tensors index, not ", Name(t->dtype()));
    }
  }
  if (ellipses > 1) return Fault("there is more than one ellipsis");
  if (taken > x.ndim()) return Fault(taken, " indices are too many for ", x.ndim(), " axes");

  std::vector<Entry> entries;
  int axis = 0;
  const auto add_whole_axes = [&](int count) {
    for (; count > 0; --count, ++axis) {
      Entry entry;
      entry.end = x.shape()[axis];
      entry.axis = axis;
      entries.push_back(std::move(entry));
    }
  };
  for (const Index& index : indices) {
    if (std::holds_alternative<Ellipsis>(index.value)) {
      add_whole_axes(x.ndim() - taken);
      continue;
    }
    Entry entry;
    entry.axis = axis;
    SInt storage;
    if (std::holds_alternative<NewAxis>(index.value)) {
      entry.kind = Entry::Kind::kNewAxis;
    } else if (const SInt* at = NumberOf(index, storage)) {
      BEAMD_RETURN_IF_ERROR(PlaceAt(*at, x.shape()[axis++], entry));
    } else if (const Slice* slice = std::get_if<Slice>(&index.value)) {
      BEAMD_RETURN_IF_ERROR(PlaceSlice(*slice, x.shape()[axis++], entry));
    } else {
      entry.kind = Entry::Kind::kTensor;
      entry.end = x.shape()[axis++];
      entry.tensor = Signed(std::get<Tensor>(index.value).To(x.device()));
      if (!entry.end.is_number()) {
        return Fault("axis ", entry.axis, " is symbolic: a tensor can't index it");
      }
    }
    entries.push_back(std::move(entry));
  }
  if (ellipses == 0) add_whole_axes(x.ndim() - taken);
  return entries;
}

// Every step-th element of each axis, first one first.
Tensor TakeSteps(const Tensor& x, const std::vector<int64_t>& steps) {
  PadAmounts pads(x.ndim()), firsts;
  Shape apart, left;
  for (int i = 0; i < x.ndim(); ++i) {
    const SInt& size = x.shape()[i];
    const SInt rows = steps[i] == 1 ? size : (size + (steps[i] - 1)) / steps[i];
    if (steps[i] != 1) pads[i] = {0, rows * steps[i] - size};
    apart.insert(apart.end(), {rows, steps[i]});
    firsts.push_back(std::nullopt);
    firsts.push_back(std::pair<SInt, SInt>(0, 1));
    left.push_back(rows);
  }
  return x.Pad(pads).Reshape(apart).Shrink(firsts).Reshape(left);
}

// What numbers, slices and new axes make of a tensor: a view. Tensors' axes are whole in it.
struct BasicView {
  Tensor view;
  std::vector<std::pair<int, Tensor>> indexed;  // axis of the view, index; axes ascend
};

absl::StatusOr<BasicView> TakeBasic(const Tensor& x, const std::vector<Index>& indices) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ResolveIndices(x, indices));
  PadAmounts ranges;
  std::vector<int> flips;
  std::vector<int64_t> steps;
  for (const Entry& entry : entries) {
    if (entry.kind == Entry::Kind::kNewAxis) continue;
    ranges.emplace_back(std::in_place, entry.begin, entry.end);
    if (entry.step < 0) flips.push_back(entry.axis);
    steps.push_back(entry.step < 0 ? -entry.step : entry.step);
  }
  BasicView basic;
  Tensor kept = x.Shrink(ranges).Flip(flips);
  if (std::ranges::any_of(steps, [](int64_t step) { return step != 1; })) {
    kept = TakeSteps(kept, steps);
  }
  Shape shape;
  for (const Entry& entry : entries) {
    if (entry.kind == Entry::Kind::kAt) continue;
    if (entry.kind == Entry::Kind::kTensor) {
      basic.indexed.emplace_back(static_cast<int>(shape.size()), entry.tensor);
    }
    shape.push_back(entry.kind == Entry::Kind::kNewAxis ? SInt(1) : kept.shape()[entry.axis]);
  }
  basic.view = kept.Reshape(shape);
  if (!basic.view.ok()) return basic.view.status();
  return basic;
}

// Which elements of a view its index tensors pick. `mask` has the view's axes and, before axis
// `first`, those that the indices broadcast to: true where the element is the one picked.
struct Picks {
  Tensor mask;
  int first = 0;
  Shape picked;           // the axes before `first`
  std::vector<int> axes;  // of mask: those that are indexed

  // The order that brings the picked axes to the front, as NumPy has it where indexed axes don't
  // stand side by side; empty where they stay.
  std::vector<int> order;
};

absl::StatusOr<Picks> PickBy(const BasicView& basic) {
  const Shape& shape = basic.view.shape();
  const int ndim = static_cast<int>(shape.size());
  Picks picks;
  picks.first = basic.indexed.front().first;
  std::vector<Shape> shapes;
  for (const auto& [axis, index] : basic.indexed) shapes.push_back(index.shape());
  absl::StatusOr<Shape> picked = BroadcastShape(shapes);
  if (!picked.ok()) return Fault("indices don't broadcast: ", picked.status().message());
  picks.picked = *std::move(picked);
  const int count = static_cast<int>(picks.picked.size());
  Shape full = shape;
  full.insert(full.begin() + picks.first, picks.picked.begin(), picks.picked.end());

  for (const auto& [axis, index] : basic.indexed) {
    const int64_t size = shape[axis].number();
    Shape spread = index.shape();
    spread.insert(spread.end(), ndim - picks.first, 1);
    const Tensor from_front = index.Lt(0).Where(size, 0).Add(index);
    Shape along(ndim - axis, 1);
    along[0] = size;
    const Tensor place =
        Tensor::Arange(index.context(), size, {.requires_grad = false, .device = index.device()})
            .Reshape(along);
    const Tensor hit = from_front.Reshape(spread).BroadcastTo(full).Eq(place);
    picks.mask = picks.mask.defined() ? picks.mask.Mul(hit) : hit;
    picks.axes.push_back(axis + count);
  }
  if (!picks.mask.ok()) return picks.mask.status();

  const bool adjacent =
      picks.axes.back() - picks.axes.front() + 1 == static_cast<int>(picks.axes.size());
  if (picks.first != 0 && !adjacent) {
    const int rank = ndim + count - static_cast<int>(picks.axes.size());
    picks.order.resize(rank);
    std::iota(picks.order.begin(), picks.order.end(), 0);
    std::rotate(picks.order.begin(), picks.order.begin() + picks.first,
                picks.order.begin() + picks.first + count);
  }
  return picks;
}

Tensor Gathered(const Tensor& view, const Picks& picks) {
  Shape spread = view.shape();
  spread.insert(spread.begin() + picks.first, picks.picked.size(), 1);
  const Tensor found =
      OnlyOne(picks.mask.Where(view.Reshape(spread), Zero(view.dtype())), picks.axes);
  return picks.order.empty() ? found : found.Permute(picks.order);
}

// `target` where no element of `mask` along `count` axes from `first` on holds; else the value at
// the last one that does. `values` broadcasts to the mask, whose other axes are the target's.
Tensor WriteLast(const Tensor& target, const Tensor& mask, const Tensor& values, int first,
                 int count) {
  Shape along(mask.ndim(), 1);
  std::vector<int> axes(count);
  std::iota(axes.begin(), axes.end(), first);
  SInt total = 1;
  for (int axis : axes) total = total * (along[axis] = mask.shape()[axis]);
  if (!total.is_number()) return InvalidTensor("set", "a symbolic number of values");
  const Tensor turn = Tensor::Arange(target.context(), 1, total.number() + 1, 1,
                                     {.requires_grad = false, .device = target.device()})
                          .Reshape(along);
  const Tensor last = mask.Where(turn, 0).Max(axes, /*keepdim=*/true);
  const Tensor value = OnlyOne(turn.Eq(last).Where(values, Zero(target.dtype())), axes);
  return last.Gt(0).Reshape(target.shape()).Where(value, target);
}

// Values of the shape that Gathered gives, as WriteLast takes them.
Tensor Ungathered(Tensor values, const Picks& picks) {
  if (!picks.order.empty()) {
    std::vector<int> back(picks.order.size());
    for (size_t i = 0; i < back.size(); ++i) back[picks.order[i]] = static_cast<int>(i);
    values = values.Permute(back);
  }
  for (int axis : picks.axes) values = values.Unsqueeze(axis);
  return values;
}

// Whether each axis of `inner` but `dim` is no longer than that of `outer`.
bool FitsBeside(int dim, const Shape& inner, const Shape& outer) {
  for (int i = 0; i < static_cast<int>(inner.size()); ++i) {
    if (i != dim && !ProvenLe(inner[i], outer[i])) return false;
  }
  return true;
}

Tensor FirstOf(const Tensor& x, const Shape& sizes) {
  PadAmounts ranges;
  for (const SInt& size : sizes) ranges.emplace_back(std::in_place, 0, size);
  return x.Shrink(ranges);
}

// Whether the index is a place along axis `dim`: [index's axes..., size].
Tensor HitsAlong(const Tensor& index, int64_t size) {
  return Signed(index).Unsqueeze(-1).Eq(
      Tensor::Arange(index.context(), size, {.requires_grad = false, .device = index.device()}));
}

// The first index that is a failed tensor; undefined if none is.
Tensor FailedIndex(const std::vector<Index>& indices) {
  for (const Index& index : indices) {
    const Tensor* t = std::get_if<Tensor>(&index.value);
    if (t != nullptr && !t->ok()) return FirstFailed({*t});
  }
  return Tensor();
}

}  // namespace

Tensor Tensor::Get(const std::vector<Index>& indices) const {
  if (!ok()) return *this;
  if (Tensor failed = FailedIndex(indices); failed.defined()) return failed;
  const absl::StatusOr<BasicView> basic = TakeBasic(*this, indices);
  if (!basic.ok()) return InvalidTensor("get", basic.status().message());
  if (basic->indexed.empty()) return basic->view;
  const absl::StatusOr<Picks> picks = PickBy(*basic);
  if (!picks.ok()) return InvalidTensor("get", picks.status().message());
  return Gathered(basic->view, *picks);
}

absl::Status Tensor::Set(const std::vector<Index>& indices, const Operand& value) {
  BEAMD_RETURN_IF_ERROR(status());
  if (value.is_tensor()) BEAMD_RETURN_IF_ERROR(value.tensor().status());
  if (Tensor failed = FailedIndex(indices); failed.defined()) return failed.status();
  if (requires_grad().value_or(false) ||
      (value.is_tensor() && value.tensor().requires_grad().value_or(false))) {
    return absl::UnimplementedError("set: neither side may require a gradient");
  }
  absl::StatusOr<BasicView> basic = TakeBasic(*this, indices);
  if (!basic.ok()) return Fault("set: ", basic.status().message());
  Tensor target = basic->view;
  Tensor values = value.is_tensor() ? value.tensor().To(device()).Cast(dtype())
                                    : Scalar0(context(), value.constant(),
                                              {.dtype = dtype(), .device = device()});
  if (basic->indexed.empty()) {
    values = values.BroadcastTo(target.shape());
  } else {
    const absl::StatusOr<Picks> picks = PickBy(*basic);
    if (!picks.ok()) return Fault("set: ", picks.status().message());
    const Tensor found = Gathered(target, *picks);
    if (!found.ok()) return found.status();
    values = values.BroadcastTo(found.shape());
    if (values.ok()) {
      values = WriteLast(target, picks->mask, Ungathered(values, *picks), picks->first,
                         static_cast<int>(picks->picked.size()));
    }
  }
  if (!values.ok()) return Fault("set: ", values.status().message());
  if (target.numel() == 0) return absl::OkStatus();
  if (!lazydata().st().contiguous() || lazydata().base().op() == Op::kConst) {
    return absl::FailedPreconditionError(
        "set: the tensor has no memory of its own: take Contiguous() first");
  }
  // Computed before any of it is written: it may read other elements of this.
  values = values.Contiguous();
  // What is contiguous already is a window of its buffer, which may be the one that is written.
  if (values.lazydata().base().buffer()->parent != nullptr) values = values.Clone();
  BEAMD_RETURN_IF_ERROR(Realize());
  const ShapeTracker seen = lazydata().st();
  target.Assign(values);
  BEAMD_RETURN_IF_ERROR(target.Realize());
  // Another node from now on: what was realised of the old one stays as it was. What wasn't reads
  // the memory when it is, as in 0.10.0.
  impl_->lazydata = target.lazydata().base().WithView(seen);
  return absl::OkStatus();
}

Tensor Tensor::Gather(int dim, const Tensor& index) const {
  if (Tensor failed = FirstFailed({*this, index}); failed.defined()) return failed;
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0 || index.ndim() != ndim()) {
    return InvalidTensor("gather", absl::StrCat("axis ", dim, " and an index of ", index.ndim(),
                                                " axes don't fit ", ndim(), " axes"));
  }
  if (!FitsBeside(*axis, index.shape(), shape()) || !shape()[*axis].is_number()) {
    return InvalidTensor(
        "gather", absl::StrCat("an index of shape ", ToString(index.shape()), " doesn't fit ",
                               ToString(shape()), " beside axis ", *axis));
  }
  Shape sizes = index.shape();
  sizes[*axis] = shape()[*axis];
  const Tensor x = FirstOf(*this, sizes).Unsqueeze(-1).Transpose(-1, *axis);
  return OnlyOne(HitsAlong(index.To(device()), shape()[*axis].number()).Where(x, Zero(dtype())),
                 -1);
}

Tensor Tensor::Scatter(int dim, const Tensor& index, const Operand& src, bool add) const {
  if (Tensor failed = FirstFailed({*this, index}); failed.defined()) return failed;
  if (src.is_tensor() && !src.tensor().ok()) return src.tensor();
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0 || index.ndim() != ndim()) {
    return InvalidTensor("scatter", absl::StrCat("axis ", dim, " and an index of ", index.ndim(),
                                                 " axes don't fit ", ndim(), " axes"));
  }
  const Shape& sizes = index.shape();
  if (!FitsBeside(*axis, sizes, shape()) || !shape()[*axis].is_number()) {
    return InvalidTensor("scatter",
                         absl::StrCat("an index of shape ", ToString(sizes), " doesn't fit ",
                                      ToString(shape()), " beside axis ", *axis));
  }
  Tensor values;
  if (!src.is_tensor()) {
    values = Scalar0(context(), src.constant(), {.dtype = dtype(), .device = device()})
                 .BroadcastTo(sizes);
  } else if (src.tensor().ndim() != ndim() || !FitsBeside(-1, sizes, src.tensor().shape())) {
    return InvalidTensor("scatter", absl::StrCat("values of shape ", ToString(src.tensor().shape()),
                                                 " are too few for an index of ", ToString(sizes)));
  } else {
    values = FirstOf(src.tensor().To(device()).Cast(dtype()), sizes);
  }
  // [this' axes..., the index' axis]: true where that entry of the index names this element.
  Tensor mask = HitsAlong(index.To(device()), shape()[*axis].number()).Transpose(-1, *axis);
  values = values.Unsqueeze(-1).Transpose(-1, *axis);
  PadAmounts rest(ndim() + 1);
  for (int i = 0; i < ndim(); ++i) {
    if (i != *axis) rest[i] = std::pair<SInt, SInt>(0, shape()[i] - sizes[i]);
  }
  mask = mask.Pad(rest, PadMode::kConstant, false);
  values = values.Pad(rest);
  if (!add) return WriteLast(*this, mask, values, ndim(), 1);
  return mask.Where(values, Zero(dtype())).Sum(-1, /*keepdim=*/false, dtype()).Add(*this);
}

Tensor Tensor::OneHot(int num_classes) const {
  if (!ok()) return *this;
  int64_t classes = num_classes;
  if (num_classes == -1) {
    const absl::StatusOr<int64_t> greatest = Max().Cast(Scalar::kInt64).Item<int64_t>();
    if (!greatest.ok()) return Failed(greatest.status());
    classes = *greatest + 1;
  }
  if (classes < 0) {
    return InvalidTensor("one_hot", absl::StrCat("can't have ", classes, " classes"));
  }
  return HitsAlong(*this, classes).Where(1, 0);
}

Tensor Tensor::MaskedFill(const Tensor& mask, const Operand& value) const {
  if (Tensor failed = FirstFailed({*this, mask}); failed.defined()) return failed;
  return mask.Where(value, *this);
}

}  // namespace beamd
