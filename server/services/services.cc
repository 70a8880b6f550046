#include "server/services/services.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/gpu_target.h"
#include "engine/base/status.h"
#include "engine/base/target_caps.h"
#include "server/services/lasting_answer.h"
#include "server/services/reply.h"
#include "server/services/tune_stream.h"
#include "server/tuning/options.h"
#include "server/workers/cancel.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

constexpr int kLookupsMax = 10000;
// That are answered at one turn: some ten milliseconds.
constexpr int kLookupsATurn = 100;
// Of one Show: compiling, and printing what may be large.
constexpr absl::Duration kShowLimit = absl::Seconds(30);

void ToProto(const PoolState& state, v1::ProcessPool& pool) {
  for (const ChildState& from : state.children) {
    v1::ChildProcess& child = *pool.add_children();
    child.set_pid(from.pid);
    child.set_tasks_done(from.tasks_done);
    child.set_busy(from.busy);
    child.set_resident_bytes(static_cast<uint64_t>(from.resident_bytes));
  }
  pool.set_tasks_done(state.tasks_done);
  pool.mutable_replaced()->insert(state.replaced.begin(), state.replaced.end());
  if (state.hello) *pool.mutable_sandbox() = state.hello->sandbox();
}

Digest HashOf(const grpc::ByteBuffer& bytes) {
  grpc::Slice whole;
  if (!bytes.DumpToSingleSlice(&whole).ok()) return {};
  return HashBytes({reinterpret_cast<const char*>(whole.begin()), whole.size()});
}

// As metrics name them.
const char* Name(const v1::LookupAnswer& answer) {
  if (!answer.has_hit()) return answer.has_miss() ? "miss" : "error";
  switch (answer.hit().match()) {
    case v1::MATCH_SAME_ARCH:
      return "same_arch";
    case v1::MATCH_ANY:
      return "any";
    default:
      return "strict";
  }
}

Matches MatchesOf(const v1::LookupResponse& response) {
  Matches matches;
  matches.reserve(static_cast<size_t>(response.answers_size()));
  for (const v1::LookupAnswer& answer : response.answers()) matches.emplace_back(Name(answer));
  return matches;
}

// Where the worker's pass or opts were at fault, what it said; else what became of the worker.
absl::Status ShowStatus(const TaskEnd& end) {
  switch (end.outcome) {
    case TaskOutcome::kDone: {
      const internal::ShowReply& reply = end.reply.shown();
      return {static_cast<absl::StatusCode>(reply.code()), reply.message()};
    }
    case TaskOutcome::kTimeout:
      return absl::DeadlineExceededError("the worker overran its limit");
    case TaskOutcome::kMemory:
      return absl::ResourceExhaustedError("the worker passed its memory limit");
    case TaskOutcome::kUnavailable:
    case TaskOutcome::kCancelled:
      return absl::UnavailableError("no worker");
    case TaskOutcome::kCrash:
    case TaskOutcome::kGarbage:
      return absl::InternalError(absl::StrCat("the worker failed: ", end.detail));
  }
  return absl::InternalError("no outcome");
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* TunerService::Tune(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  return StartTuneStream(
      "Tuner.Tune", std::make_unique<v1::TuneRequest>(),
      [this](const google::protobuf::Message& request, const Caller& caller,
             std::function<void()> changed) {
        return tuner_.Tune(static_cast<const v1::TuneRequest&>(request), caller,
                           std::move(changed));
      },
      [this](const google::protobuf::Message& request, AuditObject& object) {
        NameKernel(tuner_, static_cast<const v1::TuneRequest&>(request).graph(), object);
      },
      desk_, context, request);
}

struct TunerService::LookupCall {
  std::shared_ptr<UnaryCall> call;
  grpc::CallbackServerContext* context = nullptr;
  // What the answer is kept by.
  Digest name;
  uint64_t version = 0;
  v1::LookupRequest request;
  v1::LookupResponse response;
};

void TunerService::Answer(const std::shared_ptr<LookupCall>& lookup) {
  UnaryCall& call = *lookup->call;
  v1::LookupResponse& response = lookup->response;
  if (lookup->context->IsCancelled()) return call.Fail(absl::CancelledError("nobody waits for it"));
  const int all = lookup->request.queries_size();
  const int end = std::min(all, response.answers_size() + kLookupsATurn);
  for (int i = response.answers_size(); i < end; ++i) {
    absl::StatusOr<v1::LookupAnswer> answer = tuner_.Lookup(lookup->request.queries(i));
    if (answer.ok()) {
      *response.add_answers() = *std::move(answer);
    } else if (answer.status().code() == absl::StatusCode::kInvalidArgument) {
      *response.add_answers()->mutable_error() = ToErrorDetail(answer.status());
    } else {
      return call.Fail(answer.status());
    }
  }
  if (end < all) return Post(lookup->call, [this, lookup] { Answer(lookup); });
  const grpc::ByteBuffer bytes = ToBytes(response);
  auto matches = std::make_shared<const Matches>(MatchesOf(response));
  Count(*matches);
  if (IsLasting(response)) {
    cache_.Put(lookup->name, lookup->version, {bytes, std::move(matches)},
               static_cast<int64_t>(bytes.Length()));
  }
  call.FinishWith(bytes);
}

void TunerService::Count(const Matches& matches) const {
  for (const std::string& match : matches) desk_.metrics()->CacheAnswered(match);
}

RawUnary TunerService::Lookup(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Tuner.Lookup");
  RawUnary reactor = call->reactor();
  // Before the answer is made: a record that is written meanwhile makes it old.
  const uint64_t version = store_.sequence();
  const Digest name = HashOf(*request);
  if (call->visit().admitted.ok()) {
    if (const auto known = cache_.Find(name, version)) {
      // Short enough for gRPC's own thread: no graph is parsed, nothing waits.
      Count(*known->matches);
      call->FinishWith(known->bytes);
      return reactor;
    }
  }
  Receive<v1::LookupRequest>(call, [this, call, context, version, name](v1::LookupRequest& req) {
    if (req.queries_size() > kLookupsMax) {
      return call->Fail(
          InvalidArgument(absl::StrCat(req.queries_size(), " queries, the limit is ", kLookupsMax),
                          {.reason = "TOO_MANY",
                           .field = "queries",
                           .limit = kLookupsMax,
                           .value = req.queries_size()}));
    }
    auto lookup = std::make_shared<LookupCall>();
    lookup->call = call;
    lookup->context = context;
    lookup->name = name;
    lookup->version = version;
    lookup->request.Swap(&req);
    Answer(lookup);
  });
  return reactor;
}

RawUnary DevicesService::List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) {
  return Reply<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Devices.List"),
      [this](const v1::ListDevicesRequest&, v1::ListDevicesResponse& resp) {
        resp.set_build(build_);
        resp.mutable_protection()->Add(protection_.begin(), protection_.end());
        if (const StoreHealth health = store_.health(); !health.writable) {
          resp.set_store_fault(health.why.empty() ? "unknown" : health.why);
        }
        ToProto(supervisor_.State(fleet_.workers), *resp.mutable_workers());
        for (const FleetDevice& from : fleet_.devices) Describe(from, *resp.add_devices());
        for (const FailedDevice& from : fleet_.failed) {
          v1::Device& device = *resp.add_devices();
          device.set_id(from.id);
          device.set_state(v1::DEVICE_STATE_FAILED);
          device.set_why(from.why);
        }
        *resp.mutable_drivers() = {fleet_.drivers.begin(), fleet_.drivers.end()};
        return absl::OkStatus();
      });
}

void DevicesService::Describe(const FleetDevice& from, v1::Device& to) const {
  to.set_id(from.description.id());
  *to.mutable_environment() = from.description.environment();
  const PoolState state = supervisor_.State(from.runner);
  to.set_state(!state.quarantine.empty() ? v1::DEVICE_STATE_QUARANTINED
               : state.children.empty()  ? v1::DEVICE_STATE_RESTARTING
                                         : v1::DEVICE_STATE_READY);
  to.set_why(state.quarantine);
  if (state.condition) *to.mutable_condition() = *state.condition;
  ToProto(state, *to.mutable_runners());
  to.mutable_cores()->Add(from.cores.begin(), from.cores.end());
}

RawUnary DevicesService::Release(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Reply<v1::ReleaseDeviceRequest, v1::Device>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Devices.Release"),
      [this](const v1::ReleaseDeviceRequest& req, v1::Device& resp) -> absl::Status {
        for (const FleetDevice& device : fleet_.devices) {
          if (device.description.id() != req.id()) continue;
          if (!supervisor_.Release(device.runner)) {
            return WithDetail(
                absl::FailedPreconditionError(absl::StrCat(req.id(), " is not in quarantine")),
                {.reason = "NOT_QUARANTINED", .field = "id"});
          }
          Describe(device, resp);
          return absl::OkStatus();
        }
        return WithDetail(absl::NotFoundError(absl::StrCat("no device ", req.id())),
                          {.reason = "NO_SUCH_DEVICE", .field = "id"});
      });
}

RawUnary InspectorService::Show(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Inspector.Show");
  // Answered by the worker's callback: no thread waits for it.
  Receive<v1::ShowRequest>(call, [this, call](const v1::ShowRequest& req) {
    if (const absl::Status status = SubmitShow(req, call); !status.ok()) call->Fail(status);
  });
  return call->reactor();
}

RawUnary InspectorService::Replay(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  // Nobody waits for it: it needn't go on.
  const auto gone = std::make_shared<CancelToken>();
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Inspector.Replay", gone);
  return Reply<v1::ReplayRequest, v1::ReplayResponse>(
      call,
      [this, gone, caller = call->visit().caller()](const v1::ReplayRequest& req,
                                                    v1::ReplayResponse& resp) -> absl::Status {
        // It blocks one of the desk's threads; the others are for everybody else.
        if (replaying_.exchange(true)) {
          return WithDetail(absl::ResourceExhaustedError("another candidate is being replayed"),
                            {.reason = "REPLAYING", .limit = 1, .value = 2});
        }
        absl::StatusOr<v1::ReplayResponse> replayed = tuner_.Replay(req, caller, gone);
        replaying_ = false;
        BEAMD_RETURN_IF_ERROR(replayed.status());
        resp = *std::move(replayed);
        return absl::OkStatus();
      });
}

namespace {

// What to show code for: a device here, or a GPU by its name, which needn't be here.
absl::StatusOr<TargetCaps> ShownTarget(const Tuner& tuner, const v1::ShowRequest& request) {
  BEAMD_ASSIGN_OR_RETURN(const v1::SearchOptions options,
                         ResolveOptions(request.search(), tuner.defaults()));
  const v1::DeviceSelector& selector = request.device();
  const absl::StatusOr<const TuningDevice*> device = tuner.SelectDevice(selector);
  if (device.ok()) return SearchedCaps((*device)->caps, options);
  if (!selector.id().empty() || selector.arch().empty()) return device.status();
  absl::StatusOr<TargetCaps> caps = GpuByName(selector.arch());
  if (!caps.ok()) return device.status();
  const TargetKind kind = caps->kind;
  if (selector.kind() != (kind == TargetKind::kCuda ? "cuda" : "hip")) return device.status();
  return SearchedCaps(*std::move(caps), options);
}

}  // namespace

absl::Status InspectorService::SubmitShow(const v1::ShowRequest& request,
                                          const std::shared_ptr<UnaryCall>& call) {
  BEAMD_ASSIGN_OR_RETURN(ParsedKernel kernel, tuner_.parts().parse(request.graph()));
  call->ActsOn("kernel", kernel.hash.Hex());
  BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, ShownTarget(tuner_, request));
  auto kernel_context = std::make_shared<internal::AddContext>();
  kernel_context->set_id(supervisor_.NewId());
  *kernel_context->mutable_graph() = std::move(kernel.canonical);
  *kernel_context->mutable_caps() = ToFrame(caps);
  PoolTask task{.owner = supervisor_.NewId(), .context = kernel_context, .limit = kShowLimit};
  task.request.set_trace(call->visit().trace.id);
  internal::ShowRequest& show = *task.request.mutable_show();
  show.set_context(kernel_context->id());
  *show.mutable_opts() = request.opts();
  show.set_heuristic(request.heuristic());
  show.set_pass(request.pass());
  task.done = [this, call, id = kernel_context->id()](const TaskEnd& end) {
    supervisor_.DropContext(id);
    v1::ShowResponse response;
    const internal::ShowReply& reply = end.reply.shown();
    response.set_text(reply.text());
    *response.mutable_opts() = reply.opts();
    response.set_uop_count(static_cast<uint64_t>(reply.uop_count()));
    response.set_compile_s(static_cast<double>(reply.compile_ns()) * 1e-9);
    call->Finish(ShowStatus(end), response);
  };
  supervisor_.Submit(fleet_.workers, std::move(task));
  return absl::OkStatus();
}

}  // namespace beamd
