// What a session's runner does: plans tensor graphs, compiles what isn't there, and runs plans on
// memory that the daemon owns, or on its device's own. What may crash, spin or swell by a client's
// graph does it here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/device.h"
#include "devices/device_turn.h"
#include "server/execution/graph_plan.h"
#include "server/execution/session_memory.h"
#include "server/workers/child_main.h"

namespace beamd {

// Not thread-safe: a child serves one task at a time.
class SessionHandler final : public TaskHandler {
 public:
  struct Options {
    std::string device = "cpu:0";
    // Where it plans and compiles, and where kernels run; empty: wherever it may.
    std::vector<int> compile_cores;
    std::vector<int> device_cores;
    int64_t plans = 256;  // that it keeps; the longest unused goes first
  };
  explicit SessionHandler(Options options) : options_(std::move(options)) {}

  absl::Status Start(internal::Hello& hello) override;
  absl::Status AddContext(const internal::AddContext&) override { return absl::OkStatus(); }
  void DropContext(uint64_t) override {}
  absl::Status Attach(const internal::Attach& attach, int file) override;
  void Detach(uint64_t id) override { memory_->Detach(id); }
  absl::Status Handle(const internal::Frame& request, internal::Frame& reply) override;

 private:
  struct Plan {
    UOpGraph graph;
    std::unique_ptr<GraphPlan> plan;
    bool built = false;
    uint64_t used = 0;  // when, in tasks
  };
  absl::Status MakePlan(const internal::PlanRequest& request, internal::PlanReply& reply);
  absl::Status Build(const internal::BuildRequest& request, internal::BuildReply& reply);
  absl::Status Run(const internal::RunPlanRequest& request, internal::RunPlanReply& reply);
  absl::Status Fetch(const internal::FetchRequest& request, internal::FetchReply& reply);
  // Plans and compiles must not disturb what is timed; kernels run where they are timed.
  void MoveTo(const std::vector<int>& cores);

  const Options options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<RunPage> page_;
  std::unique_ptr<DeviceTurn> group_turn_;
  std::unique_ptr<DeviceTurn> turn_;
  std::unique_ptr<LoadedKernels> kernels_;
  std::unique_ptr<SessionMemory> memory_;
  std::map<uint64_t, std::unique_ptr<Plan>> plans_;
  const std::vector<int>* cores_ = nullptr;
  uint64_t tasks_ = 0;
};

}  // namespace beamd
