// Inference of ResNet-50's shape (He et al. 2016), with weights that are drawn and batch norms folded
// to a scale and a bias a channel.
#pragma once

#include <cstdint>
#include <vector>

#include "client/thin/tensor.h"

namespace beamd::testing {

// (1, 3, side, side) images to (1, 1000) logits.
class ResNet50 {
 public:
  ResNet50();
  thin::Tensor Logits(const thin::Tensor& image) const;
  // The same by plain loops, in doubles.
  std::vector<double> LogitsByLoops(const std::vector<float>& image, int side) const;

 private:
  struct Layer {
    int in = 0, out = 0, kernel = 1, stride = 1;
    std::vector<float> weight, scale, bias;
    thin::Tensor weight_tensor, scale_tensor, bias_tensor;
  };
  struct Block {
    std::vector<Layer> layers;
    std::vector<Layer> shortcut;  // one, where shapes change
  };

  Layer Drawn(int in, int out, int kernel, int stride);

  uint64_t seed_ = 1;
  Layer stem_;
  std::vector<Block> blocks_;
  std::vector<float> head_;  // (2048, 1000)
  thin::Tensor head_tensor_;
};

}  // namespace beamd::testing
