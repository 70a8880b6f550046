// How much faster one of two kernels is, from runs that were taken in turns.
#pragma once

#include <span>

namespace beamd {

// The median of slow[i] / fast[i], and an interval that holds the true one with `confidence`.
struct RatioInterval {
  double ratio = 1;
  double low = 1, high = 1;
};

// By the percentile bootstrap (B. Efron, 1979): medians of `kResamples` draws with replacement from
// the pairs. A pair was taken in one round, so what slowed both falls out. The draws are seeded:
// the same samples give the same answer. Pairs that are not positive and finite don't count; all 1
// where none is left.
RatioInterval PairedRatio(std::span<const double> slow, std::span<const double> fast,
                          double confidence);
inline constexpr int kResamples = 2000;

}  // namespace beamd
