#include "tests/testing/infix.h"

#include <cctype>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

class Parser {
 public:
  Parser(UOpGraph& graph, absl::string_view text, const std::map<std::string, InfixRange>& ranges)
      : graph_(graph), text_(text), ranges_(ranges) {}

  UOp Parse() {
    const UOp u = Disjunction();
    BEAMD_CHECK(Peek().empty(), absl::StrCat("left over: ", text_));
    return u;
  }

 private:
  UOp Disjunction() {
    UOp u = Conjunction();
    while (Take("|")) u = u | Conjunction();
    return u;
  }
  UOp Conjunction() {
    UOp u = Comparison();
    while (Take("&")) u = u & Comparison();
    return u;
  }
  UOp Comparison() {
    const UOp u = Sum();
    if (Take("<")) return u < Sum();
    if (Take("!=")) return Ne(u, Sum());
    if (Take(">=")) return Ge(u, Sum());
    return u;
  }
  UOp Sum() {
    UOp u = Product();
    for (;;) {
      if (Take("+")) {
        u = u + Product();
      } else if (Take("-")) {
        u = u - Product();
      } else {
        return u;
      }
    }
  }
  UOp Product() {
    UOp u = Unary();
    for (;;) {
      if (Take("*")) {
        u = u * Unary();
      } else if (Take("//")) {
        u = u / Unary();
      } else if (Take("%")) {
        u = u % Unary();
      } else {
        return u;
      }
    }
  }
  UOp Unary() {
    if (Take("!")) return Not(Unary());
    if (Take("-")) {
      const UOp u = Unary();
      return u.is_const() ? u.ConstLike(-u.int_value()) : -u;
    }
    return Atom();
  }
  UOp Atom() {
    if (Take("(")) {
      const UOp u = Disjunction();
      Expect(")");
      return u;
    }
    if (Take("max(")) {
      const UOp a = Disjunction();
      Expect(",");
      const UOp b = Disjunction();
      Expect(")");
      return Alu(Op::kMax, a, b);
    }
    if (Take("where(")) {
      const UOp c = Disjunction();
      Expect(",");
      const UOp a = Disjunction();
      Expect(",");
      const UOp b = Disjunction();
      Expect(")");
      return Where(c, a, b);
    }
    const absl::string_view rest = Peek();
    size_t n = 0;
    while (n < rest.size() && std::isalnum(static_cast<unsigned char>(rest[n])) != 0) ++n;
    BEAMD_CHECK(n > 0, absl::StrCat("expected a name or a number: ", rest));
    const std::string word(rest.substr(0, n));
    text_.remove_prefix(n);
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      return graph_.Const(Scalar::kInt64, std::strtoll(word.c_str(), nullptr, 10));
    }
    const auto it = ranges_.find(word);
    const InfixRange range = it == ranges_.end() ? InfixRange{-20, 20} : it->second;
    return graph_.Variable(word, range.min, range.max, Scalar::kInt64);
  }

  absl::string_view Peek() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
    return text_;
  }
  bool Take(absl::string_view token) {
    if (Peek().substr(0, token.size()) != token) return false;
    // "!" is no part of "!=".
    if (token == "!" && text_.substr(0, 2) == "!=") return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void Expect(absl::string_view token) {
    BEAMD_CHECK(Take(token), absl::StrCat("expected ", token, " before ", text_));
  }

  UOpGraph& graph_;
  absl::string_view text_;
  const std::map<std::string, InfixRange>& ranges_;
};

absl::string_view Symbol(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kIdiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kCmpLt:
      return "<";
    case Op::kCmpNe:
      return "!=";
    case Op::kAnd:
      return "&";
    case Op::kOr:
      return "|";
    case Op::kXor:
      return "^";
    default:
      return "";
  }
}

}  // namespace

UOp ParseInfix(UOpGraph& graph, absl::string_view text,
               const std::map<std::string, InfixRange>& ranges) {
  return Parser(graph, text, ranges).Parse();
}

std::string ToInfix(UOp u) {
  if (u.is_const()) {
    if (u.arg().kind() == Arg::Kind::kFloat) return absl::StrCat(u.float_value());
    if (u.scalar() == Scalar::kBool) return u.int_value() != 0 ? "true" : "false";
    return absl::StrCat(u.int_value());
  }
  if (u.is(Op::kDefineVar)) return u.data<VariableArg>().name;
  if (u.is(Op::kRange)) return absl::StrCat("r", u.data<RangeArg>().axis);
  if (u.is(Op::kCmpNe) && u.src(0).scalar() == Scalar::kBool && u.src(1).is_const_int(1)) {
    return absl::StrCat("!", ToInfix(u.src(0)));
  }
  if (u.src_count() == 2 && !Symbol(u.op()).empty()) {
    return absl::StrCat("(", ToInfix(u.src(0)), Symbol(u.op()), ToInfix(u.src(1)), ")");
  }
  std::string text = absl::StrCat(Name(u.op()), "(");
  for (int i = 0; i < u.src_count(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", ToInfix(u.src(i)));
  }
  return text + ")";
}

}  // namespace beamd
