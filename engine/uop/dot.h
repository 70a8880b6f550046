// Graphs in Graphviz's language, to be looked at: `dot -Tsvg`.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/uop/uop.h"

namespace beamd {

// Writes one digraph. Names of nodes are any text; a label's lines are split at '\n'.
class Dot {
 public:
  // What a node is for, which decides its look.
  enum class Kind : uint8_t { kMemory, kCompute, kReduce, kMove, kPlain, kResult };

  explicit Dot(absl::string_view title);
  void Node(absl::string_view name, absl::string_view label, Kind kind);
  void Edge(absl::string_view from, absl::string_view to, absl::string_view label = "");
  // Nodes until EndCluster stand in a box of their own.
  void BeginCluster(absl::string_view label);
  void EndCluster();
  // The text; nothing is added behind it.
  std::string Finish();

 private:
  std::string text_;
  int clusters_ = 0;
};

// Adds the graph under `root`: a node a UOp, as NodeText tells it, with the lines that `more` adds;
// edges go from a value to its user. A constant is drawn at each of its users, so that what shares
// it isn't drawn together. `prefix` keeps the names of several graphs in one Dot apart.
void AddGraph(UOp root, absl::string_view prefix, const std::function<std::string(UOp)>& more,
              Dot& dot);

}  // namespace beamd
