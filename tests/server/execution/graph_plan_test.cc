#include "server/execution/graph_plan.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "devices/cpu/device.h"
#include "engine/base/error_detail.h"
#include "engine/uop/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = OpenCpuDevice().value();
    kernels_ = LoadedKernels::Create(*device_).value();
  }

  absl::Status Make(absl::string_view text, size_t inputs, std::vector<uint64_t> gradients = {}) {
    absl::StatusOr<std::unique_ptr<GraphPlan>> plan = GraphPlan::Create(
        *kernels_, "cpu:0", ParseText(text, graph_).value(), inputs, gradients, {});
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    std::vector<GraphPlan::Choice> choices;
    for (const GraphKernel& kernel : plan_->kernels()) {
      choices.push_back({.opts = kernel.heuristic_opts});
    }
    return plan_->Build(choices).status();
  }

  // Memory of these floats.
  Buffer* Memory(const std::vector<float>& values) {
    memories_.push_back(device_->Allocate(values.size() * sizeof(float)).value());
    EXPECT_TRUE(memories_.back()->Write(0, std::as_bytes(std::span(values))).ok());
    return memories_.back().get();
  }
  static std::vector<float> Floats(const Buffer& buffer) {
    std::vector<float> values(buffer.size_bytes() / sizeof(float));
    EXPECT_TRUE(buffer.Read(0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  absl::Status Run(const std::vector<Buffer*>& memories, const VariableValues& variables = {}) {
    return plan_->Run(memories, variables, {.profile = true}, result_);
  }

  UOpGraph graph_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<LoadedKernels> kernels_;
  std::vector<std::unique_ptr<Buffer>> memories_;
  std::unique_ptr<GraphPlan> plan_;  // goes before what it runs on
  GraphPlan::Result result_;
};

TEST_F(GraphPlanTest, RunsOnOtherMemoryEachTime) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (2)
%1 = BUFFER float32 slot 1 shape (2)
%2 = MUL float32 (%0, %1)
%3 = SINK void (%2))",
                   2)
                  .ok());
  ASSERT_EQ(plan_->memory_count(), 3);
  ASSERT_EQ(plan_->outputs().size(), 1);
  EXPECT_EQ(plan_->outputs()[0].memory, 2);
  Buffer* const first = Memory({0, 0});
  Buffer* const second = Memory({0, 0});
  ASSERT_TRUE(Run({Memory({2, 3}), Memory({5, 7}), first}).ok());
  EXPECT_TRUE(result_.began);
  EXPECT_EQ(result_.launches.size(), 1);
  ASSERT_TRUE(Run({Memory({1, 2}), Memory({3, 4}), second}).ok());
  EXPECT_THAT(Floats(*first), ElementsAre(10, 21));
  EXPECT_THAT(Floats(*second), ElementsAre(3, 8));
  EXPECT_FALSE(Run({first}).ok());
}

TEST_F(GraphPlanTest, StopsBeforeAKernel) {
  // Two kernels: the sum is needed whole.
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (2)
%1 = REDUCE_AXIS float32 (%0) ADD axes (0)
%2 = EXPAND float32 (%1) ints (2)
%3 = ADD float32 (%0, %2)
%4 = REDUCE_AXIS float32 (%3) ADD axes (0)
%5 = SINK void (%4))",
                   1)
                  .ok());
  ASSERT_EQ(plan_->launches(), 2);
  Buffer* const out = Memory({-1});
  int asked = 0;
  const auto run = [&](int most) {
    asked = 0;
    return plan_->Run(std::vector<Buffer*>{Memory({1, 2}), out}, {},
                      {.stops = [&, most] { return ++asked > most; }}, result_);
  };
  EXPECT_TRUE(absl::IsCancelled(run(0)));
  EXPECT_FALSE(result_.began);
  EXPECT_TRUE(absl::IsCancelled(run(1)));
  EXPECT_TRUE(result_.began);
  EXPECT_THAT(Floats(*out), ElementsAre(-1));
  // It runs as ever afterwards.
  EXPECT_TRUE(run(2).ok());
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(Floats(*out), ElementsAre(9));
}

TEST_F(GraphPlanTest, AnOutputIsTheInputItIsOrMemoryOfItsOwn) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (2,2)
%1 = PERMUTE float32 (%0) ints (1,0)
%2 = RESHAPE float32 (%0) ints (4)
%3 = SHRINK float32 (%0) ints (1,2,0,2)
%4 = CONST float32 3.0
%5 = RESHAPE float32 (%4) ints (1)
%6 = EXPAND float32 (%5) ints (2)
%7 = SQRT float32 (%0)
%8 = RESHAPE float32 (%7) ints (4)
%9 = CONTIGUOUS float32 (%0)
%10 = SINK void (%0, %1, %2, %3, %6, %7, %8, %9))",
                   1)
                  .ok());
  std::vector<size_t> places;
  for (const GraphPlan::Output& output : plan_->outputs()) places.push_back(output.memory);
  ASSERT_EQ(places.size(), 8);
  EXPECT_EQ(places[0], 0);
  EXPECT_EQ(plan_->memory_count(), 8);
  std::vector<Buffer*> memories = {Memory({1, 4, 9, 16})};
  for (size_t i = 1; i < plan_->memory_count(); ++i) {
    int64_t size = 0;
    for (const GraphPlan::Output& output : plan_->outputs()) {
      if (output.memory == i) size = output.size_bytes();
    }
    memories.push_back(Memory(std::vector<float>(static_cast<size_t>(size) / 4, -1)));
  }
  ASSERT_TRUE(Run(memories).ok());
  EXPECT_THAT(Floats(*memories[places[1]]), ElementsAre(1, 9, 4, 16));
  EXPECT_THAT(Floats(*memories[places[2]]), ElementsAre(1, 4, 9, 16));
  EXPECT_THAT(Floats(*memories[places[3]]), ElementsAre(9, 16));
  EXPECT_THAT(Floats(*memories[places[4]]), ElementsAre(3, 3));
  EXPECT_THAT(Floats(*memories[places[5]]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Floats(*memories[places[6]]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Floats(*memories[places[7]]), ElementsAre(1, 4, 9, 16));
}

TEST_F(GraphPlanTest, AssignsInPlaceAndReadsWhatWasBefore) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (2)
%1 = ADD float32 (%0, %0)
%2 = ASSIGN float32 (%0, %1)
%3 = NEG float32 (%0)
%4 = SINK void (%2, %3))",
                   1)
                  .ok());
  EXPECT_EQ(plan_->outputs()[0].memory, 0);
  Buffer* const x = Memory({1, 2});
  Buffer* const old = Memory({0, 0});
  ASSERT_TRUE(Run({x, old}).ok());
  ASSERT_TRUE(Run({x, old}).ok());
  EXPECT_THAT(Floats(*x), ElementsAre(4, 8));
  EXPECT_THAT(Floats(*old), ElementsAre(-2, -4));
}

TEST_F(GraphPlanTest, OnlyTheMemoryItselfIsWhatItHoldsInTheEnd) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (32,1)
%1 = CONST float32 9.0
%2 = RESHAPE float32 (%1) ints (1,1)
%3 = EXPAND float32 (%2) ints (32,1)
%4 = ASSIGN float32 (%0, %3)
%5 = CONST float32 1.0
%6 = RESHAPE float32 (%5) ints (1,1)
%7 = EXPAND float32 (%6) ints (32,1)
%8 = MUL float32 (%0, %7)
%9 = CAST float32 (%0)
%10 = REDUCE_AXIS float32 (%0) ADD axes (1)
%11 = CONTIGUOUS float32 (%0)
%12 = RESHAPE float32 (%8) ints (32)
%13 = SHRINK float32 (%0) ints (16,32,0,1)
%14 = CONTIGUOUS float32 (%13)
%15 = PERMUTE float32 (%0) ints (1,0)
%16 = EXPAND float32 (%0) ints (32,2)
%17 = PAD float32 (%0) ints (0,1,0,0)
%18 = RESHAPE float32 (%0) ints (4,8)
%19 = RESHAPE float32 (%4) ints (32)
%20 = MUL float32 (%4, %7)
%21 = SINK void (%4, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20))",
                   1)
                  .ok());
  std::vector<Buffer*> memories(plan_->memory_count(), nullptr);
  memories[0] = Memory(std::vector<float>(32, 5));
  for (const GraphPlan::Output& output : plan_->outputs()) {
    if (memories[output.memory] != nullptr) continue;
    memories[output.memory] =
        Memory(std::vector<float>(static_cast<size_t>(output.size_bytes()) / 4, 0));
  }
  ASSERT_TRUE(Run(memories).ok());
  for (size_t i = 0; i < plan_->outputs().size(); ++i) {
    const bool after = i == 0 || i > 10;
    EXPECT_EQ(Floats(*memories[plan_->outputs()[i].memory])[0], after ? 9 : 5) << i;
  }
}

TEST_F(GraphPlanTest, ScratchMemoryIsThePlansOwn) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (64,64)
%1 = REDUCE_AXIS float32 (%0) ADD axes (1)
%2 = CONTIGUOUS float32 (%1)
%3 = EXPAND float32 (%2) ints (64,64)
%4 = ADD float32 (%0, %3)
%5 = SINK void (%4))",
                   1)
                  .ok());
  EXPECT_EQ(plan_->kernels().size(), 2);
  EXPECT_GE(plan_->scratch_bytes(), 64 * 4);
  EXPECT_EQ(plan_->memory_count(), 2);
  Buffer* const out = Memory(std::vector<float>(64 * 64, 0));
  for (const float value : {1.0f, 2.0f}) {
    ASSERT_TRUE(Run({Memory(std::vector<float>(64 * 64, value)), out}).ok());
    EXPECT_THAT(Floats(*out), Each(65 * value));
  }
}

TEST_F(GraphPlanTest, ImagesTakeThePlaceOfCompiling) {
  constexpr absl::string_view kText = R"(%0 = BUFFER float32 slot 0 shape (2)
%1 = SQRT float32 (%0)
%2 = SINK void (%1))";
  const UOp root = ParseText(kText, graph_).value();
  const auto build = [&](const KernelImage* image) {
    plan_ = GraphPlan::Create(*kernels_, "cpu:0", root, 1, {}, {}).value();
    const std::vector<GraphPlan::Choice> choices = {
        {.opts = plan_->kernels()[0].heuristic_opts, .image = image}};
    return plan_->Build(choices).value()[0].compiled;
  };
  const std::optional<KernelImage> image = build(nullptr);
  ASSERT_TRUE(image);
  plan_ = nullptr;  // else the kernel is there
  EXPECT_FALSE(build(&*image));
  Buffer* const out = Memory({0, 0});
  ASSERT_TRUE(Run({Memory({4, 9}), out}).ok());
  EXPECT_THAT(Floats(*out), ElementsAre(2, 3));
  // One that doesn't load is as none.
  plan_ = nullptr;
  KernelImage broken = *image;
  broken.code = "no object";
  EXPECT_TRUE(build(&broken));
}

TEST_F(GraphPlanTest, WrongVariablesBeginNothing) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (8)
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = SHRINK float32 (%0, %1) ints (0,$1)
%3 = REDUCE_AXIS float32 (%2) ADD axes (0)
%4 = SINK void (%3))",
                   1)
                  .ok());
  const std::vector<Buffer*> memories = {Memory(std::vector<float>(8, 1)), Memory({-1})};
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(memories)));
  EXPECT_TRUE(absl::IsInvalidArgument(Run(memories, {{"n", 9}})));
  EXPECT_FALSE(result_.began);
  EXPECT_THAT(Floats(*memories[1]), ElementsAre(-1));
  ASSERT_TRUE(Run(memories, {{"n", 3}}).ok());
  EXPECT_THAT(Floats(*memories[1]), ElementsAre(3));
}

// Columns 0 to n of what is doubled; as they are; and their sums.
TEST_F(GraphPlanTest, VariablesGiveTheShapesOfOutputs) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (2,4)
%1 = DEFINE_VAR int32 var "n" 0..4
%2 = SHRINK float32 (%0, %1) ints (0,2,0,$1)
%3 = ADD float32 (%2, %2)
%4 = REDUCE_AXIS float32 (%2) ADD axes (0)
%5 = SINK void (%2, %3, %4))",
                   1)
                  .ok());
  ASSERT_EQ(plan_->outputs().size(), 3);
  std::vector<Buffer*> memories(plan_->memory_count(), nullptr);
  memories[0] = Memory({1, 2, 3, 4, 5, 6, 7, 8});
  for (const GraphPlan::Output& output : plan_->outputs()) {
    EXPECT_EQ(output.shape.back(), 4);
    EXPECT_EQ(output.size_bytes(), output.memory == plan_->outputs()[2].memory ? 16 : 32);
    memories[output.memory] =
        Memory(std::vector<float>(static_cast<size_t>(output.size_bytes()) / 4, 0));
  }
  const auto content = [&](size_t output, size_t count) {
    std::vector<float> values = Floats(*memories[plan_->outputs()[output].memory]);
    values.resize(count);
    return values;
  };
  ASSERT_TRUE(Run(memories, {{"n", 3}}).ok());
  EXPECT_THAT(result_.shapes, ElementsAre(ElementsAre(2, 3), ElementsAre(2, 3), ElementsAre(1, 3)));
  EXPECT_THAT(content(0, 6), ElementsAre(1, 2, 3, 5, 6, 7));
  EXPECT_THAT(content(1, 6), ElementsAre(2, 4, 6, 10, 12, 14));
  EXPECT_THAT(content(2, 3), ElementsAre(6, 8, 10));
  ASSERT_TRUE(Run(memories, {{"n", 1}}).ok());
  EXPECT_THAT(result_.shapes, ElementsAre(ElementsAre(2, 1), ElementsAre(2, 1), ElementsAre(1, 1)));
  EXPECT_THAT(content(0, 2), ElementsAre(1, 5));
  EXPECT_THAT(content(1, 2), ElementsAre(2, 10));
  EXPECT_THAT(content(2, 1), ElementsAre(6));
  const absl::Status empty = Run(memories, {{"n", 0}});
  EXPECT_TRUE(absl::IsInvalidArgument(empty)) << empty;
  EXPECT_EQ(GetErrorDetail(empty)->reason, "EMPTY_OUTPUT");
  EXPECT_FALSE(result_.began);
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(memories)));
}

TEST_F(GraphPlanTest, RefusesOutputsThatAreNoDenseMemory) {
  const absl::Status empty = Make(R"(%0 = BUFFER float32 slot 0 shape (8)
%1 = SHRINK float32 (%0) ints (3,3)
%2 = SINK void (%1))",
                                  1);
  EXPECT_EQ(GetErrorDetail(empty)->reason, "EMPTY_OUTPUT");
  EXPECT_THAT(Make("%0 = BUFFER float32 slot 5 shape (8)\n%1 = SINK void (%0)", 1).message(),
              HasSubstr("BUFFER 5"));
}

TEST_F(GraphPlanTest, GradientsComeBehindTheOutputs) {
  ASSERT_TRUE(Make(R"(%0 = BUFFER float32 slot 0 shape (3)
%1 = BUFFER float32 slot 1 shape (3)
%2 = MUL float32 (%0, %1)
%3 = MUL float32 (%2, %2)
%4 = REDUCE_AXIS float32 (%3) ADD axes (0)
%5 = SINK void (%4))",
                   2, {1, 0})
                  .ok());
  ASSERT_EQ(plan_->outputs().size(), 3);
  std::vector<Buffer*> memories(plan_->memory_count(), nullptr);
  memories[0] = Memory({1, 2, 3});
  memories[1] = Memory({4, 5, 6});
  for (const GraphPlan::Output& output : plan_->outputs()) {
    memories[output.memory] =
        Memory(std::vector<float>(static_cast<size_t>(output.size_bytes()) / 4, 0));
  }
  ASSERT_TRUE(Run(memories).ok());
  EXPECT_THAT(Floats(*memories[plan_->outputs()[0].memory]), ElementsAre(16 + 100 + 324));
  EXPECT_THAT(Floats(*memories[plan_->outputs()[1].memory]), ElementsAre(8, 40, 108));
  EXPECT_THAT(Floats(*memories[plan_->outputs()[2].memory]), ElementsAre(32, 100, 216));
}

}  // namespace
}  // namespace beamd
