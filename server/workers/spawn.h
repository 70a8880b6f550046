// Starts this executable again as a child with a socket to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace beamd {

struct SpawnOptions {
  // argv behind the program's name: the subcommand and its flags.
  std::vector<std::string> args;
  // Cores that it may run on; empty: this thread's.
  std::vector<int> cores;
  // RLIMIT_AS; 0: none. Ignored in builds with a sanitizer, which reserve terabytes.
  int64_t address_space_bytes = 0;
};

struct SpawnedChild {
  pid_t pid = -1;
  int pidfd = -1;    // readable once the child has ended
  int channel = -1;  // non-blocking
};

// Forks and executes /proc/self/exe. The child gets its socket as descriptor 3, standard error, and
// no other descriptor of this process. Call it from a thread that outlives the child: the kernel
// kills a child when the thread that forked it ends.
absl::StatusOr<SpawnedChild> Spawn(const SpawnOptions& options);

// Cores that this process may run on, ascending.
std::vector<int> AllowedCores();
// Binds the calling thread, and threads that it starts later, to `cores`.
absl::Status BindToCores(const std::vector<int>& cores);

}  // namespace beamd
