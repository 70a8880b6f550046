// libFuzzer: bytes as a request of one type (BEAMD_FUZZ_MESSAGE), through what the daemon does with
// it before anything is compiled: parsing, unknown fields, options, the graph's checks, its
// canonical form and hash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/hash.h"
#include "engine/base/status.h"
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

namespace beamd {
namespace {

// Small: what takes a limit's worth of work isn't a hang.
constexpr KernelLimits kLimits = {.graph = {.max_nodes = 256, .max_rank = 12},
                                  .buffer_bytes = int64_t{1} << 40};

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

void Take(const v1::ShowRequest& request) { Take(request.graph()); }

// As a compile worker and a session's runner do.
void Schedule(const v1::Graph& graph) {
  internal::PlanRequest plan;
  *plan.mutable_graph() = graph;
  internal::PlanReply reply;
  ScheduleGraph(plan, reply).IgnoreError();
}

void Take(const v1::RunRequest& request) {
  const absl::StatusOr<GraphUse> use = ReadGraphUse(request.graph(), kLimits.graph.max_nodes);
  if (use.ok()) Schedule(use->graph);
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

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  beamd::v1::BEAMD_FUZZ_MESSAGE request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (beamd::CheckKnown(request).ok()) beamd::Take(request);
  return 0;
}
