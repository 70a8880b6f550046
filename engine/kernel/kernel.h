// A kernel being scheduled: the graph a client sent, and the opts applied to it so far.
//
// Full shape, left to right: <global><local><group><reduce><upcast/unroll>; every buffer and every
// reduction has a ShapeTracker of that rank, with 1 where it does not vary. Spec: tinygrad 0.10.0
// codegen/kernel.py; where an opt may change an answer SEMANTICS refuses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/opt.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/uop.h"

namespace beamd {

// What an axis is for; ToString gives the corpus' colour names (blue, BLUE, cyan, green, red,
// magenta, yellow, white).
enum class AxisColor : uint8_t {
  kBlue,       // global
  kBlueUpper,  // global, locals not used ("BLUE")
  kCyan,       // local
  kGreen,      // grouped reduce
  kWhite,      // upcast between group and reduce (UPCASTMID)
  kRed,        // reduce loop
  kMagenta,    // unrolled reduce
  kYellow,     // upcast
};
absl::string_view ToString(AxisColor color);

// A value: copies are cheap and independent (they share the graph, which must outlive them and
// which no method but OptimizedAst changes for kernels without variables).
class Kernel {
 public:
  // `sink` is a verified kernel graph (engine/uop/verify.h). `caps` must outlive the kernel.
  // InvalidArgument if the shapes don't fit together.
  static absl::StatusOr<Kernel> Create(UOp sink, const TargetCaps& caps);

  // Applies one opt or says why it is illegal (FailedPrecondition); *this is unchanged then.
  absl::Status Apply(const Opt& opt);
  // All of them, or the first refusal with its place in the list; *this is then unspecified.
  absl::Status ApplyAll(const std::vector<Opt>& opts);

  // The graph with the views that the opts lead to, SINK carrying KernelInfo, in `graph`.
  UOp OptimizedAst(UOpGraph& graph) const;

  UOp ast() const;
  const TargetCaps& caps() const;
  const std::vector<Opt>& applied_opts() const;

  const Shape& full_shape() const;
  const Shape& output_shape() const;
  int shape_len() const;
  int first_reduce() const;  // first axis that is reduced
  int first_upcast() const;  // first upcast or unrolled axis
  int global_dims() const;
  int local_dims() const;
  int group_for_reduces() const;
  int upcasted() const;
  bool dont_use_locals() const;
  std::vector<AxisColor> colors() const;
  // Products over numbers only; symbolic axes count as their maximum.
  int64_t UpcastProduct()
      const;  // of upcast and unrolled axes as 0.10.0's get_kernel_actions counts them
  int64_t LocalProduct() const;
  // "r_16_16_16_4_4_4"
  std::string name() const;

 private:
  // (owned by the implementer of engine/kernel)
};

// What 0.10.0's hand_coded_optimizations chooses (TC as `use_tc` 0 off, 1 on; TC_OPT 0).
Kernel HandCodedOptimizations(const Kernel& kernel);
// The opts that a kernel can't do without (0.10.0: required_optimizations: images).
Kernel RequiredOptimizations(const Kernel& kernel);

}  // namespace beamd
