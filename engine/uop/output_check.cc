#include "engine/uop/output_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

double HalfToDouble(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof(half));
  return static_cast<double>(half);
}

double BFloatToDouble(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

double FloatAt(const void* data, Scalar s, int64_t i) {
  switch (s) {
    case Scalar::kFloat16:
      return HalfToDouble(static_cast<const uint16_t*>(data)[i]);
    case Scalar::kBFloat16:
      return BFloatToDouble(static_cast<const uint16_t*>(data)[i]);
    case Scalar::kFloat32:
      return static_cast<const float*>(data)[i];
    default:
      return static_cast<const double*>(data)[i];
  }
}

// Elements of got that differ from the reference by more than `tolerance`, the worst first, at most
// `most`.
template <typename Difference>
std::vector<int64_t> Worst(int64_t elements, double tolerance, int64_t most,
                           Difference difference) {
  std::vector<std::pair<double, int64_t>> heap;  // the least bad on top
  const auto worse = [](const auto& a, const auto& b) { return a.first > b.first; };
  for (int64_t i = 0; i < elements; ++i) {
    const double d = difference(i);
    if (!(d > tolerance)) continue;
    if (static_cast<int64_t>(heap.size()) == most) {
      if (d <= heap.front().first) continue;
      std::pop_heap(heap.begin(), heap.end(), worse);
      heap.pop_back();
    }
    heap.emplace_back(d, i);
    std::push_heap(heap.begin(), heap.end(), worse);
  }
  std::sort_heap(heap.begin(), heap.end(), worse);
  std::vector<int64_t> elements_of;
  elements_of.reserve(heap.size());
  for (const auto& [unused, i] : heap) elements_of.push_back(i);
  return elements_of;
}

std::vector<int64_t> Suspects(const OutputResult& o, double tolerance, int64_t most) {
  const size_t size = static_cast<size_t>(o.elements) * SizeBytes(o.scalar);
  if (std::memcmp(o.got, o.reference, size) == 0) return {};
  if (!IsFloat(o.scalar)) {
    const int width = SizeBytes(o.scalar);
    const char *a = static_cast<const char*>(o.got), *b = static_cast<const char*>(o.reference);
    return Worst(o.elements, 0.5, most, [&](int64_t i) {
      return std::memcmp(a + i * width, b + i * width, static_cast<size_t>(width)) == 0 ? 0.0 : 1.0;
    });
  }
  const auto difference = [](double a, double b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
    const double d = std::abs(a - b);
    return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  };
  if (o.scalar == Scalar::kFloat32) {
    const auto *a = static_cast<const float*>(o.got), *b = static_cast<const float*>(o.reference);
    return Worst(o.elements, tolerance, most, [&](int64_t i) { return difference(a[i], b[i]); });
  }
  return Worst(o.elements, tolerance, most, [&](int64_t i) {
    return difference(FloatAt(o.got, o.scalar, i), FloatAt(o.reference, o.scalar, i));
  });
}

std::string Spelled(const OutputResult& o, int64_t i, const EvalValue& want) {
  if (IsFloat(o.scalar)) {
    return absl::StrCat("slot ", o.slot, " element ", i, ": got ", FloatAt(o.got, o.scalar, i),
                        ", want ", want.real, " within ", 2 * want.error);
  }
  int64_t got = 0;
  std::memcpy(&got, static_cast<const char*>(o.got) + i * SizeBytes(o.scalar),
              static_cast<size_t>(SizeBytes(o.scalar)));
  return absl::StrCat("slot ", o.slot, " element ", i, ": got ", WrapInt(got, o.scalar), ", want ",
                      want.integer);
}

class Checker {
 public:
  Checker(Evaluator& evaluator, const OutputCheckOptions& options)
      : evaluator_(evaluator), options_(options) {}

  absl::Status Check(const OutputResult& o) {
    if (o.elements == 0) return absl::OkStatus();
    const double work = std::max(evaluator_.WorkPerElement(o.slot), 1.0);
    if (work * static_cast<double>(o.elements) <= options_.work) {
      result_.checked += o.elements;
      return EvaluateAll(o);
    }
    double tolerance = 0;
    const bool affordable = work <= options_.least_work;
    if (affordable) {
      const auto count = static_cast<int64_t>(
          std::clamp(options_.work / work, 2.0, static_cast<double>(options_.most_samples)));
      BEAMD_RETURN_IF_ERROR(Evaluate(o, Sample(o.elements, count), &tolerance));
      if (o.reference == nullptr) result_.checked += std::min(count, o.elements);
    }
    if (o.reference == nullptr) {
      result_.complete = false;
      return absl::OkStatus();
    }
    result_.checked += o.elements;
    if (!affordable) {
      // No error is known: what a sum of so many terms of order one may lose in its own type.
      const double unit = std::ldexp(1.0, o.scalar == Scalar::kFloat64 ? -53 : -24);
      tolerance = unit * (4 + 2 * std::sqrt(work)) * 4 * std::sqrt(work);
    }
    if (!result_.equal) return absl::OkStatus();
    const auto most = static_cast<int64_t>(
        std::clamp(4 * options_.work / work, 4.0, static_cast<double>(options_.most_suspects)));
    const std::vector<int64_t> suspects = Suspects(o, tolerance, most);
    if (suspects.empty()) return absl::OkStatus();
    if (affordable) return Evaluate(o, suspects, nullptr);
    result_.equal = false;
    result_.detail = absl::StrCat("slot ", o.slot, " element ", suspects[0],
                                  ": differs from the unoptimised kernel's");
    return absl::OkStatus();
  }

  OutputCheck result() const { return result_; }

 private:
  // A part at a time: what a million elements should be is 50 MB that nobody needs at once.
  absl::Status EvaluateAll(const OutputResult& o) {
    constexpr int64_t kPart = 16384;
    for (int64_t begin = 0; begin < o.elements; begin += kPart) {
      std::vector<int64_t> part(std::min(kPart, o.elements - begin));
      std::iota(part.begin(), part.end(), begin);
      BEAMD_RETURN_IF_ERROR(Evaluate(o, part, nullptr));
    }
    return absl::OkStatus();
  }

  // Seeded, without repeats, the first and the last among them.
  std::vector<int64_t> Sample(int64_t elements, int64_t count) const {
    std::mt19937_64 random(options_.seed);
    std::vector<int64_t> sample = {0, elements - 1};
    while (static_cast<int64_t>(sample.size()) < count) {
      sample.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(elements)));
    }
    std::sort(sample.begin(), sample.end());
    sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
    return sample;
  }

  // `tolerance`, if given: four times the largest error seen, for comparing two results of the
  // kernel that may each be off by twice the error.
  absl::Status Evaluate(const OutputResult& o, const std::vector<int64_t>& elements,
                        double* tolerance) {
    BEAMD_ASSIGN_OR_RETURN(const std::vector<EvalValue> want,
                           evaluator_.Evaluate(o.slot, elements));
    const char* got = static_cast<const char*>(o.got);
    for (size_t k = 0; k < elements.size(); ++k) {
      ++result_.evaluated;
      if (tolerance != nullptr && std::isfinite(want[k].error)) {
        *tolerance = std::max(*tolerance, 4 * want[k].error);
      }
      switch (CompareElement(got + elements[k] * SizeBytes(o.scalar), want[k])) {
        case Comparison::kEqual:
          break;
        case Comparison::kUndecided:
          ++result_.undecided;
          break;
        case Comparison::kDifferent:
          if (result_.equal) result_.detail = Spelled(o, elements[k], want[k]);
          result_.equal = false;
          break;
      }
    }
    return absl::OkStatus();
  }

  Evaluator& evaluator_;
  const OutputCheckOptions& options_;
  OutputCheck result_;
};

}  // namespace

absl::StatusOr<OutputCheck> CheckOutputs(UOp sink, const EvalInputs& inputs,
                                         std::span<const OutputResult> outputs,
                                         const OutputCheckOptions& options) {
  BEAMD_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(sink, inputs));
  Checker checker(evaluator, options);
  for (const OutputResult& o : outputs) BEAMD_RETURN_IF_ERROR(checker.Check(o));
  return checker.result();
}

}  // namespace beamd
