// The functions that the code of kernels calls, by name.
#pragma once

#include <span>

namespace beamd::emu {

struct RuntimeFunction {
  const char* name;
  void* address;
};

// Of group_run.h, each taking the work-item first:
//   beamd_emu_fault(item, access, address)   doesn't return
//   beamd_emu_global(item, access, offset)   an access to a buffer that the kernel stores to
//   beamd_emu_shared(item, access, address), beamd_emu_unknown(item, access, address)
//   beamd_emu_barrier(item, barrier), beamd_emu_act(item, collective, operands, result)
// The approximations of GPUs (translate.cc says which is whose), and what LLVM calls in libm,
// libgcc and libc.
std::span<const RuntimeFunction> RuntimeFunctions();

}  // namespace beamd::emu
