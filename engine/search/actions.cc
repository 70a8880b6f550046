#include "engine/search/actions.h"

#include <algorithm>
#include <initializer_list>

namespace beamd {
namespace {

constexpr int32_t kMostGroupItems = 1024;

// Does the list hold (op, axis, 0)? Only these ops have it, on this many axes.
bool HasWholeAxisAction(OptOp op, int axis) {
  switch (op) {
    case OptOp::kUpcast:
      return axis < 6;
    case OptOp::kUnroll:
      return axis < 5;
    case OptOp::kGroup:
      return axis < 3;
    default:
      return false;
  }
}

int RealAxis(const Kernel& kernel, const Opt& action) {
  const int axis = action.axis.value_or(-1);
  if (action.op == OptOp::kUnroll) return kernel.first_reduce() + axis;
  if (action.op == OptOp::kGroup || action.op == OptOp::kGroupTop) {
    return kernel.first_reduce() + kernel.group_for_reduces() + axis;
  }
  return axis;
}

}  // namespace

std::vector<Opt> Actions(const ActionOptions& options) {
  std::vector<Opt> actions;
  auto add = [&](OptOp op, int axes, std::initializer_list<int32_t> amounts) {
    for (int32_t amount : amounts) {
      for (int32_t axis = 0; axis < axes; ++axis) actions.push_back({op, axis, amount});
    }
  };
  add(OptOp::kUpcast, 6, {0, 2, 3, 4, 5, 7});
  add(OptOp::kUnroll, 5, {0, 4, 7});
  add(OptOp::kLocal, 6, {2, 3, 4, 8, 13, 16, 29});
  add(OptOp::kGroupTop, 3, {13, 16, 28, 29, 32, 49, 64, 256});
  add(OptOp::kGroup, 3, {0, 4, 8, 16});
  if (options.padto) add(OptOp::kPadTo, 7, {32});
  actions.push_back({OptOp::kLocal, 0, 32});
  actions.push_back({OptOp::kLocal, 6, 2});
  actions.push_back({OptOp::kUpcastMid, 1, 4});
  actions.push_back({OptOp::kTc, 0, 0});
  add(OptOp::kTc, 9, {options.tc_opt});
  for (int32_t axis = 0; axis < 5; ++axis) {
    for (int32_t other = axis + 1; other < 5; ++other) {
      actions.push_back({OptOp::kSwap, axis, other});
    }
  }
  if (options.no_locals) actions.push_back({.op = OptOp::kNoLocals});
  return actions;
}

std::vector<Kernel> GroupSizes(const Kernel& fresh, const std::vector<Opt>& opts) {
  std::vector<Kernel> kernels;
  const auto open = std::ranges::find_if(
      opts, [](const Opt& opt) { return opt.op == OptOp::kNoLocals && !opt.amount; });
  if (open == opts.end()) return kernels;
  std::vector<Opt> sized = opts;
  Opt& opt = sized[open - opts.begin()];
  for (int32_t items = 1; items <= kMostGroupItems; items *= 2) {
    // The axis is said so that the list's text can be read back.
    opt = {OptOp::kNoLocals, 0, items};
    Kernel kernel = fresh;
    if (kernel.ApplyAll(sized).ok()) kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::vector<std::pair<int, Kernel>> LegalActions(const Kernel& kernel,
                                                 const ActionOptions& options) {
  std::vector<std::pair<int, Kernel>> legal;
  const std::vector<Opt> actions = Actions(options);
  for (size_t i = 0; i < actions.size(); ++i) {
    const Opt& action = actions[i];
    if (action.axis && action.op != OptOp::kTc) {
      const int axis = RealAxis(kernel, action);
      if (axis >= kernel.shape_len()) continue;
      // 0.10.0 looks the real axis up in a list of relative ones; so it does here.
      if (kernel.full_shape()[axis] == SInt(*action.amount) &&
          HasWholeAxisAction(action.op, axis)) {
        continue;
      }
    }
    Kernel next = kernel;
    if (!next.Apply(action).ok()) continue;
    if (next.UpcastProduct() > options.upcast_max || next.LocalProduct() > options.local_max) {
      continue;
    }
    legal.emplace_back(static_cast<int>(i) + 1, std::move(next));
  }
  return legal;
}

}  // namespace beamd
