// What a test asks of a fake driver library, by dlsym: each exports the functions of Control under
// "beamd_fake_" and their names.
#pragma once

#include <cstdint>

namespace beamd::fake {

// A kernel of the test's own: groups and items are three numbers each, x first; parameters point to
// the values. Returns 0, or the code that the context is broken with.
using HostKernel = int (*)(const unsigned* groups, const unsigned* items, void** parameters);

extern "C" {
// Call number `call` of the entry point, counted from now (0: every call), answers `code`.
using FailFunction = void(const char* entry, int call, int code);
// Mends the context and forgets calls, failures and kernels, not what is alive.
using ResetFunction = void();
// Contexts, allocations, modules and events that were made and not freed.
using AliveFunction = int64_t();
using CallsFunction = int64_t(const char* entry);
// What code that reads "host:NAME" runs.
using DefineFunction = void(const char* name, HostKernel kernel);
}

}  // namespace beamd::fake
