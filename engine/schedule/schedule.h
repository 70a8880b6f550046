// Which kernels compute some lazy buffers, in which order, on which buffers.
//
// In:    roots and whatever they need that isn't realised.
// Out:   kernel graphs (SINK of STOREs, as clients submit them, engine/uop/verify.h), copies and
//        buffer views, in an order that respects reads before and after an ASSIGN.
// Fusion: element-wise operations fuse into their users and into the reduction before them, one
//        reduction a kernel; a value is stored where it is expanded, padded after an operation that
//        doesn't keep zero as zero, or asked for. Results of one reduction share its kernel
//        (MULTIOUTPUT).
// Error: FailedPrecondition: a kernel would read what it, or a kernel before it, overwrites: the
//        message names the operation and the way out.
// Spec:  tinygrad 0.10.0 engine/schedule.py. Differs: README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/uop/uop.h"

namespace beamd {

struct ScheduleItem {
  enum class Kind : uint8_t {
    kKernel,  // buffers[i] is DEFINE_GLOBAL i of ast
    kCopy,    // buffers[0] = buffers[1], which lies on another device
    kView,    // buffers[0] is a window of buffers[1]
  };
  Kind kind = Kind::kKernel;
  UOp ast;  // of Schedule::graph; equal kernels are one node
  std::vector<std::shared_ptr<TensorBuffer>> buffers;
  std::vector<bool> written;        // by buffer
  std::vector<LazyBuffer> outputs;  // the bases that this item computes
  const std::string& device() const { return buffers[0]->device; }
};

struct Schedule {
  std::unique_ptr<UOpGraph> graph;
  std::vector<ScheduleItem> items;
  // Buffers that only items see: nothing outside holds what they would hold afterwards.
  std::vector<std::shared_ptr<TensorBuffer>> internal;
  // Names of the variables that some kernel needs.
  std::vector<std::string> variables;

  int kernel_count() const;
};

// Changes nothing but the roots' forced_realize: an item's outputs are realised once a runtime says
// so (LazyBuffer::MarkRealized).
absl::StatusOr<Schedule> CreateSchedule(std::span<const LazyBuffer> roots);

}  // namespace beamd
