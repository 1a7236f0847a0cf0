#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>

namespace attentive {

/// The reason why a tensor's values cannot be read (nested, sparse, quantized, without data); empty if they
/// can.
std::string refuse_source(const at::Tensor& got);

/// The reason why `got` cannot be copied into `want`; empty if it can. A copy may convert the dtype or the
/// device, but does not broadcast or densify.
std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want);

/// Throws the error that a strict `load_state_dict` would throw, but changes nothing.
void check_state_dict(const torch::nn::Module& module, const StateDict& state);

}  // namespace attentive
