// PyTorch's transformer layers, with their Python names.

#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <attentive/compat/transformer_decoder_layer.h>
#include <attentive/compat/transformer_encoder_layer.h>
#include <attentive/core/options.h>

#include "parity/case_modules.h"

namespace attentive {
namespace {

// "relu" and "gelu" are Python's names; the other names stand for functions of torch.nn.functional.
compat::Activation activation(const CaseArguments& options) {
  const auto name = options.choice("activation", "relu", {"relu", "gelu", "silu", "tanh"});
  if (name == "gelu") return torch::kGELU;
  if (name == "silu") return [](const at::Tensor& x) { return at::silu(x); };
  if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  return torch::kReLU;
}

CaseRunner encoder_layer(const CaseArguments& options, Backend backend) {
  compat::TransformerEncoderLayer layer(torch_layer_options(options));
  const auto forward = [layer, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);  // only preferred, because the layer has PyTorch's options
    return {layer->forward(inputs.required("src"), torch_mask(inputs, "src_mask"),
                           torch_mask(inputs, "src_key_padding_mask"), call.boolean("is_causal", false))};
  };
  return {layer.ptr(), forward};
}

CaseRunner decoder_layer(const CaseArguments& options, Backend backend) {
  compat::TransformerDecoderLayer layer(torch_layer_options(options));
  const auto forward = [layer, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);
    return {layer->forward(inputs.required("tgt"), inputs.required("memory"), torch_mask(inputs, "tgt_mask"),
                           torch_mask(inputs, "memory_mask"), torch_mask(inputs, "tgt_key_padding_mask"),
                           torch_mask(inputs, "memory_key_padding_mask"),
                           call.boolean("tgt_is_causal", false), call.boolean("memory_is_causal", false))};
  };
  return {layer.ptr(), forward};
}

}  // namespace

std::vector<std::string_view> torch_layer_option_names() {
  return {"d_model",        "nhead",       "dim_feedforward", "dropout", "activation",
          "layer_norm_eps", "batch_first", "norm_first",      "bias"};
}

compat::TransformerLayerOptions torch_layer_options(const CaseArguments& options) {
  return compat::TransformerLayerOptions(options.integer("d_model"), options.integer("nhead"))
      .dim_feedforward(options.integer("dim_feedforward", 2048))
      .dropout(options.number("dropout", 0.1))
      .activation(activation(options))
      .layer_norm_eps(options.number("layer_norm_eps", 1e-5))
      .batch_first(options.boolean("batch_first", false))
      .norm_first(options.boolean("norm_first", false))
      .bias(options.boolean("bias", true));
}

std::vector<CaseModule> torch_layer_case_modules() {
  const auto options = torch_layer_option_names();
  return {
      {"torch.nn.TransformerEncoderLayer",
       options,
       {"src", "src_mask", "src_key_padding_mask"},
       false,
       encoder_layer,
       {"is_causal"}},
      {"torch.nn.TransformerDecoderLayer",
       options,
       {"tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"},
       false,
       decoder_layer,
       {"tgt_is_causal", "memory_is_causal"}},
  };
}

}  // namespace attentive
