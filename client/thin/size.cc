#include "client/thin/size.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace beamd::thin {
namespace {

// Wraps where it leaves 64 bits; such sizes are refused when a tensor is made of them.
int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t Times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

}  // namespace

int64_t Size::min() const {
  int64_t sum = constant_;
  for (const auto& [v, factor] : terms_) {
    sum = Plus(sum, Times(factor, factor > 0 ? v.min : v.max));
  }
  return sum;
}

int64_t Size::max() const {
  int64_t sum = constant_;
  for (const auto& [v, factor] : terms_) {
    sum = Plus(sum, Times(factor, factor > 0 ? v.max : v.min));
  }
  return sum;
}

Size operator+(const Size& a, const Size& b) {
  Size sum = a;
  sum.constant_ = Plus(a.constant_, b.constant_);
  for (const auto& [v, factor] : b.terms_) {
    const auto at = std::ranges::find_if(
        sum.terms_, [&name = v.name](const auto& term) { return term.first.name >= name; });
    if (at == sum.terms_.end() || !(at->first == v)) {
      sum.terms_.insert(at, {v, factor});
    } else if ((at->second = Plus(at->second, factor)) == 0) {
      sum.terms_.erase(at);
    }
  }
  return sum;
}

Size operator*(const Size& a, int64_t factor) {
  if (factor == 0) return 0;
  Size product = a;
  product.constant_ = Times(a.constant_, factor);
  for (auto& [v, f] : product.terms_) f = Times(f, factor);
  return product;
}

std::string ToString(const Size& size) {
  std::string text;
  for (const auto& [v, factor] : size.terms()) {
    absl::StrAppend(&text, text.empty() ? "" : "+", factor == 1 ? "" : absl::StrCat(factor, "*"),
                    v.name);
  }
  if (size.is_number()) return absl::StrCat(size.constant());
  if (size.constant() != 0) {
    absl::StrAppend(&text, size.constant() > 0 ? "+" : "", size.constant());
  }
  return text;
}

std::string ToString(const Shape& shape) {
  const auto text = [](std::string* out, const Size& size) { out->append(ToString(size)); };
  return absl::StrCat("(", absl::StrJoin(shape, ", ", text), ")");
}

bool AllNumbers(const Shape& shape) {
  return std::ranges::all_of(shape, [](const Size& size) { return size.is_number(); });
}

std::vector<int64_t> Numbers(const Shape& shape) {
  std::vector<int64_t> numbers;
  numbers.reserve(shape.size());
  for (const Size& size : shape) numbers.push_back(size.number());
  return numbers;
}

int64_t Elements(const Shape& shape) {
  int64_t elements = 1;
  bool fits = true;
  bool empty = false;
  for (const Size& size : shape) {
    if (size.number() < 0) return -1;
    empty = empty || size.number() == 0;
    fits = fits && !__builtin_mul_overflow(elements, size.number(), &elements);
  }
  if (empty) return 0;
  return fits ? elements : -1;
}

}  // namespace beamd::thin
