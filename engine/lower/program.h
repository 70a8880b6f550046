// The last form before LLVM: a kernel as one list of UOps in execution order.
//
// What a list may contain, and what each node means there (dtype.lanes > 1: lane by lane):
//   DEFINE_GLOBAL      a buffer parameter (arg BufferArg: slot)
//   DEFINE_VAR         a variable parameter, converted to its dtype
//   DEFINE_LOCAL       memory that a work-group shares (GPUs; arg: a name; src 0: CONST, its
//                      elements); content unspecified at the start, aligned to 16 bytes
//   CONST              lanes > 1 repeats the value; VCONST: a value a lane
//   SPECIAL            an index of a launch (GPUs), 0 .. src 0. arg "g0".."g2": of the work-group
//                      in the grid, x first; "l0".."l2": of the work-item in its group. A group at
//                      or past an extent that isn't a CONST ends at once; work-items' are CONST. An
//                      extent may be computed from other SPECIALs.
//   RANGE              opens a loop and is its index, 0 .. src 0 (exclusive; maybe 0 turns where
//                      the extent is not a CONST), int64 or (GPUs) int32 like its extent.
//                      ENDLOOP(range) closes it. Loops nest.
//   ACC                a register: src 0 its initial value, then the ranges it lives through. It
//                      stands before the first of them. As an operand: its value at the start of
//                      the innermost iteration.
//   ASSIGN(acc, v)     inside the innermost of acc's ranges: the value for the next iteration. As
//                      an operand after the loops: the final value (the initial one if they took
//                      no turn).
//   INDEX(buf, i[, valid])  address of element i (int32 or int64, scalar). It belongs to its LOAD
//                      or STORE.
//   LOAD(index)        `lanes` consecutive elements from i. valid false: zero, memory not touched.
//                      valid is a scalar bool for all lanes, or has a lane each. LOAD(index, b): b
//                      is a BARRIER that stands before it, not an operand.
//   STORE(index, v)    `lanes` of v to consecutive elements; valid as above. STORE(index, v, b): as
//                      for LOAD.
//   BARRIER(...)       (GPUs) every work-item of the group arrives before one goes on, and then all
//                      see what was stored to shared memory. Stands where all of them come by, the
//                      same number of times. Its sources stand before it and are not operands.
//   WMMA(a, b, c)      (GPUs) a*b+c on a tensor core, by the work-items of a wave together. arg
//                      int: which of TensorCoresOf(caps). Operands and result are a work-item's
//                      vectors, in the order of the tensor core's layout.
//   VECTORIZE, GEP     build a vector of scalars or vectors laid end to end; take lanes of one (one
//                      lane: a scalar)
//   MULACC(a, b, c)    a*b+c, fused where the target can
//   ALU, CAST, BITCAST as in SEMANTICS; WHERE's condition may be scalar over vector arms
// Every operand stands earlier in the list, in this or an enclosing loop (or is an ASSIGN of a
// closed one).
//
// Buffers are `restrict` to each other: no two slots overlap. A slot that is read and written obeys
// SEMANTICS "Memory".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/llvm/kernel_image.h"
#include "engine/uop/uop.h"

namespace beamd {

struct LinearProgram {
  std::vector<UOp> ops;  // of the graph that Lower was given
  // A CPU: the loop that a launch's [begin, end) cuts; null: the kernel has no global loop and one
  // slice.
  UOp slice_range;
  // Where each LOAD's and STORE's index is a multiple of this many elements, by op id; absent: 1.
  // (index alignment; buffers themselves are aligned to 64 bytes)
  std::vector<int32_t> index_alignment;
  // By op id: STOREs that may bypass the caches. Empty: none.
  std::vector<bool> streamed;
  // buffers, variables, slices, uop_count, compute_ops, bytes are filled in; code and entry are
  // not.
  KernelImage image;
};

// A line an operation, indented by loop; nodes are named by id.
std::string ToText(const LinearProgram& program);

}  // namespace beamd
