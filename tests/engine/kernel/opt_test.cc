#include "engine/kernel/opt.h"

#include <gtest/gtest.h>

namespace beamd {
namespace {

TEST(Opt, PrintsNameAxisAndAmount) {
  EXPECT_EQ(ToString(Opt{OptOp::kUpcast, 0, 4}), "UPCAST(0, 4)");
  EXPECT_EQ(ToString(Opt{.op = OptOp::kNoLocals}), "NOLOCALS");
  EXPECT_EQ(ToString(std::vector<Opt>{{OptOp::kSwap, 0, 1}, {OptOp::kUnroll, 0, 0}}),
            "SWAP(0, 1) UNROLL(0, 0)");
  EXPECT_EQ(ToString(std::vector<Opt>{}), "-");
}

TEST(Opt, OneWithoutAnAxisIsNotOneWithAxisZero) {
  EXPECT_NE((Opt{.op = OptOp::kNoLocals}), (Opt{OptOp::kNoLocals, 0, {}}));
}

}  // namespace
}  // namespace beamd
