#include "tests/conformance/sizes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/symbolic/symbolic.h"

namespace beamd::conformance {
namespace {

// Recursive descent; depth is that of the corpus' own text.
class Evaluator {
 public:
  Evaluator(absl::string_view text, const std::map<std::string, int64_t>& values)
      : rest_(text), values_(values) {}

  std::optional<int64_t> Whole() {
    const std::optional<int64_t> value = Sum();
    return rest_.empty() ? value : std::nullopt;
  }

 private:
  bool Take(absl::string_view token) {
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<int64_t> Sum() {
    std::optional<int64_t> left = Product();
    while (left) {
      const bool add = Take("+");
      if (!add && !Take("-")) break;
      const std::optional<int64_t> right = Product();
      if (!right) return std::nullopt;
      left = add ? *left + *right : *left - *right;
    }
    return left;
  }

  std::optional<int64_t> Product() {
    std::optional<int64_t> left = Atom();
    while (left) {
      const char op = Take("//") ? '/' : Take("*") ? '*' : Take("%") ? '%' : 0;
      if (op == 0) break;
      const std::optional<int64_t> right = Atom();
      if (!right || (op != '*' && *right == 0)) return std::nullopt;
      if (op == '*') {
        left = *left * *right;
      } else {
        int64_t quotient = *left / *right;
        if (*left % *right != 0 && (*left < 0) != (*right < 0)) --quotient;
        left = op == '/' ? quotient : *left - quotient * *right;
      }
    }
    return left;
  }

  std::optional<int64_t> Atom() {
    if (Take("(")) {
      const std::optional<int64_t> value = Sum();
      return Take(")") ? value : std::nullopt;
    }
    if (Take("-")) {
      const std::optional<int64_t> value = Atom();
      return value ? std::optional(-*value) : std::nullopt;
    }
    size_t length = 0;
    while (length < rest_.size() && (absl::ascii_isalnum(rest_[length]) || rest_[length] == '_')) {
      ++length;
    }
    const std::string word(rest_.substr(0, length));
    rest_.remove_prefix(length);
    int64_t number;
    if (absl::SimpleAtoi(word, &number)) return number;
    const auto it = values_.find(word);
    return it == values_.end() ? std::nullopt : std::optional(it->second);
  }

  absl::string_view rest_;
  const std::map<std::string, int64_t>& values_;
};

// A size's own variables may be other nodes than the graph's: wider, of the same name.
std::optional<int64_t> ValueOf(const SInt& size, const std::map<std::string, int64_t>& values) {
  if (size.is_number()) return size.number();
  std::vector<UOp> leaves;
  std::vector<int64_t> at;
  for (UOp u : Toposort(size.expr())) {
    if (!u.is(Op::kDefineVar)) continue;
    const auto it = values.find(u.data<VariableArg>().name);
    if (it == values.end()) return std::nullopt;
    leaves.push_back(u);
    at.push_back(it->second);
  }
  return EvaluateInt(size.expr(), leaves, at);
}

}  // namespace

std::optional<int64_t> Evaluate(absl::string_view text,
                                const std::map<std::string, int64_t>& values) {
  return Evaluator(text, values).Whole();
}

bool SameSizes(const std::vector<WrittenSize>& written, const Shape& ours, UOp sink) {
  if (written.size() != ours.size()) return false;
  std::map<std::string, VariableArg> variables;
  for (UOp u : Toposort(sink)) {
    if (u.is(Op::kDefineVar)) variables[u.data<VariableArg>().name] = u.data<VariableArg>();
  }
  for (int place = 0; place < 3; ++place) {
    std::map<std::string, int64_t> values;
    for (const auto& [name, arg] : variables) {
      const int64_t middle = arg.min + (arg.max - arg.min) / 2;
      values[name] = place == 0 ? arg.min : place == 1 ? middle : arg.max;
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      const int64_t* number = std::get_if<int64_t>(&written[i]);
      const std::optional<int64_t> theirs =
          number ? *number : Evaluate(std::get<std::string>(written[i]), values);
      if (!theirs || theirs != ValueOf(ours[i], values)) return false;
    }
  }
  return true;
}

std::string ToString(const std::vector<WrittenSize>& sizes) {
  std::vector<std::string> words;
  for (const WrittenSize& size : sizes) {
    std::visit([&](const auto& value) { words.push_back(absl::StrCat(value)); }, size);
  }
  return absl::StrCat("(", absl::StrJoin(words, ", "), ")");
}

std::string ToString(const Shape& shape) {
  std::vector<std::string> words;
  for (const SInt& size : shape) words.push_back(beamd::ToString(size));
  return absl::StrCat("(", absl::StrJoin(words, ", "), ")");
}

}  // namespace beamd::conformance
