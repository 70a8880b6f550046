// One comparison of beamd with what the corpus records, for one target.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/kernel.h"
#include "engine/uop/uop.h"
#include "tests/conformance/recorded.h"

namespace beamd::conformance {

// Which kernels count as excepted, and why; by check, then id.
using Excepted = std::map<std::string, std::map<std::string, std::string>>;

// A line: `id check[,check] reason`; `#` begins a comment. InvalidArgument naming the line where it
// isn't so, or where there are more than forty.
absl::StatusOr<Excepted> ParseExcepted(absl::string_view text);

struct Tally {
  int kernels = 0;  // compared, excepted included
  int equal = 0;
  int unsupported = 0;  // refused by the engine
  int excepted = 0;
  int different = 0;
  std::vector<std::pair<std::string, std::string>> differences;  // id, why; unsupported ones too
  std::vector<std::string> needless;                             // excepted, but equal

  // equal / (kernels - excepted); 1 where nothing is left.
  double Ratio() const;
};

struct CheckInput {
  const Recorded* recorded = nullptr;
  TargetKind target = TargetKind::kCpu;
  std::map<std::string, std::string> excepted;  // of this check: id, reason
  std::vector<std::string> ids;                 // these kernels only; none: all
  int sample = 0;                               // so many of them, drawn by `seed`; 0: all
  uint64_t seed = 0;
  std::string arch;              // "build": of the target, empty for the corpus' own
  std::string ptxas;             // likewise: the program; empty: the one in PATH
  bool heuristics_only = false;  // likewise: no random lists
};

// "cpu", "cuda", "hip"
absl::string_view TargetName(TargetKind kind);

inline const std::string& IdOf(const std::string& id) { return id; }
template <typename Line>
const std::string& IdOf(const Line& line) {
  return line.id;
}

// The kernels to look at: all, those named, or the sample. Not std::shuffle: what a seed draws must
// not depend on the library.
template <typename Line>
std::vector<Line> Sampled(std::vector<Line> lines, const CheckInput& input) {
  if (!input.ids.empty()) {
    std::erase_if(lines, [&](const Line& l) { return !absl::c_linear_search(input.ids, IdOf(l)); });
  }
  const size_t size = static_cast<size_t>(input.sample);
  if (size == 0 || size >= lines.size()) return lines;
  std::mt19937_64 random(input.seed);
  for (size_t i = 0; i < size; ++i) std::swap(lines[i], lines[i + random() % (lines.size() - i)]);
  lines.resize(size);
  return lines;
}

// The kernel of `id` in `graph`, what it can't do without applied. Where the engine refuses it,
// Unimplemented.
absl::StatusOr<Kernel> MakeKernel(const std::string& id, const CheckInput& input, UOpGraph& graph);
absl::StatusOr<Kernel> MakeKernel(const std::string& id, const CheckInput& input,
                                  const TargetCaps& caps, UOpGraph& graph);

// How `kernel` differs from the state written; empty if it doesn't.
std::string StateDifference(const WrittenState& written, const Kernel& kernel);
// How two lists of legal actions differ.
std::string LegalDifference(const std::vector<int>& written,
                            const std::vector<std::pair<int, Kernel>>& ours);

// Adds a kernel to the tally. `why`: how it differs, empty if it doesn't; Unimplemented: refused.
void Count(const std::string& id, const absl::StatusOr<std::string>& why, const CheckInput& input,
           Tally& tally);

// What the heuristics choose, from the fresh shape on.
absl::StatusOr<Tally> CheckHeuristics(const CheckInput& input);
// The legal actions of a kernel and, after one of them, its legal actions again.
absl::StatusOr<Tally> CheckActions(const CheckInput& input);
// Random walks over the actions.
absl::StatusOr<Tally> CheckWalks(const CheckInput& input);
// Whether the kernel with what the heuristics choose becomes a linear program for the target.
absl::StatusOr<Tally> CheckLowering(const CheckInput& input);
// Values: a kernel without opts, with the heuristics' and after three random walks. On this host's
// CPU; or on GPUs that it plays (devices/emu), of kernels up to 10^7 points: there a race or an
// access out of bounds is a difference too. Kernels run in child processes: what crashes or hangs
// costs itself.
absl::StatusOr<Tally> CheckNumeric(const CheckInput& input);
// The kernels of `hot` that the heuristics give a tensor core: what a few emulated work-groups store
// against the evaluator. NotFound for the CPU.
absl::StatusOr<Tally> CheckTensorCores(const CheckInput& input);
// Code for a GPU without one: the heuristics' opts and three random walks become PTX that ptxas takes,
// or a code object whose metadata is the launch's. NotFound for the CPU, and without a ptxas.
absl::StatusOr<Tally> CheckBuild(const CheckInput& input);

}  // namespace beamd::conformance
