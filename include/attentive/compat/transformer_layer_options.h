#pragma once

#include <cstdint>
#include <functional>
#include <variant>

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/enum.h>

#include <attentive/core/option_list.h>

namespace attentive::compat {

/// Activation of a feed-forward block: `torch::kReLU`, `torch::kGELU` (the exact one, with erf), or any
/// function of a tensor.
using Activation = std::variant<torch::enumtype::kReLU, torch::enumtype::kGELU,
                                std::function<at::Tensor(const at::Tensor&)>>;

/// Options of `TransformerEncoderLayer` and `TransformerDecoderLayer`: the arguments of Python's
/// constructors.
///
///   TransformerLayerOptions(512, 8).batch_first(true).norm_first(true).activation(torch::kGELU)
struct TransformerLayerOptions {
  TransformerLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}

  TORCH_ARG(int64_t, d_model);                 ///< features of input and output; nhead divides it
  TORCH_ARG(int64_t, nhead);                   ///< attention heads
  TORCH_ARG(int64_t, dim_feedforward) = 2048;  ///< hidden features of the feed-forward block
  TORCH_ARG(double, dropout) = 0.1;            ///< of attention weights, hidden features and block outputs
  TORCH_ARG(Activation, activation) = torch::kReLU;
  TORCH_ARG(double, layer_norm_eps) = 1e-5;
  TORCH_ARG(bool, batch_first) = false;  ///< (N, T, E) instead of (T, N, E)
  TORCH_ARG(bool, norm_first) = false;   ///< normalise before each block, not after its residual sum
  TORCH_ARG(bool, bias) = true;          ///< biases of projections, linear layers and norms

  ATTENTIVE_OPTIONS(d_model_, nhead_, dim_feedforward_, dropout_, activation_, layer_norm_eps_, batch_first_,
                    norm_first_, bias_);
};

}  // namespace attentive::compat
