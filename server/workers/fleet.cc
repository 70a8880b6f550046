#include "server/workers/fleet.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/workers/sandbox.h"
#include "server/workers/spawn.h"

namespace beamd {
namespace {

// Past this share of its limit a child is replaced after its task, before the limit takes one away.
constexpr double kRecycleShare = 0.5;
// For tasks while no worker or runner starts: searches wait out what passes, and are told what
// doesn't.
constexpr absl::Duration kPatience = absl::Seconds(30);

absl::Status CheckCores(const std::vector<int>& cores, const std::vector<int>& allowed) {
  for (const int core : cores) {
    if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
      return absl::InvalidArgumentError(absl::StrCat("core ", core, " is not this process's"));
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const Attachment> PageAttachment(const std::shared_ptr<RunPage>& page) {
  auto attachment = std::make_shared<Attachment>();
  attachment->attach.set_id(1);
  attachment->attach.set_kind(internal::Attach::PAGE);
  attachment->file = page->file();
  attachment->owner = page;
  return attachment;
}

std::string SandboxFlag(bool on, Sandbox sandbox) {
  return absl::StrCat("--sandbox=", Name(on ? sandbox : Sandbox::kOff));
}

bool IsGpu(const std::string& device) {
  return absl::StartsWith(device, "cuda") || absl::StartsWith(device, "hip");
}

}  // namespace

std::shared_ptr<const Attachment> TurnAttachment(const std::shared_ptr<DeviceTurn>& turn) {
  auto attachment = std::make_shared<Attachment>();
  attachment->attach.set_kind(internal::Attach::TURN);
  attachment->file = turn->file();
  attachment->owner = turn;
  return attachment;
}

absl::StatusOr<FleetOptions> ChooseCores(FleetOptions options) {
  const std::vector<int> allowed = AllowedCores();
  BEAMD_RETURN_IF_ERROR(CheckCores(options.compile_cores, allowed));
  BEAMD_RETURN_IF_ERROR(CheckCores(options.timing_cores, allowed));
  std::vector<int>& timing = options.timing_cores;
  if (timing.empty()) timing = {allowed.back()};
  if (options.compile_cores.empty()) {
    std::copy_if(
        allowed.begin(), allowed.end(), std::back_inserter(options.compile_cores),
        [&](int core) { return std::find(timing.begin(), timing.end(), core) == timing.end(); });
  }
  if (options.compile_cores.empty()) options.compile_cores = allowed;
  return options;
}

std::vector<v1::Driver> ProbeDrivers(Supervisor& supervisor, const FleetOptions& options) {
  const PoolId pool = supervisor.AddPool(
      {.name = "probe",
       .children = 1,
       .args = {options.probe_command, SandboxFlag(options.sandbox, Sandbox::kDevice)},
       .cores = options.compile_cores});
  const absl::StatusOr<internal::Hello> hello = supervisor.WaitForHello(pool, options.probe_limit);
  supervisor.ClosePool(pool);
  if (hello.ok()) return {hello->drivers().begin(), hello->drivers().end()};
  v1::Driver cpu, unknown;
  cpu.set_name("cpu");
  cpu.add_devices("cpu:0");
  unknown.set_name("gpu");
  unknown.set_why(absl::StrCat("asking the drivers failed: ", hello.status().message()));
  return {cpu, unknown};
}

absl::StatusOr<Fleet> StartFleet(Supervisor& supervisor, const FleetOptions& options) {
  Fleet fleet;
  fleet.worker_count =
      options.workers > 0 ? options.workers : static_cast<int>(options.compile_cores.size());
  fleet.workers = supervisor.AddPool(
      {.name = "worker",
       .children = fleet.worker_count,
       .args = {options.worker_command, SandboxFlag(options.sandbox, Sandbox::kStrict)},
       .cores = options.compile_cores,
       .memory_limit_bytes = options.worker_memory_bytes,
       .recycle_bytes =
           static_cast<int64_t>(static_cast<double>(options.worker_memory_bytes) * kRecycleShare),
       .address_space_bytes = options.worker_memory_bytes,
       .recycle_tasks = options.tasks_per_worker,
       .patience = kPatience});
  fleet.drivers = ProbeDrivers(supervisor, options);
  std::vector<std::string> devices = options.devices;
  if (devices.empty()) {
    for (const v1::Driver& driver : fleet.drivers) {
      devices.insert(devices.end(), driver.devices().begin(), driver.devices().end());
    }
  }
  struct Runner {
    std::string device;
    std::vector<int> cores;
    std::string sandbox;
    std::shared_ptr<DeviceTurn> turn;
    PoolId pool;
  };
  std::vector<Runner> runners;
  for (const std::string& device : devices) {
    const std::vector<int>& cores = IsGpu(device) ? options.compile_cores : options.timing_cores;
    // A GPU's driver opens files and needs its user's rights as it goes.
    const std::string sandbox =
        SandboxFlag(options.sandbox, IsGpu(device) ? Sandbox::kDevice : Sandbox::kStrict);
    BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<DeviceTurn> turn, DeviceTurn::Create());
    BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<RunPage> page, RunPage::Create());
    const PoolId pool = supervisor.AddPool(
        {.name = "runner",
         .children = 1,
         .args = {options.runner_command, absl::StrCat("--device=", device), sandbox},
         .cores = cores,
         .memory_limit_bytes = options.runner_memory_bytes,
         .attachments = {TurnAttachment(turn), PageAttachment(page)},
         .patience = kPatience,
         // Sessions have their turns on the device: no candidate is to blame for them.
         .excused = [page] { return page->Waited(); }});
    runners.push_back({device, cores, sandbox, std::move(turn), pool});
  }
  BEAMD_RETURN_IF_ERROR(supervisor.WaitForHello(fleet.workers, options.start_limit).status());
  absl::Status status = absl::UnavailableError("no device was asked for");
  for (const Runner& runner : runners) {
    absl::StatusOr<internal::Hello> hello =
        supervisor.WaitForHello(runner.pool, options.start_limit);
    status = hello.status();
    if (!status.ok()) {
      supervisor.ClosePool(runner.pool);
      fleet.failed.push_back({runner.device, std::string(status.message())});
      continue;
    }
    fleet.devices.push_back({.description = hello->device(),
                             .turn = runner.turn,
                             .runner = runner.pool,
                             .cores = runner.cores,
                             .sandbox = runner.sandbox});
  }
  if (fleet.devices.empty()) return status;
  return fleet;
}

}  // namespace beamd
