#include "engine/uop/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr absl::string_view kRangeKinds[] = {"global", "reduce", "upcast",
                                             "unroll", "local",  "group"};

// ---- printing ----

std::string Text(const IntOrSrc& v) {
  return v.src >= 0 ? absl::StrCat("$", v.src) : absl::StrCat(v.value);
}

std::string Text(const std::vector<IntOrSrc>& values) {
  return absl::StrCat(
      "(",
      absl::StrJoin(values, ",",
                    [](std::string* out, const IntOrSrc& v) { absl::StrAppend(out, Text(v)); }),
      ")");
}

template <typename Int>
std::string Text(const std::vector<Int>& values) {
  return absl::StrCat("(", absl::StrJoin(values, ","), ")");
}

std::string Text(const ViewArg& view) {
  std::string s = absl::StrCat("view[shape ", Text(view.shape), " strides ", Text(view.strides),
                               " offset ", Text(view.offset));
  if (view.mask) {
    const auto range = [](std::string* out, const std::pair<IntOrSrc, IntOrSrc>& r) {
      absl::StrAppend(out, Text(r.first), ":", Text(r.second));
    };
    absl::StrAppend(&s, " mask (", absl::StrJoin(*view.mask, ",", range), ")");
  }
  return s + "]";
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

std::string FloatText(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[32];
  std::string s(buffer, std::to_chars(buffer, std::end(buffer), v).ptr);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

struct ArgText {
  std::string operator()(const ViewsArg& a) const {
    if (a.views.empty()) return "no views";
    return absl::StrJoin(a.views, " ",
                         [](std::string* out, const ViewArg& v) { absl::StrAppend(out, Text(v)); });
  }
  std::string operator()(const ReduceArg& a) const {
    return absl::StrCat(Name(a.op), " axes ", Text(a.axes));
  }
  std::string operator()(const VariableArg& a) const {
    return absl::StrCat("var ", Quoted(a.name), " ", a.min, "..", a.max);
  }
  std::string operator()(const KernelInfo& a) const {
    return absl::StrCat("kernel local_dims ", a.local_dims, " upcasted ", a.upcasted,
                        " dont_use_locals ", a.dont_use_locals ? "true" : "false");
  }
  std::string operator()(const std::string& a) const { return Quoted(a); }
  std::string operator()(const IntsArg& a) const { return absl::StrCat("ints ", Text(a.values)); }
  std::string operator()(const BufferArg& a) const {
    std::string s = absl::StrCat("slot ", a.id);
    if (a.size_elements != 0) absl::StrAppend(&s, " size ", a.size_elements);
    if (!a.shape.empty()) absl::StrAppend(&s, " shape ", Text(a.shape));
    if (!a.device.empty()) absl::StrAppend(&s, " device ", Quoted(a.device));
    return s;
  }
  std::string operator()(const LanesArg& a) const { return absl::StrCat("lanes ", Text(a.lanes)); }
  std::string operator()(const RangeArg& a) const {
    return absl::StrCat("range ", kRangeKinds[static_cast<int>(a.kind)], " ", a.axis, " stage ",
                        a.stage);
  }
};

std::string Text(const Arg& arg) {
  switch (arg.kind()) {
    case Arg::Kind::kNone:
      return "";
    case Arg::Kind::kInt:
      return absl::StrCat(arg.as_int());
    case Arg::Kind::kFloat:
      return FloatText(arg.as_float());
    case Arg::Kind::kBool:
      return arg.as_bool() ? "true" : "false";
    case Arg::Kind::kData:
      break;
  }
  return std::visit(ArgText(), *arg.data());
}

// ---- parsing ----

// Reads one text from left to right. The first mistake is kept; everything after it reads as
// nothing, so callers look at ok() where they would loop or use what they read.
class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  bool ok() const { return error_.ok(); }
  const absl::Status& error() const { return error_; }

  void Fail(absl::string_view what) { FailAt(pos_, what); }
  void FailAt(size_t pos, absl::string_view what) {
    if (!ok()) return;
    const absl::string_view before = text_.substr(0, pos);
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    error_ = absl::InvalidArgumentError(
        absl::StrCat("line ", std::count(before.begin(), before.end(), '\n') + 1, ", column ",
                     pos - line_start + 1, ": ", what));
  }

  size_t pos() {
    SkipSpace();
    return pos_;
  }
  // At the end of a line that holds nothing more, or of the text.
  bool AtLineEnd() {
    SkipSpace();
    return !ok() || pos_ == text_.size() || text_[pos_] == '\n' || text_[pos_] == '#';
  }
  bool AtTextEnd() const { return pos_ >= text_.size(); }
  // Goes past the end of this line; a mistake if something is left on it.
  void EndLine() {
    if (!AtLineEnd()) Fail("the line should end here");
    while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
    if (pos_ < text_.size()) ++pos_;
  }

  bool Peek(absl::string_view token) {
    SkipSpace();
    return ok() && absl::StartsWith(text_.substr(pos_), token);
  }
  bool Accept(absl::string_view token) {
    if (!Peek(token)) return false;
    // A word must not be the beginning of a longer one.
    if (IsWordChar(token.back()) && pos_ + token.size() < text_.size() &&
        IsWordChar(text_[pos_ + token.size()])) {
      return false;
    }
    pos_ += token.size();
    return true;
  }
  void Expect(absl::string_view token) {
    if (!Accept(token)) Fail(absl::StrCat("expected '", token, "'"));
  }

  absl::string_view Word() {
    SkipSpace();
    return TakeWhile(IsWordChar);
  }
  // Everything that can be part of a number.
  absl::string_view NumberText() {
    SkipSpace();
    return TakeWhile([](char c) { return IsWordChar(c) || c == '-' || c == '+' || c == '.'; });
  }
  template <typename Int>
  Int Integer() {
    SkipSpace();
    const size_t start = pos_;
    Int value = 0;
    const char* end = text_.data() + text_.size();
    const auto [next, error] = std::from_chars(text_.data() + pos_, end, value);
    if (ok() && error == std::errc::result_out_of_range) {
      FailAt(start, "the number doesn't fit");
    } else if (ok() && error != std::errc()) {
      FailAt(start, "expected an integer");
    }
    if (!ok()) return 0;
    pos_ = next - text_.data();
    return value;
  }
  std::string String() {
    SkipSpace();
    const size_t start = pos_;
    Expect("\"");
    size_t end = pos_;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    std::string value;
    if (ok() && (end >= text_.size() || text_[end] != '"' ||
                 !absl::CUnescape(text_.substr(pos_, end - pos_), &value))) {
      FailAt(start, "not a quoted text");
    }
    if (ok()) pos_ = end + 1;
    return value;
  }

 private:
  static bool IsWordChar(char c) { return absl::ascii_isalnum(c) || c == '_'; }

  void SkipSpace() {
    while (pos_ < text_.size() &&
           (text_[pos_] == ' ' || text_[pos_] == '\t' || text_[pos_] == '\r')) {
      ++pos_;
    }
  }
  template <typename Predicate>
  absl::string_view TakeWhile(Predicate take) {
    const size_t start = pos_;
    while (ok() && pos_ < text_.size() && take(text_[pos_])) ++pos_;
    return text_.substr(start, pos_ - start);
  }

  absl::string_view text_;
  size_t pos_ = 0;
  absl::Status error_;
};

// `(item,item)`
template <typename ReadItem>
void ReadList(Reader& in, ReadItem read_item) {
  in.Expect("(");
  if (in.Accept(")")) return;
  do {
    read_item();
  } while (in.ok() && in.Accept(","));
  in.Expect(")");
}

IntOrSrc ReadIntOrSrc(Reader& in, int src_count) {
  const size_t at = in.pos();
  if (!in.Accept("$")) return {in.Integer<int64_t>(), -1};
  const auto src = in.Integer<int32_t>();
  if (src < 0 || src >= src_count) in.FailAt(at, "no such source");
  return {0, src};
}

std::vector<IntOrSrc> ReadInts(Reader& in, int src_count) {
  std::vector<IntOrSrc> values;
  ReadList(in, [&] { values.push_back(ReadIntOrSrc(in, src_count)); });
  return values;
}

ViewArg ReadView(Reader& in, int src_count) {
  ViewArg view;
  in.Expect("[");
  in.Expect("shape");
  view.shape = ReadInts(in, src_count);
  in.Expect("strides");
  const size_t strides_at = in.pos();
  view.strides = ReadInts(in, src_count);
  if (view.strides.size() != view.shape.size()) in.FailAt(strides_at, "one stride an axis");
  in.Expect("offset");
  view.offset = ReadIntOrSrc(in, src_count);
  if (in.Accept("mask")) {
    const size_t mask_at = in.pos();
    view.mask.emplace();
    ReadList(in, [&] {
      const IntOrSrc begin = ReadIntOrSrc(in, src_count);
      in.Expect(":");
      view.mask->emplace_back(begin, ReadIntOrSrc(in, src_count));
    });
    if (view.mask->size() != view.shape.size()) in.FailAt(mask_at, "one range an axis");
  }
  in.Expect("]");
  return view;
}

DType ReadDType(Reader& in) {
  DType dtype;
  if (in.Accept("image")) {
    in.Expect("(");
    dtype.image_height = in.Integer<uint16_t>();
    in.Expect(",");
    dtype.image_width = in.Integer<uint16_t>();
    in.Expect(",");
    in.Expect("4");
    in.Expect(")");
    dtype.space = AddressSpace::kGlobal;
  } else if (in.Accept("global")) {
    dtype.space = AddressSpace::kGlobal;
  } else if (in.Accept("local")) {
    dtype.space = AddressSpace::kLocal;
  }
  const size_t at = in.pos();
  const absl::string_view word = in.Word();
  const size_t x = word.rfind('x');
  absl::string_view name = word;
  if (x != absl::string_view::npos && x + 1 < word.size()) {
    uint32_t lanes = 0;
    if (absl::SimpleAtoi(word.substr(x + 1), &lanes) && lanes >= 1 &&
        lanes <= std::numeric_limits<uint16_t>::max()) {
      dtype.lanes = static_cast<uint16_t>(lanes);
      name = word.substr(0, x);
    }
  }
  const std::optional<Scalar> scalar = ScalarFromName(name);
  if (scalar) {
    dtype.scalar = *scalar;
  } else {
    in.FailAt(at, absl::StrCat("no type '", word, "'"));
  }
  if (dtype.is_pointer() && !dtype.is_image()) in.Expect("*");
  return dtype;
}

ReduceArg ReadReduce(Reader& in, Op op) {
  ReduceArg reduce{op, {}};
  in.Expect("axes");
  ReadList(in, [&] { reduce.axes.push_back(in.Integer<int32_t>()); });
  return reduce;
}

VariableArg ReadVariable(Reader& in) {
  VariableArg var;
  var.name = in.String();
  var.min = in.Integer<int64_t>();
  in.Expect("..");
  var.max = in.Integer<int64_t>();
  return var;
}

bool ReadBool(Reader& in) {
  if (in.Accept("true")) return true;
  in.Expect("false");
  return false;
}

KernelInfo ReadKernelInfo(Reader& in) {
  KernelInfo info;
  in.Expect("local_dims");
  info.local_dims = in.Integer<int32_t>();
  in.Expect("upcasted");
  info.upcasted = in.Integer<int32_t>();
  in.Expect("dont_use_locals");
  info.dont_use_locals = ReadBool(in);
  return info;
}

BufferArg ReadBuffer(Reader& in, int src_count) {
  BufferArg buffer;
  buffer.id = in.Integer<uint64_t>();
  if (in.Accept("size")) buffer.size_elements = in.Integer<uint64_t>();
  if (in.Accept("shape")) buffer.shape = ReadInts(in, src_count);
  if (in.Accept("device")) buffer.device = in.String();
  return buffer;
}

RangeArg ReadRange(Reader& in) {
  RangeArg range;
  const auto* kind =
      std::ranges::find_if(kRangeKinds, [&](absl::string_view name) { return in.Accept(name); });
  if (kind == std::end(kRangeKinds)) in.Fail("no such kind of range");
  if (in.ok()) range.kind = static_cast<RangeArg::Kind>(kind - kRangeKinds);
  range.axis = in.Integer<int32_t>();
  in.Expect("stage");
  range.stage = in.Integer<int32_t>();
  return range;
}

// A number: an integer unless it is spelled as a float.
Arg ReadNumber(Reader& in) {
  const size_t at = in.pos();
  const absl::string_view text = in.NumberText();
  if (text == "nan") return Arg::Float(std::numeric_limits<double>::quiet_NaN());
  if (text == "inf" || text == "-inf") {
    return Arg::Float(text[0] == '-' ? -std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::infinity());
  }
  const char* end = text.data() + text.size();
  if (text.find_first_of(".e") != absl::string_view::npos) {
    double value = 0;
    const auto [next, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || next != end) in.FailAt(at, "not a float");
    return Arg::Float(value);
  }
  int64_t value = 0;
  const auto [next, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || next != end) in.FailAt(at, "not an argument");
  return Arg::Int(value);
}

Arg ReadArg(Reader& in, UOpGraph& graph, int src_count) {
  if (in.AtLineEnd()) return {};
  if (in.Peek("\"")) return graph.Intern(in.String());
  if (in.Accept("true")) return Arg::Bool(true);
  if (in.Accept("false")) return Arg::Bool(false);
  if (in.Accept("no")) {
    in.Expect("views");
    return graph.Intern(ViewsArg());
  }
  if (in.Accept("view")) {
    ViewsArg views;
    do {
      views.views.push_back(ReadView(in, src_count));
    } while (in.Accept("view"));
    return graph.Intern(std::move(views));
  }
  for (const Op op : {Op::kAdd, Op::kMul, Op::kMax}) {
    if (in.Accept(Name(op))) return graph.Intern(ReadReduce(in, op));
  }
  if (in.Accept("var")) return graph.Intern(ReadVariable(in));
  if (in.Accept("kernel")) return graph.Intern(ReadKernelInfo(in));
  if (in.Accept("slot")) return graph.Intern(ReadBuffer(in, src_count));
  if (in.Accept("range")) return graph.Intern(ReadRange(in));
  if (in.Accept("ints")) return graph.Intern(IntsArg{ReadInts(in, src_count)});
  if (in.Accept("lanes")) {
    LanesArg lanes;
    ReadList(in, [&] { lanes.lanes.push_back(in.Integer<int64_t>()); });
    return graph.Intern(std::move(lanes));
  }
  return ReadNumber(in);
}

}  // namespace

std::string NodeText(UOp u) {
  const std::string arg = Text(u.arg());
  return absl::StrCat(Name(u.op()), " ", ToString(u.dtype()), arg.empty() ? "" : " ", arg);
}

std::string ToText(UOp u) {
  std::string text;
  const std::vector<UOp> nodes = Toposort(u);
  absl::flat_hash_map<UOp, size_t> number;
  for (const UOp n : nodes) {
    const size_t own = number.size();
    number[n] = own;
    absl::StrAppend(&text, "%", own, " = ", Name(n.op()), " ", ToString(n.dtype()));
    if (n.src_count() > 0) {
      const auto source = [&](std::string* out, UOp s) { absl::StrAppend(out, "%", number.at(s)); };
      absl::StrAppend(&text, " (", absl::StrJoin(n.src(), ", ", source), ")");
    }
    if (n.arg().has_value()) absl::StrAppend(&text, " ", Text(n.arg()));
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::StatusOr<UOp> ParseText(absl::string_view text, UOpGraph& graph) {
  Reader in(text);
  absl::flat_hash_map<int64_t, UOp> nodes;
  UOp root;
  std::vector<UOp> src;
  while (in.ok() && !in.AtTextEnd()) {
    if (in.AtLineEnd()) {
      in.EndLine();
      continue;
    }
    const size_t name_at = in.pos();
    in.Expect("%");
    const auto name = in.Integer<int64_t>();
    if (nodes.contains(name)) in.FailAt(name_at, absl::StrCat("%", name, " is there already"));
    in.Expect("=");
    const size_t op_at = in.pos();
    const absl::string_view op_name = in.Word();
    const std::optional<Op> op = OpFromName(op_name);
    if (!op) in.FailAt(op_at, absl::StrCat("no op '", op_name, "'"));
    const DType dtype = ReadDType(in);
    src.clear();
    if (in.Peek("(")) {
      ReadList(in, [&] {
        const size_t at = in.pos();
        in.Expect("%");
        const auto it = nodes.find(in.Integer<int64_t>());
        if (it == nodes.end()) {
          in.FailAt(at, "no such node in the lines before");
        } else {
          src.push_back(it->second);
        }
      });
      if (src.size() > std::numeric_limits<uint16_t>::max()) in.Fail("too many sources");
    }
    const Arg arg = ReadArg(in, graph, static_cast<int>(src.size()));
    in.EndLine();
    if (!in.ok()) break;
    root = graph.Make(*op, dtype, src, arg);
    nodes[name] = root;
  }
  BEAMD_RETURN_IF_ERROR(in.error());
  if (!root) return absl::InvalidArgumentError("line 1, column 1: no node");
  return root;
}

}  // namespace beamd
