// Random tensor graphs, for tests of everything that takes one.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/uop/uop.h"

namespace beamd::testing {

// A graph of float32, int32 and bool values over two buffers of each, with at least one output.
class RandomGraph {
 public:
  // With `all_ops` floats are also put through EXP2, LOG2, SIN and MULACC, whose values depend on
  // how they are computed.
  RandomGraph(uint32_t seed, UOpGraph& graph, bool all_ops = false);
  // A verified SINK.
  UOp Root();

 private:
  struct Value {
    UOp node;
    std::vector<int64_t> shape;
  };

  int64_t Draw(int64_t least, int64_t most);
  const Value& Pick();
  Arg Ints(const std::vector<int64_t>& values);
  void Push(UOp node, std::vector<int64_t> shape);
  void AddMemory(Scalar scalar);
  // Another value of the same type and shape: one of the graph, or a constant.
  UOp Other(const Value& x, Scalar scalar);
  void Add();
  void Alu(const Value& x);
  void Reduce(const Value& x);
  void Move(const Value& x);
  // The last value written into a buffer that has room for it.
  void Assign();

  std::mt19937 random_;
  UOpGraph& graph_;
  const bool all_ops_;
  std::vector<Value> values_;
};

// Small numbers, other ones for each buffer.
std::vector<double> Content(Scalar scalar, uint64_t seed, int64_t count);

}  // namespace beamd::testing
