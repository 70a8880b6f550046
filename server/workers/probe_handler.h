// What a probe does: asks every driver what devices it has, and says it in its hello. A process of
// its own, for a driver may hang, crash, or start threads.
#pragma once

#include "server/workers/child_main.h"

namespace beamd {

class ProbeHandler final : public TaskHandler {
 public:
  absl::Status Start(internal::Hello& hello) override;
  absl::Status AddContext(const internal::AddContext& context) override;
  void DropContext(uint64_t id) override;
  absl::Status Handle(const internal::Frame& request, internal::Frame& reply) override;
};

}  // namespace beamd
