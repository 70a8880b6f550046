// libFuzzer: bytes as a request of one type (BEAMD_FUZZ_MESSAGE), through what the daemon does with
// it before anything is compiled: parsing, unknown fields, options, the graph's checks, its
// canonical form and hash.
#include <cstddef>
#include <cstdint>

#include "engine/base/status.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/services/validate.h"
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

void Take(const v1::ShowRequest& request) { Take(request.graph()); }

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
