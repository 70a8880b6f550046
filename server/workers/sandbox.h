// What a child gives up once it has started: it only computes, and talks on the sockets it has.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace beamd {

enum class Sandbox {
  kOff,
  // Holds a device whose driver opens files and needs its user's rights: can't start programs, make
  // sockets, trace or administer anything.
  kDevice,
  // Computes: besides, only the system calls of memory, threads, clocks and open descriptors, files
  // of the machine's description to read, and, where it was root, the user nobody.
  kStrict,
};

absl::string_view Name(Sandbox sandbox);
// Unknown names are kStrict.
Sandbox ParseSandbox(absl::string_view name);

// For this process and for good; call it where there is one thread, or where the others may stay
// outside of the parts that are a thread's own. Returns what is in force, sorted: "capabilities",
// "files", "no_new_privs", "rlimits", "seccomp", "user". What the kernel refuses is left out: a
// child on an old kernel works, with less around it. In builds with a sanitizer, which
// reads /proc and traces itself, only "no_new_privs".
std::vector<std::string> EnterSandbox(Sandbox sandbox);

}  // namespace beamd
