#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/engine/tensor/tensor_world.h"

namespace beamd {
namespace {

using testing::Array;
using testing::Counting;
using testing::ExpectFails;
using testing::World;

std::vector<double> Flat(const Tensor& t) { return World::Values(t).values; }

void ExpectNear(const Tensor& got, const std::vector<double>& want) {
  EXPECT_THAT(Flat(got), ::testing::Pointwise(::testing::DoubleNear(2e-6), want));
}

// The numbers of tinygrad 0.10.0 on its CLANG device, where Tensor.manual_seed(s) came first.

TEST(Rand, GivesTheNumbersOfTinygrad) {
  World w;
  Tensor::ManualSeed(w.context, 42);
  EXPECT_EQ(Flat(Tensor::Rand(w.context, {5})),
            (std::vector<double>{0.9970332384109497, 0.5899163484573364, 0.2225480079650879,
                                 0.7550519704818726, 0.9056503772735596}));
  EXPECT_EQ(Flat(Tensor::Rand(w.context, {3})),
            (std::vector<double>{0.027760982513427734, 0.08720660209655762, 0.6253001689910889}));
  EXPECT_EQ(Flat(Tensor::Rand(w.context, {2, 2})),
            (std::vector<double>{0.025820136070251465, 0.7645267248153687, 0.6281148195266724,
                                 0.943961501121521}));
}

TEST(Rand, GivesTheNumbersOfTinygradInEveryFloat) {
  World w;
  Tensor::ManualSeed(w.context, 7);
  EXPECT_EQ(Flat(Tensor::Rand(w.context, {3}, {.dtype = Scalar::kFloat64})),
            (std::vector<double>{0.40587741620629836, 0.9114623607117565, 0.31355928231637}));
  EXPECT_EQ(
      Flat(Tensor::Rand(w.context, {5}, {.dtype = Scalar::kFloat16})),
      (std::vector<double>{0.5166015625, 0.185546875, 0.275390625, 0.927734375, 0.166015625}));
  // Sevenths of a bfloat16's mantissa. tinygrad's CLANG has no bfloat16.
  for (double v : Flat(Tensor::Rand(w.context, {5}, {.dtype = Scalar::kBFloat16}))) {
    EXPECT_EQ(v * 128, std::floor(v * 128));
    EXPECT_TRUE(v >= 0 && v < 1);
  }
  EXPECT_EQ(Flat(Tensor::Rand(w.context, {2})),
            (std::vector<double>{0.9370203018188477, 0.6043844223022461}));
}

TEST(Rand, GivesTheNumbersOfTinygradFarOut) {
  World w;
  Tensor::ManualSeed(w.context, 3);
  const std::vector<double> many = Flat(Tensor::Rand(w.context, {1000}));
  EXPECT_EQ((std::vector<double>{many[0], many[250], many[500], many[750]}),
            (std::vector<double>{0.44052577018737793, 0.43278777599334717, 0.11465692520141602,
                                 0.05655550956726074}));
  const std::vector<double> few = Flat(Tensor::Rand(w.context, {7}));
  EXPECT_EQ(std::vector<double>(few.begin() + 4, few.end()),
            (std::vector<double>{0.6017453670501709, 0.24063992500305176, 0.9616683721542358}));
}

TEST(Rand, RefusesWhatIsTooLarge) {
  World w;
  ExpectFails(Tensor::Rand(w.context, {int64_t{1} << 40, 4}), "rand", "is too large");
  ExpectFails(Tensor::Rand(w.context, {int64_t{1} << 32, int64_t{1} << 32}), "rand",
              "is too large");
  ExpectFails(Tensor::Randn(w.context, {int64_t{1} << 31}), "randn", "is too large");
}

TEST(Random, GivesTheNumbersOfTinygradInEveryDistribution) {
  World w;
  LazyContext& c = w.context;
  Tensor::ManualSeed(c, 1);
  ExpectNear(Tensor::Randn(c, {2, 3}),
             {0.9531649351119995, 0.7261801362037659, -0.15133225917816162, 1.1487480401992798,
              0.9374949932098389, -0.20725038647651672});
  const Tensor whole = Tensor::Randint(c, {8}, -3, 5);
  EXPECT_EQ(whole.dtype(), Scalar::kInt32);
  EXPECT_EQ(Flat(whole), (std::vector<double>{-1, -1, -3, -1, 4, 4, -1, 4}));
  ExpectNear(Tensor::Normal(c, {3}, 10, 2),
             {8.165771484375, 13.284321784973145, 11.62464714050293});
  ExpectNear(Tensor::Uniform(c, {3}, 2, 10),
             {6.413962364196777, 3.8322839736938477, 9.130477905273438});
  ExpectNear(Tensor::ScaledUniform(c, {2, 2}),
             {0.28642773628234863, 0.12897753715515137, 0.3587532043457031, 0.18768537044525146});
  ExpectNear(Tensor::GlorotUniform(c, {2, 3}),
             {-0.23220160603523254, -0.8649984002113342, 0.46952903270721436, 0.48457321524620056,
              -0.0046165199019014835, 0.8229897618293762});
  ExpectNear(Tensor::KaimingUniform(c, {2, 3}),
             {0.5470383763313293, 1.1748794317245483, 0.2187868356704712, 0.08240813761949539,
              0.006467363331466913, 0.20625130832195282});
  ExpectNear(Tensor::KaimingNormal(c, {2, 3}),
             {0.5548909902572632, -0.6089913845062256, -0.3894897699356079, 0.19228526949882507,
              -0.6628805994987488, -0.8690985441207886});
  const Tensor drawn = w.Make(Counting({4}), Scalar::kFloat32).Multinomial(8, true);
  EXPECT_EQ(drawn.dtype(), Scalar::kInt32);
  EXPECT_EQ(Flat(drawn), (std::vector<double>{2, 2, 3, 0, 3, 1, 3, 1}));
  const Array weights = {{2, 3}, {1, 0, 0, 0, 0, 2}};
  EXPECT_EQ(w.Values(w.Make(weights, Scalar::kFloat32).Multinomial(2, true)),
            (Array{{2, 2}, {0, 0, 2, 2}}));
  c.training = true;
  const double kept = 1.4285714626312256;
  ExpectNear(Tensor::Ones(c, {10}).Dropout(0.3),
             {kept, kept, kept, 0, kept, kept, kept, kept, 0, kept});
  EXPECT_EQ(Flat(Tensor::Rand(c, {2})),
            (std::vector<double>{0.769399881362915, 0.9184360504150391}));
}

TEST(Random, StartsAgainWithTheSeed) {
  World a, b;
  const auto draw = [](LazyContext& c) { return Flat(Tensor::Rand(c, {4})); };
  // Unseeded contexts are alike: their seed is 0.
  const std::vector<double> first = draw(a.context);
  EXPECT_EQ(first, draw(b.context));
  EXPECT_NE(first, draw(a.context));
  Tensor::ManualSeed(a.context);
  EXPECT_EQ(first, draw(a.context));
  Tensor::ManualSeed(a.context, 1);
  EXPECT_NE(first, draw(a.context));
  // 0.10.0's seeds are words.
  Tensor::ManualSeed(a.context, uint64_t{1} << 32);
  EXPECT_EQ(first, draw(a.context));
}

TEST(Random, DoesNotDependOnWhatIsComputedFirst) {
  World a, b;
  const Tensor early = Tensor::Rand(a.context, {4}), late = Tensor::Rand(a.context, {4});
  const Tensor last = Tensor::Rand(a.context, {4});
  const std::vector<double> want = Flat(Tensor::Rand(b.context, {4}));
  const std::vector<double> next = Flat(Tensor::Rand(b.context, {4}));
  EXPECT_EQ(Flat(last), Flat(Tensor::Rand(b.context, {4})));
  EXPECT_EQ(Flat(late), next);
  EXPECT_EQ(Flat(early), want);
}

// The place of the draws moves in memory that an earlier draw, not yet computed, still reads.
TEST(Random, LeavesEarlierDrawsAlone) {
  World a, b;
  const auto draw = [](World& w) { return Tensor::Rand(w.context, {4}); };
  std::vector<Tensor> late;
  std::vector<std::vector<double>> want;
  for (int round = 0; round < 4; ++round) {
    late.push_back(draw(a));
    Flat(draw(a));
    want.push_back(Flat(draw(b)));
    Flat(draw(b));
  }
  for (size_t i = 0; i < late.size(); ++i) EXPECT_EQ(Flat(late[i]), want[i]) << i;
}

TEST(Random, DiffersBetweenDevicesByTheirOrder) {
  World w, turned;
  const TensorOptions cpu{.device = "cpu:0"}, other{.device = "cpu:1"};
  const std::vector<double> first = Flat(Tensor::Rand(w.context, {4}, cpu));
  const std::vector<double> second = Flat(Tensor::Rand(w.context, {4}, other));
  EXPECT_NE(first, second);
  EXPECT_EQ(Flat(Tensor::Rand(turned.context, {4}, other)), first);
  EXPECT_EQ(Flat(Tensor::Rand(turned.context, {4}, cpu)), second);
}

TEST(Random, HasTheMomentsOfItsDistribution) {
  World w;
  const auto moments = [](const std::vector<double>& v) {
    const auto n = static_cast<double>(v.size());
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double square = 0;
    for (double x : v) square += (x - mean) * (x - mean) / n;
    return std::pair(mean, std::sqrt(square));
  };
  const auto [mean, deviation] = moments(Flat(Tensor::Randn(w.context, {1500})));
  EXPECT_NEAR(mean, 0, 0.1);
  EXPECT_NEAR(deviation, 1, 0.1);
  const std::vector<double> uniform = Flat(Tensor::Uniform(w.context, {1500}, -2, 4));
  EXPECT_NEAR(moments(uniform).first, 1, 0.2);
  EXPECT_NEAR(moments(uniform).second, 6 / std::sqrt(12), 0.2);
  EXPECT_TRUE(std::ranges::all_of(uniform, [](double v) { return v >= -2 && v < 4; }));
}

TEST(Rand, MakesWhatTheOptionsSay) {
  World w;
  const Tensor none = Tensor::Rand(w.context, {0, 3}, {.dtype = Scalar::kFloat16});
  EXPECT_EQ(none.shape(), (Shape{0, 3}));
  EXPECT_EQ(none.dtype(), Scalar::kFloat16);
  const Tensor learned = Tensor::Randn(w.context, {2}, {.requires_grad = true});
  EXPECT_EQ(learned.requires_grad(), true);
  ASSERT_TRUE(learned.Sum().Backward().ok());
  EXPECT_EQ(Flat(learned.grad()), (std::vector<double>{1, 1}));
  const Tensor like = w.Make(Counting({2, 2}), Scalar::kFloat16).RandLike();
  EXPECT_EQ(like.dtype(), Scalar::kFloat16);
  EXPECT_EQ(like.shape(), (Shape{2, 2}));
  EXPECT_EQ(Tensor::Randint(w.context, {2}, 0, 2, {.dtype = Scalar::kUint8}).dtype(),
            Scalar::kUint8);
}

TEST(Rand, RefusesWhatItCannotFill) {
  World w;
  LazyContext& c = w.context;
  const SInt n{c.Variable("n", 1, 3)};
  ExpectFails(Tensor::Rand(c, {2}, {.dtype = Scalar::kInt32}), "rand", "gives floats, not int32");
  ExpectFails(Tensor::Rand(c, {-1}), "rand", "(-1)");
  ExpectFails(Tensor::Rand(c, {n}), "rand", "(n)");
  ExpectFails(w.Make(Counting({2}), Scalar::kInt32).RandLike(), "rand", "not int32");
  ExpectFails(Tensor::Randn(c, {-1}), "randn", "(2, -1)");
  ExpectFails(Tensor::Randint(c, {2}, 0, 9, {.dtype = Scalar::kFloat32}), "randint",
              "gives integers, not float32");
  ExpectFails(Tensor::Randint(c, {2}, 3, 3), "randint", "[3, 3) is empty");
  ExpectFails(Tensor::Uniform(c, {2}, 0, 1, {.dtype = Scalar::kBool}), "uniform", "not bool");
  ExpectFails(Tensor::Normal(c, {-1}), "normal", "(2, -1)");
  ExpectFails(Tensor::ScaledUniform(c, {n}), "scaled_uniform", "(n)");
  ExpectFails(Tensor::GlorotUniform(c, {}), "glorot_uniform", "at least 1 axes");
  ExpectFails(Tensor::KaimingUniform(c, {}), "kaiming_uniform", "at least 1 axes");
  ExpectFails(Tensor::KaimingNormal(c, {}), "kaiming_normal", "at least 1 axes");
  ExpectFails(w.Make(Counting({2, 2, 2})).Multinomial(), "multinomial", "(2, 2, 2)");
  ExpectFails(w.Make(Counting({2})).Multinomial(0, true), "multinomial", "0 samples");
  ExpectFails(w.Make(Counting({2})).Multinomial(2), "multinomial", "with replacement only");
  ExpectFails(w.Make(Counting({2})).Dropout(1.5), "dropout", "1.5");
  ExpectFails(w.Make(Counting({2})).Dropout(NAN), "dropout", "nan");
}

TEST(Dropout, IsOnlyForTraining) {
  World w;
  const Tensor x = w.Make(Counting({1000}));
  EXPECT_TRUE(x.Dropout(0.5).is(x));
  w.context.training = true;
  EXPECT_TRUE(x.Dropout(0).is(x));
  const std::vector<double> half = Flat(x.Dropout(0.25));
  int dropped = 0;
  for (size_t i = 0; i < half.size(); ++i) {
    if (half[i] == 0) {
      ++dropped;
    } else {
      EXPECT_NEAR(half[i], (static_cast<double>(i) + 1) / 0.75, 1e-9 * half[i]);
    }
  }
  EXPECT_NEAR(dropped, 250, 50);
  const Tensor odd = w.Make({{2}, {INFINITY, NAN}});
  EXPECT_EQ(Flat(odd.Dropout(1)), (std::vector<double>{0, 0}));
}

TEST(Dropout, PassesTheGradientOfWhatIsKept) {
  World w;
  w.context.training = true;
  Tensor x = w.Make(Counting({50}));
  x.set_requires_grad(true);
  const Tensor kept = x.Dropout(0.5);
  ASSERT_TRUE(kept.Sum().Backward().ok());
  const std::vector<double> values = Flat(kept.Detach()), gradient = Flat(x.grad());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(gradient[i], values[i] == 0 ? 0 : 2) << i;
}

}  // namespace
}  // namespace beamd
