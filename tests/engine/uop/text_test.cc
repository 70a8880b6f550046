#include "engine/uop/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace beamd {
namespace {

constexpr DType kF32 = Scalar::kFloat32;
const double kInf = std::numeric_limits<double>::infinity();

constexpr absl::string_view kKernel =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1 size 64
%3 = DEFINE_VAR int32 var "n" 1..10
%4 = VIEW void (%3) view[shape (8,$0) strides (1,8) offset -2 mask (2:8,0:$0)] view[shape (4,3) strides (3,1) offset 0]
%5 = LOAD float32 (%2, %4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7) kernel local_dims 1 upcasted 2 dont_use_locals true
)";

// The text of what `text` parses to, or the error.
std::string Reprinted(absl::string_view text) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  return root.ok() ? ToText(*root) : std::string(root.status().message());
}

TEST(Text, KernelParsesAndPrintsTheSame) { EXPECT_EQ(Reprinted(kKernel), kKernel); }

TEST(Text, ParsedGraphIsTheOneThatWasPrinted) {
  UOpGraph graph;
  const UOp x = graph.Variable("x \"y\"\n", -5, 9);
  const UOp u = Cast(x * 4 + 1, kF32) * graph.ConstFloat(kF32, 0.1);
  EXPECT_EQ(ParseText(ToText(u), graph).value(), u);
}

TEST(Text, EveryArgumentComesBack) {
  UOpGraph graph;
  const UOp n = graph.Variable("n", 1, 4);
  const Arg args[] = {
      Arg(),
      Arg::Int(std::numeric_limits<int64_t>::min()),
      Arg::Bool(true),
      Arg::Bool(false),
      graph.Intern(ViewsArg()),
      graph.Intern(ViewsArg{{ViewArg{}}}),
      graph.Intern(ViewsArg{{ViewArg{{{2, -1}, {0, 0}}, {{1, -1}, {0, 0}}, {0, 0}, {}},
                             ViewArg{{{2, -1}}, {{-1, -1}}, {1, -1}, {{{{0, -1}, {0, 0}}}}}}}),
      graph.Intern(ReduceArg{Op::kMax, {}}),
      graph.Intern(ReduceArg{Op::kMul, {0, 3}}),
      graph.Intern(VariableArg{"", -3, 3}),
      graph.Intern(KernelInfo{3, 4, false}),
      graph.Intern(std::string("a\\b\"c\n\x80")),
      graph.Intern(IntsArg{{{5, -1}, {0, 0}}}),
      graph.Intern(IntsArg{}),
      graph.Intern(BufferArg{~uint64_t{0}, 12, {{3, -1}, {0, 0}}, "cpu:0"}),
      graph.Intern(LanesArg{{-1, 0, 1}}),
      graph.Intern(RangeArg{RangeArg::Kind::kGroup, 3, 1}),
  };
  for (const Arg& arg : args) {
    // The op doesn't matter to the text.
    const UOp u = graph.Make(Op::kContiguous, kF32, {n}, arg);
    const absl::StatusOr<UOp> back = ParseText(ToText(u), graph);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToText(u);
    EXPECT_EQ(*back, u) << ToText(u);
  }
}

TEST(Text, EveryFloatComesBack) {
  UOpGraph graph;
  for (const double v : {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, -kInf, kInf, std::nan(""), 1e22,
                         123456789.0, 0x1.fffffffffffffp1023}) {
    const UOp u = graph.ConstFloat(Scalar::kFloat64, v);
    EXPECT_EQ(ParseText(ToText(u), graph).value(), u) << ToText(u);
  }
}

TEST(Text, EveryTypeComesBack) {
  UOpGraph graph;
  DType image = DType::Pointer(Scalar::kFloat16, AddressSpace::kGlobal);
  image.image_height = 3;
  image.image_width = 7;
  std::vector<DType> types = {image};
  for (int i = 0; i < kScalarCount; ++i) {
    const auto s = static_cast<Scalar>(i);
    types.insert(types.end(), {DType(s), DType(s, 4), DType::Pointer(s, AddressSpace::kGlobal),
                               DType::Pointer(s, AddressSpace::kLocal),
                               DType::Pointer(s, AddressSpace::kLocal).WithLanes(2)});
  }
  for (const DType t : types) {
    const UOp u = graph.Make(Op::kEmpty, t, {});
    EXPECT_EQ(ParseText(ToText(u), graph).value(), u) << ToText(u);
  }
}

TEST(Text, EveryOpComesBack) {
  UOpGraph graph;
  for (int i = 1; i < kOpCount; ++i) {
    const UOp u = graph.Make(static_cast<Op>(i), kF32, {});
    EXPECT_EQ(ParseText(ToText(u), graph).value(), u) << ToText(u);
  }
}

TEST(Text, TakesCommentsSpacesAndAnyNumbers) {
  EXPECT_EQ(Reprinted("%7=CONST int32 1\r\n"), "%0 = CONST int32 1\n");
  EXPECT_EQ(Reprinted("# a graph\n\n  %7=CONST int32 1 # one\n%3 = NEG  int32(%7)"),
            "%0 = CONST int32 1\n%1 = NEG int32 (%0)\n");
}

TEST(ParseText, NamesLineAndColumnOfTheMistake) {
  EXPECT_EQ(Reprinted(""), "line 1, column 1: no node");
  EXPECT_EQ(Reprinted("%0 = CONST int32 1\n%1 = NGE int32 (%0)"), "line 2, column 6: no op 'NGE'");
  EXPECT_EQ(Reprinted("%0 = CONST int33 1"), "line 1, column 12: no type 'int33'");
  EXPECT_EQ(Reprinted("%0 = CONST int32 1\n%0 = CONST int32 2"),
            "line 2, column 1: %0 is there already");
  EXPECT_EQ(Reprinted("%0 = NEG int32 (%0)"),
            "line 1, column 17: no such node in the lines before");
  EXPECT_EQ(Reprinted("%0 = CONST int32 99999999999999999999"),
            "line 1, column 18: not an argument");
  EXPECT_EQ(Reprinted("%0 = CONST int32 1 2"), "line 1, column 20: the line should end here");
  EXPECT_EQ(Reprinted("%0 = VIEW void view[shape (4) strides (1,2) offset 0]"),
            "line 1, column 39: one stride an axis");
  EXPECT_EQ(Reprinted("%0 = VIEW void view[shape ($0) strides (1) offset 0]"),
            "line 1, column 28: no such source");
  EXPECT_EQ(Reprinted("%0 = DEFINE_VAR int32 var \"x 0..1"),
            "line 1, column 27: not a quoted text");
  EXPECT_EQ(Reprinted("%0 = RANGE int32 range globally 0 stage 0"),
            "line 1, column 24: no such kind of range");
  EXPECT_EQ(Reprinted("0 = CONST int32 1"), "line 1, column 1: expected '%'");
  EXPECT_EQ(Reprinted("%0 = DEFINE_GLOBAL global int32 slot 0"), "line 1, column 33: expected '*'");
}

TEST(ParseText, RefusesEveryCutOfAKernel) {
  UOpGraph graph;
  for (size_t length = 0; length < kKernel.size(); ++length) {
    // Must end, with a root or an error, whatever is left of the text.
    const absl::StatusOr<UOp> root = ParseText(kKernel.substr(0, length), graph);
    if (root.ok()) continue;
    EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(root.status().message().substr(0, 5), "line ") << root.status();
  }
}

}  // namespace
}  // namespace beamd
