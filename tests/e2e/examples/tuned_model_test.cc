// A model of ResNet-50's shape: its kernels listed, tuned in one batch under a small budget, and run.
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cc/client.h"
#include "client/thin/tensor.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/resnet.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

constexpr int kSide = 32, kBudgetSeconds = 60;

absl::StatusOr<v1::ScheduleModelResponse> Listed(Session& session, const v1::Graph& graph) {
  v1::ScheduleModelRequest request;
  *request.mutable_graph() = graph;
  return session.ScheduleModel(request);
}

// Operations of the products, two a multiplication and addition.
double ProductFlops() {
  double flops = 2.0 * 3 * 64 * 49 * (kSide / 2) * (kSide / 2) + 2.0 * 2048 * 1000;
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const double width = 64 << stage, out = 4 * width;
    const double side = std::max(kSide / 4 >> stage, 1);
    const double before = stage == 0 ? side : 2 * side;
    for (int i = 0; i < kBlocks[stage]; ++i) {
      const double first = i == 0 ? before : side;
      flops += 2 * in * width * first * first + 2 * (9 * width * width + width * out) * side * side;
      if (i == 0) flops += 2 * in * out * side * side;
      in = static_cast<int>(out);
    }
  }
  return flops;
}

TEST(TunedModel, IsListedTunedAndRun) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const testing::ResNet50 model;
  const Tensor image = Tensor::Uniform({1, 3, kSide, kSide}, 1, -1, 1);
  const Tensor logits = model.Logits(image);

  const absl::StatusOr<v1::Graph> graph = ToGraph({logits});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const absl::StatusOr<v1::ScheduleModelResponse> before = Listed(*session, *graph);
  ASSERT_TRUE(before.ok()) << before.status();
  // 53 convolutions, the pooling, the mean and the product: more, where a sum is made in two parts.
  EXPECT_GE(before->launches(), 56);
  EXPECT_LT(before->kernels_size(), static_cast<int>(before->launches()));
  double flops = 0;
  for (const v1::ModelKernel& kernel : before->kernels()) {
    EXPECT_FALSE(kernel.name().empty());
    EXPECT_FALSE(kernel.kernel_hash().empty());
    EXPECT_GT(kernel.bytes(), 0);
    EXPECT_FALSE(kernel.has_record()) << kernel.name();
    flops += kernel.flops() * kernel.launches();
  }
  EXPECT_GE(flops, 0.9 * ProductFlops());
  EXPECT_LE(flops, 2 * ProductFlops());

  const std::unique_ptr<Client> client = Client::Create(testing::ExampleServer());
  v1::TuneBatchBegin begin;
  begin.mutable_budget()->set_seconds(kBudgetSeconds);
  std::vector<v1::TuneBatchItem> items;
  for (const v1::ModelKernel& kernel : before->kernels()) {
    v1::TuneBatchItem& item = items.emplace_back();
    item.set_id(absl::StrCat(items.size() - 1));
    item.set_weight(kernel.launches());
    *item.mutable_request()->mutable_graph() = kernel.graph();
  }
  std::set<std::string> answered;
  const absl::Status tuned = client->TuneBatch(begin, items, [&](const v1::TuneBatchEvent& event) {
    // An error is that the budget was over before this kernel's turn.
    if (event.has_result() || event.has_error()) answered.insert(event.id());
    return true;
  });
  ASSERT_TRUE(tuned.ok()) << tuned;
  EXPECT_EQ(answered.size(), items.size());

  const absl::StatusOr<v1::ScheduleModelResponse> after = Listed(*session, *graph);
  ASSERT_TRUE(after.ok()) << after.status();
  std::set<std::string> stored;
  for (const v1::ModelKernel& kernel : after->kernels()) {
    if (kernel.has_record()) stored.insert(kernel.kernel_hash());
  }
  // All of them where nothing else is going on, some wherever there is time for one.
  EXPECT_FALSE(stored.empty());
  RecordProperty("kernels", after->kernels_size());
  RecordProperty("stored", static_cast<int>(stored.size()));

  const absl::StatusOr<RunReport> report = Compute(*session, {logits}, {.profile = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kernels.size(), before->launches());
  // What was tuned is what runs.
  for (const v1::KernelRun& kernel : report->kernels) {
    EXPECT_EQ(kernel.match() == v1::MATCH_STRICT, stored.contains(kernel.kernel_hash()))
        << kernel.name();
  }
  const absl::StatusOr<std::vector<float>> values = logits.ToVector<float>(*session);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->size(), 1000);
  for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace beamd::thin
