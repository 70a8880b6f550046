#include "tests/e2e/examples/resnet.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace beamd::testing {
namespace {

using thin::Tensor;

constexpr int kClasses = 1000, kFeatures = 2048;

// Small numbers by a multiplicative hash.
std::vector<float> Drawn(size_t count, uint64_t seed, float low, float high) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>((i + seed * 7919 + 1) * 0x9E3779B97F4A7C15U >> 32);
    values[i] = low + (high - low) * static_cast<float>(bits) / 4294967296.0F;
  }
  return values;
}

// One image: channels of side * side.
struct Planes {
  int channels = 0, side = 0;
  std::vector<double> values;
};

// Windows that reach over the edge see zeros.
Planes Convolved(const Planes& x, const std::vector<float>& w, int out, int kernel, int stride) {
  const int padding = kernel / 2;
  const int side = (x.side + 2 * padding - kernel) / stride + 1;
  Planes y{out, side, std::vector<double>(size_t(out) * side * side)};
  for (int o = 0; o < out; ++o) {
    for (int c = 0; c < x.channels; ++c) {
      for (int ky = 0; ky < kernel; ++ky) {
        for (int kx = 0; kx < kernel; ++kx) {
          const double factor = w[((size_t(o) * x.channels + c) * kernel + ky) * kernel + kx];
          for (int place = 0; place < side * side; ++place) {
            const int row = place / side * stride - padding + ky;
            const int column = place % side * stride - padding + kx;
            if (row < 0 || column < 0 || row >= x.side || column >= x.side) continue;
            y.values[size_t(o) * side * side + place] +=
                factor * x.values[(size_t(c) * x.side + row) * x.side + column];
          }
        }
      }
    }
  }
  return y;
}

Planes MaxPooled(const Planes& x) {
  const int side = (x.side - 1) / 2 + 1;
  Planes y{x.channels, side, {}};
  for (int c = 0; c < x.channels; ++c) {
    for (int place = 0; place < side * side; ++place) {
      double most = -std::numeric_limits<double>::infinity();
      for (int k = 0; k < 9; ++k) {
        const int row = place / side * 2 - 1 + k / 3, column = place % side * 2 - 1 + k % 3;
        if (row < 0 || column < 0 || row >= x.side || column >= x.side) continue;
        most = std::max(most, x.values[(size_t(c) * x.side + row) * x.side + column]);
      }
      y.values.push_back(most);
    }
  }
  return y;
}

void ScaleAndShift(Planes* x, const std::vector<float>& scale, const std::vector<float>& bias) {
  const size_t places = size_t(x->side) * x->side;
  for (size_t i = 0; i < x->values.size(); ++i) {
    x->values[i] = x->values[i] * scale[i / places] + bias[i / places];
  }
}

void Relu(Planes* x) {
  for (double& v : x->values) v = std::max(v, 0.0);
}

}  // namespace

ResNet50::Layer ResNet50::Drawn(int in, int out, int kernel, int stride) {
  const size_t fan_in = size_t(in) * kernel * kernel;
  const float bound = std::sqrt(3.0F / static_cast<float>(fan_in));
  Layer layer{.in = in, .out = out, .kernel = kernel, .stride = stride};
  layer.weight = testing::Drawn(fan_in * out, seed_++, -bound, bound);
  layer.scale = testing::Drawn(out, seed_++, 0.5F, 1.5F);
  layer.bias = testing::Drawn(out, seed_++, -0.1F, 0.1F);
  layer.weight_tensor = Tensor::From(layer.weight, {out, in, kernel, kernel});
  layer.scale_tensor = Tensor::From(layer.scale, {out});
  layer.bias_tensor = Tensor::From(layer.bias, {out});
  return layer;
}

ResNet50::ResNet50() : stem_(Drawn(3, 64, 7, 2)) {
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int width = 64 << stage, out = 4 * width;
    for (int i = 0; i < kBlocks[stage]; ++i) {
      const int stride = i == 0 && stage > 0 ? 2 : 1;
      Block block;
      block.layers.push_back(Drawn(in, width, 1, 1));
      block.layers.push_back(Drawn(width, width, 3, stride));
      block.layers.push_back(Drawn(width, out, 1, 1));
      if (i == 0) block.shortcut.push_back(Drawn(in, out, 1, stride));
      blocks_.push_back(std::move(block));
      in = out;
    }
  }
  head_ = testing::Drawn(size_t{kFeatures} * kClasses, seed_++, -0.04F, 0.04F);
  head_tensor_ = Tensor::From(head_, {kFeatures, kClasses});
}

Tensor ResNet50::Logits(const Tensor& image) const {
  const auto applied = [](const Tensor& x, const Layer& layer) {
    return x.Conv2d(layer.weight_tensor, {.stride = layer.stride, .padding = layer.kernel / 2}) *
               layer.scale_tensor.Reshape({1, -1, 1, 1}) +
           layer.bias_tensor.Reshape({1, -1, 1, 1});
  };
  Tensor x = applied(image, stem_).Relu().MaxPool2d(3, {.stride = 2, .padding = 1});
  for (const Block& block : blocks_) {
    Tensor y = applied(x, block.layers[0]).Relu();
    y = applied(applied(y, block.layers[1]).Relu(), block.layers[2]);
    x = (y + (block.shortcut.empty() ? x : applied(x, block.shortcut[0]))).Relu();
  }
  return x.Mean({2, 3}).Matmul(head_tensor_);
}

std::vector<double> ResNet50::LogitsByLoops(const std::vector<float>& image, int side) const {
  const auto applied = [](const Planes& x, const Layer& layer) {
    Planes y = Convolved(x, layer.weight, layer.out, layer.kernel, layer.stride);
    ScaleAndShift(&y, layer.scale, layer.bias);
    return y;
  };
  Planes x{3, side, {image.begin(), image.end()}};
  x = applied(x, stem_);
  Relu(&x);
  x = MaxPooled(x);
  for (const Block& block : blocks_) {
    Planes y = applied(x, block.layers[0]);
    Relu(&y);
    y = applied(y, block.layers[1]);
    Relu(&y);
    y = applied(y, block.layers[2]);
    const Planes other = block.shortcut.empty() ? x : applied(x, block.shortcut[0]);
    for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += other.values[i];
    Relu(&y);
    x = std::move(y);
  }
  const size_t places = size_t(x.side) * x.side;
  std::vector<double> logits(kClasses);
  for (int c = 0; c < kFeatures; ++c) {
    double mean = 0;
    for (size_t i = 0; i < places; ++i)
      mean += x.values[c * places + i] / static_cast<double>(places);
    for (int o = 0; o < kClasses; ++o) logits[o] += mean * head_[size_t(c) * kClasses + o];
  }
  return logits;
}

}  // namespace beamd::testing
