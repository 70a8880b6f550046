#include "tests/testing/programs.h"

#include <functional>
#include <map>
#include <utility>

namespace beamd {
namespace {

// Collects what a program reads.
class Inputs {
 public:
  explicit Inputs(LazyContext& context) : context_(context) {}
  Tensor Float(const Shape& shape, bool gradient = false) {
    return Keep(Tensor::Empty(context_, shape, {.requires_grad = gradient}));
  }
  Tensor Int(const Shape& shape) {
    return Keep(Tensor::Empty(context_, shape, {.dtype = Scalar::kInt32}));
  }
  LazyContext& context() { return context_; }
  std::vector<Tensor> Take() { return std::move(made_); }

 private:
  Tensor Keep(Tensor t) {
    made_.push_back(t);
    return t;
  }
  LazyContext& context_;
  std::vector<Tensor> made_;
};

using Outputs = std::vector<Tensor>;
using Maker = std::function<Outputs(Inputs&)>;

Outputs WithGradients(const Tensor& loss, const std::vector<Tensor>& of) {
  if (absl::Status status = loss.Backward(); !status.ok()) return {Tensor::Failed(status)};
  Outputs outputs{loss};
  outputs.reserve(of.size() + 1);
  for (const Tensor& t : of) outputs.push_back(t.grad());
  return outputs;
}

struct Mlp {
  Tensor x, w1, b1, w2, b2, y;
  explicit Mlp(Inputs& in, bool gradient)
      : x(in.Float({64, 784})),
        w1(in.Float({256, 784}, gradient)),
        b1(in.Float({256}, gradient)),
        w2(in.Float({10, 256}, gradient)),
        b2(in.Float({10}, gradient)) {}
  Tensor Logits() const { return x.Linear(w1.T(), b1).Relu().Linear(w2.T(), b2); }
};

Tensor Attention(Inputs& in, bool causal) {
  const Tensor q = in.Float({8, 128, 64});
  const Tensor k = in.Float({8, 128, 64});
  const Tensor v = in.Float({8, 128, 64});
  return q.ScaledDotProductAttention(k, v, Tensor(), 0, causal);
}

const std::map<std::string, Maker>& Makers() {
  static const std::map<std::string, Maker> makers{
      {"add",
       [](Inputs& in) -> Outputs {
         return {in.Float({1024, 1024}) + in.Float({1024, 1024})};
       }},
      {"chain",
       [](Inputs& in) -> Outputs {
         const Tensor a = in.Float({256, 256});
         const Tensor b = in.Float({256, 256});
         const Tensor c = in.Float({256, 256});
         return {(a * b + c).Relu() * 2 - a};
       }},
      {"sum_all",
       [](Inputs& in) -> Outputs {
         return {in.Float({1024, 1024}).Sum()};
       }},
      {"sum_small",
       [](Inputs& in) -> Outputs {
         return {in.Float({64, 64}).Sum()};
       }},
      {"sum_axis",
       [](Inputs& in) -> Outputs {
         return {in.Float({1024, 1024}).Sum(1)};
       }},
      {"mean_sub",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({128, 1024});
         return {x - x.Mean(1, true)};
       }},
      {"softmax",
       [](Inputs& in) -> Outputs {
         return {in.Float({128, 1024}).Softmax()};
       }},
      {"log_softmax",
       [](Inputs& in) -> Outputs {
         return {in.Float({128, 1024}).LogSoftmax()};
       }},
      {"layernorm",
       [](Inputs& in) -> Outputs {
         return {in.Float({128, 768}).Layernorm()};
       }},
      {"std",
       [](Inputs& in) -> Outputs {
         return {in.Float({128, 1024}).Std(1)};
       }},
      {"matmul",
       [](Inputs& in) -> Outputs {
         return {in.Float({256, 512}).Matmul(in.Float({512, 128}))};
       }},
      {"matmul_bias_relu",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({256, 512});
         const Tensor w = in.Float({512, 128});
         return {(x.Matmul(w) + in.Float({128})).Relu()};
       }},
      {"mlp", [](Inputs& in) -> Outputs { return {Mlp(in, false).Logits()}; }},
      {"mlp_loss",
       [](Inputs& in) -> Outputs {
         const Tensor logits = Mlp(in, false).Logits();
         return {logits.SparseCategoricalCrossentropy(in.Int({64}))};
       }},
      {"conv_relu",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({8, 16, 32, 32});
         return {x.Conv2d(in.Float({32, 16, 3, 3}), Tensor(), 1, 1, 1, 1).Relu()};
       }},
      {"conv_bias_bn_relu",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({8, 16, 32, 32});
         const Tensor w = in.Float({32, 16, 3, 3});
         const Tensor bias = in.Float({32});
         const Tensor weight = in.Float({32});
         const Tensor shift = in.Float({32});
         const Tensor mean = in.Float({32});
         const Tensor invstd = in.Float({32});
         return {x.Conv2d(w, bias, 1, 1, 1, 1).Batchnorm(weight, shift, mean, invstd).Relu()};
       }},
      {"conv_conv",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({4, 8, 16, 16});
         const Tensor w1 = in.Float({16, 8, 3, 3});
         return {x.Conv2d(w1).Conv2d(in.Float({32, 16, 1, 1}))};
       }},
      {"residual",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({4, 16, 16, 16});
         const Tensor w1 = in.Float({16, 16, 3, 3});
         const Tensor w2 = in.Float({16, 16, 3, 3});
         return {x + x.Conv2d(w1, Tensor(), 1, 1, 1, 1).Relu().Conv2d(w2, Tensor(), 1, 1, 1, 1)};
       }},
      {"maxpool",
       [](Inputs& in) -> Outputs {
         return {in.Float({4, 16, 32, 32}).MaxPool2d()};
       }},
      {"avgpool",
       [](Inputs& in) -> Outputs {
         return {in.Float({4, 16, 32, 32}).AvgPool2d()};
       }},
      {"attention", [](Inputs& in) -> Outputs { return {Attention(in, false)}; }},
      {"causal_attention", [](Inputs& in) -> Outputs { return {Attention(in, true)}; }},
      {"transpose",
       [](Inputs& in) -> Outputs {
         return {in.Float({256, 512}).T().Contiguous()};
       }},
      {"reshape_permute_add",
       [](Inputs& in) -> Outputs {
         const Tensor a = in.Float({256, 64});
         return {a.Reshape({16, 16, 64}).Permute({2, 0, 1}).Contiguous() + in.Float({64, 16, 16})};
       }},
      {"cat",
       [](Inputs& in) -> Outputs {
         const Tensor a = in.Float({64, 32});
         const Tensor b = in.Float({64, 32});
         return {a.Cat({b, in.Float({64, 32})}, 1)};
       }},
      {"pad_add",
       [](Inputs& in) -> Outputs {
         const Tensor a = in.Float({30, 30});
         return {a.PadFlat({1, 1, 1, 1}) + in.Float({32, 32})};
       }},
      {"pad_exp",
       [](Inputs& in) -> Outputs {
         const Tensor a = in.Float({30, 30});
         return {a.Exp().PadFlat({1, 1, 1, 1}) + in.Float({32, 32})};
       }},
      {"gather",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({64, 128});
         return {x.Gather(1, in.Int({64, 8}))};
       }},
      {"embedding",
       [](Inputs& in) -> Outputs {
         const Tensor rows = in.Int({32});
         return {in.Float({1000, 64}).Get({rows})};
       }},
      {"argmax",
       [](Inputs& in) -> Outputs {
         return {in.Float({64, 1000}).Argmax(1)};
       }},
      {"cumsum",
       [](Inputs& in) -> Outputs {
         return {in.Float({64, 256}).Cumsum(1)};
       }},
      {"arange_add",
       [](Inputs& in) -> Outputs {
         return {Tensor::Arange(in.context(), 1000) + in.Float({1000})};
       }},
      {"two_reduces",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({128, 256});
         return {x.Sum(1), x.Max(1)};
       }},
      {"reduce_of_reduce",
       [](Inputs& in) -> Outputs {
         return {in.Float({128, 256}).Sum(1).Square().Sum()};
       }},
      {"shared_child",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({64, 64});
         const Tensor y = x.Matmul(in.Float({64, 64}));
         return {y.Relu(), y.Sigmoid()};
       }},
      {"matmul_backward",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({64, 64}, true);
         const Tensor w = in.Float({64, 64}, true);
         return WithGradients(x.Matmul(w).Relu().Sum(), {x, w});
       }},
      {"mlp_backward",
       [](Inputs& in) -> Outputs {
         const Mlp mlp(in, true);
         const Tensor loss = mlp.Logits().SparseCategoricalCrossentropy(in.Int({64}));
         return WithGradients(loss, {mlp.w1, mlp.b1, mlp.w2, mlp.b2});
       }},
      {"softmax_backward",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({64, 256}, true);
         return WithGradients((x.Softmax() * in.Float({64, 256})).Sum(), {x});
       }},
      {"layernorm_backward",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({64, 256}, true);
         return WithGradients((x.Layernorm() * in.Float({64, 256})).Sum(), {x});
       }},
      {"conv_backward",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({4, 8, 16, 16}, true);
         const Tensor w = in.Float({16, 8, 3, 3}, true);
         return WithGradients(x.Conv2d(w, Tensor(), 1, 1, 1, 1).Relu().Sum(), {x, w});
       }},
      {"maxpool_backward",
       [](Inputs& in) -> Outputs {
         const Tensor x = in.Float({4, 8, 16, 16}, true);
         return WithGradients(x.MaxPool2d().Sum(), {x});
       }},
  };
  return makers;
}

}  // namespace

std::vector<std::string> ProgramNames() {
  std::vector<std::string> names;
  names.reserve(Makers().size());
  for (const auto& [name, maker] : Makers()) names.push_back(name);
  return names;
}

Program MakeProgram(const std::string& name, LazyContext& context) {
  const auto it = Makers().find(name);
  if (it == Makers().end()) return {};
  Inputs inputs(context);
  Program program;
  program.outputs = it->second(inputs);
  program.inputs = inputs.Take();
  return program;
}

Program MakeChain(LazyContext& context, int count) {
  Inputs inputs(context);
  Tensor x = inputs.Float({64, 64});
  std::vector<Tensor> w;
  w.reserve(4);
  for (int i = 0; i < 4; ++i) w.push_back(inputs.Float({64, 64}));
  for (int i = 0; i < count / 2; ++i) {
    x = i % 10 != 0 ? x * w[i % 4] + w[(i + 1) % 4] : (x - x.Sum(1, true)).Relu();
  }
  return {inputs.Take(), {x}};
}

}  // namespace beamd
