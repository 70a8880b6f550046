#include "tests/testing/programs.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "engine/schedule/memory_plan.h"
#include "engine/schedule/schedule.h"
#include "engine/uop/verify.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

// How many kernels tinygrad 0.10.0 makes of each program.
const std::map<std::string, int>& Counts() {
  static const std::map<std::string, int> counts{{"add", 1},
                                                 {"chain", 1},
                                                 {"sum_all", 2},
                                                 {"sum_small", 1},
                                                 {"sum_axis", 1},
                                                 {"mean_sub", 2},
                                                 {"softmax", 3},
                                                 {"log_softmax", 3},
                                                 {"layernorm", 3},
                                                 {"std", 2},
                                                 {"matmul", 1},
                                                 {"matmul_bias_relu", 1},
                                                 {"mlp", 2},
                                                 {"mlp_loss", 7},
                                                 {"conv_relu", 1},
                                                 {"conv_bias_bn_relu", 1},
                                                 {"conv_conv", 2},
                                                 {"residual", 2},
                                                 {"maxpool", 1},
                                                 {"avgpool", 1},
                                                 {"attention", 5},
                                                 {"causal_attention", 6},
                                                 {"transpose", 1},
                                                 {"reshape_permute_add", 2},
                                                 {"cat", 1},
                                                 {"pad_add", 1},
                                                 {"pad_exp", 2},
                                                 {"gather", 2},
                                                 {"embedding", 3},
                                                 {"argmax", 3},
                                                 {"cumsum", 1},
                                                 {"arange_add", 1},
                                                 {"two_reduces", 2},
                                                 {"reduce_of_reduce", 2},
                                                 {"shared_child", 1},
                                                 {"matmul_backward", 5},
                                                 {"mlp_backward", 15},
                                                 {"softmax_backward", 5},
                                                 {"layernorm_backward", 7},
                                                 {"conv_backward", 6},
                                                 {"maxpool_backward", 4}};
  return counts;
}

std::vector<LazyBuffer> Roots(const Program& program) {
  std::vector<LazyBuffer> roots;
  for (const Tensor& t : program.outputs) {
    EXPECT_TRUE(t.ok()) << t.status();
    if (t.ok()) roots.push_back(t.lazydata());
  }
  return roots;
}

class ProgramTest : public testing::TestWithParam<std::string> {};

TEST_P(ProgramTest, MakesNoMoreKernelsThanRecorded) {
  LazyContext context;
  const Program program = MakeProgram(GetParam(), context);
  ASSERT_FALSE(program.outputs.empty());
  const std::vector<LazyBuffer> roots = Roots(program);
  absl::StatusOr<Schedule> schedule = CreateSchedule(roots);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_LE(schedule->kernel_count(), Counts().at(GetParam()));
  EXPECT_GE(schedule->kernel_count(), 1);
  for (const ScheduleItem& item : schedule->items) {
    if (!item.ast) continue;
    EXPECT_TRUE(VerifyKernel(item.ast).ok()) << VerifyKernel(item.ast);
  }
  const MemoryPlan plan = PlanMemory(*schedule);
  EXPECT_LE(static_cast<double>(plan.peak_bytes),
            1.1 * static_cast<double>(plan.lower_bound_bytes));
}

INSTANTIATE_TEST_SUITE_P(All, ProgramTest, testing::ValuesIn(ProgramNames()),
                         [](const auto& info) { return info.param; });

TEST(Programs, AreThoseOfTheCorpus) {
  const char* corpus = std::getenv("BEAMD_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "BEAMD_CORPUS is not set";
  std::ifstream file(std::string(corpus) + "/schedules.json");
  std::stringstream text;
  text << file.rdbuf();
  for (const auto& [name, count] : Counts()) {
    const std::string key = "\"" + name + "\":";
    const size_t at = text.str().find(key);
    ASSERT_NE(at, std::string::npos) << name;
    const std::string kernels = "\"kernels\":";
    const size_t number = text.str().find(kernels, at) + kernels.size();
    EXPECT_EQ(std::stoi(text.str().substr(number)), count) << name;
  }
}

TEST(Programs, AChainOf1000IsScheduled) {
  LazyContext context;
  const Program chain = MakeChain(context, 1000);
  absl::StatusOr<Schedule> schedule = CreateSchedule(Roots(chain));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_LE(schedule->kernel_count(), 100);
}

}  // namespace
}  // namespace beamd
