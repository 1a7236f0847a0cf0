#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/models/vit.h>
#include <attentive/text/tokenizer.h>

// A model of any class, from a run of attentive-train or from a folder that Python wrote, on the CPU and in
// evaluation mode.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  // ids (1, T), or images (1, C, H, W) if `image` is set
  std::function<void(const at::Tensor& input)> forward;
  std::optional<attentive::ViTOptions> image;
  int64_t context_length = 0;                       // 0: no limit
  std::unique_ptr<attentive::Tokenizer> tokenizer;  // null: a text must be given as ids
  std::string why_no_tokenizer;

  // Converts a text to ids, with the tokens that the model expects around it. Throws c10::ValueError without
  // a tokenizer; `option` is the flag that gave the text.
  std::vector<int64_t> encode(std::string_view text, std::string_view option) const;
};

// Loads a model. Throws c10::ValueError if it cannot be read.
Network load_network(const std::filesystem::path& path);
