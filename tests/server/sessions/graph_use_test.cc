#include "server/sessions/graph_use.h"

#include <string>

#include "absl/strings/substitute.h"
#include "engine/base/error_detail.h"
#include "engine/uop/text.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

v1::Graph GraphOf(absl::string_view text) {
  UOpGraph graph;
  return ToProto(ParseText(text, graph).value());
}

std::string Sum(int a, int b) {
  return absl::Substitute(
      "%0 = BUFFER float32 slot $0 shape (4)\n%1 = BUFFER float32 slot $1 shape (4)\n"
      "%2 = ADD float32 (%0, %1)\n%3 = ASSIGN float32 (%0, %2)\n%4 = SINK void (%3)",
      a, b);
}

TEST(GraphUse, NamesInputsAndWhatIsAssigned) {
  const GraphUse use = ReadGraphUse(GraphOf(Sum(70, 9)), 100).value();
  ASSERT_EQ(use.inputs.size(), 2);
  EXPECT_EQ(use.inputs[0].handle, 70);
  EXPECT_TRUE(use.inputs[0].written);
  EXPECT_EQ(use.inputs[1].handle, 9);
  EXPECT_EQ(use.inputs[1].node, 1);
  EXPECT_FALSE(use.inputs[1].written);
  EXPECT_EQ(use.graph.nodes(0).buffer_arg().id(), 0);
  EXPECT_EQ(use.graph.nodes(1).buffer_arg().id(), 1);
}

TEST(GraphUse, AViewThatIsAssignedToIsItsBuffer) {
  const GraphUse use = ReadGraphUse(GraphOf("%0 = BUFFER float32 slot 5 shape (4,4)\n"
                                            "%1 = SHRINK float32 (%0) ints (2,3,0,4)\n"
                                            "%2 = BUFFER float32 slot 6 shape (1,4)\n"
                                            "%3 = ASSIGN float32 (%1, %2)\n%4 = SINK void (%3)"),
                                    100)
                           .value();
  EXPECT_TRUE(use.inputs[0].written);
  EXPECT_FALSE(use.inputs[1].written);
}

TEST(GraphUse, TheStructureIsOfTheGraphAndNotOfItsHandles) {
  const auto structure = [](int a, int b) {
    return ReadGraphUse(GraphOf(Sum(a, b)), 100).value().structure;
  };
  EXPECT_EQ(structure(1, 2), structure(8, 3));
  // Whether two inputs are one is part of it.
  UOpGraph graph;
  v1::Graph same = GraphOf(Sum(1, 2));
  same.mutable_nodes(1)->mutable_buffer_arg()->set_id(1);
  EXPECT_NE(ReadGraphUse(same, 100).value().structure, structure(1, 2));
}

TEST(GraphUse, RefusesAHandleThatIsTwoBuffers) {
  v1::Graph graph = GraphOf(Sum(1, 2));
  graph.mutable_nodes(1)->mutable_buffer_arg()->set_id(1);
  graph.mutable_nodes(1)->mutable_dtype()->set_scalar(v1::SCALAR_INT32);
  const absl::Status status = ReadGraphUse(graph, 100).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(GetErrorDetail(status)->node, 1);
}

TEST(GraphUse, RefusesMoreNodesThanTheLimit) {
  const absl::Status status = ReadGraphUse(GraphOf(Sum(1, 2)), 4).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(GetErrorDetail(status)->limit, 4);
  EXPECT_EQ(GetErrorDetail(status)->value, 5);
}

}  // namespace
}  // namespace beamd
