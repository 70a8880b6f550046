// Turns a linear program into LLVM IR for its target: one function, the entry.
//
// That slots don't overlap is said on the accesses: reads of a buffer that the kernel never writes
// are invariant, those of written ones carry alias scopes. So LLVM keeps in registers and hoists
// what it could not behind pointers loaded out of an array.
//
// In:    a program as engine/lower/program.h defines it; a module with the target's data layout.
// Out:   a CPU: define void @kernel(ptr buffers, ptr variables, i64 begin, i64 end). A GPU: a kernel
//        of its calling convention, @kernel(ptr addrspace(1) a buffer..., i64 a variable...), with
//        the launch's sizes as its bounds. No allocas, no calls out of the module but the target's
//        own intrinsics. On a CPU vectors stay vectors, whatever the machine's width.
// Error: InvalidArgument for a program that breaks its contract; as CheckProgram says.
// Spec:  the values are SEMANTICS.md's. No fast-math flag is set and nothing is contracted but
//        MULACC.
#pragma once

#include "absl/status/status.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace beamd {

// Symbol of the entry.
inline constexpr char kKernelEntry[] = "kernel";

absl::Status EmitModule(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module);

}  // namespace beamd
