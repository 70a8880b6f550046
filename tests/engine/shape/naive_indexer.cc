#include "tests/engine/shape/naive_indexer.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/status.h"

namespace beamd::testing {
namespace {

int64_t Position(std::span<const int64_t> shape, std::span<const int64_t> at) {
  int64_t position = 0;
  for (size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + at[i];
  return position;
}

// The elements of a new shape, each found at coordinates of the old one; false: masked.
template <typename Fn>
NaiveIndexer Moved(const NaiveIndexer& from, std::vector<int64_t> shape, Fn source) {
  NaiveIndexer to{std::move(shape), {}};
  std::vector<int64_t> at_source(from.shape.size());
  ForEachPoint(to.shape, [&](const std::vector<int64_t>& at, int64_t) {
    to.places.push_back(source(at, at_source) ? from.places[Position(from.shape, at_source)]
                                              : NaiveIndexer::kMasked);
  });
  return to;
}

}  // namespace

std::vector<int64_t> Numbers(const Shape& shape) {
  std::vector<int64_t> numbers;
  for (const SInt& s : shape) numbers.push_back(s.number());
  return numbers;
}

int64_t Product(std::span<const int64_t> values) {
  int64_t product = 1;
  for (const int64_t v : values) product *= v;
  return product;
}

NaiveIndexer NaiveIndexer::FromShape(std::vector<int64_t> shape) {
  NaiveIndexer n{std::move(shape), {}};
  for (int64_t i = 0; i < Product(n.shape); ++i) n.places.push_back(i);
  return n;
}

NaiveIndexer NaiveIndexer::FromViews(std::span<const View> views) {
  NaiveIndexer below;
  for (size_t k = 0; k < views.size(); ++k) {
    const View& v = views[k];
    NaiveIndexer n{Numbers(v.shape), {}};
    ForEachPoint(n.shape, [&](const std::vector<int64_t>& at, int64_t) {
      int64_t place = v.offset.number();
      bool valid = true;
      for (size_t i = 0; i < at.size(); ++i) {
        place += at[i] * v.strides[i].number();
        if (v.mask) {
          const auto& [begin, end] = (*v.mask)[i];
          valid = valid && begin.number() <= at[i] && at[i] < end.number();
        }
      }
      if (valid && k > 0) {
        BEAMD_CHECK(place >= 0 && place < static_cast<int64_t>(below.places.size()),
                    "a view leaves the one below");
        place = below.places[place];
      }
      n.places.push_back(valid ? place : kMasked);
    });
    below = std::move(n);
  }
  return below;
}

NaiveIndexer NaiveIndexer::Reshape(std::vector<int64_t> new_shape) const {
  BEAMD_CHECK(Product(new_shape) == Product(shape), "a reshape keeps the size");
  return {std::move(new_shape), places};
}

NaiveIndexer NaiveIndexer::Permute(std::span<const int> order) const {
  std::vector<int64_t> new_shape;
  for (const int axis : order) new_shape.push_back(shape[axis]);
  return Moved(*this, new_shape, [&](const auto& at, auto& source) {
    for (size_t i = 0; i < at.size(); ++i) source[order[i]] = at[i];
    return true;
  });
}

NaiveIndexer NaiveIndexer::Pad(std::span<const std::pair<int64_t, int64_t>> amounts) const {
  std::vector<int64_t> new_shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    new_shape.push_back(amounts[i].first + shape[i] + amounts[i].second);
  }
  return Moved(*this, new_shape, [&](const auto& at, auto& source) {
    bool inside = true;
    for (size_t i = 0; i < at.size(); ++i) {
      source[i] = at[i] - amounts[i].first;
      inside = inside && source[i] >= 0 && source[i] < shape[i];
    }
    return inside;
  });
}

NaiveIndexer NaiveIndexer::Shrink(std::span<const std::pair<int64_t, int64_t>> ranges) const {
  std::vector<int64_t> new_shape;
  for (const auto& [begin, end] : ranges) new_shape.push_back(end - begin);
  return Moved(*this, new_shape, [&](const auto& at, auto& source) {
    for (size_t i = 0; i < at.size(); ++i) source[i] = at[i] + ranges[i].first;
    return true;
  });
}

NaiveIndexer NaiveIndexer::Expand(std::vector<int64_t> new_shape) const {
  return Moved(*this, std::move(new_shape), [&](const auto& at, auto& source) {
    for (size_t i = 0; i < at.size(); ++i) source[i] = shape[i] == 1 ? 0 : at[i];
    return true;
  });
}

NaiveIndexer NaiveIndexer::Flip(std::span<const int> axes) const {
  std::vector<int64_t> multiples(shape.size(), 1);
  for (const int axis : axes) multiples[axis] = -1;
  return Stride(multiples);
}

NaiveIndexer NaiveIndexer::Stride(std::span<const int64_t> multiples) const {
  std::vector<int64_t> new_shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t taken = 0;
    for (int64_t at = 0; at < shape[i]; at += std::abs(multiples[i])) ++taken;
    new_shape.push_back(taken);
  }
  return Moved(*this, new_shape, [&](const auto& at, auto& source) {
    for (size_t i = 0; i < at.size(); ++i) {
      source[i] = at[i] * multiples[i] + (multiples[i] < 0 ? shape[i] - 1 : 0);
    }
    return true;
  });
}

int64_t NaiveIndexer::RealSize() const {
  return places.empty() ? 0 : *std::ranges::max_element(places) + 1;
}

}  // namespace beamd::testing
