#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/autograd/functions.h"
#include "engine/base/status.h"
#include "engine/tensor/movement.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

using Ranges = std::vector<std::pair<SInt, SInt>>;

SInt CeilDiv(const SInt& a, const SInt& b) { return (a + b - 1) / b; }

bool AllZero(const Ranges& amounts) {
  return std::ranges::all_of(amounts, [](const auto& p) { return p.first == 0 && p.second == 0; });
}

Ranges Whole(const Shape& shape) {
  Ranges ranges;
  for (const SInt& size : shape) ranges.emplace_back(0, size);
  return ranges;
}

// The ranges are known to fit, if `x` is ok.
Tensor Cut(const Tensor& x, const Ranges& ranges) {
  return !x.ok() || ranges == Whole(x.shape()) ? x : Apply<functions::Shrink>({x}, ranges);
}

Tensor CutAxis(const Tensor& x, int axis, const SInt& begin, const SInt& end) {
  if (!x.ok()) return x;
  Ranges ranges = Whole(x.shape());
  ranges[axis] = {begin, end};
  return Cut(x, ranges);
}

// `sizes` at `axis` in the place of what stands there.
Shape Replaced(const Shape& shape, int axis, const Shape& sizes, int taken = 1) {
  Shape made(shape.begin(), shape.begin() + axis);
  made.insert(made.end(), sizes.begin(), sizes.end());
  made.insert(made.end(), shape.begin() + axis + taken, shape.end());
  return made;
}

// What `at` of `to` must be to hold as many elements as `from`; -1 if the others hold none.
SInt InferredSize(Shape from, const Shape& to, size_t at) {
  SInt known = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i == at) continue;
    // (n, 12, 64) to (n, -1): symbolic sizes on both sides cancel, where a quotient may not.
    const auto same = to[i].is_number() ? from.end() : std::ranges::find(from, to[i]);
    if (same != from.end()) {
      from.erase(same);
    } else {
      known = known * to[i];
    }
  }
  return known == 0 ? SInt(-1) : Prod(from) / known;
}

// `repeats` has at least one entry an axis.
Tensor RepeatBy(const Tensor& x, const Shape& repeats) {
  Shape padded(repeats.size() - x.ndim(), 1);
  padded.insert(padded.end(), x.shape().begin(), x.shape().end());
  Shape apart, repeated, merged;
  for (size_t i = 0; i < repeats.size(); ++i) {
    apart.insert(apart.end(), {1, padded[i]});
    repeated.insert(repeated.end(), {repeats[i], padded[i]});
    merged.push_back(repeats[i] * padded[i]);
  }
  return x.Reshape(apart).Expand(repeated).Reshape(merged);
}

Tensor Concatenate(absl::string_view operation, const std::vector<Tensor>& parts, int dim) {
  if (Tensor failed = FirstFailed(parts); failed.defined()) return failed;
  const Tensor& first = parts[0];
  const std::optional<int> axis = ResolveAxis(dim, first.ndim());
  if (!axis || first.ndim() == 0) {
    return InvalidTensor(operation, absl::StrCat("axis ", dim, " is none of ", first.ndim()));
  }
  SInt total = 0;
  for (const Tensor& part : parts) {
    bool fits = part.ndim() == first.ndim();
    for (int i = 0; fits && i < first.ndim(); ++i) {
      fits = i == *axis || ProvenEq(part.shape()[i], first.shape()[i]);
    }
    if (!fits) {
      return InvalidTensor(operation,
                           absl::StrCat("shapes ", ToString(first.shape()), " and ",
                                        ToString(part.shape()), " differ beside axis ", *axis));
    }
    total = total + part.shape()[*axis];
  }
  SInt before = 0;
  Tensor sum;
  for (const Tensor& part : parts) {
    const SInt after = before + part.shape()[*axis];
    PadAmounts amounts(part.ndim());
    amounts[*axis] = {before, total - after};
    const Tensor placed = part.Pad(amounts);
    sum = sum.defined() ? sum.Add(placed) : placed;
    before = after;
  }
  return sum;
}

std::vector<Tensor> WithThis(const Tensor& x, std::span<const Tensor> others) {
  std::vector<Tensor> all{x};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

// --- pad ---

Tensor PadConstant(const Tensor& x, const Ranges& pads, ConstValue value) {
  if (AllZero(pads)) return x;
  // Each part of the sum is in range first, so that the sum of three is.
  Shape padded = x.shape();
  for (int i = 0; i < x.ndim(); ++i) {
    const Shape parts{pads[i].first, pads[i].second, padded[i]};
    if (std::ranges::all_of(parts, [](const SInt& size) { return IsCountable({size}); })) {
      padded[i] = padded[i] + pads[i].first + pads[i].second;
      if (IsCountable({padded[i]})) continue;
    }
    return InvalidTensor(
        "pad", absl::StrCat("by ", ToString(pads[i].first), " and ", ToString(pads[i].second),
                            " axis ", i, " of size ", ToString(x.shape()[i]), " is too large"));
  }
  if (!IsCountable(padded)) {
    return InvalidTensor("pad", absl::StrCat("the shape ", ToString(padded), " is too large"));
  }
  Tensor zeros = Apply<functions::Pad>({x}, pads);
  if (value.Is(0)) return zeros;
  return zeros.Add(Apply<functions::Pad>({x.OnesLike()}, pads).Where(0, value));
}

// Axis by axis, so that corners mirror what was mirrored.
Tensor PadReflect(Tensor x, const Ranges& pads) {
  for (int axis = 0; axis < x.ndim(); ++axis) {
    const int64_t before = pads[axis].first.number(), after = pads[axis].second.number();
    const int64_t size = x.shape()[axis].number();
    if (before >= size || after >= size) {
      return InvalidTensor("pad",
                           absl::StrCat("reflecting ", before, " and ", after,
                                        " elements takes a larger axis ", axis, " than ", size));
    }
    std::vector<Tensor> parts{x};
    if (before > 0) parts.insert(parts.begin(), CutAxis(x, axis, 1, before + 1).Flip(axis));
    if (after > 0) parts.push_back(CutAxis(x, axis, size - 1 - after, size - 1).Flip(axis));
    if (parts.size() > 1) x = Concatenate("pad", parts, axis);
  }
  return x;
}

Tensor PadReplicate(Tensor x, const Ranges& pads) {
  for (int axis = 0; axis < x.ndim(); ++axis) {
    const SInt& size = x.shape()[axis];
    const auto edge = [&](const SInt& at, const SInt& count) {
      return CutAxis(x, axis, at, at + 1).Expand(Replaced(x.shape(), axis, {count}));
    };
    if (AllZero({pads[axis]})) continue;
    if (size == 0) {
      return InvalidTensor("pad", absl::StrCat("axis ", axis, " has no edge to replicate"));
    }
    std::vector<Tensor> parts{x};
    if (pads[axis].first != 0) parts.insert(parts.begin(), edge(0, pads[axis].first));
    if (pads[axis].second != 0) parts.push_back(edge(size - 1, pads[axis].second));
    x = Concatenate("pad", parts, axis);
  }
  return x;
}

Tensor PadCircular(const Tensor& x, const Ranges& pads) {
  Shape repeats;
  Ranges ranges;
  for (int axis = 0; axis < x.ndim(); ++axis) {
    const auto& [before, after] = pads[axis];
    const SInt& size = x.shape()[axis];
    if (!ProvenLe(before, size) || !ProvenLe(after, size)) {
      return InvalidTensor("pad", absl::StrCat("axis ", axis, " of ", ToString(size),
                                               " elements can't wrap around more than once"));
    }
    const int64_t left = before == 0 ? 0 : 1, right = after == 0 ? 0 : 1;
    repeats.push_back(1 + left + right);
    ranges.emplace_back(left == 0 ? 0 : size - before, size * (1 + left) + after);
  }
  return Cut(RepeatBy(x, repeats), ranges);
}

// --- rearrange ---

// One side of a formula: names in order, and [begin, end) of those in each pair of brackets.
struct FormulaSide {
  std::vector<std::string> names;
  std::vector<std::pair<int, int>> groups;

  int IndexOf(absl::string_view name) const {
    return static_cast<int>(std::ranges::find(names, name) - names.begin());
  }
};

constexpr absl::string_view kEllipsis = "...";

bool IsAxisName(absl::string_view name) {
  if (name == kEllipsis) return true;
  if (absl::ascii_isdigit(name[0]) || name.front() == '_' || name.back() == '_') return false;
  return std::ranges::all_of(name, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

absl::StatusOr<FormulaSide> ParseSide(absl::string_view text) {
  std::string spaced;
  for (char c : absl::StrReplaceAll(text, {{"…", kEllipsis}})) {
    const bool bracket = c == '(' || c == ')';
    absl::StrAppend(&spaced, bracket ? " " : "", absl::string_view(&c, 1), bracket ? " " : "");
  }
  FormulaSide side;
  bool open = false;
  for (absl::string_view token : absl::StrSplit(spaced, ' ', absl::SkipWhitespace())) {
    const int at = static_cast<int>(side.names.size());
    if (token == "(" || token == ")") {
      if (open == (token == "(")) return absl::InvalidArgumentError("brackets don't match");
      open = !open;
      if (open) side.groups.emplace_back(at, at);
      side.groups.back().second = at;
    } else if (token == "1") {
      if (!open) side.groups.emplace_back(at, at);
    } else if (!IsAxisName(token)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", token, "\" is no name of an axis"));
    } else {
      side.names.emplace_back(token);
    }
  }
  if (open) return absl::InvalidArgumentError("brackets don't match");
  return side;
}

// "..." becomes `count` axes.
void ExpandEllipsis(FormulaSide& side, int count) {
  const int at = side.IndexOf(kEllipsis);
  if (at == static_cast<int>(side.names.size())) return;
  for (auto& [begin, end] : side.groups) {
    if (begin > at) begin += count - 1;
    if (end > at) end += count - 1;
  }
  side.names.erase(side.names.begin() + at);
  for (int i = count; i-- > 0;) {
    side.names.insert(side.names.begin() + at, absl::StrCat(kEllipsis, i));
  }
}

struct Formula {
  FormulaSide from;
  FormulaSide to;
};

absl::StatusOr<Formula> ParseFormula(absl::string_view text, int ndim) {
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return absl::InvalidArgumentError("takes exactly one \"->\"");
  Formula formula;
  BEAMD_ASSIGN_OR_RETURN(formula.from, ParseSide(sides[0]));
  BEAMD_ASSIGN_OR_RETURN(formula.to, ParseSide(sides[1]));
  std::vector<std::string> from = formula.from.names, to = formula.to.names;
  std::ranges::sort(from);
  std::ranges::sort(to);
  if (std::ranges::adjacent_find(from) != from.end()) {
    return absl::InvalidArgumentError("a name stands twice on the left");
  }
  if (from != to) return absl::InvalidArgumentError("the two sides have different names");

  int axes = static_cast<int>(from.size());
  const int ellipsis = formula.from.IndexOf(kEllipsis);
  for (const auto& [begin, end] : formula.from.groups) {
    axes -= end - begin - 1;
    if (begin <= ellipsis && ellipsis < end) {
      return absl::InvalidArgumentError("an ellipsis can't stand in brackets on the left");
    }
  }
  const bool has_ellipsis = std::ranges::binary_search(from, kEllipsis);
  if (has_ellipsis ? ndim < axes - 1 : ndim != axes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the left side has ", axes, " axes, the tensor ", ndim));
  }
  ExpandEllipsis(formula.from, ndim - axes + 1);
  ExpandEllipsis(formula.to, ndim - axes + 1);
  return formula;
}

}  // namespace

Tensor Named(absl::string_view operation, Tensor x) {
  if (x.ok() || !x.defined() || x.status().code() != absl::StatusCode::kInvalidArgument) return x;
  return InvalidTensor(operation, x.status().message());
}

Tensor PoolWindows(const Tensor& x, std::span<const SInt> kernel, std::span<const int> stride,
                   std::span<const int> dilation) {
  const int count = static_cast<int>(kernel.size()), lead = x.ndim() - count;
  const Shape in(x.shape().begin() + lead, x.shape().end());
  Shape out;
  bool disjoint = true;
  for (int i = 0; i < count; ++i) {
    out.push_back(CeilDiv(in[i] - (kernel[i] - 1) * dilation[i], stride[i]));
    disjoint &= ProvenLe(kernel[i], stride[i]) && dilation[i] == 1;
  }
  // The axes before stay, each one that is covered becomes what `parts` gives.
  const auto shaped = [&](auto parts) {
    Shape shape(x.shape().begin(), x.shape().begin() + lead);
    for (int i = 0; i < count; ++i) {
      for (const SInt& size : Shape(parts(i))) shape.push_back(size);
    }
    return shape;
  };
  const auto reshape = [&](const Tensor& t, auto parts) { return t.Reshape(shaped(parts)); };
  const auto keep = [&](const Tensor& t, auto parts) { return Cut(t, Whole(shaped(parts))); };
  // All outputs, then all kernels; of each pair the outputs are element `outputs`.
  const auto sort = [&](const Tensor& t, int outputs) {
    std::vector<int> order(lead + 2 * count);
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < count; ++i) {
      order[lead + i] = lead + 2 * i + outputs;
      order[lead + count + i] = lead + 2 * i + 1 - outputs;
    }
    return t.Permute(order);
  };
  if (disjoint) {
    Ranges pads(x.ndim());
    for (int i = 0; i < count; ++i) pads[lead + i].second = Max(0, out[i] * stride[i] - in[i]);
    Tensor t = keep(PadConstant(x, pads, 0), [&](int i) { return Shape{out[i] * stride[i]}; });
    t = reshape(t, [&](int i) { return Shape{out[i], stride[i]}; });
    t = keep(t, [&](int i) { return Shape{out[i], kernel[i]}; });
    return sort(t, 0);
  }
  // Rows of length in + dilation laid over rows of length in: row r is shifted by r * dilation.
  Shape repeats(lead, 1);
  for (int i = 0; i < count; ++i) {
    repeats.push_back(CeilDiv(kernel[i] * (in[i] + dilation[i]), in[i]));
  }
  Tensor t =
      keep(RepeatBy(x, repeats), [&](int i) { return Shape{kernel[i] * (in[i] + dilation[i])}; });
  t = reshape(t, [&](int i) { return Shape{kernel[i], in[i] + dilation[i]}; });
  t = keep(t, [&](int i) { return Shape{kernel[i], out[i] * stride[i]}; });
  t = reshape(t, [&](int i) { return Shape{kernel[i], out[i], stride[i]}; });
  t = keep(t, [&](int i) { return Shape{kernel[i], out[i], 1}; });
  t = reshape(t, [&](int i) { return Shape{kernel[i], out[i]}; });
  return sort(t, 1);
}

Tensor UpperTriangle(LazyContext& context, int64_t rows, int64_t columns, int64_t diagonal,
                     const std::string& device) {
  const TensorOptions options{.dtype = Scalar::kBool, .device = device};
  if (rows == 0 || columns == 0 || diagonal >= columns) {
    return Tensor::Zeros(context, {rows, columns}, options);
  }
  if (rows + diagonal <= 0) return Tensor::Ones(context, {rows, columns}, options);
  // Rows of n ones and n zeros, read back as rows one shorter, move one to the right each time.
  const int64_t n = rows + columns - 1;
  Tensor t = Tensor::Ones(context, {n, n}, options);
  t = t.Pad({std::nullopt, std::pair<SInt, SInt>(0, n)}).Flatten();
  t = CutAxis(t, 0, 0, n * (2 * n - 1)).Reshape({n, -1});
  t = CutAxis(t, 1, 0, n);
  const int64_t row = std::max<int64_t>(diagonal, 0), column = std::max<int64_t>(-diagonal, 0);
  return Cut(t, {{row, row + rows}, {column, column + columns}});
}

Tensor Tensor::Reshape(const Shape& shape) const {
  if (!ok()) return *this;
  Shape to = shape;
  std::optional<size_t> inferred;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == -1 && inferred) {
      return InvalidTensor("reshape",
                           absl::StrCat("only one size can be inferred, got ", ToString(shape)));
    }
    if (to[i] == -1) {
      inferred = i;
    } else if (to[i].min() < 0) {
      return InvalidTensor("reshape", absl::StrCat("a size is negative in ", ToString(shape)));
    }
  }
  if (inferred) to[*inferred] = InferredSize(this->shape(), to, *inferred);
  if ((inferred && to[*inferred] == -1) || !ProvenEq(beamd::Prod(to), numel())) {
    return InvalidTensor("reshape", absl::StrCat(ToString(this->shape()), " has another size than ",
                                                 ToString(shape)));
  }
  return to == this->shape() ? *this : Apply<functions::Reshape>({*this}, to);
}

Tensor Tensor::BroadcastTo(const Shape& shape) const {
  if (!ok() || shape == this->shape()) return *this;
  bool fits = ndim() <= static_cast<int>(shape.size());
  Shape padded;
  if (fits) {
    padded.assign(shape.size() - ndim(), 1);
    padded.insert(padded.end(), this->shape().begin(), this->shape().end());
  }
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = ProvenLe(0, shape[i]) && (padded[i] == 1 || ProvenEq(padded[i], shape[i]));
  }
  if (!fits) {
    return InvalidTensor(
        "expand", absl::StrCat(ToString(this->shape()), " can't broadcast to ", ToString(shape)));
  }
  if (!IsCountable(shape)) {
    return InvalidTensor("expand", absl::StrCat("the shape ", ToString(shape), " is too large"));
  }
  const Tensor x = Reshape(padded);
  return padded == shape ? x : Apply<functions::Expand>({x}, shape);
}

Tensor Tensor::Expand(const Shape& shape) const {
  if (!ok()) return *this;
  const int added = static_cast<int>(shape.size()) - ndim();
  Shape to = shape;
  // A shape that is too short counts as filled with ones in front, as in BroadcastTo.
  if (added < 0) to.insert(to.begin(), -added, 1);
  for (int i = 0; i < static_cast<int>(to.size()); ++i) {
    const int own = i - std::max(added, 0);
    if (to[i] == -1) to[i] = own < 0 ? SInt(1) : this->shape()[own];
  }
  return BroadcastTo(to);
}

Tensor Tensor::Permute(const std::vector<int>& order) const {
  if (!ok()) return *this;
  std::vector<int> axes;
  axes.reserve(order.size());
  for (int axis : order) axes.push_back(ResolveAxis(axis, ndim()).value_or(-1));
  std::vector<int> sorted = axes, all(ndim());
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) {
    return InvalidTensor("permute", absl::StrCat("[", absl::StrJoin(order, ", "),
                                                 "] is no order of ", ndim(), " axes"));
  }
  return axes == all ? *this : Apply<functions::Permute>({*this}, axes);
}

Tensor Tensor::Flip(const Axes& axes) const {
  if (!ok()) return *this;
  const absl::StatusOr<std::vector<int>> resolved = ResolveAxes(axes, ndim());
  if (!resolved.ok()) return InvalidTensor("flip", resolved.status().message());
  if (resolved->empty() || ndim() == 0) return *this;
  return Apply<functions::Flip>({*this}, *resolved);
}

Tensor Tensor::Shrink(const PadAmounts& ranges) const {
  if (!ok()) return *this;
  if (static_cast<int>(ranges.size()) != ndim()) {
    return InvalidTensor("shrink",
                         absl::StrCat("got ", ranges.size(), " ranges for ", ndim(), " axes"));
  }
  Ranges cut = Whole(shape());
  for (int i = 0; i < ndim(); ++i) {
    if (!ranges[i]) continue;
    const auto& [begin, end] = *ranges[i];
    if (!ProvenLe(0, begin) || !ProvenLe(begin, end) || !ProvenLe(end, shape()[i])) {
      return InvalidTensor(
          "shrink", absl::StrCat("[", ToString(begin), ", ", ToString(end), ") isn't within axis ",
                                 i, " of size ", ToString(shape()[i])));
    }
    cut[i] = *ranges[i];
  }
  return Cut(*this, cut);
}

Tensor Tensor::Pad(const PadAmounts& amounts, PadMode mode, ConstValue value) const {
  if (!ok()) return *this;
  if (static_cast<int>(amounts.size()) != ndim()) {
    return InvalidTensor("pad",
                         absl::StrCat("got ", amounts.size(), " amounts for ", ndim(), " axes"));
  }
  if (mode != PadMode::kConstant && !AllNumbers(shape())) {
    return InvalidTensor("pad", "only zeros or another constant pad a symbolic shape");
  }
  // What is added, and what stays of this (for reflections and replicas: of what they gave).
  Ranges pads(ndim()), kept = Whole(shape());
  for (int i = 0; i < ndim(); ++i) {
    const auto& [before, after] = amounts[i].value_or(std::pair<SInt, SInt>(0, 0));
    if (mode != PadMode::kConstant && !(before.is_number() && after.is_number())) {
      return InvalidTensor("pad", "only zeros or another constant pad by symbolic amounts");
    }
    pads[i] = {beamd::Max(before, 0), beamd::Max(after, 0)};
    kept[i] = {0 - beamd::Min(before, 0), shape()[i] + beamd::Min(after, 0)};
    if (!ProvenLe(kept[i].first, kept[i].second)) {
      return InvalidTensor(
          "pad", absl::StrCat("amounts ", ToString(before), " and ", ToString(after),
                              " leave nothing of axis ", i, " of size ", ToString(shape()[i])));
    }
  }
  if (mode == PadMode::kConstant) return PadConstant(Cut(*this, kept), pads, value);
  if (mode == PadMode::kCircular) return PadCircular(Cut(*this, kept), pads);
  Tensor padded = mode == PadMode::kReflect ? PadReflect(*this, pads) : PadReplicate(*this, pads);
  if (!padded.ok()) return padded;
  for (int i = 0; i < ndim(); ++i) kept[i].second = kept[i].second + pads[i].first + pads[i].second;
  return Cut(padded, kept);
}

Tensor Tensor::PadFlat(const std::vector<SInt>& amounts, PadMode mode, ConstValue value) const {
  if (!ok()) return *this;
  const int pairs = static_cast<int>(amounts.size() / 2);
  if (amounts.size() % 2 != 0 || pairs > ndim()) {
    return InvalidTensor("pad", absl::StrCat("takes two amounts for each of at most ", ndim(),
                                             " axes, got ", amounts.size()));
  }
  PadAmounts by_axis(ndim());
  for (int i = 0; i < pairs; ++i) by_axis[ndim() - 1 - i] = {amounts[2 * i], amounts[2 * i + 1]};
  return Pad(by_axis, mode, value);
}

Tensor Tensor::Transpose(int dim0, int dim1) const {
  if (!ok()) return *this;
  const std::optional<int> a = ResolveAxis(dim0, ndim()), b = ResolveAxis(dim1, ndim());
  if (!a || !b || ndim() == 0) {
    return InvalidTensor("transpose",
                         absl::StrCat("axis ", !a ? dim0 : dim1, " is none of ", ndim()));
  }
  std::vector<int> order(ndim());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[*a], order[*b]);
  return Permute(order);
}

Tensor Tensor::Flatten(int start_dim, int end_dim) const {
  if (!ok()) return *this;
  const std::optional<int> start = ResolveAxis(start_dim, ndim()),
                           end = ResolveAxis(end_dim, ndim());
  if (!start || !end || *start > *end) {
    return InvalidTensor("flatten", absl::StrCat("[", start_dim, ", ", end_dim, "] is no range of ",
                                                 ndim(), " axes"));
  }
  if (ndim() == 0) return Reshape({1});
  const int count = *end - *start + 1;
  const SInt merged = beamd::Prod(std::span(shape()).subspan(*start, count));
  return Reshape(Replaced(shape(), *start, {merged}, count));
}

Tensor Tensor::Unflatten(int dim, const Shape& sizes) const {
  if (!ok()) return *this;
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0) {
    return InvalidTensor("unflatten", absl::StrCat("axis ", dim, " is none of ", ndim()));
  }
  return Named("unflatten", Reshape(Replaced(shape(), *axis, sizes)));
}

Tensor Tensor::Squeeze(std::optional<int> dim) const {
  if (!ok()) return *this;
  if (!dim) {
    Shape left;
    std::ranges::copy_if(shape(), std::back_inserter(left), [](const SInt& s) { return s != 1; });
    return Reshape(left);
  }
  const std::optional<int> axis = ResolveAxis(*dim, ndim());
  if (!axis) return InvalidTensor("squeeze", absl::StrCat("axis ", *dim, " is none of ", ndim()));
  return ndim() == 0 || shape()[*axis] != 1 ? *this : Reshape(Replaced(shape(), *axis, {}));
}

Tensor Tensor::Unsqueeze(int dim) const {
  if (!ok()) return *this;
  const std::optional<int> axis = ResolveAxis(dim, ndim() + 1);
  if (!axis) {
    return InvalidTensor("unsqueeze", absl::StrCat("axis ", dim, " is no place among ", ndim()));
  }
  return Reshape(Replaced(shape(), *axis, {1}, 0));
}

Tensor Tensor::Cat(std::span<const Tensor> others, int dim) const {
  return Concatenate("cat", WithThis(*this, others), dim);
}

Tensor Tensor::Stack(std::span<const Tensor> others, int dim) const {
  std::vector<Tensor> rows = WithThis(*this, others);
  if (Tensor failed = FirstFailed(rows); failed.defined()) return failed;
  for (Tensor& row : rows) row = Named("stack", row.Unsqueeze(dim));
  return Concatenate("stack", rows, dim);
}

Tensor Tensor::Repeat(const std::vector<int>& repeats) const {
  if (!ok()) return *this;
  const bool negative = std::ranges::any_of(repeats, [](int n) { return n < 0; });
  if (negative || static_cast<int>(repeats.size()) < ndim()) {
    return InvalidTensor("repeat", absl::StrCat("takes a count for each of ", ndim(),
                                                " axes, got [", absl::StrJoin(repeats, ", "), "]"));
  }
  return RepeatBy(*this, Shape(repeats.begin(), repeats.end()));
}

Tensor Tensor::RepeatInterleave(int repeats, std::optional<int> dim) const {
  if (!ok()) return *this;
  const Tensor x = dim ? *this : Flatten();
  const std::optional<int> axis = ResolveAxis(dim.value_or(0), x.ndim());
  if (repeats < 0 || !axis || x.ndim() == 0) {
    return InvalidTensor("repeat_interleave",
                         absl::StrCat("can't repeat ", repeats, " times along axis ",
                                      dim.value_or(0), " of ", x.ndim()));
  }
  const SInt& size = x.shape()[*axis];
  return x.Unsqueeze(*axis + 1)
      .Expand(Replaced(x.shape(), *axis, {size, repeats}))
      .Reshape(Replaced(x.shape(), *axis, {size * repeats}));
}

std::vector<Tensor> Tensor::Split(const std::vector<int>& sizes, int dim) const {
  if (!ok()) return {*this};
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0) {
    return {InvalidTensor("split", absl::StrCat("axis ", dim, " is none of ", ndim()))};
  }
  int64_t sum = 0;
  for (int size : sizes) sum = size < 0 || sum < 0 ? -1 : sum + size;
  if (shape()[*axis] != sum) {
    return {InvalidTensor(
        "split", absl::StrCat("[", absl::StrJoin(sizes, ", "), "] don't add up to axis ", *axis,
                              " of size ", ToString(shape()[*axis])))};
  }
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int size : sizes) {
    parts.push_back(CutAxis(*this, *axis, begin, begin + size));
    begin += size;
  }
  return parts;
}

std::vector<Tensor> Tensor::Split(int size, int dim) const {
  if (!ok()) return {*this};
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0 || !shape()[*axis].is_number() || size < 0) {
    return {InvalidTensor("split", absl::StrCat("axis ", dim, " of ", ToString(shape()),
                                                " can't be split into parts of ", size))};
  }
  const int64_t total = shape()[*axis].number();
  std::vector<int> sizes;
  for (int64_t i = 0; i < std::max<int64_t>(1, total); i += std::max(1, size)) {
    sizes.push_back(static_cast<int>(std::min<int64_t>(size, total - i)));
    if (size == 0) break;
  }
  return Split(sizes, dim);
}

std::vector<Tensor> Tensor::Chunk(int chunks, int dim) const {
  if (!ok()) return {*this};
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0 || !shape()[*axis].is_number() || chunks <= 0) {
    return {InvalidTensor("chunk", absl::StrCat("axis ", dim, " of ", ToString(shape()),
                                                " can't be cut into ", chunks, " chunks"))};
  }
  const int64_t size = shape()[*axis].number();
  if (size == 0) return Split(std::vector<int>(chunks, 0), dim);
  return Split(static_cast<int>((size + chunks - 1) / chunks), dim);
}

std::vector<Tensor> Tensor::Meshgrid(std::span<const Tensor> others, bool ij_indexing) const {
  std::vector<Tensor> grids = WithThis(*this, others);
  if (Tensor failed = FirstFailed(grids); failed.defined()) return {failed};
  const size_t count = grids.size();
  if (count == 1) return grids;
  Shape shape(count);
  for (size_t i = 0; i < count; ++i) {
    if (grids[i].ndim() > 1) {
      return {InvalidTensor("meshgrid",
                            absl::StrCat("takes vectors, got ", ToString(grids[i].shape())))};
    }
    // "xy" swaps the first two axes.
    const size_t axis = ij_indexing || i > 1 ? i : 1 - i;
    shape[axis] = grids[i].numel();
    Shape apart(count - axis, 1);
    apart[0] = grids[i].numel();
    grids[i] = grids[i].Reshape(apart);
  }
  for (Tensor& grid : grids) grid = grid.BroadcastTo(shape);
  return grids;
}

Tensor Tensor::Roll(const std::vector<int>& shifts, const std::vector<int>& dims) const {
  if (!ok()) return *this;
  if (shifts.size() != dims.size()) {
    return InvalidTensor("roll",
                         absl::StrCat("got ", shifts.size(), " shifts for ", dims.size(), " axes"));
  }
  Tensor x = *this;
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::optional<int> axis = ResolveAxis(dims[i], ndim());
    if (!axis || ndim() == 0 || !shape()[*axis].is_number()) {
      return InvalidTensor(
          "roll", absl::StrCat("axis ", dims[i], " of ", ToString(shape()), " can't be rolled"));
    }
    const int64_t size = shape()[*axis].number();
    const int64_t shift = size == 0 ? 0 : (shifts[i] % size + size) % size;
    if (shift == 0) continue;
    x = CutAxis(x, *axis, size - shift, size).Cat({CutAxis(x, *axis, 0, size - shift)}, *axis);
  }
  return x;
}

Tensor Tensor::Rearrange(absl::string_view formula,
                         const std::vector<std::pair<std::string, int>>& sizes) const {
  if (!ok()) return *this;
  const absl::StatusOr<Formula> parsed = ParseFormula(formula, ndim());
  if (!parsed.ok()) {
    return InvalidTensor("rearrange", absl::StrCat(parsed.status().message(), ": ", formula));
  }
  const auto& [from, to] = *parsed;
  absl::flat_hash_map<std::string, int> given(sizes.begin(), sizes.end());
  Tensor x = *this;
  for (const auto& [begin, end] : from.groups) {
    Shape apart;
    for (int i = begin; i < end; ++i) {
      const auto size = given.find(from.names[i]);
      apart.push_back(size == given.end() ? -1 : size->second);
    }
    x = x.Unflatten(begin, apart);
  }
  if (!x.ok()) return Named("rearrange", x);
  for (const auto& [name, size] : given) {
    const int axis = from.IndexOf(name);
    if (axis == x.ndim() || x.shape()[axis] != size) {
      return InvalidTensor("rearrange",
                           absl::StrCat("no axis ", name, " of size ", size, ": ", formula));
    }
  }
  std::vector<int> order;
  for (const std::string& name : to.names) order.push_back(from.IndexOf(name));
  x = x.Permute(order);
  for (size_t i = to.groups.size(); i-- > 0;) {
    const auto& [begin, end] = to.groups[i];
    x = begin < end ? x.Flatten(begin, end - 1) : x.Unsqueeze(begin);
  }
  return x;
}

Tensor Tensor::Unfold(int dim, const SInt& size, int step) const {
  if (!ok()) return *this;
  const std::optional<int> axis = ResolveAxis(dim, ndim());
  if (!axis || ndim() == 0 || step <= 0 || !ProvenLe(0, size) || !ProvenLe(size, shape()[*axis])) {
    return InvalidTensor("unfold", absl::StrCat("no windows of ", ToString(size), " each ", step,
                                                " along axis ", dim, " of ", ToString(shape())));
  }
  const std::vector<int> one{1};
  std::vector<int> back(ndim() + 1);
  std::iota(back.begin(), back.end(), 0);
  std::rotate(back.begin() + *axis, back.begin() + ndim() - 1, back.begin() + ndim());
  std::vector<int> last(ndim());
  for (int i = 0; i < ndim(); ++i) last[back[i]] = i;
  return PoolWindows(Permute(last), std::span(&size, 1), std::span(&step, 1), one).Permute(back);
}

Tensor Tensor::Pool(const std::vector<int>& kernel, const PerAxis& stride,
                    const PerAxis& dilation) const {
  if (!ok()) return *this;
  const size_t count = kernel.size();
  const auto one_each = [count](const PerAxis& values) {
    return values.is_uniform() ? std::vector<int>(count, values.values()[0]) : values.values();
  };
  const std::vector<int> strides = one_each(stride), dilations = one_each(dilation);
  if (static_cast<int>(count) > ndim() || strides.size() != count || dilations.size() != count) {
    return InvalidTensor(
        "pool", absl::StrCat("got ", count, " kernel sizes, ", strides.size(), " strides and ",
                             dilations.size(), " dilations for ", ndim(), " axes"));
  }
  for (size_t i = 0; i < count; ++i) {
    const SInt& size = shape()[ndim() - count + i];
    if (kernel[i] < 0 || strides[i] <= 0 || dilations[i] <= 0 ||
        !ProvenLe(SInt(dilations[i]) * (kernel[i] - 1) + 1, size)) {
      return InvalidTensor(
          "pool", absl::StrCat("a kernel of ", kernel[i], " (stride ", strides[i], ", dilation ",
                               dilations[i], ") doesn't fit an axis of ", ToString(size)));
    }
  }
  return PoolWindows(*this, Shape(kernel.begin(), kernel.end()), strides, dilations);
}

namespace {

// The triangle for the last two axes of `x`, or why there is none.
Tensor TriangleOf(absl::string_view operation, const Tensor& x, int64_t diagonal) {
  const Shape& shape = x.shape();
  if (shape.size() < 2 || !AllNumbers(std::span(shape).last(2))) {
    return InvalidTensor(operation, absl::StrCat("takes matrices, got ", ToString(shape)));
  }
  return UpperTriangle(x.context(), shape[shape.size() - 2].number(), shape.back().number(),
                       diagonal, x.device());
}

}  // namespace

Tensor Tensor::Triu(int diagonal) const {
  if (!ok()) return *this;
  return TriangleOf("triu", *this, diagonal).Where(*this, 0).Cast(dtype());
}

Tensor Tensor::Tril(int diagonal) const {
  if (!ok()) return *this;
  return TriangleOf("tril", *this, int64_t{diagonal} + 1).Where(0, *this).Cast(dtype());
}

Tensor Tensor::Diagonal() const {
  if (!ok()) return *this;
  if (ndim() != 2 || shape()[0] != shape()[1]) {
    return InvalidTensor("diagonal",
                         absl::StrCat("takes a square matrix, got ", ToString(shape())));
  }
  const SInt n = shape()[0];
  return CutAxis(Flatten().PadFlat({0, n}).Reshape({n, n + 1}), 1, 0, 1).Reshape({n});
}

}  // namespace beamd
