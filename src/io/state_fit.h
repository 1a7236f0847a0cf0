#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/io/state_dict.h>

namespace attentive {

/// Why the numbers of a tensor cannot be read (nested, sparse, quantized, without data); empty if they can.
std::string refuse_source(const at::Tensor& got);

/// Why `got` cannot be copied into `want`; empty if it can. What is copied may be cast and moved, but not
/// broadcast or made dense.
std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want);

/// Throws what a strict `load_state_dict` would throw, and changes nothing.
void check_state_dict(const torch::nn::Module& module, const StateDict& state);

}  // namespace attentive
