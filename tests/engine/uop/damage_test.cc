// Kernels with random damage, through everything that looks at a client's graph: each is refused or
// taken, and none crashes.

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "engine/uop/buffer_use.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

constexpr absl::string_view kKernels[] = {
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1 size 64
%3 = VIEW void view[shape (8,4) strides (1,8) offset -2 mask (2:8,0:3)] view[shape (4,3) strides (3,1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = CONST float16 0.5
%6 = MUL float16 (%4, %5)
%7 = CAST float32 (%6)
%8 = REDUCE_AXIS float32 (%7) ADD axes (1)
%9 = EXP2 float32 (%8)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10)
)",
    R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = CONST int32 3
%3 = MUL int32 (%1, %2)
%4 = VIEW void (%1) view[shape ($0,1) strides (1,0) offset 0]
%5 = VIEW void (%1, %3) view[shape ($0,3) strides (3,1) offset 0 mask (0:$0,0:2)]
%6 = DEFINE_GLOBAL global int32* slot 1
%7 = LOAD int32 (%6, %5)
%8 = IDIV int32 (%7, %3)
%9 = REDUCE_AXIS int32 (%8) MAX axes (1)
%10 = LOAD int32 (%0, %4)
%11 = CMPLT bool (%9, %10)
%12 = WHERE int32 (%11, %9, %10)
%13 = ASSIGN int32 (%0, %12)
%14 = STORE void (%0, %4, %13)
%15 = SINK void (%14)
)"};

// What is done with an accepted kernel; true if it could be evaluated.
bool Use(UOp root, int64_t n) {
  UOpGraph other;
  EXPECT_EQ(KernelHash(other.Import(root)), KernelHash(root));
  EXPECT_EQ(ParseText(ToText(root), root.graph()).value(), root);

  EvalInputs inputs;
  inputs.variables["n"] = n;
  const auto uses = BufferUses(root, inputs.variables);
  if (!uses.ok()) return false;
  std::vector<std::string> contents;
  for (const BufferUse& use : *uses) {
    if (use.elements > 100000) return false;
    contents.emplace_back(use.elements * SizeBytes(use.dtype.scalar), '\1');
  }
  for (size_t i = 0; i < contents.size(); ++i) {
    const BufferUse& use = (*uses)[i];
    inputs.buffers[use.slot] = {contents[i].data(), use.elements, use.dtype.scalar};
  }
  auto evaluator = Evaluator::Create(root, inputs);
  if (!evaluator.ok()) return false;
  for (const BufferUse& use : *uses) {
    if (!use.stored || use.elements == 0 || evaluator->WorkPerElement(use.slot) > 1e5) continue;
    const int64_t elements[] = {0, use.elements - 1};
    // A kernel that was accepted undecided may leave a buffer; it is told, not read.
    const auto values = evaluator->Evaluate(use.slot, elements);
    EXPECT_TRUE(values.ok() || absl::IsOutOfRange(values.status())) << values.status();
  }
  return true;
}

TEST(Damage, IsRefusedOrHarmless) {
  std::mt19937 random(20);
  int refused = 0, accepted = 0, evaluated = 0;
  for (const absl::string_view text : kKernels) {
    UOpGraph graph;
    const std::string bytes = ToProto(ParseText(text, graph).value()).SerializeAsString();
    for (int round = 0; round < 15000; ++round) {
      std::string damaged = bytes;
      for (unsigned hits = 1 + random() % 2; hits > 0; --hits) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      const absl::StatusOr<v1::Graph> message = GraphFromBytes(damaged);
      if (!message.ok()) continue;
      UOpGraph other;
      const absl::StatusOr<UOp> root = KernelFromProto(*message, other);
      if (!root.ok()) {
        EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument) << root.status();
        ++refused;
        continue;
      }
      ++accepted;
      evaluated += Use(*root, 1 + random() % 8) ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 500);
  EXPECT_GT(evaluated, 300);
}

}  // namespace
}  // namespace beamd
