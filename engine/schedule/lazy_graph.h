// The part of a lazy graph that has to be computed: its bases in order, who reads whom through
// which view.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/lazy/lazy_buffer.h"

namespace beamd {

// A base that isn't realised and isn't a constant, at a place in LazyGraph::bases.
using BaseId = int32_t;
inline constexpr BaseId kNoBase = -1;

// How a base reads one source.
struct LazyEdge {
  LazyBuffer source;    // a base or a view of one
  LazyBuffer base;      // source.base()
  BaseId id = kNoBase;  // of the base; kNoBase: realised, or a constant
};

struct LazyBase {
  LazyBuffer buffer;
  Op op = Op::kUnspecified;
  std::vector<LazyEdge> sources;
  std::vector<BaseId> children;  // who reads this, each once, first reader first
  // Must be in memory whoever reads it: asked for, or what no kernel computes element by element.
  bool must_realize = false;
  // Somebody outside holds it, so its value must be there afterwards.
  bool held = false;
};

struct LazyGraph {
  std::vector<LazyBase> bases;  // sources before users

  // The distinct views through which `reader` sees `source`.
  std::vector<ShapeTracker> ViewsOf(BaseId source, BaseId reader) const;
};

// `inner` as it looks through `outer`, whose row-major positions are its elements.
ShapeTracker SeenThrough(const ShapeTracker& inner, const ShapeTracker& outer);

LazyGraph CollectLazyGraph(std::span<const LazyBuffer> roots);

}  // namespace beamd
