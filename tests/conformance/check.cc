#include "tests/conformance/check.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/search/actions.h"

namespace beamd::conformance {

absl::string_view TargetName(TargetKind kind) {
  return kind == TargetKind::kCpu ? "cpu" : kind == TargetKind::kCuda ? "cuda" : "hip";
}

absl::StatusOr<Excepted> ParseExcepted(absl::string_view text) {
  constexpr int kMaxLines = 40;
  Excepted excepted;
  int number = 0, lines = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    if (words.size() != 3) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": id, checks, reason"));
    }
    if (++lines > kMaxLines) {
      return absl::InvalidArgumentError(absl::StrCat("over ", kMaxLines, " kernels are excepted"));
    }
    for (absl::string_view check : absl::StrSplit(words[1], ',')) {
      excepted[std::string(check)][words[0]] = words[2];
    }
  }
  return excepted;
}

double Tally::Ratio() const {
  const int counted = kernels - excepted;
  return counted == 0 ? 1 : static_cast<double>(equal) / counted;
}

absl::StatusOr<Kernel> MakeKernel(const std::string& id, const CheckInput& input, UOpGraph& graph) {
  static const std::map<TargetKind, TargetCaps> caps = {
      {TargetKind::kCpu, CorpusTarget(TargetKind::kCpu)},
      {TargetKind::kCuda, CorpusTarget(TargetKind::kCuda)},
      {TargetKind::kHip, CorpusTarget(TargetKind::kHip)}};
  return MakeKernel(id, input, caps.at(input.target), graph);
}

absl::StatusOr<Kernel> MakeKernel(const std::string& id, const CheckInput& input,
                                  const TargetCaps& caps, UOpGraph& graph) {
  const absl::StatusOr<UOp> sink = input.recorded->Graph(id, graph);
  if (!sink.ok()) return absl::UnimplementedError(sink.status().message());
  absl::StatusOr<Kernel> kernel = Kernel::Create(*sink, caps);
  if (!kernel.ok()) return absl::UnimplementedError(kernel.status().message());
  return kernel;
}

std::string StateDifference(const WrittenState& written, const Kernel& kernel) {
  std::vector<std::string> colors;
  for (AxisColor color : kernel.colors()) colors.emplace_back(ToString(color));
  if (SameSizes(written.shape, kernel.full_shape(), kernel.ast()) && colors == written.colors) {
    return "";
  }
  return absl::StrCat("shape ", ToString(kernel.full_shape()), " ", absl::StrJoin(colors, " "),
                      ", recorded ", ToString(written.shape), " ",
                      absl::StrJoin(written.colors, " "));
}

std::string LegalDifference(const std::vector<int>& written,
                            const std::vector<std::pair<int, Kernel>>& ours) {
  static const std::vector<Opt> actions = Actions({});
  std::set<int> theirs(written.begin(), written.end());
  std::vector<std::string> differences;
  for (const auto& [number, kernel] : ours) {
    if (theirs.erase(number) == 0) {
      differences.push_back(absl::StrCat("allows ", ToString(actions[number - 1])));
    }
  }
  for (int number : theirs) {
    differences.push_back(absl::StrCat("refuses ", ToString(actions[number - 1])));
  }
  return absl::StrJoin(differences, ", ");
}

void Count(const std::string& id, const absl::StatusOr<std::string>& why, const CheckInput& input,
           Tally& tally) {
  ++tally.kernels;
  const bool equal = why.ok() && why->empty();
  if (input.excepted.count(id) != 0) {
    ++tally.excepted;
    if (equal) tally.needless.push_back(id);
  } else if (equal) {
    ++tally.equal;
  } else {
    ++(why.ok() ? tally.different : tally.unsupported);
    tally.differences.emplace_back(
        id, why.ok() ? *why : absl::StrCat("unsupported: ", why.status().message()));
  }
}

}  // namespace beamd::conformance
