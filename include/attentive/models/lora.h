#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace attentive {

/// Options of `Lora`, with the meaning and the defaults of Python's `peft`.
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8.0;    ///< a layer adds alpha / rank * B A x; it may be negative
  double dropout = 0.0;  ///< probability for the adapters' input, in training
  /// The layers to adapt: names of Python's modules ("q_proj", "c_attn", "h.0.attn.c_attn"), "all-linear", or
  /// for a module that is no model of this package the names of its modules. Empty: those that peft takes,
  /// c_attn for a GPT, q_proj and v_proj for a Llama, query and value for a Bert; none for ALBERT and a ViT.
  std::vector<std::string> targets = {};
  bool rslora = false;  ///< whether the factor is alpha / sqrt(rank)
  /// Whether a layer's weight becomes m * (W + factor B A) / |W + factor B A|, with the norms of the rows as
  /// constants and a trained m (outputs) that begins as the norms of W (https://arxiv.org/abs/2402.09353).
  bool dora = false;
  /// Ranks and alphas of single layers: the first key that matches counts. A key is a regular expression for
  /// the end of the layer's name, from a dot on: "q_proj", "layers.0.mlp.up_proj", "layers\\.[01]\\..*_proj",
  /// "^model.layers.0.self_attn.q_proj". One that matches no layer has no effect.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Modules whose parameters are trained as they are, beside the adapters: ends of the names of Python's
  /// modules ("classifier").
  std::vector<std::string> modules_to_save = {};
  std::string base_model = {};  ///< the base's name or path, which peft's configuration mentions
};

/// Low-rank adapters of a model's linear layers (https://arxiv.org/abs/2106.09685). Each adds
/// factor * B A dropout(x) to its layer's output; only A (rank, in) and B (out, rank) are trained. A is drawn
/// as `torch::nn::Linear` draws its weight, B is zero. The layers are those of Python's class: GPT-2's c_attn
/// has one adapter, q_proj, k_proj and v_proj have one each. Heads of language models are not adapted.
///
/// Layers of other modules that are `torch::nn::Linear` are adapted too. Such a layer's member `weight` then
/// stands for weight + factor * B A, whatever reads it, and has no memory of its own; the registered
/// parameter stays. Each forward pass computes the sum.
///
/// Adapters are children named "lora" of the model's modules: `parameters()`, `state_dict`, checkpoints,
/// `train`, `eval` and `to` include them. Their dtype is float32, also in a model of a half type; float64 in
/// one of float64. A model with adapters cannot be cloned.
///
/// Copies share the adapters. They live as long as the model does, not as long as this object.
///
///   auto lora = attentive::Lora({.rank = 8, .alpha = 16}).attach(model);
///   ...  // train model
///   lora.save("adapter");  // for peft
class Lora {
 public:
  /// Throws c10::ValueError for a rank < 1, an alpha that is not finite, and a dropout outside [0, 1].
  explicit Lora(LoraOptions options);

  /// Adds adapters to a model: a `torch::nn::Module` or the holder of one. All other parameters but those of
  /// `modules_to_save` stop requiring a gradient. Draws from the default generator.
  ///
  /// Throws c10::ValueError, with nothing changed, if this object is attached already, if the model has
  /// adapters, for a target that no layer has, listing the known ones, for dropout > 0 if a layer belongs to
  /// no module of this package, for a key that is no regular expression or repeats counted parts, and for
  /// modules to save that the model lacks, or of which one is an embedding that is the head's weight, too.
  /// Memory: rank * (in + out) numbers for each layer.
  Lora attach(const std::shared_ptr<torch::nn::Module>& model);
  template <class Holder>
  requires requires(const Holder& holder) {
    { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
  }
  Lora attach(const Holder& model) { return attach(std::shared_ptr<torch::nn::Module>(model.ptr())); }

  /// Adds to the weights what the adapters add, computed in float32 (float64 for a float64 model) and rounded
  /// once.
  /// The adapters then no longer compute. Throws c10::ValueError if they are merged already.
  /// Memory: a copy of the adapted weights, for `unmerge`.
  void merge();
  /// Returns to the weights before `merge`, in every bit. Throws c10::ValueError if the adapters are not
  /// merged, or if the dtype of a weight has changed since.
  void unmerge();
  /// Removes the adapters; parameters require gradients as they did before `attach`, and modules that
  /// `load_lora` replaced have their former numbers. After `merge`, the weights keep what was added, and the
  /// modules their numbers. Throws c10::ValueError if the object is not attached.
  void detach();

  /// Writes a folder that peft's `PeftModel.from_pretrained` loads: adapter_config.json and
  /// adapter_model.safetensors. It appears complete or not at all; other files of an existing folder stay.
  /// Throws c10::ValueError, with nothing changed, if the object is not attached or a file cannot be written.
  /// Memory: adapters on another device, one at a time.
  void save(const std::filesystem::path& path) const;

  bool attached() const;
  bool merged() const;
  /// A and B of every adapter, in the order of `layers()`; then, for DoRA, their magnitudes; then the
  /// parameters of `modules_to_save`.
  std::vector<at::Tensor> parameters() const;
  /// The adapted layers, by the names of Python's modules; for a module that is no model of this package, the
  /// names of its modules.
  std::vector<std::string> layers() const;
  /// The family of transformers whose names `layers()` has; empty if there is none.
  std::string_view family() const;
  /// The options; targets and patterns are those that were found.
  const LoraOptions& options() const;

 private:
  friend Lora load_lora(const std::filesystem::path& path, const std::shared_ptr<torch::nn::Module>& model);
  struct State;

  std::shared_ptr<State> state_;
};

/// The text of peft's adapter_config.json for attached adapters. Throws c10::ValueError if they are not
/// attached.
std::string lora_config(const Lora& lora);
/// Parses such a text. Throws c10::ValueError that names a field with a wrong value, and one of a feature
/// that adapters here do not have, such as trained biases, layers chosen by number, or adapters of
/// parameters.
LoraOptions parse_lora_config(const std::string& json);

/// Adds the adapters of a folder that `Lora::save` or peft wrote, with adapter_model.safetensors or else
/// adapter_model.bin. The tensors' names decide which layers have one, so that fields which only choose
/// layers are not read. Without the prefix of the family's class, with the names of other versions of
/// transformers, and with those of wrappers (`without_wrappers`), they are known as well. The weights of
/// `modules_to_save` replace the model's until `detach`.
///
/// Throws c10::ValueError, with nothing changed, as `parse_lora_config` and `Lora::attach` do; for a file
/// that cannot be read; and for tensors that are missing, unknown or of another shape, trained biases of
/// adapted layers, and an embedding or a head alone of a model that ties them.
/// Memory: the adapters, twice, and the modules that are replaced.
///
///   auto lora = attentive::load_lora("adapter", model);
///   lora.merge();
Lora load_lora(const std::filesystem::path& path, const std::shared_ptr<torch::nn::Module>& model);
template <class Holder>
requires requires(const Holder& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
}
Lora load_lora(const std::filesystem::path& path, const Holder& model) {
  return load_lora(path, std::shared_ptr<torch::nn::Module>(model.ptr()));
}

}  // namespace attentive
