// Realises lazy buffers one node at a time with the reference evaluator: no schedule, no fusion, no
// compiler. What a program means, for tests of whatever makes it fast.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/lazy/lazy_context.h"

namespace beamd::testing {

// Nodes are computed in the order in which the program made them, ASSIGN too; intermediate ones
// stay realised. Memory is HostMemory.
class UnfusedRealizer final : public Realizer {
 public:
  absl::Status Realize(std::span<const LazyBuffer> roots) override;
  absl::Status Write(TensorBuffer& buffer, std::span<const std::byte> bytes) override;
  absl::Status Read(const TensorBuffer& buffer, std::span<std::byte> bytes) override;
};

}  // namespace beamd::testing
