#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "tests/engine/tensor/tensor_world.h"

namespace beamd {
namespace {

using testing::Array;
using testing::Coords;
using testing::Counting;
using testing::ExpectFails;
using testing::ExpectGradient;
using testing::Filled;
using testing::World;

TEST(Reshape, InfersOneSize) {
  World w;
  const Array a = Counting({2, 6});
  EXPECT_EQ(w.Values(w.Make(a).Reshape({3, -1})), (Array{{3, 4}, a.values}));
  EXPECT_EQ(w.Values(w.Make(a).View({12})), (Array{{12}, a.values}));
  EXPECT_EQ(w.Values(w.Make(Counting({1})).Reshape({})), (Array{{}, {1}}));
  const Tensor x = w.Make(a);
  EXPECT_TRUE(x.Reshape({2, -1}).is(x));
  EXPECT_EQ(w.Make({{0, 3}, {}}).Reshape({5, -1}).shape(), (Shape{5, 0}));
}

TEST(Reshape, RefusesWhatHasAnotherSize) {
  World w;
  const Tensor x = w.Make(Counting({2, 6}));
  ExpectFails(x.Reshape({-1, -1}), "reshape", "only one size can be inferred, got (-1, -1)");
  ExpectFails(x.Reshape({5, 2}), "reshape", "(2, 6) has another size than (5, 2)");
  ExpectFails(x.Reshape({5, -1}), "reshape", "(2, 6) has another size than (5, -1)");
  ExpectFails(x.Reshape({-2, -6}), "reshape", "a size is negative in (-2, -6)");
  ExpectFails(w.Make({{0, 3}, {}}).Reshape({0, -1}), "reshape", "another size");
}

TEST(Reshape, KeepsSymbolicSizes) {
  World w;
  const SInt n{w.context.Variable("n", 1, 5)};
  const Tensor x = w.Make(Counting({5, 6})).Shrink({{{0, n}}, std::nullopt});
  EXPECT_EQ(x.Reshape({n, 2, 3}).shape(), (Shape{n, 2, 3}));
  EXPECT_EQ(x.Reshape({1, n, -1}).shape(), (Shape{1, n, 6}));
  EXPECT_EQ(x.Reshape({-1, 6}).shape(), (Shape{n, 6}));
  ExpectFails(x.Reshape({5, 6}), "reshape", "another size");
  ASSERT_TRUE(w.context.Bind(n.expr(), 2).ok());
  EXPECT_EQ(w.Values(x.Reshape({n, 2, 3}).Sum(0)), (Array{{2, 3}, {8, 10, 12, 14, 16, 18}}));
}

TEST(Movement, RefusesSizesThatWrap) {
  World w;
  const Tensor x = w.Make(Counting({1, 1}));
  const int64_t large = int64_t{1} << 32, most = std::numeric_limits<int64_t>::max();
  ExpectFails(x.Expand({large, large}), "expand", "(4294967296, 4294967296) is too large");
  ExpectFails(Tensor::Zeros(w.context, {large, large}), "full", "is too large");
  ExpectFails(x.Expand({most, 1}).Contiguous(), "contiguous", "is too large");
  ExpectFails(x.Pad({{{most, 1}}, std::nullopt}), "pad", "of size 1 is too large");
  ExpectFails(x.Expand({large, 1}).Pad({std::nullopt, {{0, large}}}), "pad", "is too large");
  const Tensor line = x.Expand({most, 1});
  EXPECT_FALSE(line.Cat({line}).ok());
}

TEST(Expand, KeepsMinusOneAndAddsAxesInFront) {
  World w;
  const Array a = Counting({3, 1});
  EXPECT_EQ(w.Values(w.Make(a).Expand({2, -1, 4})),
            Filled({2, 3, 4}, [](const Coords& i) { return i[1] + 1.0; }));
  EXPECT_EQ(w.Values(w.Make(a).BroadcastTo({3, 0})), (Array{{3, 0}, {}}));
  ExpectFails(w.Make(a).Expand({2, 4}), "expand", "(3, 1) can't broadcast to (2, 4)");
  ExpectFails(w.Make(a).Expand({3}), "expand", "can't broadcast");
  ExpectFails(w.Make(a).BroadcastTo({1}), "expand", "can't broadcast");
  ExpectFails(w.Make(a).Expand({3, -2}), "expand", "can't broadcast");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Expand({2, -1, 4}); });
}

TEST(Permute, TakesAxesFromTheEnd) {
  World w;
  const Array a = Counting({2, 3, 4});
  EXPECT_EQ(w.Values(w.Make(a).Permute({-1, 0, 1})), Filled({4, 2, 3}, [&](const Coords& i) {
              return a({i[1], i[2], i[0]});
            }));
  EXPECT_EQ(w.Values(w.Make(a).Transpose(0, -1)), Filled({4, 3, 2}, [&](const Coords& i) {
              return a({i[2], i[1], i[0]});
            }));
  EXPECT_EQ(w.Make(a).T().shape(), (Shape{3, 2, 4}));
  ExpectFails(w.Make(a).Permute({0, 1}), "permute", "[0, 1] is no order of 3 axes");
  ExpectFails(w.Make(a).Permute({0, 1, 1}), "permute", "is no order");
  ExpectFails(w.Make(a).Permute({0, 1, 3}), "permute", "is no order");
  ExpectFails(w.Make(a).Transpose(0, 3), "transpose", "axis 3 is none of 3");
  ExpectFails(w.Make(Counting({})).T(), "transpose", "none of 0");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Permute({2, 0, 1}); });
}

TEST(Flip, TurnsAxesRound) {
  World w;
  const Array a = Counting({2, 3, 4});
  EXPECT_EQ(w.Values(w.Make(a).Flip({0, -1})), Filled({2, 3, 4}, [&](const Coords& i) {
              return a({1 - i[0], i[1], 3 - i[2]});
            }));
  ExpectFails(w.Make(a).Flip(3), "flip", "3");
  ExpectFails(w.Make(a).Flip({1, -2}), "flip", "");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Flip({0, 2}); });
}

TEST(Shrink, KeepsRanges) {
  World w;
  const Array a = Counting({4, 5});
  EXPECT_EQ(w.Values(w.Make(a).Shrink({std::nullopt, {{1, 3}}})),
            Filled({4, 2}, [&](const Coords& i) {
              return a({i[0], i[1] + 1});
            }));
  EXPECT_EQ(w.Values(w.Make(a).Shrink({{{2, 2}}, std::nullopt})), (Array{{0, 5}, {}}));
  ExpectFails(w.Make(a).Shrink({std::nullopt}), "shrink", "got 1 ranges for 2 axes");
  ExpectFails(w.Make(a).Shrink({{{1, 5}}, std::nullopt}), "shrink",
              "[1, 5) isn't within axis 0 of size 4");
  ExpectFails(w.Make(a).Shrink({{{-1, 2}}, std::nullopt}), "shrink", "[-1, 2)");
  ExpectFails(w.Make(a).Shrink({{{3, 2}}, std::nullopt}), "shrink", "[3, 2)");
  const SInt n{w.context.Variable("n", 1, 5)};
  ExpectFails(w.Make(a).Shrink({{{0, n}}, std::nullopt}), "shrink", "[0, n) isn't within");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Shrink({{{1, 3}}, {{0, 4}}}); });
}

TEST(Pad, FillsWithAConstant) {
  World w;
  const Array a = Counting({2, 3});
  const auto want = [&](double fill) {
    return Filled({4, 4}, [&, fill](const Coords& i) {
      const bool inside = i[0] >= 1 && i[0] < 3 && i[1] >= 1;
      return inside ? a({i[0] - 1, i[1] - 1}) : fill;
    });
  };
  const PadAmounts around = {{{1, 1}}, {{1, 0}}};
  EXPECT_EQ(w.Values(w.Make(a).Pad(around)), want(0));
  EXPECT_EQ(w.Values(w.Make(a).PadFlat({1, 0, 1, 1}, PadMode::kConstant, -2.5)), want(-2.5));
  EXPECT_EQ(w.Values(w.Make(a).Pad(around, PadMode::kConstant, -INFINITY)), want(-INFINITY));
  const Tensor ints = w.Make(a, Scalar::kInt32).Pad(around, PadMode::kConstant, -7);
  EXPECT_EQ(ints.dtype(), Scalar::kInt32);
  EXPECT_EQ(w.Values(ints), want(-7));
  ExpectGradient(w, a, [&](const Tensor& x) { return x.Pad(around, PadMode::kConstant, 3.5); });
}

// Element i of the padded axis shows this one of the axis; nullopt: none.
using PadRule = std::optional<int64_t> (*)(int64_t at, int64_t size);

TEST(Pad, ReflectsReplicatesWrapsAndShrinks) {
  const PadRule constant = [](int64_t at, int64_t size) {
    return at < 0 || at >= size ? std::nullopt : std::optional(at);
  };
  const PadRule reflect = [](int64_t at, int64_t size) {
    return std::optional(at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at);
  };
  const PadRule replicate = [](int64_t at, int64_t size) {
    return std::optional(std::clamp<int64_t>(at, 0, size - 1));
  };
  const PadRule wrap = [](int64_t at, int64_t size) { return std::optional((at + size) % size); };
  World w;
  const Array a = Counting({4, 5});
  struct Mode {
    PadMode mode;
    PadRule rule;
  };
  struct Amounts {
    int top, bottom, left, right;
  };
  for (const Mode& m : {Mode{PadMode::kConstant, constant}, Mode{PadMode::kReflect, reflect},
                        Mode{PadMode::kReplicate, replicate}, Mode{PadMode::kCircular, wrap}}) {
    for (const Amounts& by : {Amounts{1, 2, 3, 0}, Amounts{0, 3, 4, 4}, Amounts{-1, 0, 0, -2},
                              Amounts{0, -4, 1, 1}, Amounts{-2, -1, 2, 2}}) {
      // What wraps round is what a shrunken axis has left.
      const bool wraps = m.mode == PadMode::kCircular;
      const int64_t rows = wraps ? 4 + std::min(0, by.top) + std::min(0, by.bottom) : 4;
      const int64_t skip = wraps ? -std::min(0, by.top) : 0;
      if (rows == 0) continue;
      const Array want =
          Filled({4 + by.top + by.bottom, 5 + by.left + by.right}, [&](const Coords& i) {
            const auto y = m.rule(i[0] - by.top - skip, rows), x = m.rule(i[1] - by.left, 5);
            return x && y ? a({*y + skip, *x}) : 0;
          });
      EXPECT_EQ(w.Values(w.Make(a).PadFlat({by.left, by.right, by.top, by.bottom}, m.mode)), want)
          << "mode " << static_cast<int>(m.mode) << " pads " << by.top << " " << by.bottom << " "
          << by.left << " " << by.right;
    }
  }
  for (PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
    ExpectGradient(w, a, [&](const Tensor& x) { return x.PadFlat({2, 1, 0, 3}, mode); });
  }
}

TEST(Pad, RefusesAmountsThatDoNotFit) {
  World w;
  const Tensor x = w.Make(Counting({2, 3}));
  ExpectFails(x.PadFlat({1}), "pad", "two amounts for each of at most 2 axes, got 1");
  ExpectFails(x.PadFlat({1, 1, 1, 1, 1, 1}), "pad", "got 6");
  ExpectFails(x.Pad({{{1, 1}}}), "pad", "got 1 amounts for 2 axes");
  ExpectFails(x.PadFlat({-2, -2}), "pad", "leave nothing of axis 1 of size 3");
  ExpectFails(x.PadFlat({3, 0}, PadMode::kReflect), "pad", "a larger axis 1 than 3");
  ExpectFails(x.PadFlat({0, 4}, PadMode::kCircular), "pad", "wrap around more than once");
  ExpectFails(w.Make({{0}, {}}).PadFlat({1, 0}, PadMode::kReplicate), "pad", "no edge");
  const SInt n{w.context.Variable("n", 1, 2)};
  ExpectFails(x.PadFlat({n, 0}, PadMode::kReflect), "pad", "symbolic");
  ExpectFails(x.Shrink({{{0, n}}, std::nullopt}).PadFlat({1, 0}, PadMode::kReflect), "pad",
              "symbolic");
  EXPECT_EQ(x.PadFlat({n, 0}).shape(), (Shape{2, n + 3}));
}

TEST(Flatten, JoinsAxesAndUnflattenPartsThem) {
  World w;
  const Array a = Counting({2, 3, 4});
  EXPECT_EQ(w.Values(w.Make(a).Flatten(1)), (Array{{2, 12}, a.values}));
  EXPECT_EQ(w.Values(w.Make(a).Flatten(0, -2)), (Array{{6, 4}, a.values}));
  EXPECT_EQ(w.Values(w.Make(Counting({})).Flatten()), (Array{{1}, {1}}));
  EXPECT_EQ(w.Values(w.Make(a).Unflatten(-1, {-1, 2})), (Array{{2, 3, 2, 2}, a.values}));
  ExpectFails(w.Make(a).Flatten(2, 1), "flatten", "[2, 1] is no range of 3 axes");
  ExpectFails(w.Make(a).Flatten(0, 3), "flatten", "[0, 3]");
  ExpectFails(w.Make(a).Unflatten(3, {1}), "unflatten", "axis 3 is none of 3");
  ExpectFails(w.Make(a).Unflatten(1, {2, 2}), "unflatten", "another size");
}

TEST(Squeeze, DropsAxesOfOneAndUnsqueezeAddsThem) {
  World w;
  const Tensor x = w.Make(Counting({2, 1, 3, 1}));
  EXPECT_EQ(x.Squeeze().shape(), (Shape{2, 3}));
  EXPECT_EQ(x.Squeeze(-1).shape(), (Shape{2, 1, 3}));
  EXPECT_TRUE(x.Squeeze(0).is(x));
  EXPECT_EQ(x.Unsqueeze(-1).shape(), (Shape{2, 1, 3, 1, 1}));
  EXPECT_EQ(x.Unsqueeze(0).shape(), (Shape{1, 2, 1, 3, 1}));
  EXPECT_EQ(x.Unsqueeze(4).shape(), (Shape{2, 1, 3, 1, 1}));
  ExpectFails(x.Squeeze(4), "squeeze", "axis 4 is none of 4");
  ExpectFails(x.Unsqueeze(5), "unsqueeze", "axis 5 is no place among 4");
  ExpectFails(x.Unsqueeze(-6), "unsqueeze", "axis -6");
}

TEST(Cat, JoinsAlongAnAxis) {
  World w;
  const Array a = Counting({2, 3}), b = Counting({2, 1});
  EXPECT_EQ(w.Values(w.Make(a).Cat({w.Make(b), w.Make(a)}, -1)),
            Filled({2, 7}, [&](const Coords& i) {
              return i[1] < 3 ? a(i) : i[1] == 3 ? b({i[0], 0}) : a({i[0], i[1] - 4});
            }));
  EXPECT_EQ(w.Values(w.Make(a).Stack({w.Make(a)}, 1)), Filled({2, 2, 3}, [&](const Coords& i) {
              return a({i[0], i[2]});
            }));
  EXPECT_EQ(w.Values(w.Make(a).Cat({w.Make({{0, 3}, {}})})), a);
  // As Add has it.
  EXPECT_EQ(w.Make(a, Scalar::kInt32).Cat({w.Make(a, Scalar::kFloat16)}).dtype(), Scalar::kFloat16);
  ExpectGradient(w, a, [&](const Tensor& x) { return x.Cat({w.Make(b), x}, 1); });
}

TEST(Cat, RefusesShapesThatDifferElsewhere) {
  World w;
  const Tensor x = w.Make(Counting({2, 3}));
  ExpectFails(x.Cat({w.Make(Counting({2, 4}))}), "cat", "(2, 3) and (2, 4) differ beside axis 0");
  ExpectFails(x.Cat({w.Make(Counting({3}))}), "cat", "(2, 3) and (3)");
  ExpectFails(x.Cat({x}, 2), "cat", "axis 2 is none of 2");
  ExpectFails(w.Make(Counting({})).Cat({w.Make(Counting({}))}), "cat", "none of 0");
  ExpectFails(x.Stack({w.Make(Counting({3, 2}))}), "stack", "differ beside axis 0");
  ExpectFails(x.Stack({x}, 4), "stack", "axis 4");
  ExpectFails(x.Cat({x.Reshape({7})}), "reshape", "another size");
}

TEST(Repeat, TilesAndRepeatsElements) {
  World w;
  const Array a = Counting({2, 3});
  EXPECT_EQ(w.Values(w.Make(a).Repeat({2, 1, 3})), Filled({2, 2, 9}, [&](const Coords& i) {
              return a({i[1], i[2] % 3});
            }));
  EXPECT_EQ(w.Values(w.Make(a).RepeatInterleave(2, 0)), Filled({4, 3}, [&](const Coords& i) {
              return a({i[0] / 2, i[1]});
            }));
  EXPECT_EQ(w.Values(w.Make(a).RepeatInterleave(2)),
            Filled({12}, [&](const Coords& i) { return a.values[i[0] / 2]; }));
  EXPECT_EQ(w.Make(a).Repeat({0, 1}).shape(), (Shape{0, 3}));
  ExpectFails(w.Make(a).Repeat({2}), "repeat", "a count for each of 2 axes, got [2]");
  ExpectFails(w.Make(a).Repeat({2, -1}), "repeat", "got [2, -1]");
  ExpectFails(w.Make(a).RepeatInterleave(-1), "repeat_interleave", "-1 times");
  ExpectFails(w.Make(a).RepeatInterleave(1, 2), "repeat_interleave", "axis 2 of 2");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Repeat({2, 2}); });
}

std::vector<int64_t> Sizes(const std::vector<Tensor>& parts) {
  std::vector<int64_t> sizes;
  sizes.reserve(parts.size());
  for (const Tensor& part : parts) sizes.push_back(part.shape()[0].number());
  return sizes;
}

TEST(Split, CutsIntoPartsOrChunks) {
  using ::testing::ElementsAre;
  World w;
  const auto vector = [&](int64_t n) { return w.Make(Counting({n})); };
  EXPECT_THAT(Sizes(vector(5).Split(2)), ElementsAre(2, 2, 1));
  EXPECT_THAT(Sizes(vector(5).Split({1, 4})), ElementsAre(1, 4));
  EXPECT_THAT(Sizes(vector(0).Split(2)), ElementsAre(0));
  EXPECT_THAT(Sizes(vector(11).Chunk(6)), ElementsAre(2, 2, 2, 2, 2, 1));
  EXPECT_THAT(Sizes(vector(12).Chunk(6)), ElementsAre(2, 2, 2, 2, 2, 2));
  EXPECT_THAT(Sizes(vector(13).Chunk(6)), ElementsAre(3, 3, 3, 3, 1));
  EXPECT_THAT(Sizes(vector(0).Chunk(3)), ElementsAre(0, 0, 0));
  const Array a = Counting({2, 5});
  EXPECT_EQ(w.Values(w.Make(a).Split(2, 1)[1]), Filled({2, 2}, [&](const Coords& i) {
              return a({i[0], i[1] + 2});
            }));
  ExpectFails(vector(5).Split({2, 2})[0], "split", "[2, 2] don't add up to axis 0 of size 5");
  ExpectFails(vector(5).Split({6, -1})[0], "split", "don't add up");
  ExpectFails(vector(5).Split(2, 1)[0], "split", "axis 1");
  ExpectFails(vector(5).Split(0)[0], "split", "don't add up");
  ExpectFails(vector(5).Chunk(0)[0], "chunk", "0 chunks");
}

TEST(Meshgrid, SpreadsVectors) {
  World w;
  const Tensor x = w.Make(Counting({2})), y = w.Make(Counting({3}));
  const std::vector<Tensor> ij = x.Meshgrid(std::vector{y});
  EXPECT_EQ(w.Values(ij[0]), Filled({2, 3}, [](const Coords& i) { return i[0] + 1.0; }));
  EXPECT_EQ(w.Values(ij[1]), Filled({2, 3}, [](const Coords& i) { return i[1] + 1.0; }));
  const std::vector<Tensor> xy = x.Meshgrid(std::vector{y, x}, /*ij_indexing=*/false);
  EXPECT_EQ(w.Values(xy[0]), Filled({3, 2, 2}, [](const Coords& i) { return i[1] + 1.0; }));
  EXPECT_EQ(w.Values(xy[1]), Filled({3, 2, 2}, [](const Coords& i) { return i[0] + 1.0; }));
  EXPECT_EQ(w.Values(xy[2]), Filled({3, 2, 2}, [](const Coords& i) { return i[2] + 1.0; }));
  ExpectFails(x.Meshgrid(std::vector{w.Make(Counting({2, 2}))})[0], "meshgrid", "got (2, 2)");
}

TEST(Roll, WrapsAround) {
  World w;
  const Array a = Counting({3, 4});
  for (int shift : {0, 1, -1, 3, 5, -7}) {
    EXPECT_EQ(w.Values(w.Make(a).Roll({shift, 1}, {1, 0})),
              Filled({3, 4},
                     [&](const Coords& i) {
                       return a({(i[0] + 2) % 3, ((i[1] - shift) % 4 + 4) % 4});
                     }))
        << shift;
  }
  ExpectFails(w.Make(a).Roll({1}, {0, 1}), "roll", "got 1 shifts for 2 axes");
  ExpectFails(w.Make(a).Roll({1}, {2}), "roll", "axis 2");
  ExpectGradient(w, a, [](const Tensor& x) { return x.Roll({1, -2}, {0, 1}); });
}

TEST(Rearrange, FollowsTheFormula) {
  World w;
  const Array a = Counting({2, 3, 4});
  const Tensor x = w.Make(a);
  const auto permuted = [&](const Coords& shape) {
    Array b = Filled({4, 2, 3}, [&](const Coords& i) { return a({i[1], i[2], i[0]}); });
    b.shape = shape;
    return b;
  };
  EXPECT_EQ(w.Values(x.Rearrange("a b c -> c a b")), permuted({4, 2, 3}));
  EXPECT_EQ(w.Values(x.Rearrange("a b c->(c a) b")), permuted({8, 3}));
  EXPECT_EQ(w.Values(x.Rearrange("... c -> c (...)")), permuted({4, 6}));
  EXPECT_EQ(w.Values(x.Rearrange("... last -> last ...")), permuted({4, 2, 3}));
  EXPECT_EQ(w.Values(x.Rearrange("a b … -> … 1 (a b)")), permuted({4, 1, 6}));
  EXPECT_EQ(w.Values(x.Rearrange("a b ... c -> c a b ...")), permuted({4, 2, 3}));
  EXPECT_EQ(w.Values(x.Rearrange("a b c -> () c a b 1")), permuted({1, 4, 2, 3, 1}));
  EXPECT_EQ(w.Values(x.Unsqueeze(1).Rearrange("a 1 b c -> c a b")), permuted({4, 2, 3}));
  EXPECT_EQ(w.Values(x.Rearrange("a b (c d) -> a (b c) d", {{"d", 2}})),
            (Array{{2, 6, 2}, a.values}));
  ExpectGradient(w, a, [](const Tensor& t) {
    return t.Rearrange("a b (c d) -> (d a) b c", {{"c", 2}});
  });
}

TEST(Rearrange, RefusesFormulasThatMakeNoSense) {
  World w;
  const Tensor x = w.Make(Counting({2, 3, 4}));
  for (const auto& [formula, why] : {std::pair("a b c", "exactly one \"->\""),
                                     {"a b c -> c -> a", "exactly one \"->\""},
                                     {"a (b c -> a b c", "brackets don't match"},
                                     {"a ((b) c) -> a b c", "brackets don't match"},
                                     {"a b) c -> a b c", "brackets don't match"},
                                     {"a b c -> a b", "different names"},
                                     {"a b c -> a b c d", "different names"},
                                     {"a b b -> a b b", "stands twice"},
                                     {"a b -> b a", "the left side has 2 axes, the tensor 3"},
                                     {"a b c d ... -> d c b a ...", "axes, the tensor 3"},
                                     {"a (b ...) -> a b ...", "can't stand in brackets"},
                                     {"a b 2 -> a b 2", "is no name"},
                                     {"a b c_ -> a b c_", "is no name"},
                                     {"a b c! -> a b c!", "is no name"}}) {
    ExpectFails(x.Rearrange(formula), "rearrange", why);
  }
  ExpectFails(x.Rearrange("a b (c d) -> a b c d"), "rearrange", "only one size can be inferred");
  ExpectFails(x.Rearrange("a b (c d) -> a b c d", {{"c", 3}}), "rearrange", "another size");
  ExpectFails(x.Rearrange("a b c -> c a b", {{"c", 3}}), "rearrange", "no axis c of size 3");
  ExpectFails(x.Rearrange("a b c -> c a b", {{"e", 3}}), "rearrange", "no axis e of size 3");
}

TEST(Unfold, SlidesAlongOneAxis) {
  World w;
  const Array a = Counting({2, 7, 3});
  for (int size : {0, 1, 3, 7}) {
    for (int step : {1, 2, 5}) {
      const int64_t windows = (7 - size) / step + 1;
      EXPECT_EQ(w.Values(w.Make(a).Unfold(1, size, step)),
                Filled({2, windows, 3, size},
                       [&](const Coords& i) {
                         return a({i[0], i[1] * step + i[3], i[2]});
                       }))
          << size << " " << step;
    }
  }
  ExpectFails(w.Make(a).Unfold(1, 8, 1), "unfold", "no windows of 8");
  ExpectFails(w.Make(a).Unfold(1, 2, 0), "unfold", "each 0");
  ExpectFails(w.Make(a).Unfold(3, 2, 1), "unfold", "axis 3");
  ExpectFails(w.Make(a).Unfold(1, -1, 1), "unfold", "-1");
}

TEST(Pool, MakesWindows) {
  World w;
  int checked = 0;
  for (int size : {1, 4, 7}) {
    for (int kernel : {1, 2, 3}) {
      for (int stride : {1, 2, 3}) {
        for (int dilation : {1, 2}) {
          const int reach = dilation * (kernel - 1) + 1;
          if (reach > size) continue;
          const int64_t outputs = (size - reach) / stride + 1;
          const Array a = Counting({2, size, 5});
          const Array want = Filled({2, outputs, 2, kernel, 2}, [&](const Coords& i) {
            return a({i[0], i[1] * stride + i[3] * dilation, i[2] * 3 + i[4]});
          });
          const Tensor x = w.Make(a).Pool({kernel, 2}, {stride, 3}, {dilation, 1});
          EXPECT_EQ(w.Values(x), want) << size << " " << kernel << " " << stride << " " << dilation;
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, 3 * 3 * 3 * 2 - 3 * (2 * 2 + 1));
  ExpectGradient(w, Counting({6}), [](const Tensor& x) { return x.Pool({3}, 2, 1); });
  ExpectGradient(w, Counting({6}), [](const Tensor& x) { return x.Pool({2}, 2, 1); });
}

TEST(Pool, RefusesKernelsThatDoNotFit) {
  World w;
  const Tensor x = w.Make(Counting({2, 5}));
  ExpectFails(x.Pool({6}), "pool", "a kernel of 6 (stride 1, dilation 1) doesn't fit an axis of 5");
  ExpectFails(x.Pool({3}, 1, 3), "pool", "a kernel of 3 (stride 1, dilation 3)");
  ExpectFails(x.Pool({2}, 0), "pool", "stride 0");
  ExpectFails(x.Pool({2}, 1, 0), "pool", "dilation 0");
  ExpectFails(x.Pool({-1}), "pool", "a kernel of -1");
  ExpectFails(x.Pool({1, 1, 1}), "pool", "got 3 kernel sizes");
  ExpectFails(x.Pool({1, 1}, {1, 1, 1}), "pool", "3 strides");
}

TEST(Tril, KeepsOneSideOfTheDiagonal) {
  World w;
  for (int rows : {1, 3, 4}) {
    for (int columns : {1, 3, 5}) {
      const Array a = Counting({2, rows, columns});
      for (int diagonal = -5; diagonal <= 6; ++diagonal) {
        EXPECT_EQ(w.Values(w.Make(a).Triu(diagonal)), Filled(a.shape, [&](const Coords& i) {
                    return i[2] - i[1] >= diagonal ? a(i) : 0;
                  }));
        EXPECT_EQ(w.Values(w.Make(a).Tril(diagonal)), Filled(a.shape, [&](const Coords& i) {
                    return i[2] - i[1] <= diagonal ? a(i) : 0;
                  }));
      }
    }
  }
  EXPECT_EQ(w.Make(Counting({2, 2}), Scalar::kBool).Tril().dtype(), Scalar::kBool);
  EXPECT_EQ(w.Values(w.Make(Counting({2, 2})).Tril(INT_MAX)), Counting({2, 2}));
  ExpectFails(w.Make(Counting({2})).Tril(), "tril", "takes matrices, got (2)");
  ExpectFails(w.Make(Counting({2})).Triu(), "triu", "takes matrices, got (2)");
}

TEST(Diagonal, ReadsASquare) {
  World w;
  EXPECT_EQ(w.Values(w.Make(Counting({3, 3})).Diagonal()), (Array{{3}, {1, 5, 9}}));
  ExpectFails(w.Make(Counting({2, 3})).Diagonal(), "diagonal", "a square matrix, got (2, 3)");
  ExpectGradient(w, Counting({3, 3}), [](const Tensor& x) { return x.Diagonal(); });
}

// Rows [0, n) of a table, n = 3, as a cache of keys has them.
TEST(Movement, TakesSymbolicSizes) {
  World w;
  const SInt n{w.context.Variable("n", 1, 8)};
  const Tensor x = w.Make(Counting({8, 4})).Shrink({{{0, n}}, std::nullopt});
  const Tensor row = w.Make(Counting({1, 4}));
  ASSERT_TRUE(w.context.Bind(n.expr(), 3).ok());
  EXPECT_EQ(x.Flatten().shape(), (Shape{n * 4}));
  EXPECT_EQ(x.Unfold(0, 1, 1).shape(), (Shape{n, 4, 1}));
  EXPECT_EQ(x.Cat({row}).shape(), (Shape{n + 1, 4}));
  EXPECT_EQ(w.Values(x.Cat({row}).Sum(0)), (Array{{4}, {16, 20, 24, 28}}));
  EXPECT_EQ(w.Values(row.Cat({x}).Sum(0)), (Array{{4}, {16, 20, 24, 28}}));
  EXPECT_EQ(w.Values(x.Stack({x}).Sum({0, 1})), (Array{{4}, {30, 36, 42, 48}}));
  EXPECT_EQ(w.Values(x.Repeat({2, 1}).Sum(0)), (Array{{4}, {30, 36, 42, 48}}));
  EXPECT_EQ(w.Values(x.RepeatInterleave(2, 0).Sum(0)), (Array{{4}, {30, 36, 42, 48}}));
  EXPECT_EQ(w.Values(x.PadFlat({0, 0, 1, 2}).Sum(0)), (Array{{4}, {15, 18, 21, 24}}));
  EXPECT_EQ(w.Values(x.Pool({2}).Sum(0)), (Array{{3, 2}, {15, 18, 18, 21, 21, 24}}));
  EXPECT_EQ(w.Values(x.Roll({1}, {1}).Sum(0)), (Array{{4}, {24, 15, 18, 21}}));
  EXPECT_EQ(w.Values(row.Matmul(x.T()).Sum()), (Array{{}, {30 + 70 + 110}}));
  ExpectFails(x.T().Pool({2}), "pool", "doesn't fit an axis of n");
  ExpectFails(x.Roll({1}, {0}), "roll", "axis 0 of (n, 4)");
  ExpectFails(x.Split(2)[0], "split", "axis 0 of (n, 4)");
}

// Constants and whole views stay what they are: nothing to compute.
TEST(Movement, LeavesNothingToComputeWhereNothingMoves) {
  World w;
  const Tensor x = w.Make(Counting({2, 3}));
  EXPECT_TRUE(x.Permute({0, 1}).is(x));
  EXPECT_TRUE(x.Expand({2, -1}).is(x));
  EXPECT_TRUE(x.Shrink({std::nullopt, {{0, 3}}}).is(x));
  EXPECT_TRUE(x.PadFlat({0, 0}, PadMode::kConstant, 5).is(x));
  EXPECT_TRUE(x.Roll({3}, {1}).is(x));
  EXPECT_EQ(x.T().T().lazydata(), x.lazydata());
}

TEST(Movement, PassesFailuresOn) {
  World w;
  const Tensor failed = w.Make(Counting({2})).Reshape({3});
  ExpectFails(failed.Permute({0}).Flip(0).PadFlat({1, 1}).T().Flatten().Squeeze(), "reshape", "");
  ExpectFails(failed.Split(1)[0], "reshape", "");
  ExpectFails(failed.Rearrange("a -> a"), "reshape", "");
  EXPECT_EQ(Tensor().Reshape({1}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Tensor().Cat({Tensor()}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace beamd
