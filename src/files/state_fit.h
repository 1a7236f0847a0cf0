#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>

namespace attentive {

/// The name without the parts that wrappers put into it ("layers.0._orig_mod.weight").
std::string without_wrappers(std::string_view name);

/// The reason why a tensor's values cannot be read (nested, sparse, quantized, without data); empty if they
/// can.
std::string refuse_source(const at::Tensor& got);

/// The reason why `got` cannot be copied into `want`; empty if it can. A copy may convert the dtype or the
/// device, but does not broadcast or densify.
std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want);

/// Throws the error that a strict `load_state_dict` would throw, but changes nothing.
void check_state_dict(const torch::nn::Module& module, const StateDict& state);

}  // namespace attentive
