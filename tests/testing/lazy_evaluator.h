// The value of lazy buffers, element by element, without scheduling or compiling anything: each node
// computed by itself, with the error that SEMANTICS "Equal" gives it. An oracle for fusion.
//
// Asked for elements, it computes those that they need; results of reductions are remembered. Goes
// down the graph by recursion: for graphs of a test's depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/view_index.h"

namespace beamd::testing {

class LazyEvaluator {
 public:
  // What a realised buffer holds.
  using Contents = std::function<std::vector<std::byte>(const TensorBuffer&)>;

  LazyEvaluator(Contents contents, VariableValues variables)
      : contents_(std::move(contents)), variables_(std::move(variables)) {}

  // Learns what is below `root` as it is now; it may be realised afterwards.
  void Add(const LazyBuffer& root);
  // Element `at`, row-major, of a root that was added.
  EvalValue At(const LazyBuffer& root, int64_t at);

 private:
  struct Node;
  struct Edge {
    Node* node = nullptr;
    bool whole = false;  // seen as it lies
    ViewIndex view;
  };
  struct Node {
    Op op = Op::kUnspecified;
    Scalar dtype = Scalar::kVoid;
    ConstValue constant;
    ReduceArg reduce;
    std::vector<Edge> sources;
    std::vector<std::byte> data;                    // of a realised one
    absl::flat_hash_map<int64_t, EvalValue> known;  // of a reduction
  };

  Edge EdgeTo(const LazyBuffer& b);
  EvalValue Value(Edge& edge, std::span<const int64_t> point, int64_t flat);
  EvalValue Compute(Node& node, int64_t at);
  EvalValue Reduce(Node& node, int64_t at);

  Contents contents_;
  VariableValues variables_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Node>> nodes_;  // by id of the base
  absl::flat_hash_map<uint64_t, Edge> roots_;                   // by id
};

}  // namespace beamd::testing
