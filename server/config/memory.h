// How much memory this process may have.
#pragma once

#include <cstdint>
#include <string>

namespace beamd {

// In bytes: what the machine has, or the least limit of the control groups that this process is in,
// where that is less: a container is given a part of its machine.
// `root`: where /proc and /sys are, for tests.
// Source: the kernel's admin-guide/cgroup-v2.rst (memory.max), cgroup-v1/memory.rst.
int64_t MemoryBytes(const std::string& root = "");

}  // namespace beamd
