// Layers: parameters, and the Tensor method that uses them.
//
//   nn::Linear layer(context, 784, 256);
//   Tensor y = layer(x);
//
// Constructors' arguments, initial values and names in the state dict are those of tinygrad 0.10.0
// nn/__init__.py. A layer that can't be (0 groups, ...) has failed tensors as its parameters, and so
// has what is made with it. Parameters lie on the context's device.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor/nn/module.h"
#include "engine/tensor/tensor.h"

namespace beamd::nn {

class Linear : public Module {
 public:
  Linear(LazyContext& context, int in_features, int out_features, bool has_bias = true);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;  // (out, in)
  Tensor bias;
};

struct ConvOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis dilation = 1;
  int groups = 1;
  bool bias = true;
  // The output is as large as the input (0.10.0: padding="same"); `padding` is not looked at.
  // Strides must be 1.
  bool same_padding = false;
};

// A kernel of one number has two axes; of a list, as many as the list.
class Conv2d : public Module {
 public:
  Conv2d(LazyContext& context, int in_channels, int out_channels, const PerAxis& kernel_size,
         const ConvOptions& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight;  // (out, in / groups, kernel...)
  Tensor bias;

 private:
  ConvOptions options_;
};

class Conv1d : public Conv2d {
 public:
  Conv1d(LazyContext& context, int in_channels, int out_channels, int kernel_size,
         const ConvOptions& options = {})
      : Conv2d(context, in_channels, out_channels, PerAxis({kernel_size}), options) {}
};

struct ConvTransposeOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis output_padding = 0;
  PerAxis dilation = 1;
  int groups = 1;
  bool bias = true;
};

class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(LazyContext& context, int in_channels, int out_channels,
                  const PerAxis& kernel_size, const ConvTransposeOptions& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight;  // (in, out / groups, kernel...)
  Tensor bias;

 private:
  ConvTransposeOptions options_;
};

class ConvTranspose1d : public ConvTranspose2d {
 public:
  ConvTranspose1d(LazyContext& context, int in_channels, int out_channels, int kernel_size,
                  const ConvTransposeOptions& options = {})
      : ConvTranspose2d(context, in_channels, out_channels, PerAxis({kernel_size}), options) {}
};

struct BatchNormOptions {
  double eps = 1e-5;
  bool affine = true;
  bool track_running_stats = true;
  double momentum = 0.1;
};

// Over every axis but the second, of any count of axes. While the context trains, the statistics
// are the batch's, and the running ones move towards them.
class BatchNorm : public Module {
 public:
  BatchNorm(LazyContext& context, int size, const BatchNormOptions& options = {});
  Tensor operator()(const Tensor& x);

  Tensor weight;
  Tensor bias;
  Tensor num_batches_tracked;  // int64
  Tensor running_mean;
  Tensor running_var;

 private:
  // Mean, and variance (biased).
  std::pair<Tensor, Tensor> Statistics(const Tensor& x) const;

  int size_;
  BatchNormOptions options_;
};
using BatchNorm2d = BatchNorm;
using BatchNorm3d = BatchNorm;

class GroupNorm : public Module {
 public:
  GroupNorm(LazyContext& context, int num_groups, int num_channels, double eps = 1e-5,
            bool affine = true);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;
  Tensor bias;

 private:
  int num_groups_;
  double eps_;
};

class InstanceNorm : public Module {
 public:
  InstanceNorm(LazyContext& context, int num_features, double eps = 1e-5, bool affine = true);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;
  Tensor bias;

 private:
  int num_features_;
  double eps_;
};

// Over the last axes, whose sizes are `normalized_shape`.
class LayerNorm : public Module {
 public:
  LayerNorm(LazyContext& context, const std::vector<int>& normalized_shape, double eps = 1e-5,
            bool elementwise_affine = true);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;
  Tensor bias;

 private:
  Shape normalized_shape_;
  double eps_;
};

// Over the channels of (batch, channels, height, width).
class LayerNorm2d : public LayerNorm {
 public:
  LayerNorm2d(LazyContext& context, int channels, double eps = 1e-5, bool elementwise_affine = true)
      : LayerNorm(context, {channels}, eps, elementwise_affine) {}
  Tensor operator()(const Tensor& x) const;
};

class RMSNorm : public Module {
 public:
  RMSNorm(LazyContext& context, int dim, double eps = 1e-6);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;

 private:
  double eps_;
};

class Embedding : public Module {
 public:
  Embedding(LazyContext& context, int vocab_size, int embed_size);
  // `index` holds integers; the result has one axis more. An index outside gives zeros.
  Tensor operator()(const Tensor& index) const;

  Tensor weight;  // (vocab, embed)
};

class LSTMCell : public Module {
 public:
  struct State {
    Tensor h;
    Tensor c;
  };
  LSTMCell(LazyContext& context, int input_size, int hidden_size, bool has_bias = true);
  // One step. Without a state, from zeros.
  State operator()(const Tensor& x, const std::optional<State>& state = std::nullopt) const;

  Tensor weight_ih;  // (4 * hidden, input): input, forget, cell and output gates
  Tensor weight_hh;  // (4 * hidden, hidden)
  Tensor bias_ih;
  Tensor bias_hh;
};

}  // namespace beamd::nn
