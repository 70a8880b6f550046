// What a device's runner does: loads images, times them, checks their answers. The only process
// that runs generated code.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "devices/device.h"
#include "devices/device_turn.h"
#include "engine/uop/uop.h"
#include "server/workers/candidate_runner.h"
#include "server/workers/child_main.h"

namespace beamd {

// Not thread-safe: a child serves one task at a time.
class RunnerHandler final : public TaskHandler {
 public:
  // "cpu:0".
  explicit RunnerHandler(std::string device_name) : device_name_(std::move(device_name)) {}

  absl::Status Start(internal::Hello& hello) override;
  absl::Status AddContext(const internal::AddContext& context) override;
  void DropContext(uint64_t id) override;
  // A DeviceTurn: the device is shared with sessions; and a RunPage, where waits for it are noted.
  absl::Status Attach(const internal::Attach& attach, int file) override;
  absl::Status Handle(const internal::Frame& request, internal::Frame& reply) override;

 private:
  struct Context {
    UOpGraph graph;
    UOp sink;
    VerifyOptions verify;
  };
  // The device's own account of itself, not more than once a second.
  void AddCondition(internal::Frame& reply);
  void Time(const internal::TimeRequest& request, internal::TimeReply& reply);
  void Verify(const internal::VerifyRequest& request, internal::VerifyReply& reply);

  const std::string device_name_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<RunPage> page_;
  std::unique_ptr<DeviceTurn> turn_;
  std::map<uint64_t, std::unique_ptr<Context>> contexts_;
  std::optional<CandidateRunner> runner_;  // once started
  absl::Time condition_due_ = absl::InfinitePast();
};

}  // namespace beamd
