// A child's side of the process model: `beamd worker` and `beamd runner` end up in RunChild.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/workers/frames.pb.h"

namespace beamd {

// Rises when frames change their meaning.
inline constexpr uint32_t kFrameProtocol = 2;
// The descriptor that a child finds its socket at.
inline constexpr int kChildChannelFd = 3;
// How a child ends that ran out of memory where C++ could still tell.
inline constexpr int kExitOutOfMemory = 86;

// Names this executable file; differs between any two builds.
std::string BuildId();

// What a child does with the frames it is sent.
class TaskHandler {
 public:
  virtual ~TaskHandler() = default;
  // For a runner: describes its device in the hello.
  virtual absl::Status Start(internal::Hello& hello) = 0;
  virtual absl::Status AddContext(const internal::AddContext& context) = 0;
  virtual void DropContext(uint64_t id) = 0;
  // Memory shared with the daemon; the descriptor is the handler's. Most have no use for it.
  virtual absl::Status Attach(const internal::Attach& attach, int file);
  virtual void Detach(uint64_t) {}
  // Fills in the body of the reply. An error ends the child: the frame was not meant for it.
  virtual absl::Status Handle(const internal::Frame& request, internal::Frame& reply) = 0;
};

// Call first thing in main of a child: asks the kernel to kill this process with its parent, and
// ends it where the parent named by --parent_pid is gone already. `args` are the arguments behind
// the subcommand.
void BindToParent(const std::vector<std::string>& args);

// Serves until the channel closes; returns the exit status. `args` are the arguments behind the
// subcommand.
int RunChild(const std::vector<std::string>& args, TaskHandler& handler);

// The value of `--name=value` in `args`, or `otherwise`.
std::string ChildFlag(const std::vector<std::string>& args, const std::string& name,
                      const std::string& otherwise);

}  // namespace beamd
