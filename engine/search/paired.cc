#include "engine/search/paired.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace beamd {
namespace {

double Median(std::vector<double>& values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper +
          *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(half))) /
         2;
}

}  // namespace

RatioInterval PairedRatio(std::span<const double> slow, std::span<const double> fast,
                          double confidence) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(slow.size(), fast.size()); ++i) {
    const double ratio = slow[i] / fast[i];
    if (std::isfinite(ratio) && ratio > 0) ratios.push_back(ratio);
  }
  if (ratios.empty()) return {};
  std::mt19937 random(1);
  std::vector<double> medians, draw(ratios.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& d : draw) d = ratios[random() % ratios.size()];
    medians.push_back(Median(draw));
  }
  std::sort(medians.begin(), medians.end());
  const auto tail = static_cast<size_t>((1 - confidence) / 2 * kResamples);
  return {.ratio = Median(ratios), .low = medians[tail], .high = medians[kResamples - 1 - tail]};
}

}  // namespace beamd
