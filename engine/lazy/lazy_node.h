// The node behind a LazyBuffer. For this folder alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/lazy/lazy_buffer.h"

namespace beamd {

struct LazyNode {
  explicit LazyNode(LazyContext& owner);
  ~LazyNode();
  LazyNode(const LazyNode&) = delete;
  LazyNode& operator=(const LazyNode&) = delete;

  // Gives one handle up. A node without any dies, and what it held after it, one at a time.
  static void Release(LazyNode* node);

  LazyContext* context;
  int64_t refs = 0;
  uint64_t id;
  Op op = Op::kUnspecified;
  Scalar dtype = Scalar::kVoid;
  DType image;  // of a base: what it is stored as where that fits; void: a plain buffer
  bool realized = false;
  bool forced_realize = false;
  bool cached = false;
  const std::string* device = nullptr;  // of the context's set
  std::shared_ptr<const ShapeTracker> st;
  LazyBuffer base;  // null: this is one
  LazyArg arg;
  std::vector<LazyBuffer> srcs;
  // What the cache knows a node by. It outlives `op` and `srcs`, which go when the node is realised;
  // an id is never given twice.
  Op made_by = Op::kUnspecified;
  absl::InlinedVector<uint64_t, 3> src_ids;
  size_t hash = 0;
  std::shared_ptr<TensorBuffer> buffer;  // made when first asked for

  // A copy of this base in row-major order, and how this one is seen through it. Users of a base
  // that has one read it instead. Not counted: the child clears it when it dies.
  LazyNode* contiguous_child = nullptr;
  std::shared_ptr<const ShapeTracker> seen_through_child;
  LazyNode* contiguous_of = nullptr;
};

}  // namespace beamd
