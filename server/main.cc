// beamd: the daemon, and the workers and runners that it starts as copies of itself.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/kernel/cost.h"
#include "engine/kernel/kernel.h"
#include "server/auth/access.h"
#include "server/auth/audit.h"
#include "server/auth/gate.h"
#include "server/config/config_file.h"
#include "server/config/serve_config.h"
#include "server/execution/session_handler.h"
#include "server/metrics/http.h"
#include "server/metrics/log.h"
#include "server/metrics/metrics.h"
#include "server/metrics/spans.h"
#include "server/preflight.h"
#include "server/services/credentials.h"
#include "server/services/server.h"
#include "server/sessions/session_table.h"
#include "server/store/store.h"
#include "server/systemd.h"
#include "server/tuning/beam_searcher.h"
#include "server/tuning/measured_pipeline.h"
#include "server/tuning/options.h"
#include "server/tuning/parse_kernel.h"
#include "server/tuning/tuner.h"
#include "server/workers/canary.h"
#include "server/workers/child_main.h"
#include "server/workers/codec.h"
#include "server/workers/compile_handler.h"
#include "server/workers/fleet.h"
#include "server/workers/probe_handler.h"
#include "server/workers/process_pipeline.h"
#include "server/workers/runner_handler.h"
#include "server/workers/spawn.h"
#include "server/workers/supervisor.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// A device as many are, by the second: kernels that were never timed are compared by it.
constexpr double kUsualOperations = 50e9;
constexpr double kUsualBytes = 10e9;

TunerParts MakeParts(Supervisor& supervisor, const Fleet& fleet, const BeamSearcher& searcher,
                     absl::Duration run_timeout, const KernelLimits& limits, Metrics& metrics) {
  TunerParts parts;
  parts.parse = [limits](const v1::Graph& graph) { return ParseKernel(graph, limits); };
  parts.applies = [](const ParsedKernel& kernel, const TargetCaps& caps,
                     const std::vector<Opt>& opts) {
    absl::StatusOr<Kernel> fresh = Kernel::Create(kernel.sink, caps);
    return fresh.ok() && fresh->ApplyAll(opts).ok();
  };
  parts.quarantine = [&supervisor](const TuningDevice& device) {
    return supervisor.Quarantine(device.runner);
  };
  parts.heuristic = [](const ParsedKernel& kernel,
                       const TargetCaps& caps) -> absl::StatusOr<std::vector<Opt>> {
    BEAMD_ASSIGN_OR_RETURN(const Kernel fresh, Kernel::Create(kernel.sink, caps));
    return HandCodedOptimizations(fresh).applied_opts();
  };
  parts.estimate = [](const ParsedKernel& kernel) {
    const KernelCost cost = CostOf(kernel.sink);
    return std::max(cost.operations / kUsualOperations, cost.bytes / kUsualBytes);
  };
  parts.make_pipeline = [&supervisor, &fleet, &metrics, run_timeout](
                            const ParsedKernel& kernel, const TuningDevice& device,
                            const v1::SearchOptions& options, PipelineUse use,
                            CancelToken& token) -> std::unique_ptr<CandidatePipeline> {
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor.NewId());
    *context->mutable_graph() = kernel.canonical;
    *context->mutable_caps() = ToFrame(SearchedCaps(device.caps, options));
    context->set_seed(options.seed());
    const int parallel =
        options.parallel() == 0 ? fleet.worker_count : static_cast<int>(options.parallel());
    auto pipeline = std::make_unique<ProcessPipeline>(
        supervisor, std::move(context),
        PipelineOptions{
            .workers = fleet.workers,
            .runner = device.runner,
            .compile_parallelism = parallel,
            .compile_limit = absl::Seconds(options.compile_timeout().seconds()) +
                             absl::Nanoseconds(options.compile_timeout().nanos()),
            .max_uops = options.uops_max(),
            .run_limit = run_timeout,
            .trace = std::move(use.trace),
            .claim = std::move(use.claim),
            .haste = use.haste,
            .charge =
                [charge = std::move(use.charge), &metrics, id = device.id](absl::Duration took) {
                  if (took <= absl::ZeroDuration()) return;
                  metrics.Ran(id, took);
                  if (charge) charge(took);
                }},
        token);
    return Measured(std::move(pipeline), metrics);
  };
  parts.search = [&searcher](const SearchJob& job, CandidatePipeline& pipeline) {
    return searcher.Search(job, pipeline);
  };
  return parts;
}

KernelLimits KernelLimitsOf(const ServeConfig& config) {
  return {.graph = {.max_nodes = static_cast<int>(config.graph_nodes),
                    .max_rank = static_cast<int>(config.graph_rank),
                    .max_elements = config.graph_elements},
          .buffer_bytes = config.buffer_bytes};
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// Blocks what Serve waits for, in this thread and all that it starts.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // A file at its limit is a write that fails, like any other.
  signal(SIGXFSZ, SIG_IGN);
  return signals;
}

// Every connection and file takes one.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What is read again on SIGHUP.
struct Reloadable {
  std::unique_ptr<Certificates> certificates;  // null: no TLS
  std::unique_ptr<Audit> audit;
  std::unique_ptr<SpanFile> spans;
};

absl::Status LoadAccess(const std::string& path, Gate& gate) {
  if (path.empty()) return absl::OkStatus();
  BEAMD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  BEAMD_ASSIGN_OR_RETURN(Access access, Access::Parse(text));
  gate.SetAccess(std::make_shared<const Access>(std::move(access)));
  return absl::OkStatus();
}

absl::StatusOr<Reloadable> OpenReloadable(const ServeConfig& config) {
  Reloadable files;
  if (!config.tls_cert.empty()) {
    BEAMD_ASSIGN_OR_RETURN(
        files.certificates,
        Certificates::Load(
            {.cert = config.tls_cert, .key = config.tls_key, .client_ca = config.tls_client_ca}));
  }
  if (!config.audit_file.empty()) {
    BEAMD_ASSIGN_OR_RETURN(files.audit, Audit::Open(config.audit_file));
  }
  if (!config.spans_file.empty()) {
    BEAMD_ASSIGN_OR_RETURN(files.spans, SpanFile::Open(config.spans_file));
  }
  return files;
}

// What is at fault stays as it was, and is logged; the rest is taken: a faulty certificate must not
// keep a revoked token valid. `access_file`: the one that counts, where the config names no other.
void Reload(const std::vector<std::string>& args, const Reloadable& files, std::string& access_file,
            Gate& gate) {
  ServeConfig config;
  std::vector<absl::Status> done;
  for (const std::string& fault : ReadServeConfig(args, config)) {
    done.push_back(absl::InvalidArgumentError(fault));
  }
  if (!config.access_file.empty()) access_file = config.access_file;
  done.push_back(LoadAccess(access_file, gate));
  // A file that can't be read names no level; a level that is none is among the faults.
  if (config.config.empty() || ReadTextFile(config.config).ok()) {
    SetLogLevel(config.log_level).IgnoreError();
  }
  if (files.certificates != nullptr) done.push_back(files.certificates->Reload());
  if (files.audit != nullptr) done.push_back(files.audit->Reopen());
  if (files.spans != nullptr) done.push_back(files.spans->Reopen());
  bool all = true;
  for (const absl::Status& status : done) {
    if (status.ok()) continue;
    all = false;
    spdlog::error("reload: {}", status.ToString());
  }
  if (all) spdlog::info("reloaded");
}

void SampleChildren(const Supervisor& supervisor, const Fleet& fleet, std::vector<Sample>& out) {
  const auto pool = [&](PoolId id, const std::string& name) {
    const PoolState state = supervisor.State(id);
    const auto busy = std::count_if(state.children.begin(), state.children.end(),
                                    [](const ChildState& child) { return child.busy; });
    int64_t resident = 0;
    for (const ChildState& child : state.children) resident += child.resident_bytes;
    const auto add = [&](const char* metric, const char* help, Sample::Kind kind, double value) {
      out.push_back(
          {.name = metric, .help = help, .kind = kind, .labels = {{"pool", name}}, .value = value});
    };
    add("beamd_children", "Workers or runners that are up.", Sample::kGauge,
        static_cast<double>(state.children.size()));
    add("beamd_children_busy", "Of those, at work.", Sample::kGauge, static_cast<double>(busy));
    add("beamd_children_resident_bytes", "Their resident memory.", Sample::kGauge,
        static_cast<double>(resident));
    add("beamd_child_tasks_total", "Tasks that children ended.", Sample::kCounter,
        static_cast<double>(state.tasks_done));
    for (const auto& [reason, count] : state.replaced) {
      out.push_back({.name = "beamd_children_replaced_total",
                     .help = "Workers and runners replaced, by reason.",
                     .kind = Sample::kCounter,
                     .labels = {{"pool", name}, {"reason", reason}},
                     .value = static_cast<double>(count)});
    }
  };
  pool(fleet.workers, "worker");
  for (const FleetDevice& device : fleet.devices) {
    pool(device.runner, absl::StrCat("runner ", device.description.id()));
  }
}

void SampleQueue(const Tuner& tuner, std::vector<Sample>& out) {
  const JobQueue::Load load = tuner.load();
  out.push_back({.name = "beamd_queue_length",
                 .help = "Jobs that wait.",
                 .value = static_cast<double>(load.waiting)});
  out.push_back({.name = "beamd_jobs_running",
                 .help = "Jobs that search.",
                 .value = static_cast<double>(load.running)});
  out.push_back({.name = "beamd_queue_age_seconds",
                 .help = "How long the first of the waiting jobs has waited.",
                 .value = absl::ToDoubleSeconds(load.oldest)});
}

void SampleSessions(const SessionTable& sessions, std::vector<Sample>& out) {
  const SessionTable::Load load = sessions.load();
  out.push_back({.name = "beamd_sessions",
                 .help = "Sessions that are open.",
                 .value = static_cast<double>(load.sessions)});
  out.push_back({.name = "beamd_session_bytes",
                 .help = "Memory of their buffers.",
                 .value = static_cast<double>(load.bytes)});
  out.push_back({.name = "beamd_session_buffers",
                 .help = "Their buffers' contents.",
                 .value = static_cast<double>(load.buffers)});
  for (const auto& [outcome, count] : load.runs) {
    out.push_back({.name = "beamd_session_runs_total",
                   .help = "Runs of tensor graphs, by how they ended.",
                   .kind = Sample::kCounter,
                   .labels = {{"outcome", outcome}},
                   .value = static_cast<double>(count)});
  }
}

void SampleStore(const Store& store, std::vector<Sample>& out) {
  double bytes = 0;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(store.directory(), error)) {
    // RocksDB removes files whenever it likes.
    const uintmax_t size = file.file_size(error);
    if (!error) bytes += static_cast<double>(size);
  }
  out.push_back({.name = "beamd_store_bytes", .help = "Files of the store.", .value = bytes});
  const StoreHealth health = store.health();
  out.push_back({.name = "beamd_store_writable",
                 .help = "1 while the store takes writes.",
                 .value = health.writable ? 1.0 : 0.0});
  const auto count = [&](const char* name, const char* help, int64_t value) {
    out.push_back({.name = name,
                   .help = help,
                   .kind = Sample::kCounter,
                   .value = static_cast<double>(value)});
  };
  count("beamd_store_failed_writes_total", "Writes that the store did not take.",
        health.failed_writes);
  count("beamd_store_unreadable_total", "Values of the store that were met damaged.",
        health.unreadable);
  count("beamd_store_repairs_total", "Repairs of the store.", health.repairs);
}

void SampleAudit(const Audit& audit, std::vector<Sample>& out) {
  out.push_back({.name = "beamd_audit_failed_writes_total",
                 .help = "Lines that the audit's file did not take.",
                 .kind = Sample::kCounter,
                 .value = static_cast<double>(audit.failed_writes())});
}

// One that can't write its store answers all the same, and a restart would not mend it: it says so.
std::string HealthText(const Store& store, absl::string_view well) {
  const StoreHealth health = store.health();
  if (health.writable) return absl::StrCat(well, "\n");
  return absl::StrCat(well, ", degraded: the store takes no writes: ", health.why, "\n");
}

// Metrics and health while the daemon lives.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(const ServeConfig& config, Metrics& metrics,
                                                      const Store& store,
                                                      const std::atomic<bool>& ready) {
  if (config.http_listen.empty()) return nullptr;
  BEAMD_ASSIGN_OR_RETURN(
      std::unique_ptr<HttpServer> http,
      HttpServer::Start(
          config.http_listen,
          {{"/metrics",
            [&metrics] {
              return HttpAnswer{.body = metrics.Scrape(),
                                .content_type = "text/plain; version=0.0.4; charset=utf-8"};
            }},
           {"/healthz", [&store] { return HttpAnswer{.body = HealthText(store, "ok")}; }},
           {"/readyz", [&store, &ready] {
              return ready ? HttpAnswer{.body = HealthText(store, "ready")}
                           : HttpAnswer{.status = 503, .body = "not ready\n"};
            }}}));
  spdlog::info("http={}", http->address());
  return http;
}

// Until SIGTERM or SIGINT, which it returns.
int WaitForEnd(const sigset_t& signals, Server& server, const Store& store,
               const std::function<void()>& reload) {
  const absl::Duration watchdog = WatchdogInterval();
  const timespec interval = absl::ToTimespec(std::min(watchdog, absl::Hours(1)));
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &interval);
    if (signal == SIGHUP) {
      reload();
    } else if (signal > 0) {
      return signal;
    } else if (errno == EAGAIN && watchdog != absl::InfiniteDuration() &&
               (store.health().mending || server.Stalled() < watchdog)) {
      // A store that is repaired is at work; killed in the middle of it, it would start anew. A
      // queue that is long is no fault, as long as it moves.
      NotifySystemd("WATCHDOG=1");
    }
  }
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const ServeConfig& config) {
  const LongStart start;
  return Store::Open(config.store,
                     {.image_bytes = config.images_mb << 20, .jobs_kept = config.jobs_kept});
}

absl::Status Serve(const ServeConfig& config, const std::vector<std::string>& args) {
  BEAMD_ASSIGN_OR_RETURN(const v1::SearchOptions defaults, SearchDefaults(config));
  BEAMD_ASSIGN_OR_RETURN(const FleetOptions fleet_options, FleetOptionsOf(config));
  BEAMD_ASSIGN_OR_RETURN(const JobQueueOptions queue_options, QueueOptionsOf(config));
  const sigset_t signals = BlockSignals();
  RaiseDescriptorLimit();
  // Before there is a thread: what this process does must not show in the times.
  BEAMD_RETURN_IF_ERROR(BindToCores(fleet_options.compile_cores));
  BEAMD_ASSIGN_OR_RETURN(const Reloadable files, OpenReloadable(config));
  Gate gate({.calls_per_second = config.calls_per_second,
             .burst = static_cast<int64_t>(std::ceil(config.calls_per_second)),
             .streams = config.streams_per_client});
  BEAMD_RETURN_IF_ERROR(LoadAccess(config.access_file, gate));
  Metrics metrics;
  std::atomic<bool> ready = false;
  // The store first: a second daemon on it must not start a process.
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(config));
  store->SetObserver([&metrics](absl::string_view operation, absl::Duration took) {
    metrics.StoreUsed(operation, took);
  });
  std::unique_ptr<CaptureFile> capture;
  if (!config.capture.empty()) {
    BEAMD_ASSIGN_OR_RETURN(capture, CaptureFile::Open(config.capture));
  }
  Supervisor supervisor(queue_options.weights);
  BEAMD_ASSIGN_OR_RETURN(const Fleet fleet, StartFleet(supervisor, fleet_options));
  metrics.AddSource(
      [&supervisor, &fleet](std::vector<Sample>& out) { SampleChildren(supervisor, fleet, out); });

  std::vector<TuningDevice> devices;
  for (const FleetDevice& from : fleet.devices) {
    // A device on which it can't be had serves without.
    absl::StatusOr<Canary> canary =
        MakeCanary(supervisor, fleet.workers, from.description.caps(), config.run_timeout);
    if (canary.ok()) {
      supervisor.SetCanary(from.runner, *std::move(canary));
    } else {
      spdlog::warn("device={} has no known kernel: {}", from.description.id(),
                   canary.status().ToString());
    }
    devices.push_back({.id = from.description.id(),
                       .caps = FromFrame(from.description.caps()),
                       .environment = from.description.environment(),
                       .runner = from.runner});
    spdlog::info("device={} model=\"{}\" arch={} llvm={}", from.description.id(),
                 from.description.environment().model(), from.description.environment().arch(),
                 from.description.environment().llvm());
  }
  for (const v1::Driver& driver : fleet.drivers) {
    if (!driver.why().empty()) spdlog::info("driver={} none: {}", driver.name(), driver.why());
  }
  for (const FailedDevice& failed : fleet.failed) {
    spdlog::warn("device={} doesn't start: {}", failed.id, failed.why);
  }
  const std::string build = absl::StrCat("beamd ", kBeamdVersion);
  const BeamSearcher searcher(*store, capture.get());
  Tuner tuner(
      *store, std::move(devices),
      MakeParts(supervisor, fleet, searcher, config.run_timeout, KernelLimitsOf(config), metrics),
      {.defaults = defaults,
       .queue = queue_options,
       .device_seconds_a_day = config.principal_device_seconds,
       .host = HostName(),
       .build = build});
  SessionTable sessions({.limits = SessionLimitsOf(config),
                         .compile_cores = fleet_options.compile_cores,
                         .build = BuildId()},
                        supervisor, fleet, tuner, *store);
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                         Server::Start({.listen = config.listen,
                                        .unix_socket = config.unix_socket,
                                        .build = build,
                                        .batch_parallel = queue_options.concurrent,
                                        .certificates = files.certificates.get(),
                                        .client_certificates = !config.tls_client_ca.empty(),
                                        .access_file = !config.access_file.empty(),
                                        .message_bytes = static_cast<int>(config.message_bytes),
                                        .lookup_cache_bytes = config.lookup_cache_mb << 20,
                                        .desk = {.gate = &gate,
                                                 .metrics = &metrics,
                                                 .audit = files.audit.get(),
                                                 .spans = files.spans.get()}},
                                       tuner, *store, sessions, supervisor, fleet));
  metrics.AddSource([&tuner, &sessions, &store = *store](std::vector<Sample>& out) {
    SampleQueue(tuner, out);
    SampleSessions(sessions, out);
    SampleStore(store, out);
  });
  if (files.audit != nullptr) {
    metrics.AddSource(
        [&audit = *files.audit](std::vector<Sample>& out) { SampleAudit(audit, out); });
  }
  store->SetWatcher([&server, &tuner](bool writable) {
    server->ShowStore(writable);
    if (writable) tuner.StoreRecovered();
  });
  const absl::Cleanup unwatch = [&store] { store->SetWatcher(nullptr); };
  // After all that it shows.
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http,
                         StartHttp(config, metrics, *store, ready));
  // Last: a start that fails must not touch them.
  tuner.ResumeJobs();
  ready = true;
  NotifySystemd("READY=1");
  std::printf("ready %s\n", server->address().c_str());
  std::fflush(stdout);
  spdlog::info("serving on {}, store {}, {} workers", server->address(), config.store,
               fleet.worker_count);
  std::string access_file = config.access_file;
  const int signal =
      WaitForEnd(signals, *server, *store, [&] { Reload(args, files, access_file, gate); });
  spdlog::info("signal {}: draining", signal);
  ready = false;
  NotifySystemd("STOPPING=1");
  server->Drain(config.drain_timeout);
  spdlog::info("ended");
  return absl::OkStatus();
}

int Usage(absl::string_view why) {
  for (const absl::string_view line : absl::StrSplit(why, '\n')) {
    std::fprintf(stderr, "beamd: %s\n", std::string(line).c_str());
  }
  std::fputs("beamd --help says more.\n", stderr);
  return 2;
}

// All that is wrong, whatever of it is.
int CheckServe(const ServeConfig& config, std::vector<std::string> faults,
               const std::string& warning) {
  if (!warning.empty()) std::fprintf(stderr, "beamd: warning: %s\n", warning.c_str());
  for (const auto& check : {CheckFiles, CheckDevices}) {
    const std::vector<std::string> more = check(config);
    faults.insert(faults.end(), more.begin(), more.end());
  }
  return faults.empty() ? 0 : Usage(absl::StrJoin(faults, "\n"));
}

int RunServe(const std::vector<std::string>& args) {
  ServeConfig config;
  std::vector<std::string> faults = ReadServeConfig(args, config);
  const std::string warning = FitDescriptors(DescriptorLimit(), config);
  if (config.check_config) return CheckServe(config, faults, warning);
  for (std::string& fault : CheckPaths(config)) faults.push_back(std::move(fault));
  if (!faults.empty()) return Usage(absl::StrJoin(faults, "\n"));
  absl::Status status = StartLog({.level = config.log_level,
                                  .file = config.log_file,
                                  .file_bytes = config.log_file_mb << 20,
                                  .files = config.log_files});
  if (status.ok() && !warning.empty()) spdlog::warn("{}", warning);
  if (status.ok()) status = Serve(config, args);
  if (absl::IsInvalidArgument(status)) return Usage(status.message());
  if (status.ok()) return 0;
  std::fprintf(stderr, "beamd: %s\n", std::string(status.message()).c_str());
  return 1;
}

int RunToken(const std::vector<std::string>& args) {
  const std::optional<Role> role = args.size() == 2 ? ParseRole(args[1]) : std::nullopt;
  if (!role) return Usage("token wants NAME and a role: reader, submitter, importer or admin");
  const absl::StatusOr<NewToken> made = MakeToken(args[0], *role);
  if (!made.ok()) return Usage(made.status().message());
  std::printf("%s\n", made->token.c_str());
  std::fprintf(stderr, "The access file wants this line:\n%s\n", made->line.c_str());
  return 0;
}

// "0,2".
std::vector<int> Cores(const std::string& list) {
  std::vector<int> cores;
  for (const absl::string_view text : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    int core = 0;
    if (absl::SimpleAtoi(text, &core)) cores.push_back(core);
  }
  return cores;
}

int RunChildProcess(const std::string& kind, const std::vector<std::string>& args) {
  BindToParent(args);
  if (kind == "worker") {
    CompileHandler handler;
    return RunChild(args, handler);
  }
  if (kind == "probe") {
    ProbeHandler handler;
    return RunChild(args, handler);
  }
  if (kind == "session") {
    SessionHandler handler({.device = ChildFlag(args, "device", "cpu:0"),
                            .compile_cores = Cores(ChildFlag(args, "compile_cores", "")),
                            .device_cores = Cores(ChildFlag(args, "device_cores", ""))});
    return RunChild(args, handler);
  }
  RunnerHandler handler(ChildFlag(args, "device", "cpu:0"));
  return RunChild(args, handler);
}

int Run(const std::vector<std::string>& args) {
  if (std::find(args.begin(), args.end(), "--help") != args.end()) {
    ServeConfig config = DefaultServeConfig();
    std::fputs(ServeCommandLine(config).Help().c_str(), stdout);
    return 0;
  }
  if (args.empty()) return Usage("no command");
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "serve") return RunServe(rest);
  if (args[0] == "token") return RunToken(rest);
  if (args[0] == "worker" || args[0] == "runner" || args[0] == "session" || args[0] == "probe") {
    return RunChildProcess(args[0], rest);
  }
  return Usage("no command " + args[0]);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) { return beamd::Run({argv + 1, argv + argc}); }
