// What must hold for every kernel of the corpus.

#include "tests/testing/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "engine/uop/text.h"
#include "engine/uop/verify.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

class UOpCorpus : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> dir = testing::CorpusDir();
    if (!dir) GTEST_SKIP() << "BEAMD_CORPUS is not set";
    auto kernels = testing::ReadCorpusKernels(*dir);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    ASSERT_GT(kernels->size(), 1000u);
    kernels_ = *std::move(kernels);
  }

  std::vector<testing::CorpusKernel> kernels_;
};

TEST_F(UOpCorpus, EveryKernelIsAccepted) {
  std::vector<double> micros;
  for (const testing::CorpusKernel& kernel : kernels_) {
    UOpGraph graph;
    const absl::StatusOr<UOp> root = FromProto(kernel.graph, graph);
    ASSERT_TRUE(root.ok()) << kernel.id << ": " << root.status();
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = VerifyKernel(*root);
    micros.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
    EXPECT_TRUE(status.ok()) << kernel.id << ": " << status;
  }
  std::ranges::sort(micros);
  std::printf("verify: median %.0f us, p99 %.0f us, most %.0f us\n", micros[micros.size() / 2],
              micros[micros.size() * 99 / 100], micros.back());
}

TEST_F(UOpCorpus, EveryKernelComesBackFromTextAndWire) {
  for (const testing::CorpusKernel& kernel : kernels_) {
    UOpGraph graph;
    const absl::StatusOr<UOp> root = FromProto(kernel.graph, graph);
    ASSERT_TRUE(root.ok()) << kernel.id << ": " << root.status();
    const absl::StatusOr<UOp> from_text = ParseText(ToText(*root), graph);
    ASSERT_TRUE(from_text.ok()) << kernel.id << ": " << from_text.status();
    EXPECT_EQ(*from_text, *root) << kernel.id;
    const absl::StatusOr<UOp> from_wire = FromProto(ToProto(*root), graph);
    ASSERT_TRUE(from_wire.ok()) << kernel.id << ": " << from_wire.status();
    EXPECT_EQ(*from_wire, *root) << kernel.id;
  }
}

}  // namespace
}  // namespace beamd
