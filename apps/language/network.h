#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>
#include <attentive/text/tokenizer.h>

// A model of a run of attentive-train or of a folder that Python wrote, whatever its class.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  std::function<void(const at::Tensor& input)>
      forward;  // ids (1, T), or images (1, C, H, W) if `image` is set
  std::optional<attentive::ViTOptions> image;
  int64_t context_length = 0;                       // 0: no limit
  std::unique_ptr<attentive::Tokenizer> tokenizer;  // null: a text must be given as ids
  std::string why_no_tokenizer;

  // A text's ids, with the tokens that the model expects around it. Throws c10::ValueError without a
  // tokenizer; `option` is how the text was given.
  std::vector<int64_t> encode(std::string_view text, std::string_view option) const;
};

template <class Model>
void take_module(Network& network, Model model, c10::Device device) {
  model->to(device);
  network.module = model.ptr();
  network.forward = [model](const at::Tensor& input) mutable { model->forward(input); };
}

// The folder's tokenizer.json, or why it cannot be used.
void take_tokenizer(Network& network, const attentive::ModelFolder& folder);
