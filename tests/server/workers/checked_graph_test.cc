#include "server/workers/checked_graph.h"

#include "gtest/gtest.h"
#include "server/tuning/parse_kernel.h"
#include "server/workers/compile_handler.h"
#include "server/workers/runner_handler.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

// x + y + y + y...: a kernel of more than `count` nodes.
v1::Graph LongKernel(int count) {
  const v1::Graph add = testing::AddKernel(64);
  v1::Graph graph = add;
  const int sum = add.nodes_size() - 3;
  graph.mutable_nodes()->DeleteSubrange(sum + 1, 2);
  for (int i = 0; i < count; ++i) {
    const int last = graph.nodes_size() - 1;
    v1::Node* node = graph.add_nodes();
    *node = add.nodes(sum);
    node->set_src(0, static_cast<uint32_t>(last));
  }
  const int last = graph.nodes_size() - 1;
  v1::Node* store = graph.add_nodes();
  *store = add.nodes(sum + 1);
  store->set_src(2, static_cast<uint32_t>(last));
  v1::Node* sink = graph.add_nodes();
  *sink = add.nodes(sum + 2);
  sink->set_src(0, static_cast<uint32_t>(last + 1));
  return graph;
}

TEST(CheckedGraph, ChildrenTakeWhatTheDaemonWasToldToTake) {
  constexpr int kNodes = 25000;
  KernelLimits limits;
  EXPECT_FALSE(ParseKernel(LongKernel(kNodes), limits).ok());
  limits.graph.max_nodes = 2 * kNodes;
  const absl::StatusOr<ParsedKernel> kernel = ParseKernel(LongKernel(kNodes), limits);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  internal::AddContext context;
  context.set_id(1);
  *context.mutable_graph() = kernel->canonical;
  CompileHandler worker;
  EXPECT_TRUE(worker.AddContext(context).ok()) << worker.AddContext(context);
  RunnerHandler runner("cpu:0");
  EXPECT_TRUE(runner.AddContext(context).ok()) << runner.AddContext(context);
}

}  // namespace
}  // namespace beamd
