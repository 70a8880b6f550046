// beamd: the daemon, and the workers and runners that it starts as copies of itself.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "engine/base/command_line.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/kernel/kernel.h"
#include "server/services/server.h"
#include "server/store/store.h"
#include "server/tuning/beam_searcher.h"
#include "server/tuning/options.h"
#include "server/tuning/parse_kernel.h"
#include "server/tuning/tuner.h"
#include "server/workers/child_main.h"
#include "server/workers/codec.h"
#include "server/workers/compile_handler.h"
#include "server/workers/fleet.h"
#include "server/workers/process_pipeline.h"
#include "server/workers/runner_handler.h"
#include "server/workers/spawn.h"
#include "server/workers/supervisor.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

constexpr char kUsage[] = R"(beamd serve --store DIR [flags]

  serve     tunes kernels for clients; prints "ready ADDR" once it does
  worker    compiles, runner times: started by serve, not by hand

SIGTERM and SIGINT drain: new work is refused, running jobs get --drain_timeout to end.
Exit status: 0 ok, 2 usage, 1 else.
)";

constexpr int64_t kMegabyte = int64_t{1} << 20;

struct ServeFlags {
  std::string listen = "127.0.0.1:7070";
  std::string store;
  std::string log_level = "info";
  int64_t jobs = 1;
  int64_t queue = 1024;
  int64_t workers = 0;
  std::vector<int> compile_cores;
  std::vector<int> timing_cores;
  std::string devices = "cpu:0";
  int64_t worker_memory_mb = 4096;
  int64_t runner_memory_mb = 0;
  int64_t tasks_per_worker = 4096;
  absl::Duration run_timeout = absl::Seconds(60);
  absl::Duration drain_timeout = absl::Seconds(10);
  std::string capture;
  // Defaults of the search's options.
  int64_t width = 0;
  absl::Duration compile_timeout;
  int64_t uops_max = 0;
  int64_t upcast_max = 0;
  int64_t local_max = 0;
  int64_t max_global_size = 0;
  double min_progress_us = 0;
  bool padto = true;
};

// The flags begin as the options' own defaults.
ServeFlags MakeServeFlags() {
  ServeFlags flags;
  const v1::SearchOptions o = DefaultSearchOptions();
  flags.width = o.width();
  flags.compile_timeout = absl::Seconds(o.compile_timeout().seconds());
  flags.uops_max = o.uops_max();
  flags.upcast_max = o.upcast_max();
  flags.local_max = o.local_max();
  flags.max_global_size = o.max_global_size();
  flags.min_progress_us = o.min_progress_us();
  flags.padto = o.padto();
  // A kernel's buffers are as large as a client says: the host must not run out because of them.
  flags.runner_memory_mb = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / kMegabyte / 2;
  return flags;
}

CommandLine MakeCommandLine(ServeFlags& flags) {
  CommandLine line(kUsage);
  line.Add("listen", &flags.listen, "address to serve on; port 0 takes a free one");
  line.Add("store", &flags.store, "directory of records, timings and jobs; made if need be");
  line.Add("log_level", &flags.log_level, "trace, debug, info, warn, error");
  line.Add("jobs", &flags.jobs, "searches that run at once; others queue");
  line.Add("queue", &flags.queue, "jobs that may queue before new ones are refused");
  line.Add("workers", &flags.workers, "compile workers; 0: one for each compile core");
  line.Add("compile_cores", &flags.compile_cores, "cores of workers and daemon; else the others");
  line.Add("timing_cores", &flags.timing_cores, "cores that kernels are timed on; else the last");
  line.Add("devices", &flags.devices, "devices to own, with commas");
  line.Add("worker_memory_mb", &flags.worker_memory_mb,
           "a worker over it is replaced; 0: no limit");
  line.Add("runner_memory_mb", &flags.runner_memory_mb,
           "a runner over it is replaced; 0: no limit");
  line.Add("tasks_per_worker", &flags.tasks_per_worker,
           "compiles after which a worker is replaced; 0: never");
  line.Add("run_timeout", &flags.run_timeout, "of one timing batch, and of one check");
  line.Add("drain_timeout", &flags.drain_timeout, "what running jobs get at SIGTERM");
  line.Add("capture", &flags.capture, "file to append every candidate to");
  line.Add("width", &flags.width, "default of searches: beam width");
  line.Add("compile_timeout", &flags.compile_timeout, "default of searches: of one compile");
  line.Add("uops_max", &flags.uops_max, "default of searches: linear UOps of a candidate");
  line.Add("upcast_max", &flags.upcast_max, "default of searches: elements upcast together");
  line.Add("local_max", &flags.local_max, "default of searches: threads of a work-group");
  line.Add("max_global_size", &flags.max_global_size,
           "default of searches: points of a test launch");
  line.Add("min_progress_us", &flags.min_progress_us, "default of searches: least gain of a round");
  line.Add("padto", &flags.padto, "default of searches: PADTO is an action");
  return line;
}

absl::StatusOr<v1::SearchOptions> SearchDefaults(const ServeFlags& flags) {
  for (const int64_t value :
       {flags.width, flags.uops_max, flags.upcast_max, flags.local_max, flags.max_global_size}) {
    if (value < 0 || value > INT32_MAX) return absl::InvalidArgumentError("a limit out of range");
  }
  v1::SearchOptions o;
  o.set_width(static_cast<uint32_t>(flags.width));
  o.mutable_compile_timeout()->set_seconds(absl::ToInt64Seconds(flags.compile_timeout));
  o.mutable_compile_timeout()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(flags.compile_timeout) % 1000000000));
  o.set_uops_max(static_cast<uint32_t>(flags.uops_max));
  o.set_upcast_max(static_cast<uint32_t>(flags.upcast_max));
  o.set_local_max(static_cast<uint32_t>(flags.local_max));
  o.set_max_global_size(static_cast<uint32_t>(flags.max_global_size));
  o.set_min_progress_us(flags.min_progress_us);
  o.set_padto(flags.padto);
  return ResolveOptions(o, DefaultSearchOptions());
}

absl::StatusOr<FleetOptions> ToFleetOptions(const ServeFlags& flags) {
  if (flags.workers < 0 || flags.workers > 1024) {
    return absl::InvalidArgumentError("--workers is out of range");
  }
  FleetOptions options;
  options.workers = static_cast<int>(flags.workers);
  options.compile_cores = flags.compile_cores;
  options.timing_cores = flags.timing_cores;
  options.devices = absl::StrSplit(flags.devices, ',', absl::SkipEmpty());
  options.worker_memory_bytes = flags.worker_memory_mb * kMegabyte;
  options.runner_memory_bytes = flags.runner_memory_mb * kMegabyte;
  options.tasks_per_worker = flags.tasks_per_worker;
  return ChooseCores(std::move(options));
}

TunerParts MakeParts(Supervisor& supervisor, const Fleet& fleet, const BeamSearcher& searcher,
                     absl::Duration run_timeout) {
  TunerParts parts;
  parts.parse = ParseKernel;
  parts.applies = [](const ParsedKernel& kernel, const TargetCaps& caps,
                     const std::vector<Opt>& opts) {
    absl::StatusOr<Kernel> fresh = Kernel::Create(kernel.sink, caps);
    return fresh.ok() && fresh->ApplyAll(opts).ok();
  };
  parts.make_pipeline = [&supervisor, &fleet, run_timeout](
                            const ParsedKernel& kernel, const TuningDevice& device,
                            const v1::SearchOptions& options, std::string trace,
                            CancelToken& token) -> std::unique_ptr<CandidatePipeline> {
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor.NewId());
    *context->mutable_graph() = kernel.canonical;
    *context->mutable_caps() = ToFrame(device.caps);
    context->set_seed(options.seed());
    const int parallel =
        options.parallel() == 0 ? fleet.worker_count : static_cast<int>(options.parallel());
    return std::make_unique<ProcessPipeline>(
        supervisor, std::move(context),
        PipelineOptions{.workers = fleet.workers,
                        .runner = device.runner,
                        .compile_parallelism = parallel,
                        .compile_limit = absl::Seconds(options.compile_timeout().seconds()) +
                                         absl::Nanoseconds(options.compile_timeout().nanos()),
                        .max_uops = options.uops_max(),
                        .run_limit = run_timeout,
                        .trace = std::move(trace)},
        token);
  };
  parts.search = [&searcher](const SearchJob& job, CandidatePipeline& pipeline) {
    return searcher.Search(job, pipeline);
  };
  return parts;
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
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

absl::Status Serve(const ServeFlags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const v1::SearchOptions defaults, SearchDefaults(flags));
  BEAMD_ASSIGN_OR_RETURN(const FleetOptions fleet_options, ToFleetOptions(flags));
  const sigset_t signals = BlockSignals();
  // Before there is a thread: what this process does must not show in the times.
  BEAMD_RETURN_IF_ERROR(BindToCores(fleet_options.compile_cores));
  // The store first: a second daemon on it must not start a process.
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(flags.store));
  std::unique_ptr<CaptureFile> capture;
  if (!flags.capture.empty()) {
    BEAMD_ASSIGN_OR_RETURN(capture, CaptureFile::Open(flags.capture));
  }
  Supervisor supervisor;
  BEAMD_ASSIGN_OR_RETURN(const Fleet fleet, StartFleet(supervisor, fleet_options));

  std::vector<TuningDevice> devices;
  for (const FleetDevice& from : fleet.devices) {
    devices.push_back({.id = from.description.id(),
                       .caps = FromFrame(from.description.caps()),
                       .environment = from.description.environment(),
                       .runner = from.runner});
    spdlog::info("device={} model=\"{}\" arch={} llvm={}", from.description.id(),
                 from.description.environment().model(), from.description.environment().arch(),
                 from.description.environment().llvm());
  }
  const std::string build = absl::StrCat("beamd ", kBeamdVersion);
  const BeamSearcher searcher(*store, capture.get());
  Tuner tuner(*store, std::move(devices), MakeParts(supervisor, fleet, searcher, flags.run_timeout),
              {.defaults = defaults,
               .concurrent_jobs = static_cast<int>(std::clamp<int64_t>(flags.jobs, 1, 64)),
               .max_queued_jobs = static_cast<int>(std::clamp<int64_t>(flags.queue, 1, 1 << 20)),
               .host = HostName(),
               .build = build});
  BEAMD_RETURN_IF_ERROR(tuner.MarkInterruptedJobs());
  BEAMD_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> server,
      Server::Start({.listen = flags.listen, .build = build}, tuner, *store, supervisor, fleet));
  std::printf("ready %s\n", server->address().c_str());
  std::fflush(stdout);
  spdlog::info("serving on {}, store {}, {} workers", server->address(), flags.store,
               fleet.worker_count);
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("signal {}: draining", signal);
  server->Drain(flags.drain_timeout);
  spdlog::info("ended");
  return absl::OkStatus();
}

int Usage(absl::string_view why) {
  std::fprintf(stderr, "beamd: %s\nbeamd --help says more.\n", std::string(why).c_str());
  return 2;
}

int RunServe(const std::vector<std::string>& args) {
  ServeFlags flags = MakeServeFlags();
  const CommandLine line = MakeCommandLine(flags);
  const absl::StatusOr<std::vector<std::string>> rest = line.Parse(args);
  if (!rest.ok()) return Usage(rest.status().message());
  if (!rest->empty()) return Usage("serve takes no argument " + rest->front());
  if (flags.store.empty()) return Usage("serve wants --store DIR");
  const spdlog::level::level_enum level = spdlog::level::from_str(flags.log_level);
  if (level == spdlog::level::off) return Usage("no log level " + flags.log_level);
  // Standard output is for `ready`.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("beamd"));
  spdlog::set_level(level);
  const absl::Status status = Serve(flags);
  if (absl::IsInvalidArgument(status)) return Usage(status.message());
  if (status.ok()) return 0;
  std::fprintf(stderr, "beamd: %s\n", std::string(status.message()).c_str());
  return 1;
}

int RunChildProcess(const std::string& kind, const std::vector<std::string>& args) {
  BindToParent(args);
  if (kind == "worker") {
    CompileHandler handler;
    return RunChild(args, handler);
  }
  RunnerHandler handler(ChildFlag(args, "device", "cpu:0"));
  return RunChild(args, handler);
}

int Run(const std::vector<std::string>& args) {
  if (std::find(args.begin(), args.end(), "--help") != args.end()) {
    ServeFlags flags = MakeServeFlags();
    std::fputs(MakeCommandLine(flags).Help().c_str(), stdout);
    return 0;
  }
  if (args.empty()) return Usage("no command");
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "serve") return RunServe(rest);
  if (args[0] == "worker" || args[0] == "runner") return RunChildProcess(args[0], rest);
  return Usage("no command " + args[0]);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) { return beamd::Run({argv + 1, argv + argc}); }
