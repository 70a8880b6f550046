// Times images on a device and checks their answers, on scratch buffers: what a search wants of the
// process that owns the device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/device_turn.h"
#include "devices/measure.h"
#include "devices/scratch.h"
#include "engine/llvm/kernel_image.h"
#include "engine/search/pipeline.h"
#include "engine/uop/uop.h"

namespace beamd {

struct VerifyOptions {
  uint64_t seed = 0;        // of the data
  bool allow_tf32 = false;  // EvalInputs::allow_tf32
};

// Not thread-safe. The device outlives it.
class CandidateRunner {
 public:
  explicit CandidateRunner(Device& device) : device_(device) {}
  // Taken for each sample and each run from now on; it outlives this. Null: the device is ours
  // alone.
  void set_turn(DeviceTurn* turn) { turn_ = turn; }

  // The images belong to one kernel. The answer's id is 0.
  TimeDone Time(std::span<const KernelImage* const> images, const MeasureOptions& options);
  // Compares the image's outputs on seeded data with the oracle's (null: none can serve) and the
  // evaluator's of `sink`, by SEMANTICS "Equal". The answer's id is 0.
  VerifyDone Verify(UOp sink, const VerifyOptions& options, const KernelImage& image,
                    const KernelImage* oracle);
  // Frees the buffers of the kernel in hand.
  void Forget();

 private:
  // The buffers of the kernel in hand; another kernel's are freed first.
  absl::StatusOr<ScratchBuffers*> Scratch(std::span<const KernelImage::Buffer> buffers,
                                          uint64_t seed);
  absl::Status RunWhole(const KernelImage& image, ScratchBuffers& scratch);

  Device& device_;
  DeviceTurn* turn_ = nullptr;
  std::string scratch_key_;
  std::optional<ScratchBuffers> scratch_;
};

}  // namespace beamd
