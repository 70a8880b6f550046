// A kernel being scheduled: the graph a client sent, and the opts applied to it so far.
//
// Full shape, left to right: <global><local><group><reduce><upcast/unroll>. Every buffer and every
// reduction has a ShapeTracker of that rank, with size 1 on axes where it does not vary.
// Spec: tinygrad 0.10.0 codegen/kernel.py. Differs: where an opt may change an answer, SEMANTICS
// refuses it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/opt.h"
#include "engine/kernel/tensor_core.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/uop.h"

namespace beamd {

// What an axis is for.
enum class AxisColor : uint8_t {
  kBlue,       // global
  kBlueUpper,  // global, of a kernel without locals (NOLOCALS)
  kCyan,       // local
  kGreen,      // local part of a reduction (GROUP, GROUPTOP)
  kWhite,      // upcast between the parts of a grouped reduction (UPCASTMID)
  kRed,        // reduce loop
  kMagenta,    // unrolled reduce
  kYellow,     // upcast
};
// The colour as 0.10.0 spells it: "blue", "BLUE", "cyan", ...
absl::string_view ToString(AxisColor color);

// A value: a copy is cheap and independent. Copies share the graph, which must outlive them, and
// immutable trackers; so copies may be used from several threads only where the graph has no
// variables (sizes that are expressions make nodes).
class Kernel {
 public:
  // `sink` is a verified kernel graph (engine/uop/verify.h). `caps` must outlive the kernel.
  // InvalidArgument if the shapes don't fit together.
  static absl::StatusOr<Kernel> Create(UOp sink, const TargetCaps& caps);

  // Applies one opt or says why it is illegal (FailedPrecondition); *this is unchanged then.
  absl::Status Apply(const Opt& opt);
  // All of them, or the first refusal with its place in the list; *this is then unspecified.
  absl::Status ApplyAll(const std::vector<Opt>& opts);

  // The graph with the views that the opts lead to, SINK carrying KernelInfo, in `graph`. A grouped
  // reduction goes through a DEFINE_LOCAL buffer; one that has no axis left is its source.
  UOp OptimizedAst(UOpGraph& graph) const;

  UOp ast() const;
  const TargetCaps& caps() const;
  const std::vector<Opt>& applied_opts() const { return applied_opts_; }

  const Shape& full_shape() const;
  const Shape& output_shape() const { return trackers_[0]->shape(); }
  int shape_len() const { return static_cast<int>(output_shape().size()); }
  int first_reduce()
      const;  // first axis that is reduced; first_upcast() if there is none before it
  int first_upcast() const { return shape_len() - upcasted_; }  // first upcast or unrolled axis
  int global_dims() const { return first_reduce() - local_dims_; }
  int local_dims() const { return local_dims_; }
  int group_for_reduces() const { return group_for_reduces_; }
  int upcasted() const { return upcasted_; }
  bool dont_use_locals() const { return dont_use_locals_; }
  // Work-items that such a kernel's groups are to have; 0 leaves it to lowering.
  int64_t group_items() const { return group_items_; }
  // What the axes are split for, and computes the sums unless caps().tensor_cores says otherwise;
  // null without a TC opt.
  const TensorCore* tensor_core() const { return tensor_core_; }
  // The axis that counts tiles along N or M; none where there is one tile, or no tensor core.
  std::optional<int> TileAxis(TileDim dim) const { return tile_axes_[dim]; }
  std::vector<AxisColor> colors() const;
  // Elements a thread computes at once (magenta, yellow; those within a tensor core's tile count as
  // one), threads of a work-group (cyan, green, white): what BEAM_UPCAST_MAX and BEAM_LOCAL_MAX
  // bound. A symbolic axis counts as its maximum.
  int64_t UpcastProduct() const;
  int64_t LocalProduct() const;
  // "r_16_16_16_4_4_4"; a symbol in a size is spelt in hexadecimal.
  std::string name() const;

  // LOAD, STORE, VALID, PRELOAD in the order of 0.10.0's `bufs`; the first output comes first.
  const std::vector<UOp>& bufs() const;
  // REDUCE_AXIS, a source before its users.
  const std::vector<UOp>& reduceops() const;
  // Of bufs()[i]; behind them two a reduction: its result, its source.
  int tracker_count() const { return static_cast<int>(trackers_.size()); }
  const ShapeTracker& tracker(int i) const { return *trackers_[i]; }
  // The buffer whose shape is the full shape.
  int full_buf_index() const;
  // Grouped axes that are upcast in between (white).
  std::vector<int> UpcastInMidReduceAxes() const;
  // Upcast axes along which buffer i can be moved in vectors of four, counted from first_upcast().
  std::vector<int> Float4Axes(int i) const;

 private:
  struct Facts;  // what no opt changes
  using TrackerPtr = std::shared_ptr<const ShapeTracker>;

  explicit Kernel(std::shared_ptr<const Facts> facts);
  // Apply, without the record of it.
  absl::Status Change(const Opt& opt);
  // The axes of N, M and K that `core` would multiply along for reduction `index`: choice `choice`
  // of them, the last first.
  std::optional<std::array<int, kTileDims>> ProductAxes(int index, const TensorCore& core,
                                                        int choice, int level) const;
  absl::Status ApplyTensorCore(int choice, int level);
  // Splits the product's axes as `core` needs them.
  absl::Status Tile(const TensorCore& core, const std::array<int, kTileDims>& axes);
  absl::Status CheckSharedMemory(int64_t amount) const;
  absl::Status PadTo(int axis, int64_t amount);
  // Replaces every tracker; equal pointers stay equal, `f` is called once for each.
  template <typename F>
  void MapTrackers(F f);
  void Permute(const std::vector<int>& order);
  // Splits `amount` off an axis (its outer part if `top`) and moves that part before another axis.
  void ShiftTo(int axis, int64_t amount, bool top, int insert_before);
  bool DropOnes();
  void MergeAdjacent();

  std::shared_ptr<const Facts> facts_;
  std::vector<TrackerPtr> trackers_;
  std::vector<Opt> applied_opts_;
  int local_dims_ = 0;
  int group_for_reduces_ = 0;
  int upcasted_ = 0;
  bool dont_use_locals_ = false;
  int64_t group_items_ = 0;
  const TensorCore* tensor_core_ = nullptr;
  std::array<std::optional<int>, 2> tile_axes_;  // of N, M
};

// What 0.10.0 chooses without a search after the required ones: tensor cores where they fit as they
// are (TC=1, TC_OPT=0), else what its hand_coded_optimizations does.
Kernel HandCodedOptimizations(const Kernel& kernel);
// The opts that a kernel can't do without: an image is written four elements at a time. A kernel
// that has none, or can't have them, comes back as it is.
Kernel RequiredOptimizations(const Kernel& kernel);

}  // namespace beamd
