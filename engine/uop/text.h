// The text form of a graph: printed for people and goldens, and parsed back to the same graph.
//
//   %0 = DEFINE_GLOBAL global float32* slot 1
//   %1 = VIEW void view[shape (4,3) strides (3,1) offset 0 mask (0:4,0:2)]
//   %2 = LOAD float32 (%0, %1)
//   %3 = REDUCE_AXIS float32 (%2) ADD axes (1)
//
// A node a line, sources first, the last one is the root. `$0` in an argument is the value of
// source 0; text after `#` is a comment. Arguments, by what they are:
//
//   7   true   0.5   inf   nan       numbers: a float always has a point, an exponent or letters
//   "name"                           a name
//   view[...] view[...]              ViewsArg, first applied first; "no views" if there are none
//   ADD axes (0,2)                   ReduceArg
//   var "start_pos" 0..127           VariableArg, bounds inclusive
//   slot 3 size 64 shape (8,8) device "x"   BufferArg; what is unstated is left out
//   ints (1,2,$0)                    IntsArg
//   lanes (0,1)                      LanesArg
//   kernel local_dims 1 upcasted 2 dont_use_locals true   KernelInfo
//   range global 0 stage 0           RangeArg
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/uop/uop.h"

namespace beamd {

// `u` and everything below it, numbered in the order of Toposort.
std::string ToText(UOp u);
// A node's own part: "REDUCE_AXIS float32 ADD axes (1)", its sources left out.
std::string NodeText(UOp u);

// The root of the graph that `text` spells. InvalidArgument with line and column where it doesn't:
// syntax only, what the graph means isn't looked at. A source is named in a line before its user.
absl::StatusOr<UOp> ParseText(absl::string_view text, UOpGraph& graph);

}  // namespace beamd
