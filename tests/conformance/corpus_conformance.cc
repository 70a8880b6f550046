// Compares beamd with what the corpus records about tinygrad 0.10.0.
//
//   corpus_conformance --corpus DIR --checks hc,actions,walks,lower,numeric --targets cpu,cuda,hip
//       [--min_equal hc=0.995,actions=0.99] [--sample N --seed S] [--ids k00216,k00221]
//
// One JSON line a check and target on stdout, what differs and why on stderr. Exits with 1 where a
// ratio is below its minimum, with 2 where the request or the corpus can't be read.
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/conformance/check.h"
#include "tests/conformance/excepted.h"

ABSL_FLAG(std::string, corpus, "", "folder of the recorded kernels");
ABSL_FLAG(std::vector<std::string>, checks, std::vector<std::string>({"hc", "actions", "walks"}),
          "what to compare");
ABSL_FLAG(std::vector<std::string>, targets, std::vector<std::string>({"cpu"}), "cpu, cuda, hip");
ABSL_FLAG(std::vector<std::string>, min_equal, {}, "check=ratio: exit with 1 below it");
ABSL_FLAG(std::vector<std::string>, ids, {}, "these kernels only; none: all");
ABSL_FLAG(int, sample, 0, "kernels a check and target, drawn by --seed; 0: all");
ABSL_FLAG(uint64_t, seed, 1, "of the sample");
ABSL_FLAG(std::vector<std::string>, archs, {},
          "of the build check: sm_75, gfx1100, ...; none: a target's own of the corpus");
ABSL_FLAG(bool, heuristics_only, false, "the build check without its three random lists");
ABSL_FLAG(std::string, ptxas, "", "the program; empty: the one in PATH");

namespace beamd::conformance {
namespace {

using Check = absl::StatusOr<Tally> (*)(const CheckInput&);

const std::map<std::string, Check>& Checks() {
  static const std::map<std::string, Check> checks = {
      {"hc", CheckHeuristics},  {"actions", CheckActions}, {"walks", CheckWalks},
      {"lower", CheckLowering}, {"numeric", CheckNumeric}, {"tensor_cores", CheckTensorCores},
      {"build", CheckBuild}};
  return checks;
}

absl::StatusOr<TargetKind> ParseTarget(absl::string_view name) {
  for (TargetKind kind : {TargetKind::kCpu, TargetKind::kCuda, TargetKind::kHip}) {
    if (name == TargetName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("no target ", name));
}

absl::StatusOr<std::map<std::string, double>> ParseMinimums(const std::vector<std::string>& pairs) {
  std::map<std::string, double> minimums;
  for (const std::string& pair : pairs) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (!absl::SimpleAtod(parts.second, &minimums[parts.first])) {
      return absl::InvalidArgumentError(absl::StrCat("--min_equal: ", pair));
    }
  }
  return minimums;
}

// What a check is made for, of one target: nothing but the target, or each of its archs.
std::vector<std::string> ArchsOf(const std::string& check, TargetKind target) {
  std::vector<std::string> archs;
  if (check == "build") {
    for (const std::string& arch : absl::GetFlag(FLAGS_archs)) {
      if (absl::StartsWith(arch, "sm_") == (target == TargetKind::kCuda)) archs.push_back(arch);
    }
  }
  if (archs.empty()) archs.push_back(check == "build" ? CorpusTarget(target).arch : "");
  return archs;
}

// True if every ratio reaches its minimum.
absl::StatusOr<bool> RunAll() {
  absl::StatusOr<std::map<std::string, double>> minimums =
      ParseMinimums(absl::GetFlag(FLAGS_min_equal));
  if (!minimums.ok()) return minimums.status();
  absl::StatusOr<Excepted> excepted = ParseExcepted(kExcepted);
  if (!excepted.ok()) return excepted.status();
  const absl::StatusOr<Recorded> recorded = Recorded::Open(absl::GetFlag(FLAGS_corpus));
  if (!recorded.ok()) return recorded.status();

  bool enough = true;
  for (const std::string& check : absl::GetFlag(FLAGS_checks)) {
    const auto it = Checks().find(check);
    if (it == Checks().end()) return absl::InvalidArgumentError(absl::StrCat("no check ", check));
    for (const std::string& target : absl::GetFlag(FLAGS_targets)) {
      const absl::StatusOr<TargetKind> kind = ParseTarget(target);
      if (!kind.ok()) return kind.status();
      for (const std::string& arch : ArchsOf(check, *kind)) {
        const absl::StatusOr<Tally> tally =
            it->second({.recorded = &*recorded,
                        .target = *kind,
                        .excepted = (*excepted)[check],
                        .ids = absl::GetFlag(FLAGS_ids),
                        .sample = absl::GetFlag(FLAGS_sample),
                        .seed = absl::GetFlag(FLAGS_seed),
                        .arch = arch,
                        .ptxas = absl::GetFlag(FLAGS_ptxas),
                        .heuristics_only = absl::GetFlag(FLAGS_heuristics_only)});
        if (absl::IsNotFound(tally.status())) {
          absl::FPrintF(stderr, "%s %s: skipped, %s\n", check, target, tally.status().message());
          continue;
        }
        if (!tally.ok()) return tally.status();
        absl::PrintF(
            R"({"check":"%s","target":"%s",%s"kernels":%d,"equal":%d,"unsupported":%d,"excepted":%d,"different":%d,"ratio":%.6f})"
            "\n",
            check, target, arch.empty() ? "" : absl::StrCat(R"("arch":")", arch, R"(",)"),
            tally->kernels, tally->equal, tally->unsupported, tally->excepted, tally->different,
            tally->Ratio());
        std::fflush(stdout);
        for (const auto& [id, why] : tally->differences) {
          absl::FPrintF(stderr, "%s %s %s: %s\n", check, target, id, why);
        }
        if (!tally->needless.empty()) {
          absl::FPrintF(stderr, "%s %s: excepted, but equal: %s\n", check, target,
                        absl::StrJoin(tally->needless, " "));
        }
        const auto minimum = minimums->find(check);
        if (minimum != minimums->end() && tally->Ratio() < minimum->second) {
          absl::FPrintF(stderr, "%s %s: below %g\n", check, target, minimum->second);
          enough = false;
        }
      }
    }
  }
  return enough;
}

}  // namespace
}  // namespace beamd::conformance

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("compares beamd with what the corpus records");
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> enough = beamd::conformance::RunAll();
  if (!enough.ok()) {
    absl::FPrintF(stderr, "%s\n", enough.status().message());
    return 2;
  }
  return *enough ? 0 : 1;
}
