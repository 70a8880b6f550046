// Compiled code and what a device needs to load and launch it. A plain value: travels between
// processes as bytes (server/workers), is cached by hash.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/target_caps.h"
#include "engine/dtype/dtype.h"

namespace beamd {

struct KernelImage {
  struct Buffer {
    int32_t slot = 0;
    Scalar scalar = Scalar::kVoid;
    int64_t size_elements = 0;  // what the kernel may touch, at least 1
    bool read = false;
    bool written = false;
  };
  struct Variable {
    std::string name;
    int64_t min = 0, max = 0;
  };

  TargetKind kind = TargetKind::kCpu;
  // kCpu: a relocatable object. Calls nothing outside itself. kCuda: PTX text. kHip: a linked code
  // object. GPUs with CodeForm::kBitcode: LLVM bitcode of the module for their triple.
  std::string code;
  // Symbol of the entry. kCpu: `void(void* const* buffers, const int64_t* variables, int64_t begin,
  // int64_t end)`, buffers in the order of `buffers`, variables in the order of `variables`; runs
  // slices [begin, end) of the outermost global loop. GPUs: a kernel whose parameters are an
  // address a buffer and an int64 a variable, in those orders.
  std::string entry;
  std::vector<Buffer> buffers;      // sorted by slot
  std::vector<Variable> variables;  // sorted by name
  // kCpu: how many slices the outermost global loop has (1 when there is none). With a symbolic
  // outermost axis: its value at maximum; the kernel bounds itself.
  int64_t slices = 1;
  // GPUs: work-groups of a launch, x first, with symbolic sizes at their maximum (the kernel bounds
  // itself), 0 where there is nothing to launch; work-items of a work-group.
  std::array<int64_t, 3> global_size = {1, 1, 1};
  std::array<int64_t, 3> local_size = {1, 1, 1};
  int64_t shared_bytes = 0;  // that a work-group of it takes

  int64_t uop_count = 0;   // linear UOps, arithmetic counted a lane each, for BEAM_UOPS_MAX
  double compute_ops = 0;  // arithmetic operations a full launch does (variables in the middle)
  double bytes = 0;        // bytes of buffers touched

  // Over everything that shapes a run; equal code under two opt lists has one hash.
  Digest Hash() const;
};

}  // namespace beamd
