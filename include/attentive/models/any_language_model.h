#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>

namespace attentive {

/// A decoder-only language model, a `GPT` or a `Llama`, whose class is known only at run time.
///
/// Copies share the model. Member functions call the model's functions and throw their errors.
///
///   auto model = attentive::AnyLanguageModel::load_pretrained(attentive::read_model_folder("gpt2"));
///   auto logits = model.forward(ids);
class AnyLanguageModel {
 public:
  /// Holds a model. Throws c10::ValueError for an empty holder.
  AnyLanguageModel(GPT model);
  AnyLanguageModel(Llama model);

  /// Loads the model that a folder of Python's `transformers` describes, as `attentive::load_pretrained`
  /// does. Throws its errors, and c10::ValueError for a model that is not a language model of this kind.
  static AnyLanguageModel load_pretrained(ModelFolder&& folder, const PretrainedOptions& options = {});

  /// Calls `visitor` with the `GPT` or the `Llama`.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return std::visit(std::forward<Visitor>(visitor), model_);
  }

  torch::nn::Module& module() const { return *ptr(); }
  std::shared_ptr<torch::nn::Module> ptr() const {
    return visit([](auto& model) -> std::shared_ptr<torch::nn::Module> { return model.ptr(); });
  }
  /// The name of the class: "GPT" or "Llama".
  std::string_view name() const {
    return visit([](auto& model) -> std::string_view { return model->kName; });
  }
  int64_t vocab_size() const {
    return visit([](auto& model) { return model->options.vocab_size(); });
  }
  /// 0: no limit
  int64_t context_length() const {
    return visit([](auto& model) { return model->options.context_length(); });
  }

  /// ids (B, T) -> logits (B, T, vocab_size), or (B, 1, vocab_size) with `Logits::Last`
  at::Tensor forward(const at::Tensor& ids, Logits which = Logits::All, const Padding& padding = {}) const;
  /// Processes tokens that follow those in the cache; ids holds only the new tokens, and so do the logits.
  at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache, Logits which = Logits::All) const;
  /// The mean cross-entropy of predicting `targets` (B, T), in nats per token.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets, const Padding& padding = {}) const;
  std::unique_ptr<KVCache> make_cache(int64_t batch = 1, int64_t capacity = 0) const;

 private:
  std::variant<GPT, Llama> model_;
};

/// Calls `attentive::generate` or `save_model_folder` with the model inside.
std::vector<int64_t> generate(const AnyLanguageModel& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {});
template <std::same_as<std::vector<int64_t>> Prompt>
std::vector<std::vector<int64_t>> generate(const AnyLanguageModel& model, const std::vector<Prompt>& prompts,
                                           const std::vector<GenerateOptions>& options) {
  return model.visit([&](auto holder) { return generate(*holder, prompts, options); });
}
void save_model_folder(const std::filesystem::path& path, const AnyLanguageModel& model,
                       const SaveFolderOptions& options = {});

}  // namespace attentive
