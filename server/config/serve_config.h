// Everything that `beamd serve` is told: by flags, and by an optional file that flags override.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/command_line.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/sessions/session.h"
#include "server/tuning/job_queue.h"
#include "server/workers/fleet.h"

namespace beamd {

struct ServeConfig {
  std::string config;
  bool check_config = false;
  std::string listen = "127.0.0.1:7070";
  std::string store;

  // What it says of itself.
  std::string log_level = "info";
  std::string log_file;
  int64_t log_file_mb = 64;
  int64_t log_files = 8;
  std::string spans_file;
  std::string http_listen;
  bool http_public = false;

  // Who may call.
  std::string unix_socket;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string access_file;
  std::string audit_file;
  bool insecure = false;
  bool sandbox = true;

  // What a client may ask for.
  int64_t message_bytes = 64 << 20;
  int64_t graph_nodes = 20000;
  int64_t graph_rank = 32;
  int64_t graph_elements = int64_t{1} << 53;
  int64_t buffer_bytes = 0;
  int64_t streams_per_client = 1000;
  double calls_per_second = 20000;

  // What sessions may hold and do.
  int64_t sessions = 256;
  int64_t principal_sessions = 64;
  // In percent; 0: SessionLimitsOf's choice.
  int64_t principal_share = 0;
  int64_t session_buffers = 4096;
  int64_t sessions_buffers = 16384;
  int64_t session_mb = 0;
  int64_t sessions_mb = 0;
  int64_t chunk_kb = 4096;
  int64_t inline_kb = 4096;
  int64_t shared_transfer_mb = 12;
  int64_t session_runs = 256;
  int64_t queued_graphs_mb = 1024;
  absl::Duration session_lease = absl::Minutes(1);
  absl::Duration session_longest_lease = absl::Hours(1);
  absl::Duration session_run_timeout = absl::Seconds(60);
  absl::Duration session_plan_timeout = absl::Seconds(120);
  int64_t session_plan_mb = 1024;

  int64_t images_mb = 512;
  int64_t jobs_kept = 10000;
  int64_t lookup_cache_mb = 64;
  int64_t jobs = 2;
  int64_t interactive_jobs = 1;
  int64_t queue = 1024;
  int64_t principal_jobs = 256;
  double principal_device_seconds = 0;
  std::string weights;
  absl::Duration abandon_grace = absl::Seconds(5);
  int64_t workers = 0;
  std::vector<int> compile_cores;
  std::vector<int> timing_cores;
  std::string devices;  // empty: all that there are
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
  int64_t tc = 0;
  bool nolocals = false;
  bool allow_tf32 = false;
};

// The defaults; some depend on this machine.
ServeConfig DefaultServeConfig();
// Its flags are bound to `config`, which must outlive it.
CommandLine ServeCommandLine(ServeConfig& config);

// What `args` (behind "serve") and the file of --config say. InvalidArgument with a line for every
// fault: of flags, of the file, of values that don't go together, of files that aren't there.
absl::StatusOr<ServeConfig> LoadServeConfig(const std::vector<std::string>& args);
// The same into `config`, with what is at fault left as it was: the faults, a line each.
std::vector<std::string> ReadServeConfig(const std::vector<std::string>& args, ServeConfig& config);

// Whether a listen address is reached from this machine only: "127.0.0.1:0", "[::1]:7070",
// "localhost:7070".
bool IsLoopback(const std::string& listen);

SessionLimits SessionLimitsOf(const ServeConfig& config);
absl::StatusOr<v1::SearchOptions> SearchDefaults(const ServeConfig& config);
absl::StatusOr<JobQueueOptions> QueueOptionsOf(const ServeConfig& config);
// With cores chosen, by what this process may use now.
absl::StatusOr<FleetOptions> FleetOptionsOf(const ServeConfig& config);

}  // namespace beamd
