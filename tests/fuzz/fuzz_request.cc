// libFuzzer: bytes as a request of one type (BEAMD_FUZZ_MESSAGE), through what the daemon and its
// children do with it before LLVM does anything: parsing, unknown fields, options, the graph's
// checks, its canonical form and hash, scheduling, gradients, opts, lowering.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/lower/pipeline.h"
#include "engine/tensor/graph_gradient.h"
#include "engine/uop/wire.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/execution/schedule_graph.h"
#include "server/services/validate.h"
#include "server/sessions/graph_use.h"
#include "server/tuning/imported.h"
#include "server/tuning/options.h"
#include "server/tuning/parse_kernel.h"
#include "server/workers/codec.h"
#include "tests/fuzz/mutate.h"

// What reads this file alone, without a target's flags, reads it as one of them.
#ifndef BEAMD_FUZZ_MESSAGE
#define BEAMD_FUZZ_MESSAGE ShowRequest
#endif

// libFuzzer's own mutator.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace beamd {
namespace {

// Small: what takes a limit's worth of work isn't a hang.
constexpr KernelLimits kLimits = {.graph = {.max_nodes = 256, .max_rank = 12},
                                  .buffer_bytes = int64_t{1} << 40};
constexpr int64_t kMaxUops = 2000;

void Take(const v1::Graph& graph) {
  const absl::StatusOr<ParsedKernel> parsed = ParseKernel(graph, kLimits);
  if (!parsed.ok()) return;
  // What is kept must be what comes back.
  const absl::StatusOr<ParsedKernel> again = ParseKernel(parsed->canonical, kLimits);
  BEAMD_CHECK(again.ok(), again.status().ToString());
  BEAMD_CHECK(again->hash == parsed->hash, "a canonical graph has another hash");
}

void Take(const v1::SearchOptions& search) {
  const absl::StatusOr<v1::SearchOptions> options = ResolveOptions(search, DefaultSearchOptions());
  if (options.ok()) KeyOptions(*options);
}

void Take(const v1::TuneRequest& request) {
  Take(request.search());
  ResolveBudget(request).status().IgnoreError();
  Take(request.graph());
}

void Take(const v1::LookupRequest& request) {
  for (const v1::LookupQuery& query : request.queries()) {
    Take(query.search());
    Take(query.graph());
  }
}

void Take(const v1::TuneBatchRequest& request) {
  if (request.has_begin() && request.begin().has_budget()) {
    v1::TuneRequest bound;
    *bound.mutable_budget() = request.begin().budget();
    ResolveBudget(bound).status().IgnoreError();
  }
  if (request.has_item()) Take(request.item().request());
}

void Take(const v1::ExportedRecord& from) {
  const absl::StatusOr<ParsedKernel> kernel = ParseKernel(from.graph(), kLimits);
  if (kernel.ok()) CheckImported(from.record(), *kernel).IgnoreError();
}

// As a compile worker does, up to LLVM.
void LowerFor(TargetKind kind, const v1::Graph& canonical, const WireOpts& opts, bool heuristic) {
  UOpGraph graph, lowered;
  const absl::StatusOr<UOp> ast = FromProto(canonical, graph);
  BEAMD_CHECK(ast.ok(), ast.status().ToString());
  const TargetCaps caps = CorpusTarget(kind);
  absl::StatusOr<Kernel> kernel = Kernel::Create(*ast, caps);
  if (!kernel.ok()) return;
  if (heuristic) {
    kernel = HandCodedOptimizations(*kernel);
  } else if (!kernel->ApplyAll(FromWire(opts)).ok()) {
    return;
  }
  Lower(*kernel, lowered, {.max_uops = kMaxUops}).status().IgnoreError();
}

void Take(const v1::ShowRequest& request) {
  const absl::StatusOr<ParsedKernel> parsed = ParseKernel(request.graph(), kLimits);
  if (!parsed.ok()) return;
  const std::string& kind = request.device().kind();
  LowerFor(kind == "cuda"  ? TargetKind::kCuda
           : kind == "hip" ? TargetKind::kHip
                           : TargetKind::kCpu,
           parsed->canonical, request.opts(), request.heuristic());
}

// As a compile worker does.
void Schedule(const v1::Graph& graph) {
  internal::PlanRequest plan;
  *plan.mutable_graph() = graph;
  internal::PlanReply reply;
  ScheduleGraph(plan, reply).IgnoreError();
}

// As a session and its runner do.
void Take(const v1::RunRequest& request) {
  const absl::StatusOr<GraphUse> use = ReadGraphUse(request.graph(), kLimits.graph.max_nodes);
  if (!use.ok()) return;
  std::vector<uint64_t> gradients;
  for (const uint64_t handle : request.gradients()) {
    const auto input = std::find_if(use->inputs.begin(), use->inputs.end(),
                                    [&](const GraphInput& i) { return i.handle == handle; });
    if (input == use->inputs.end()) return;
    gradients.push_back(static_cast<uint64_t>(input - use->inputs.begin()));
  }
  UOpGraph graph;
  std::vector<UOp> nodes;
  GraphLimits limits = kLimits.graph;
  limits.max_buffers = limits.max_nodes + 1;
  const absl::StatusOr<UOp> root = FromProto(use->graph, graph, limits, &nodes);
  if (!root.ok()) return;
  if (gradients.empty()) return Schedule(use->graph);
  const absl::StatusOr<UOp> with_gradients = GradientGraph(*root, gradients, nodes);
  if (with_gradients.ok()) Schedule(ToProto(*with_gradients));
}

void Take(const v1::ScheduleModelRequest& request) {
  Take(request.search());
  if (request.graph().nodes_size() <= kLimits.graph.max_nodes) Schedule(request.graph());
}

void TakeKey(const std::string& key) {
  const absl::StatusOr<Digest> digest = Digest::FromHex(key);
  if (digest.ok()) BEAMD_CHECK(*Digest::FromHex(digest->Hex()) == *digest, key);
}

void Take(const v1::GetRecordRequest& request) { TakeKey(request.key()); }
void Take(const v1::ExplainRequest& request) { TakeKey(request.key()); }
void Take(const v1::ReplayRequest& request) { TakeKey(request.key()); }
void Take(const v1::ExportRequest& request) { TakeKey(request.kernel_hash()); }
void Take(const v1::ResolveRequest& request) {
  for (const std::string& key : request.keys()) TakeKey(key);
}
void Take(const v1::ListRecordsRequest& request) {
  TakeKey(request.page_token());
  TakeKey(request.kernel_hash());
}

// Requests that are fields and nothing more.
[[maybe_unused]] void Take(const google::protobuf::Message&) {}

}  // namespace
}  // namespace beamd

// Mostly changes what a request says: of the bytes that libFuzzer changes as bytes, few are a
// request afterwards, and what is behind the parser sees next to none.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::mt19937_64 random(seed);
  beamd::v1::BEAMD_FUZZ_MESSAGE request;
  if (random() % 4 != 0 && request.ParseFromArray(data, static_cast<int>(size))) {
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      beamd::testing::MutateFields(request, random);
    }
    const size_t changed = request.ByteSizeLong();
    if (changed <= max_size && request.SerializeToArray(data, static_cast<int>(changed))) {
      return changed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// Some of what `other` says, said here.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data, size_t size, const uint8_t* other,
                                            size_t other_size, uint8_t* out, size_t max_size,
                                            unsigned seed) {
  std::mt19937_64 random(seed);
  beamd::v1::BEAMD_FUZZ_MESSAGE into, from;
  if (!into.ParseFromArray(data, static_cast<int>(size)) ||
      !from.ParseFromArray(other, static_cast<int>(other_size))) {
    return 0;
  }
  for (uint64_t parts = 1 + random() % 3; parts > 0; --parts) {
    beamd::testing::Splice(from, into, random);
  }
  const size_t spliced = into.ByteSizeLong();
  if (spliced > max_size || !into.SerializeToArray(out, static_cast<int>(spliced))) return 0;
  return spliced;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  beamd::v1::BEAMD_FUZZ_MESSAGE request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (beamd::CheckKnown(request).ok()) beamd::Take(request);
  return 0;
}
