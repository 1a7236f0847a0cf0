#pragma once

#include <memory>

#include <torch/nn/module.h>

#include <attentive/models/pretrained.h>

namespace attentive {

/// Gives a module that was built under `NoFirstWeights` the weights of a folder; the folder's handles are gone
/// afterwards. Throws, with the module unchanged, if they do not fit.
void load_weights(const std::shared_ptr<torch::nn::Module>& module, ModelFolder&& folder,
                  const PretrainedOptions& options);

}  // namespace attentive
