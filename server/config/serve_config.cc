#include "server/config/serve_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "server/auth/access.h"
#include "server/config/config_file.h"
#include "server/config/memory.h"
#include "server/tuning/options.h"

namespace beamd {
namespace {

constexpr char kUsage[] = R"(beamd serve --store DIR [flags]

  serve     tunes kernels for clients; prints "ready ADDR" once it does
  token     makes a bearer token: beamd token NAME ROLE
  worker    compiles, runner times, session runs graphs, probe looks for devices: started by serve,
            not by hand

A flag may stand in the file of --config, as `name: value` in protobuf's text format.
SIGTERM and SIGINT drain: new work is refused, running jobs get --drain_timeout to end.
SIGHUP reads certificates, the access file and the log level again and reopens the audit.
Exit status: 0 ok, 2 usage, 1 else.
)";

constexpr int64_t kMegabyte = int64_t{1} << 20;

class Faults {
 public:
  void Add(std::string fault) { lines_.push_back(std::move(fault)); }
  void Add(const absl::Status& status) {
    if (!status.ok()) lines_.emplace_back(status.message());
  }
  void Range(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    Add(absl::StrCat("--", flag, " must be ", least, " to ", most, ", not ", value));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

void CheckAddress(absl::string_view flag, const std::string& address, Faults& faults) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(absl::string_view(address).substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    faults.Add(absl::StrCat("--", flag, " wants HOST:PORT, not \"", address, "\""));
  }
}

void CheckAccess(const ServeConfig& c, Faults& faults) {
  for (const auto& [flag, path] :
       {std::pair("tls_cert", &c.tls_cert), std::pair("tls_key", &c.tls_key),
        std::pair("tls_client_ca", &c.tls_client_ca)}) {
    if (path->empty()) continue;
    const absl::StatusOr<std::string> text = ReadTextFile(*path);
    if (!text.ok()) {
      faults.Add(absl::StrCat("--", flag, ": ", text.status().message()));
    } else if (!absl::StrContains(*text, "-----BEGIN ")) {
      faults.Add(absl::StrCat("--", flag, ": ", *path, " is no PEM file"));
    }
  }
  if (c.tls_cert.empty() != c.tls_key.empty()) {
    faults.Add("--tls_cert and --tls_key go together");
  }
  if (!c.tls_client_ca.empty() && c.tls_cert.empty()) {
    faults.Add("--tls_client_ca wants --tls_cert and --tls_key");
  }
  if (!c.access_file.empty()) {
    const absl::StatusOr<std::string> text = ReadTextFile(c.access_file);
    if (!text.ok()) {
      faults.Add(absl::StrCat("--access_file: ", text.status().message()));
    } else if (const absl::Status access = Access::Parse(*text).status(); !access.ok()) {
      faults.Add(absl::StrCat("--access_file: ", c.access_file, ": ", access.message()));
    }
  }
  if (!IsLoopback(c.listen) && !c.insecure && (c.tls_cert.empty() || c.access_file.empty())) {
    faults.Add(absl::StrCat("--listen=", c.listen,
                            " is open to other machines: it wants --tls_cert, --tls_key and "
                            "--access_file, or --insecure"));
  }
  if (!c.http_listen.empty() && !IsLoopback(c.http_listen) && !c.http_public) {
    faults.Add(absl::StrCat("--http_listen=", c.http_listen,
                            " is open to other machines: it wants --http_public"));
  }
}

using Weights = std::map<std::string, double>;

// "10.0.0.7=2,local=0.5".
absl::StatusOr<Weights> ParseWeights(const std::string& text) {
  Weights weights;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    double weight = 0;
    if (pair.first.empty() || !absl::SimpleAtod(pair.second, &weight) ||
        !(weight > 0 && weight <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--weights wants NAME=WEIGHT, weights above 0, not \"", part, "\""));
    }
    weights[std::string(pair.first)] = weight;
  }
  return weights;
}

void CheckNumbers(const ServeConfig& c, Faults& faults) {
  constexpr int64_t kMost = int64_t{1} << 53;
  faults.Range("log_file_mb", c.log_file_mb, 1, 1 << 20);
  faults.Range("log_files", c.log_files, 1, 1000);
  // gRPC counts a message in an int.
  faults.Range("message_bytes", c.message_bytes, 1024, std::numeric_limits<int32_t>::max());
  faults.Range("graph_nodes", c.graph_nodes, 1, 1 << 24);
  faults.Range("graph_rank", c.graph_rank, 1, 32);
  faults.Range("graph_elements", c.graph_elements, 1, kMost);
  faults.Range("buffer_bytes", c.buffer_bytes, 1, kMost);
  faults.Range("streams_per_client", c.streams_per_client, 0, 1 << 20);
  if (!(c.calls_per_second >= 0) || !std::isfinite(c.calls_per_second)) {
    faults.Add("--calls_per_second must be 0 or above");
  }
  faults.Range("sessions", c.sessions, 0, 1 << 16);
  faults.Range("principal_sessions", c.principal_sessions, 0, 1 << 16);
  faults.Range("principal_share", c.principal_share, 0, 100);
  // Each is a descriptor and a mapping, and a process has 65,530 of those.
  faults.Range("session_buffers", c.session_buffers, 1, 32768);
  faults.Range("sessions_buffers", c.sessions_buffers, 1, 32768);
  faults.Range("session_mb", c.session_mb, 1, 1 << 30);
  faults.Range("sessions_mb", c.sessions_mb, 1, 1 << 30);
  faults.Range("chunk_kb", c.chunk_kb, 1, 1 << 20);
  faults.Range("shared_transfer_mb", c.shared_transfer_mb, 0, 1 << 20);
  faults.Range("session_plan_mb", c.session_plan_mb, 1, 1 << 30);
  faults.Range("queued_graphs_mb", c.queued_graphs_mb, 1, 1 << 30);
  faults.Range("jobs_kept", c.jobs_kept, 1, 1 << 24);
  faults.Range("images_mb", c.images_mb, 0, 1 << 30);
  faults.Range("inline_kb", c.inline_kb, 0, 1 << 20);
  faults.Range("session_runs", c.session_runs, 1, 1 << 20);
  faults.Range("lookup_cache_mb", c.lookup_cache_mb, 0, 1 << 20);
  faults.Range("jobs", c.jobs, 1, 64);
  faults.Range("interactive_jobs", c.interactive_jobs, 0, 64);
  faults.Range("queue", c.queue, 1, 1 << 20);
  faults.Range("principal_jobs", c.principal_jobs, 0, 1 << 20);
  if (!(c.principal_device_seconds >= 0)) {
    faults.Add("--principal_device_seconds must be 0 or above");
  }
  faults.Add(ParseWeights(c.weights).status());
  faults.Range("workers", c.workers, 0, 1024);
  faults.Range("worker_memory_mb", c.worker_memory_mb, 0, 1 << 30);
  faults.Range("runner_memory_mb", c.runner_memory_mb, 0, 1 << 30);
  faults.Range("tasks_per_worker", c.tasks_per_worker, 0, kMost);
  for (const auto& [flag, value] :
       {std::pair("drain_timeout", c.drain_timeout), std::pair("abandon_grace", c.abandon_grace)}) {
    if (value < absl::ZeroDuration()) faults.Add(absl::StrCat("--", flag, " can't be negative"));
  }
  // With none of it nothing could be done.
  for (const auto& [flag, value] :
       {std::pair("run_timeout", c.run_timeout), std::pair("session_lease", c.session_lease),
        std::pair("session_longest_lease", c.session_longest_lease),
        std::pair("session_run_timeout", c.session_run_timeout),
        std::pair("session_plan_timeout", c.session_plan_timeout)}) {
    if (value <= absl::ZeroDuration()) faults.Add(absl::StrCat("--", flag, " must be above 0"));
  }
  if (c.session_lease > c.session_longest_lease) {
    faults.Add("--session_lease can't be above --session_longest_lease");
  }
  for (const auto& [flag, value] :
       {std::pair("width", c.width), std::pair("uops_max", c.uops_max),
        std::pair("upcast_max", c.upcast_max), std::pair("local_max", c.local_max),
        std::pair("max_global_size", c.max_global_size)}) {
    faults.Range(flag, value, 0, std::numeric_limits<int32_t>::max());
  }
  faults.Range("tc", c.tc, 0, 2);
}

void CheckDevices(const ServeConfig& c, Faults& faults) {
  std::set<absl::string_view> seen;
  for (const absl::string_view device : absl::StrSplit(c.devices, ',', absl::SkipEmpty())) {
    if (!seen.insert(device).second) {
      faults.Add(absl::StrCat("--devices names ", device, " twice"));
    }
  }
}

}  // namespace

ServeConfig DefaultServeConfig() {
  ServeConfig config;
  const v1::SearchOptions o = DefaultSearchOptions();
  config.width = o.width();
  config.compile_timeout = absl::Seconds(o.compile_timeout().seconds());
  config.uops_max = o.uops_max();
  config.upcast_max = o.upcast_max();
  config.local_max = o.local_max();
  config.max_global_size = o.max_global_size();
  config.min_progress_us = o.min_progress_us();
  config.padto = o.padto();
  config.tc = o.tc();
  config.nolocals = o.nolocals();
  config.allow_tf32 = o.allow_tf32();
  // A kernel's buffers are as large as a client says: the host must not run out because of them.
  const int64_t half = MemoryBytes() / 2;
  config.runner_memory_mb = half / kMegabyte;
  config.buffer_bytes = half;
  config.session_mb = half / kMegabyte;
  config.sessions_mb = half / kMegabyte;
  return config;
}

CommandLine ServeCommandLine(ServeConfig& config) {
  CommandLine line(kUsage);
  line.Add("config", &config.config, "file of flags");
  line.Add("check_config", &config.check_config, "only say what is wrong with flags and files");
  line.Add("listen", &config.listen, "address to serve on; port 0 takes a free one");
  line.Add("store", &config.store, "directory of records, timings and jobs; made if need be");
  line.Add("log_level", &config.log_level, "trace, debug, info, warn, error");
  line.Add("log_file", &config.log_file,
           "log there, rotated, instead of to standard error; its folder must be there");
  line.Add("log_file_mb", &config.log_file_mb, "size at which a log file is rotated");
  line.Add("log_files", &config.log_files, "rotated log files to keep");
  line.Add("spans_file", &config.spans_file, "append a JSON line for each call's span there");
  line.Add("http_listen", &config.http_listen, "address of /metrics, /healthz and /readyz");
  line.Add("http_public", &config.http_public, "--http_listen may be open to other machines");
  line.Add("unix_socket", &config.unix_socket, "path to serve on too; callers are local users");
  line.Add("tls_cert", &config.tls_cert, "PEM file of the server's certificates");
  line.Add("tls_key", &config.tls_key, "PEM file of its key");
  line.Add("tls_client_ca", &config.tls_client_ca,
           "PEM file of who signs clients' certificates; then every client has one or a token");
  line.Add("access_file", &config.access_file, "who may do what; without it everybody may");
  line.Add("audit_file", &config.audit_file, "append who did what there");
  line.Add("insecure", &config.insecure, "--listen may be open without TLS and --access_file");
  line.Add("sandbox", &config.sandbox, "workers and runners give up what they don't need");
  line.Add("message_bytes", &config.message_bytes, "limit of a request");
  line.Add("graph_nodes", &config.graph_nodes, "limit of a kernel: nodes");
  line.Add("graph_rank", &config.graph_rank, "limit of a kernel: axes of a shape");
  line.Add("graph_elements", &config.graph_elements, "limit of a kernel: elements of a shape");
  line.Add("buffer_bytes", &config.buffer_bytes, "limit of a kernel: bytes of all its buffers");
  line.Add("streams_per_client", &config.streams_per_client,
           "streams that a principal may have open; 0: no limit");
  line.Add("calls_per_second", &config.calls_per_second, "calls of a principal; 0: no limit");
  line.Add("sessions", &config.sessions, "sessions that may be open");
  line.Add("principal_sessions", &config.principal_sessions, "of one principal");
  line.Add(
      "principal_share", &config.principal_share,
      "percent of all sessions' memory, buffers and waiting graphs that one principal may have; "
      "0: 50 where callers are told apart, else 100");
  line.Add("session_buffers", &config.session_buffers, "buffers of a session");
  line.Add("sessions_buffers", &config.sessions_buffers, "buffers of all sessions");
  line.Add("session_mb", &config.session_mb, "memory of a session, scratch of its runs included");
  line.Add("sessions_mb", &config.sessions_mb, "memory of all sessions' buffers");
  line.Add("chunk_kb", &config.chunk_kb, "limit of a chunk of an upload");
  line.Add("shared_transfer_mb", &config.shared_transfer_mb,
           "MB a second, for each core that serves, of uploads and downloads while other sessions "
           "run graphs; 0: no limit");
  line.Add("inline_kb", &config.inline_kb, "limit of content that comes with a run's answer");
  line.Add("session_runs", &config.session_runs, "runs of a session that may wait");
  line.Add("session_lease", &config.session_lease,
           "how long a session outlives its last call, unless it asks for another time");
  line.Add("queued_graphs_mb", &config.queued_graphs_mb,
           "memory of the graphs of all runs that haven't ended");
  line.Add("session_longest_lease", &config.session_longest_lease, "the most that it may ask for");
  line.Add("session_run_timeout", &config.session_run_timeout, "of one run's kernels");
  line.Add("session_plan_mb", &config.session_plan_mb,
           "memory that planning and compiling one run may take");
  line.Add("session_plan_timeout", &config.session_plan_timeout,
           "of scheduling a run, and of compiling it");
  line.Add("images_mb", &config.images_mb,
           "compiled kernels of sessions that the store keeps; 0: none");
  line.Add("jobs_kept", &config.jobs_kept,
           "jobs that have ended that the store keeps, besides those of each key's newest record");
  line.Add("lookup_cache_mb", &config.lookup_cache_mb,
           "memory for answers to look-ups that are asked again; 0: none");
  line.Add("jobs", &config.jobs, "searches that run at once; others queue");
  line.Add("interactive_jobs", &config.interactive_jobs,
           "interactive searches besides those; 0: they wait like others");
  line.Add("queue", &config.queue, "jobs that may queue before new ones are refused");
  line.Add("principal_jobs", &config.principal_jobs,
           "jobs that a principal may have queued or running; 0: no limit");
  line.Add("principal_device_seconds", &config.principal_device_seconds,
           "device seconds of searches and replays that a principal may use in a day (UTC); "
           "sessions' runs don't count; 0: no limit");
  line.Add("weights", &config.weights,
           "shares of principals that differ from 1: \"10.0.0.7=2,local=0.5\"");
  line.Add("abandon_grace", &config.abandon_grace,
           "what a job gets that nobody watches any more, before it is cancelled");
  line.Add("workers", &config.workers, "compile workers; 0: one for each compile core");
  line.Add("compile_cores", &config.compile_cores, "cores of workers and daemon; else the others");
  line.Add("timing_cores", &config.timing_cores, "cores that kernels are timed on; else the last");
  line.Add("devices", &config.devices, "devices to own, with commas; empty: all that there are");
  line.Add("worker_memory_mb", &config.worker_memory_mb,
           "a worker over it is replaced; 0: no limit");
  line.Add("runner_memory_mb", &config.runner_memory_mb,
           "a runner over it is replaced; 0: no limit");
  line.Add("tasks_per_worker", &config.tasks_per_worker,
           "compiles after which a worker is replaced; 0: never");
  line.Add("run_timeout", &config.run_timeout, "of one timing batch, and of one check");
  line.Add("drain_timeout", &config.drain_timeout, "what running jobs get at SIGTERM");
  line.Add("capture", &config.capture, "file to append every candidate to");
  line.Add("width", &config.width, "default of searches: beam width");
  line.Add("compile_timeout", &config.compile_timeout, "default of searches: of one compile");
  line.Add("uops_max", &config.uops_max, "default of searches: linear UOps of a candidate");
  line.Add("upcast_max", &config.upcast_max, "default of searches: elements upcast together");
  line.Add("local_max", &config.local_max, "default of searches: threads of a work-group");
  line.Add("max_global_size", &config.max_global_size,
           "default of searches: points of a test launch");
  line.Add("min_progress_us", &config.min_progress_us,
           "default of searches: least gain of a round");
  line.Add("padto", &config.padto, "default of searches: PADTO is an action");
  line.Add("tc", &config.tc, "default of searches: tensor cores 0 off, 1 on, 2 their shapes alone");
  line.Add("nolocals", &config.nolocals, "default of searches: NOLOCALS is an action");
  line.Add("allow_tf32", &config.allow_tf32,
           "default of searches: tensor cores may round float32 factors to 10 bits");
  return line;
}

bool IsLoopback(const std::string& listen) {
  const absl::string_view host = absl::string_view(listen).substr(0, listen.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  // 127.0.0.0/8, in numbers: "127.example.com" is elsewhere.
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const absl::string_view part : parts) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(part, &number) || number > 255) return false;
  }
  return true;
}

SessionLimits SessionLimitsOf(const ServeConfig& config) {
  SessionLimits limits;
  limits.sessions = config.sessions;
  limits.principal_sessions = config.principal_sessions;
  limits.buffers = config.session_buffers;
  limits.total_buffers = config.sessions_buffers;
  limits.bytes = config.session_mb * kMegabyte;
  limits.total_bytes = config.sessions_mb * kMegabyte;
  limits.chunk_bytes = config.chunk_kb << 10;
  limits.shared_transfer_bytes = config.shared_transfer_mb * kMegabyte;
  limits.inline_bytes = config.inline_kb << 10;
  limits.queued_runs = config.session_runs;
  limits.graph_nodes = config.graph_nodes;
  limits.lease = config.session_lease;
  limits.longest_lease = config.session_longest_lease;
  limits.run_time = config.session_run_timeout;
  limits.queued_bytes = config.queued_graphs_mb * kMegabyte;
  // All on one host are one principal where nothing tells them apart.
  const bool apart = !config.access_file.empty() || !config.tls_client_ca.empty();
  const int64_t percent = config.principal_share > 0 ? config.principal_share : apart ? 50 : 100;
  const auto share = [&](int64_t whole) { return std::max<int64_t>(1, whole * percent / 100); };
  limits.principal_buffers = share(limits.total_buffers);
  limits.principal_bytes = share(limits.total_bytes);
  limits.principal_queued_bytes = share(limits.queued_bytes);
  limits.plan_time = config.session_plan_timeout;
  limits.plan_bytes = config.session_plan_mb * kMegabyte;
  return limits;
}

absl::StatusOr<v1::SearchOptions> SearchDefaults(const ServeConfig& config) {
  v1::SearchOptions o;
  o.set_width(static_cast<uint32_t>(config.width));
  o.mutable_compile_timeout()->set_seconds(absl::ToInt64Seconds(config.compile_timeout));
  o.mutable_compile_timeout()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(config.compile_timeout) % 1000000000));
  o.set_uops_max(static_cast<uint32_t>(config.uops_max));
  o.set_upcast_max(static_cast<uint32_t>(config.upcast_max));
  o.set_local_max(static_cast<uint32_t>(config.local_max));
  o.set_max_global_size(static_cast<uint32_t>(config.max_global_size));
  o.set_min_progress_us(config.min_progress_us);
  o.set_padto(config.padto);
  o.set_tc(static_cast<uint32_t>(config.tc));
  o.set_nolocals(config.nolocals);
  o.set_allow_tf32(config.allow_tf32);
  return ResolveOptions(o, DefaultSearchOptions());
}

absl::StatusOr<JobQueueOptions> QueueOptionsOf(const ServeConfig& config) {
  BEAMD_ASSIGN_OR_RETURN(Weights weights, ParseWeights(config.weights));
  return JobQueueOptions{.concurrent = static_cast<int>(config.jobs),
                         .interactive = static_cast<int>(config.interactive_jobs),
                         .queued_max = static_cast<int>(config.queue),
                         .principal_jobs = static_cast<int>(config.principal_jobs),
                         .grace = config.abandon_grace,
                         .weights = std::move(weights)};
}

absl::StatusOr<FleetOptions> FleetOptionsOf(const ServeConfig& config) {
  FleetOptions options;
  options.workers = static_cast<int>(config.workers);
  options.compile_cores = config.compile_cores;
  options.timing_cores = config.timing_cores;
  options.devices = absl::StrSplit(config.devices, ',', absl::SkipEmpty());
  options.worker_memory_bytes = config.worker_memory_mb * kMegabyte;
  options.runner_memory_bytes = config.runner_memory_mb * kMegabyte;
  options.tasks_per_worker = config.tasks_per_worker;
  options.sandbox = config.sandbox;
  return ChooseCores(std::move(options));
}

std::vector<std::string> ReadServeConfig(const std::vector<std::string>& args,
                                         ServeConfig& config) {
  config = DefaultServeConfig();
  const CommandLine line = ServeCommandLine(config);
  Faults faults;
  // Twice: for the file's name, then over what the file says.
  const absl::StatusOr<std::vector<std::string>> rest = line.Parse(args);
  faults.Add(rest.status());
  if (rest.ok() && !rest->empty()) {
    faults.Add(absl::StrCat("serve takes no argument ", rest->front()));
  }
  if (const std::string path = config.config; !path.empty()) {
    const absl::StatusOr<std::string> text = ReadTextFile(path);
    faults.Add(text.status());
    if (text.ok()) faults.Add(ApplyConfig(path, *text, line));
    line.Parse(args).IgnoreError();  // its faults are there already
    config.config = path;
  }
  if (config.store.empty()) faults.Add("serve wants --store DIR");
  CheckAddress("listen", config.listen, faults);
  if (!config.http_listen.empty()) CheckAddress("http_listen", config.http_listen, faults);
  const std::vector<std::string> levels = {"trace", "debug", "info", "warn", "error"};
  if (std::find(levels.begin(), levels.end(), config.log_level) == levels.end()) {
    faults.Add(absl::StrCat("no log level ", config.log_level));
  }
  CheckNumbers(config, faults);
  CheckAccess(config, faults);
  CheckDevices(config, faults);
  faults.Add(SearchDefaults(config).status());
  faults.Add(FleetOptionsOf(config).status());
  return faults.lines();
}

absl::StatusOr<ServeConfig> LoadServeConfig(const std::vector<std::string>& args) {
  ServeConfig config;
  const std::vector<std::string> faults = ReadServeConfig(args, config);
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  return config;
}

}  // namespace beamd
