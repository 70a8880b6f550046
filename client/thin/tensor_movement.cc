// Moving elements, and reducing over axes.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/thin/node.h"
#include "client/thin/tensor.h"

namespace beamd::thin {

using internal::CheckedAxes;
using internal::Failed;
using internal::Made;
using internal::Node;

namespace {

Tensor Moved(absl::string_view name, v1::Op op, const Tensor& x, Shape shape, Shape sizes) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->dtype = x.dtype();
  node->shape = std::move(shape);
  node->sizes = std::move(sizes);
  node->state.src = {x.node()};
  return Made(name, std::move(node));
}

Shape Flat(const std::vector<std::pair<Size, Size>>& pairs) {
  Shape flat;
  for (const auto& [first, second] : pairs) {
    flat.push_back(first);
    flat.push_back(second);
  }
  return flat;
}

Shape Single(size_t rank) { return Shape(rank, Size(1)); }

}  // namespace

Tensor Tensor::Reshape(const Shape& to) const {
  if (!ok()) return *this;
  Shape shape = to;
  const auto open = std::ranges::find(shape, Size(-1));
  if (open != shape.end()) {
    Shape others = shape;
    others.erase(others.begin() + (open - shape.begin()));
    const int64_t rest = AllNumbers(others) ? Elements(others) : -1;
    const int64_t all = AllNumbers(this->shape()) ? Elements(this->shape()) : -1;
    if (rest <= 0 || all < 0 || all % rest != 0) {
      return Failed("reshape",
                    absl::StrCat(ToString(this->shape()), " gives -1 no size in ", ToString(to)));
    }
    *open = all / rest;
  }
  if (shape == this->shape()) return *this;
  if (AllNumbers(shape) && AllNumbers(this->shape()) &&
      Elements(shape) != Elements(this->shape())) {
    return Failed("reshape", absl::StrCat(ToString(this->shape()), " has other elements than ",
                                          ToString(shape)));
  }
  return Moved("reshape", v1::OP_RESHAPE, *this, shape, shape);
}

Tensor Tensor::Expand(const Shape& to) const {
  if (!ok() || to == shape()) return *this;
  if (node_->weak) return Cast(dtype()).Expand(to);
  bool fits = to.size() >= shape().size();
  Shape aligned = fits ? Single(to.size() - shape().size()) : Shape();
  aligned.insert(aligned.end(), shape().begin(), shape().end());
  for (size_t i = 0; fits && i < to.size(); ++i) {
    fits = aligned[i] == to[i] || aligned[i] == Size(1);
  }
  if (!fits) {
    return Failed("expand",
                  absl::StrCat(ToString(shape()), " doesn't broadcast to ", ToString(to)));
  }
  const Tensor x = Reshape(aligned);
  return !x.ok() || to == aligned ? x : Moved("expand", v1::OP_EXPAND, x, to, to);
}

Tensor Tensor::Permute(const Axes& order) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> sorted = CheckedAxes(order, ndim(), false);
  if (!sorted.ok() || static_cast<int>(order.size()) != ndim()) {
    return Failed("permute", absl::StrCat("the order isn't one of ", ndim(), " axes"));
  }
  Shape moved, places;
  bool same = true;
  for (const int axis : order) {
    const int from = axis < 0 ? axis + ndim() : axis;
    same = same && from == static_cast<int>(moved.size());
    moved.push_back(shape()[from]);
    places.push_back(from);
  }
  return same ? *this : Moved("permute", v1::OP_PERMUTE, *this, moved, places);
}

Tensor Tensor::Transpose(int a, int b) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> both =
      a == b ? absl::InvalidArgumentError("") : CheckedAxes({a, b}, ndim(), false);
  if (!both.ok()) return Failed("transpose", absl::StrCat("axes ", a, " and ", b, " of ", ndim()));
  Axes order(ndim());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[(*both)[0]], order[(*both)[1]]);
  return Permute(order);
}

Tensor Tensor::Flip(const Axes& axes) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes(axes, ndim(), false);
  if (!checked.ok()) return Failed("flip", checked.status().message());
  if (checked->empty()) return *this;
  return Moved("flip", v1::OP_FLIP, *this, shape(), Shape(checked->begin(), checked->end()));
}

Tensor Tensor::Pad(const std::vector<std::pair<Size, Size>>& amounts) const {
  if (!ok()) return *this;
  if (static_cast<int>(amounts.size()) != ndim()) {
    return Failed("pad", absl::StrCat(amounts.size(), " pairs for ", ndim(), " axes"));
  }
  Shape padded;
  bool same = true;
  for (size_t i = 0; i < amounts.size(); ++i) {
    const auto& [before, behind] = amounts[i];
    if (before.min() < 0 || behind.min() < 0) return Failed("pad", "an amount may be negative");
    same = same && before == Size(0) && behind == Size(0);
    padded.push_back(before + shape()[i] + behind);
  }
  return same ? *this : Moved("pad", v1::OP_PAD, *this, padded, Flat(amounts));
}

Tensor Tensor::Shrink(const std::vector<std::pair<Size, Size>>& ranges) const {
  if (!ok()) return *this;
  if (static_cast<int>(ranges.size()) != ndim()) {
    return Failed("shrink", absl::StrCat(ranges.size(), " ranges for ", ndim(), " axes"));
  }
  Shape left;
  bool same = true;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [begin, end] = ranges[i];
    if (begin.min() < 0 || (end - begin).min() < 0 || (shape()[i] - end).min() < 0) {
      return Failed("shrink", absl::StrCat(ToString(begin), " to ", ToString(end),
                                           " is no part of axis ", i, " of ", ToString(shape())));
    }
    same = same && begin == Size(0) && end == shape()[i];
    left.push_back(end - begin);
  }
  return same ? *this : Moved("shrink", v1::OP_SHRINK, *this, left, Flat(ranges));
}

Tensor Tensor::Slice(int axis, const Size& begin, const Size& end) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes({axis}, ndim(), false);
  if (!checked.ok()) return Failed("slice", checked.status().message());
  std::vector<std::pair<Size, Size>> ranges;
  for (const Size& size : shape()) ranges.emplace_back(0, size);
  ranges[(*checked)[0]] = {begin, end};
  return Shrink(ranges);
}

Tensor Tensor::Squeeze(int axis) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes({axis}, ndim(), false);
  if (!checked.ok()) return Failed("squeeze", checked.status().message());
  Shape less = shape();
  if (!(less[(*checked)[0]] == Size(1))) {
    return Failed("squeeze", absl::StrCat("axis ", axis, " of ", ToString(less), " isn't 1"));
  }
  less.erase(less.begin() + (*checked)[0]);
  return Reshape(less);
}

Tensor Tensor::Unsqueeze(int axis) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes({axis}, ndim() + 1, false);
  if (!checked.ok()) return Failed("unsqueeze", checked.status().message());
  Shape more = shape();
  more.insert(more.begin() + (*checked)[0], Size(1));
  return Reshape(more);
}

Tensor Tensor::Flatten(int first) const {
  if (!ok()) return *this;
  if (first < 0 || first > ndim()) return Failed("flatten", absl::StrCat("from axis ", first));
  Shape flat(shape().begin(), shape().begin() + first);
  Size rest = 1;
  for (int i = first; i < ndim(); ++i) {
    const Size& size = shape()[i];
    if (!rest.is_number() && !size.is_number()) {
      return Failed("flatten", "two sizes that have variables");
    }
    rest = size.is_number() ? rest * size.number() : size * rest.number();
  }
  flat.push_back(rest);
  return Reshape(flat);
}

Tensor Tensor::Cat(const std::vector<Tensor>& parts, int axis) {
  if (parts.empty()) return Failed("cat", "no parts");
  DType dtype = parts[0].dtype();
  for (const Tensor& part : parts) {
    if (!part.ok()) return part;
    dtype = Promote(dtype, part.dtype());
  }
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes({axis}, parts[0].ndim(), false);
  if (!checked.ok()) return Failed("cat", checked.status().message());
  const int at = (*checked)[0];
  Size whole = 0;
  for (const Tensor& part : parts) {
    bool fits = part.ndim() == parts[0].ndim();
    for (int i = 0; fits && i < part.ndim(); ++i) {
      fits = i == at || part.shape()[i] == parts[0].shape()[i];
    }
    if (!fits) {
      return Failed("cat", absl::StrCat(ToString(part.shape()), " beside ",
                                        ToString(parts[0].shape()), " along axis ", at));
    }
    whole = whole + part.shape()[at];
  }
  // Each in zeros of the whole's size, added up: bool by choice.
  Tensor sum;
  Size before = 0;
  for (const Tensor& part : parts) {
    std::vector<std::pair<Size, Size>> amounts(part.ndim(), {0, 0});
    amounts[at] = {before, whole - before - part.shape()[at]};
    before = before + part.shape()[at];
    Tensor padded = part.Cast(dtype).Pad(amounts);
    sum = !sum.ok() ? padded : dtype == kBool ? Where(sum, sum, padded) : sum + padded;
    if (!padded.ok()) return padded;
  }
  return sum;
}

Tensor Tensor::Windows(const std::vector<int>& kernel, const WindowOptions& options,
                       double fill) const {
  if (!ok()) return *this;
  const int axes = static_cast<int>(kernel.size());
  const int lead = ndim() - axes;
  const int64_t s = options.stride, d = options.dilation;
  if (axes == 0 || lead < 0 || s < 1 || d < 1 || options.padding < 0 ||
      std::ranges::any_of(kernel, [](int k) { return k < 1; })) {
    return Failed("windows", absl::StrCat("a kernel of ", axes, " axes over ", ToString(shape())));
  }
  Tensor x = *this;
  if (options.padding > 0) {
    std::vector<std::pair<Size, Size>> amounts(lead, {0, 0});
    amounts.resize(ndim(), {options.padding, options.padding});
    x = x.Pad(amounts);
    if (fill != 0 && x.ok()) {
      x = Where(Full(shape(), 1, kBool).Pad(amounts), x, Full({}, fill, dtype()));
    }
    if (!x.ok()) return x;
  }
  std::vector<int64_t> in, out;
  for (int i = 0; i < axes; ++i) {
    const Size& size = x.shape()[lead + i];
    const int64_t span = d * (kernel[i] - 1) + 1;
    if (!size.is_number() || size.number() < span) {
      return Failed("windows", absl::StrCat("a kernel that spans ", span, " over axis ", lead + i,
                                            " of ", ToString(x.shape())));
    }
    in.push_back(size.number());
    out.push_back((size.number() - span) / s + 1);
  }
  const Shape leading(x.shape().begin(), x.shape().begin() + lead);
  const auto with = [&](const auto& sizes_of) {
    Shape sizes = leading;
    for (int i = 0; i < axes; ++i) {
      for (const int64_t size : sizes_of(i)) sizes.emplace_back(size);
    }
    return sizes;
  };
  const auto cut = [&](const Tensor& t, const Shape& to) {
    std::vector<std::pair<Size, Size>> ranges;
    for (const Size& size : to) ranges.emplace_back(0, size);
    return t.Shrink(ranges);
  };
  using Sizes = std::vector<int64_t>;
  const auto in_order = [&](int places, int within) {
    Axes order(lead);
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < axes; ++i) order.push_back(lead + 2 * i + places);
    for (int i = 0; i < axes; ++i) order.push_back(lead + 2 * i + within);
    return order;
  };
  if (d == 1 && std::ranges::all_of(kernel, [s](int k) { return k <= s; })) {
    // Windows that share nothing are parts of the axis cut into strides.
    std::vector<std::pair<Size, Size>> behind(lead, {0, 0});
    for (int i = 0; i < axes; ++i) {
      behind.emplace_back(0, std::max<int64_t>(out[i] * s - in[i], 0));
    }
    x = cut(x.Pad(behind), with([&](int i) { return Sizes{out[i] * s}; }));
    x = x.Reshape(with([&](int i) { return Sizes{out[i], s}; }));
    x = cut(x, with([&](int i) { return Sizes{out[i], kernel[i]}; }));
    return x.Permute(in_order(0, 1));
  }
  // Copies of the axis one behind another, cut into rows that are longer than it by the dilation:
  // so each row begins that much further on. Where the last stride would leave the row, the row is
  // two copies long.
  Sizes row(axes), copies(axes);
  for (int i = 0; i < axes; ++i) {
    row[i] = in[i] * (out[i] * s > in[i] + d ? 2 : 1) + d;
    copies[i] = (kernel[i] * row[i] + in[i] - 1) / in[i];
  }
  x = x.Reshape(with([&](int i) {
         return Sizes{1, in[i]};
       }))
          .Expand(with([&](int i) {
            return Sizes{copies[i], in[i]};
          }))
          .Reshape(with([&](int i) { return Sizes{copies[i] * in[i]}; }));
  x = cut(x, with([&](int i) { return Sizes{kernel[i] * row[i]}; }));
  x = x.Reshape(with([&](int i) { return Sizes{kernel[i], row[i]}; }));
  x = cut(x, with([&](int i) { return Sizes{kernel[i], out[i] * s}; }));
  x = x.Reshape(with([&](int i) { return Sizes{kernel[i], out[i], s}; }));
  x = cut(x, with([&](int i) { return Sizes{kernel[i], out[i], 1}; }));
  x = x.Reshape(with([&](int i) { return Sizes{kernel[i], out[i]}; }));
  return x.Permute(in_order(1, 0));
}

// ---- reducing ----

namespace {

Tensor Reduced(absl::string_view name, v1::Op op, const Tensor& x, const Axes& axes, bool keep) {
  if (!x.ok()) return x;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes(axes, x.ndim(), true);
  if (!checked.ok()) return Failed(name, checked.status().message());
  if (checked->empty()) return x;
  auto node = std::make_shared<Node>();
  node->op = v1::OP_REDUCE_AXIS;
  node->dtype = x.dtype();
  node->shape = x.shape();
  node->reduce = op;
  Shape left;
  for (int i = 0; i < x.ndim(); ++i) {
    const bool is_reduced = std::ranges::binary_search(*checked, i);
    if (!is_reduced) left.push_back(x.shape()[i]);
    if (!is_reduced) continue;
    node->axes.push_back(static_cast<uint32_t>(i));
    node->shape[i] = 1;
  }
  node->state.src = {x.node()};
  const Tensor reduced = Made(name, std::move(node));
  return keep ? reduced : reduced.Reshape(left);
}

// How many elements of `x` one of its reduction over `axes` has, of x's dtype.
Tensor CountOf(const Tensor& x, const Axes& axes) {
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes(axes, x.ndim(), true);
  if (!checked.ok()) return Failed("mean", checked.status().message());
  double number = 1;
  Tensor count;
  for (const int axis : *checked) {
    const Size& size = x.shape()[axis];
    if (size.is_number()) {
      number *= static_cast<double>(size.number());
      continue;
    }
    const Tensor one = internal::TensorOf(size).Cast(x.dtype());
    count = count.ok() ? count * one : one;
  }
  return count.ok() ? count * number : Tensor(number);
}

}  // namespace

Tensor Tensor::Sum(const Axes& axes, bool keep) const {
  if (!ok()) return *this;
  const Tensor sum = Reduced("sum", v1::OP_ADD, Cast(SumDType(dtype())), axes, keep);
  return IsFloat(dtype()) ? sum.Cast(dtype()) : sum;
}
Tensor Tensor::Mean(const Axes& axes, bool keep) const {
  if (!ok()) return *this;
  const Tensor x = Cast(FloatOf(dtype()));
  const Tensor wide = x.Cast(SumDType(x.dtype()));
  return (Reduced("mean", v1::OP_ADD, wide, axes, keep) / CountOf(wide, axes)).Cast(x.dtype());
}
Tensor Tensor::Var(const Axes& axes, bool keep) const {
  return (*this - Mean(axes, true)).Square().Mean(axes, keep);
}
Tensor Tensor::Max(const Axes& axes, bool keep) const {
  return Reduced("max", v1::OP_MAX, *this, axes, keep);
}
Tensor Tensor::Min(const Axes& axes, bool keep) const {
  if (!ok()) return *this;
  if (dtype() == kBool) return LogicalNot().Max(axes, keep).LogicalNot();
  if (IsFloat(dtype())) return Neg().Max(axes, keep).Neg();
  // -1 - x turns integers of either kind around without leaving their range.
  return Tensor(-1) - (Tensor(-1) - *this).Max(axes, keep);
}
Tensor Tensor::Prod(const Axes& axes, bool keep) const {
  return Reduced("prod", v1::OP_MUL, ok() ? Cast(SumDType(dtype())) : *this, axes, keep);
}

Tensor Tensor::Argmax(int axis) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> checked = CheckedAxes({axis}, ndim(), false);
  if (!checked.ok()) return Failed("argmax", checked.status().message());
  const int at = (*checked)[0];
  if (!shape()[at].is_number()) return Failed("argmax", "over an axis whose size has a variable");
  const int64_t count = shape()[at].number();
  // The first place has the greatest number.
  Shape along = Single(ndim());
  along[at] = count;
  const Tensor places = Arange(count, static_cast<double>(count), -1).Reshape(along);
  const Tensor first = Where(Equal(Max({at}, true)), places, 0).Max({at});
  return Tensor(count).Cast(kInt32) - first;
}

}  // namespace beamd::thin
