// Sizes of axes: numbers, or sums of multiples of variables that a run gives values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace beamd::thin {

// An integer whose value a run gives (RunOptions::variables): a position, a length. Bounds are
// inclusive; the server refuses a value outside of them. A name has one pair of bounds in a graph.
struct Variable {
  std::string name;
  int64_t min = 0;
  int64_t max = 0;
  bool operator==(const Variable&) const = default;
};

class Size {
 public:
  Size() = default;
  Size(int64_t value) : constant_(value) {}
  Size(int value) : constant_(value) {}
  Size(const Variable& variable) : terms_({{variable, 1}}) {}

  bool is_number() const { return terms_.empty(); }
  // Of what is no number: its least value.
  int64_t number() const { return is_number() ? constant_ : min(); }
  int64_t min() const;
  int64_t max() const;

  int64_t constant() const { return constant_; }
  // Each variable once, by name, with a factor other than 0.
  const std::vector<std::pair<Variable, int64_t>>& terms() const { return terms_; }

  // Equal for all values of the variables. Two sizes of one variable are: sums are in normal form.
  bool operator==(const Size&) const = default;
  friend Size operator+(const Size& a, const Size& b);
  friend Size operator*(const Size& a, int64_t factor);
  friend Size operator-(const Size& a, const Size& b) { return a + b * -1; }
  friend Size operator+(const Size& a, int64_t b) { return a + Size(b); }
  friend Size operator-(const Size& a, int64_t b) { return a + Size(-b); }

 private:
  int64_t constant_ = 0;
  std::vector<std::pair<Variable, int64_t>> terms_;
};

using Shape = std::vector<Size>;

inline Size operator+(const Variable& v, int64_t b) { return Size(v) + b; }

// "12", "pos+1", "(2, pos+1, 64)".
std::string ToString(const Size& size);
std::string ToString(const Shape& shape);
bool AllNumbers(const Shape& shape);
// The numbers of a shape of numbers.
std::vector<int64_t> Numbers(const Shape& shape);
// Of a shape of numbers; negative where it doesn't fit, or a size is negative.
int64_t Elements(const Shape& shape);

}  // namespace beamd::thin
