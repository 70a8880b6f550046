#include "tests/conformance/recorded.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/uop/wire.h"
#include "tests/testing/corpus.h"
#include "tests/testing/json.h"

namespace beamd::conformance {
namespace {

using ::beamd::testing::ForEachLine;
using ::beamd::testing::JsonValue;

std::string File(absl::string_view name, absl::string_view target) {
  return absl::StrCat(name, "-", target, ".jsonl.gz");
}

std::vector<WrittenSize> Sizes(const JsonValue& value) {
  std::vector<WrittenSize> sizes;
  for (const JsonValue& v : value.items()) {
    if (v.kind() == JsonValue::Kind::kString) {
      sizes.emplace_back(v.String());
    } else {
      sizes.emplace_back(v.Int());
    }
  }
  return sizes;
}

std::vector<int> Ints(const JsonValue& value) {
  const std::vector<int64_t> ints = value.Ints();
  return {ints.begin(), ints.end()};
}

std::vector<Opt> Opts(const JsonValue& value) {
  std::vector<Opt> opts;
  for (const JsonValue& v : value.items()) {
    v1::OptOp op = v1::OPT_OP_UNSPECIFIED;
    v1::OptOp_Parse(v["op"].String(), &op);
    Opt& opt = opts.emplace_back();
    opt.op = static_cast<OptOp>(op);
    if (v.Has("axis")) opt.axis = static_cast<int32_t>(v["axis"].Int());
    if (v.Has("amount")) opt.amount = static_cast<int32_t>(v["amount"].Int());
  }
  return opts;
}

WrittenState State(const JsonValue& value) {
  WrittenState state{Sizes(value["shape"]), {}};
  for (const JsonValue& v : value["colors"].items()) state.colors.push_back(v.String());
  return state;
}

WrittenHeuristics HeuristicsOf(std::string id, const JsonValue& value) {
  return {std::move(id), value["error"].String(), Sizes(value["shape0"]), Opts(value["opts"]),
          State(value)};
}

}  // namespace

absl::StatusOr<Recorded> Recorded::Open(std::string directory) {
  Recorded recorded;
  BEAMD_ASSIGN_OR_RETURN(std::vector<testing::CorpusKernel> kernels,
                         testing::ReadCorpusKernels(directory));
  for (testing::CorpusKernel& kernel : kernels) {
    recorded.graphs_[std::move(kernel.id)] = std::move(kernel.graph);
  }
  if (recorded.graphs_.empty()) {
    return absl::NotFoundError(absl::StrCat("no kernels in ", directory));
  }
  recorded.directory_ = std::move(directory);
  return recorded;
}

absl::StatusOr<UOp> Recorded::Graph(const std::string& id, UOpGraph& graph) const {
  const auto it = graphs_.find(id);
  if (it == graphs_.end()) return absl::NotFoundError(absl::StrCat("no kernel ", id));
  return FromProto(it->second, graph);
}

std::vector<std::string> Recorded::Ids() const {
  std::vector<std::string> ids;
  ids.reserve(graphs_.size());
  for (const auto& [id, unused] : graphs_) ids.push_back(id);
  return ids;
}

std::vector<std::string> Recorded::ImageKernels() const {
  std::vector<std::string> ids;
  for (const auto& [id, graph] : graphs_) {
    const bool has_image = std::ranges::any_of(
        graph.nodes(), [](const v1::Node& n) { return n.dtype().image_shape_size() > 0; });
    if (has_image) ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<WrittenHeuristics>> Recorded::Heuristics(
    absl::string_view target) const {
  std::vector<WrittenHeuristics> written;
  const absl::Status kernels =
      ForEachLine(directory_, File("hc", target), [&](const JsonValue& line) {
        written.push_back(HeuristicsOf(line["id"].String(), line));
        return absl::OkStatus();
      });
  if (!kernels.ok() && !absl::IsNotFound(kernels)) return kernels;
  const absl::Status hot = ForEachLine(directory_, "hot.jsonl.gz", [&](const JsonValue& line) {
    if (line["hc"].Has(target)) {
      written.push_back(HeuristicsOf(line["id"].String(), line["hc"][target]));
    }
    return absl::OkStatus();
  });
  if (!hot.ok() && !absl::IsNotFound(hot)) return hot;
  if (written.empty()) return kernels;
  return written;
}

absl::StatusOr<std::vector<WrittenActions>> Recorded::Actions(absl::string_view target) const {
  std::vector<WrittenActions> written;
  BEAMD_RETURN_IF_ERROR(
      ForEachLine(directory_, File("actions", target), [&](const JsonValue& line) {
        if (line.Has("actions")) return absl::OkStatus();
        WrittenActions& w = written.emplace_back();
        w.id = line["id"].String();
        w.legal = Ints(line["legal"]);
        if (line.Has("then")) w.then = static_cast<int>(line["then"].Int());
        w.state = State(line);
        w.legal_after = Ints(line["legal2"]);
        return absl::OkStatus();
      }));
  return written;
}

absl::StatusOr<std::vector<Opt>> Recorded::ActionList(absl::string_view target) const {
  std::vector<Opt> list;
  BEAMD_RETURN_IF_ERROR(
      ForEachLine(directory_, File("actions", target), [&](const JsonValue& line) {
        if (line.Has("actions")) list = Opts(line["actions"]);
        return absl::OkStatus();
      }));
  return list;
}

absl::StatusOr<std::vector<WrittenWalk>> Recorded::Walks(absl::string_view target) const {
  std::vector<WrittenWalk> written;
  BEAMD_RETURN_IF_ERROR(ForEachLine(directory_, File("walks", target), [&](const JsonValue& line) {
    WrittenWalk& w = written.emplace_back();
    w.id = line["id"].String();
    w.error = line["error"].String();
    w.required = Opts(line["required"]);
    for (const JsonValue& step : line["steps"].items()) {
      w.steps.push_back({Ints(step["legal"]), static_cast<int>(step["take"].Int()), State(step)});
    }
    return absl::OkStatus();
  }));
  return written;
}

}  // namespace beamd::conformance
