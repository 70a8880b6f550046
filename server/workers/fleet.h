// The daemon's children as it starts them: compile workers, and a runner a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/device_turn.h"
#include "server/workers/frames.pb.h"
#include "server/workers/supervisor.h"

namespace beamd {

struct FleetOptions {
  // 0: one for each compile core.
  int workers = 0;
  // Cores that workers run on, and cores that kernels are timed on; see ChooseCores.
  std::vector<int> compile_cores;
  std::vector<int> timing_cores;
  // Empty: all that the drivers of this machine have.
  std::vector<std::string> devices = {"cpu:0"};
  int64_t worker_memory_bytes = int64_t{4} << 30;
  int64_t runner_memory_bytes = 0;  // 0: no limit
  int64_t tasks_per_worker = 4096;
  // Whether children give up what they don't need (sandbox.h).
  bool sandbox = true;
  absl::Duration start_limit = absl::Seconds(60);
  // argv that makes this executable a worker or a runner.
  std::string worker_command = "worker";
  std::string runner_command = "runner";
  std::string probe_command = "probe";
  // For asking the drivers what they have.
  absl::Duration probe_limit = absl::Seconds(20);
};

// A device whose runner is up.
struct FleetDevice {
  internal::DeviceDescription description;
  // Of all that run kernels on it.
  std::shared_ptr<DeviceTurn> turn;
  PoolId runner = 0;
  std::vector<int> cores;
  // Of all children that open it: an argument of theirs.
  std::string sandbox;
};

// A device that was asked for, or found, and whose runner doesn't start.
struct FailedDevice {
  std::string id;
  std::string why;
};

struct Fleet {
  PoolId workers = 0;
  int worker_count = 0;
  std::vector<FleetDevice> devices;
  std::vector<FailedDevice> failed;
  std::vector<v1::Driver> drivers;
};

// For the pool of whoever runs kernels on the device; its id is 0.
std::shared_ptr<const Attachment> TurnAttachment(const std::shared_ptr<DeviceTurn>& turn);

// Fills in the cores that `options` leaves open: the last core of this process for timing, the
// others for compiling, and one for both where there is one only. InvalidArgument for cores that
// this process may not use. Call it before the process binds itself to the compile cores.
absl::StatusOr<FleetOptions> ChooseCores(FleetOptions options);

// What the drivers of this machine have, as a child that ends then is told; where even asking fails,
// a driver says so.
std::vector<v1::Driver> ProbeDrivers(Supervisor& supervisor, const FleetOptions& options);

// Starts them all and waits for their hellos. A GPU's runner gets the compile cores, for it waits
// most of the time. Unavailable where workers don't start, or no device's runner does.
absl::StatusOr<Fleet> StartFleet(Supervisor& supervisor, const FleetOptions& options);

}  // namespace beamd
