// How many kernels programs of movement, indexing, reductions and random tensors make: no more than
// tinygrad 0.10.0 makes of the same. What tests/engine/schedule counts besides comes from the
// corpus.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/schedule.h"
#include "tests/engine/tensor/tensor_world.h"

namespace beamd {
namespace {

using testing::World;
using Tensors = std::vector<Tensor>;

// Inputs in memory, made where they are asked for.
class Inputs {
 public:
  Tensor Float(const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return Tensor::Empty(context(), shape, {.dtype = dtype});
  }
  Tensor Int(const Shape& shape) { return Float(shape, Scalar::kInt32); }
  // The loss sum(f(x) * weights) and the gradient of x.
  Tensors Backward(const Shape& shape, const std::function<Tensor(const Tensor&)>& f) {
    Tensor x = Float(shape);
    x.set_requires_grad(true);
    const Tensor y = f(x);
    const Tensor loss = y.Mul(Float(y.shape())).Sum();
    const absl::Status status = loss.Backward();
    EXPECT_TRUE(status.ok()) << status;
    return {loss, x.grad()};
  }
  LazyContext& context() { return world_.context; }

 private:
  World world_;
};

struct Program {
  std::string name;
  int kernels;  // of tinygrad 0.10.0
  std::function<Tensors(Inputs&)> make;
};

constexpr std::nullopt_t kNone = std::nullopt;

const std::vector<Program>& Programs() {
  using In = Inputs&;
  static const auto* const programs = new std::vector<Program>{
      {"get_steps", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 8}).Get({Slice{kNone, kNone, 2}, Slice{1, kNone}}).Contiguous()};
       }},
      {"get_flip", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 8}).Get({Slice{kNone, kNone, -1}}).Contiguous()};
       }},
      {"get_rows", 3,
       [](In in) -> Tensors {
         return {in.Float({100, 16}).Get({in.Int({7})})};
       }},
      {"get_two", 5,
       [](In in) -> Tensors {
         return {in.Float({10, 6, 12}).Get({in.Int({7}), Slice{}, in.Int({7})})};
       }},
      {"get_two_adjacent", 5,
       [](In in) -> Tensors {
         return {in.Float({10, 6, 12}).Get({Slice{}, in.Int({7}), in.Int({7})})};
       }},
      {"get_then_add", 3,
       [](In in) -> Tensors {
         return {in.Float({100, 16}).Get({in.Int({7})}) + 1};
       }},
      {"cumsum_long", 3,
       [](In in) -> Tensors {
         return {in.Float({4, 1000}).Cumsum(1)};
       }},
      {"cumsum_600", 3, [](In in) -> Tensors { return {in.Float({600}).Cumsum()}; }},
      {"argmax_all", 3,
       [](In in) -> Tensors {
         return {in.Float({32, 32}).Argmax()};
       }},
      {"argmin", 3,
       [](In in) -> Tensors {
         return {in.Float({32, 33}).Argmin(0)};
       }},
      {"tril", 1,
       [](In in) -> Tensors {
         return {in.Float({32, 32}).Tril()};
       }},
      {"triu", 1,
       [](In in) -> Tensors {
         return {in.Float({4, 32, 16}).Triu(3)};
       }},
      {"roll", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 9}).Roll({2, 3}, {0, 1})};
       }},
      {"pad_reflect", 1,
       [](In in) -> Tensors {
         return {in.Float({1, 1, 8, 8}).PadFlat({2, 2, 2, 2}, PadMode::kReflect)};
       }},
      {"pad_value", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 8}).PadFlat({1, 1}, PadMode::kConstant, -1.0)};
       }},
      {"stack", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 8}).Stack({in.Float({8, 8}), in.Float({8, 8})}, 1)};
       }},
      {"repeat", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 8}).Repeat({2, 3}).Contiguous()};
       }},
      {"repeat_interleave", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 8}).RepeatInterleave(3, 1).Contiguous()};
       }},
      {"var", 2,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Var(1)};
       }},
      {"std_all", 2,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Std()};
       }},
      {"std_mean", 2,
       [](In in) -> Tensors {
         const auto [std, mean] = in.Float({16, 64}).StdMean(1);
         return {std, mean};
       }},
      {"logsumexp", 2,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Logsumexp(1)};
       }},
      {"logcumsumexp", 3,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Logcumsumexp(1)};
       }},
      {"any", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Any(1)};
       }},
      {"all", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).All()};
       }},
      {"min", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Min(1)};
       }},
      {"prod", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 64}).Prod(1)};
       }},
      {"mean_all", 2,
       [](In in) -> Tensors {
         return {in.Float({1024, 1024}).Mean()};
       }},
      {"sum_half", 1,
       [](In in) -> Tensors {
         return {in.Float({16, 64}, Scalar::kFloat16).Sum(1)};
       }},
      {"softmax_half", 3,
       [](In in) -> Tensors {
         return {in.Float({16, 64}, Scalar::kFloat16).Softmax()};
       }},
      {"rand", 5, [](In in) -> Tensors { return {Tensor::Rand(in.context(), {100})}; }},
      {"rand_twice", 10,
       [](In in) -> Tensors {
         const Tensor first = Tensor::Rand(in.context(), {100});
         return {first, Tensor::Rand(in.context(), {50})};
       }},
      {"rand_half", 6,
       [](In in) -> Tensors {
         return {Tensor::Rand(in.context(), {100}, {.dtype = Scalar::kFloat16})};
       }},
      {"rand_double", 5,
       [](In in) -> Tensors {
         return {Tensor::Rand(in.context(), {100}, {.dtype = Scalar::kFloat64})};
       }},
      {"randn", 6, [](In in) -> Tensors { return {Tensor::Randn(in.context(), {100})}; }},
      {"randint", 6, [](In in) -> Tensors { return {Tensor::Randint(in.context(), {100})}; }},
      {"uniform", 5, [](In in) -> Tensors { return {Tensor::Uniform(in.context(), {100})}; }},
      {"kaiming_uniform", 6,
       [](In in) -> Tensors {
         return {Tensor::KaimingUniform(in.context(), {10, 10})};
       }},
      {"multinomial", 8,
       [](In in) -> Tensors { return {in.Float({10}).Multinomial(4, /*replacement=*/true)}; }},
      {"dropout", 6,
       [](In in) -> Tensors {
         in.context().training = true;
         return {in.Float({16, 16}).Dropout(0.3)};
       }},
      {"one_hot", 2, [](In in) -> Tensors { return {in.Int({8}).OneHot(5)}; }},
      {"masked_fill", 1,
       [](In in) -> Tensors {
         return {in.Float({8, 8}).MaskedFill(in.Float({8, 8}).Gt(0), -1)};
       }},
      {"rearrange", 1,
       [](In in) -> Tensors {
         return {in.Float({4, 8, 6}).Rearrange("a (b c) d -> (d b) c a", {{"b", 2}}).Contiguous()};
       }},
      {"meshgrid", 2,
       [](In in) -> Tensors {
         Tensors grids = in.Float({5}).Meshgrid(Tensors{in.Float({6})});
         for (Tensor& grid : grids) grid = grid.Contiguous();
         return grids;
       }},
      {"pool_overlap", 1,
       [](In in) -> Tensors {
         return {in.Float({2, 3, 16, 16}).Pool({3, 3}, 2).Max({-1, -2})};
       }},
      {"split", 4,
       [](In in) -> Tensors {
         Tensors parts = in.Float({10, 4}).Split(3);
         for (Tensor& part : parts) part = part + 1;
         return parts;
       }},
      {"unflatten_sum", 1,
       [](In in) -> Tensors {
         return {in.Float({10, 12}).Unflatten(1, {3, 4}).Sum(2)};
       }},
      {"arange", 1,
       [](In in) -> Tensors { return {Tensor::Arange(in.context(), 1000).Contiguous()}; }},
      {"linspace", 1,
       [](In in) -> Tensors { return {Tensor::Linspace(in.context(), 0, 1, 50).Contiguous()}; }},
      {"eye", 1, [](In in) -> Tensors { return {Tensor::Eye(in.context(), 9).Contiguous()}; }},
      {"gather_backward", 4,
       [](In in) {
         return in.Backward({64, 128}, [&](const Tensor& x) {
           return x.Gather(1, in.Int({64, 8}));
         });
       }},
      {"get_backward", 5,
       [](In in) {
         return in.Backward({100, 16}, [&](const Tensor& x) { return x.Get({in.Int({7})}); });
       }},
      {"cumsum_backward", 3,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Cumsum(1); });
       }},
      {"cumsum_long_backward", 7,
       [](In in) {
         return in.Backward({4, 1000}, [](const Tensor& x) { return x.Cumsum(1); });
       }},
      {"max_backward", 4,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Max(1); });
       }},
      {"min_backward", 5,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Min(1); });
       }},
      {"prod_backward", 4,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Prod(1); });
       }},
      {"var_backward", 6,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Var(1); });
       }},
      {"logsumexp_backward", 7,
       [](In in) {
         return in.Backward({8, 64}, [](const Tensor& x) { return x.Logsumexp(1); });
       }},
      {"cat_backward", 1,
       [](In in) {
         return in.Backward({8, 8}, [&](const Tensor& x) { return x.Cat({in.Float({8, 4})}, 1); });
       }},
  };
  return *programs;
}

TEST(Kernels, AreNoMoreThanTinygradMakes) {
  for (const Program& program : Programs()) {
    Inputs in;
    const Tensors outputs = program.make(in);
    std::vector<LazyBuffer> roots;
    for (const Tensor& output : outputs) {
      ASSERT_TRUE(output.ok()) << program.name << ": " << output.status();
      roots.push_back(output.lazydata());
    }
    const absl::StatusOr<Schedule> schedule = CreateSchedule(roots);
    ASSERT_TRUE(schedule.ok()) << program.name << ": " << schedule.status();
    EXPECT_LE(schedule->kernel_count(), program.kernels) << program.name;
  }
}

}  // namespace
}  // namespace beamd
