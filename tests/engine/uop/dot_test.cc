#include "engine/uop/dot.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/uop/text.h"
#include "tests/testing/golden.h"

namespace beamd {
namespace {

TEST(Dot, DrawsAGraph) {
  UOpGraph graph;
  const UOp root = ParseText(R"(%0 = BUFFER float32 slot 0 shape (4,3) device "say \"cpu\""
%1 = CONST float32 2.0
%2 = RESHAPE float32 (%1) ints (1,1)
%3 = EXPAND float32 (%2) ints (4,3)
%4 = MUL float32 (%0, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = SINK void (%5)
)",
                             graph)
                       .value();
  Dot dot("a \"graph\"");
  dot.BeginCluster("one");
  AddGraph(
      root, "a", [](UOp u) { return u.is(Op::kMul) ? "(4,3)" : ""; }, dot);
  dot.EndCluster();
  testing::ExpectGolden("engine/uop/graph.dot", dot.Finish());
}

TEST(Dot, DrawsAConstantAtEachUser) {
  UOpGraph graph;
  const UOp root = ParseText("%0 = CONST int32 1\n%1 = ADD int32 (%0, %0)\n", graph).value();
  Dot dot("t");
  AddGraph(
      root, "", [](UOp) { return ""; }, dot);
  const std::string text = dot.Finish();
  EXPECT_NE(text.find("\"0_1_0\" -> \"1\" [label=\"0\"];"), std::string::npos) << text;
  EXPECT_NE(text.find("\"0_1_1\" -> \"1\" [label=\"1\"];"), std::string::npos) << text;
}

}  // namespace
}  // namespace beamd
