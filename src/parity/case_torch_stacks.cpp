// PyTorch's stacks of transformer layers, with their Python names. The options of the first two are those of
// their layers, num_layers, and whether a final norm follows, with its eps and bias.

#include <attentive/compat/transformer.h>
#include <attentive/core/options.h>

#include "parity/case_modules.h"

namespace attentive {
namespace {

std::optional<compat::LayerNormOptions> last_norm(const CaseArguments& options,
                                                  const compat::TransformerLayerOptions& layer) {
  if (!options.boolean("norm", false)) return std::nullopt;
  return compat::LayerNormOptions(layer.d_model()).eps(layer.layer_norm_eps()).bias(layer.bias());
}

std::optional<bool> hint(const CaseArguments& call, std::string_view name) {
  if (!call.has(name)) return std::nullopt;
  return call.boolean(name, false);
}

CaseRunner encoder(const CaseArguments& options, Backend backend) {
  const auto layer = torch_layer_options(options);
  compat::TransformerEncoder stack(compat::TransformerEncoderOptions(layer, options.integer("num_layers"))
                                       .norm(last_norm(options, layer)));
  const auto forward = [stack, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);  // only preferred, because the layers have PyTorch's options
    return {stack->forward(inputs.required("src"), torch_mask(inputs, "mask"),
                           torch_mask(inputs, "src_key_padding_mask"), hint(call, "is_causal"))};
  };
  return {stack.ptr(), forward};
}

CaseRunner decoder(const CaseArguments& options, Backend backend) {
  const auto layer = torch_layer_options(options);
  compat::TransformerDecoder stack(compat::TransformerDecoderOptions(layer, options.integer("num_layers"))
                                       .norm(last_norm(options, layer)));
  const auto forward = [stack, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);
    return {stack->forward(inputs.required("tgt"), inputs.required("memory"), torch_mask(inputs, "tgt_mask"),
                           torch_mask(inputs, "memory_mask"), torch_mask(inputs, "tgt_key_padding_mask"),
                           torch_mask(inputs, "memory_key_padding_mask"), hint(call, "tgt_is_causal"),
                           call.boolean("memory_is_causal", false))};
  };
  return {stack.ptr(), forward};
}

CaseRunner transformer(const CaseArguments& options, Backend backend) {
  compat::Transformer model(compat::TransformerOptions(torch_layer_options(options))
                                .num_encoder_layers(options.integer("num_encoder_layers", 6))
                                .num_decoder_layers(options.integer("num_decoder_layers", 6)));
  const auto forward = [model, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);
    return {model->forward(inputs.required("src"), inputs.required("tgt"), torch_mask(inputs, "src_mask"),
                           torch_mask(inputs, "tgt_mask"), torch_mask(inputs, "memory_mask"),
                           torch_mask(inputs, "src_key_padding_mask"),
                           torch_mask(inputs, "tgt_key_padding_mask"),
                           torch_mask(inputs, "memory_key_padding_mask"), hint(call, "src_is_causal"),
                           hint(call, "tgt_is_causal"), call.boolean("memory_is_causal", false))};
  };
  return {model.ptr(), forward};
}

std::vector<std::string_view> and_layer_options(std::vector<std::string_view> names) {
  const auto layer = torch_layer_option_names();
  names.insert(names.end(), layer.begin(), layer.end());
  return names;
}

}  // namespace

std::vector<CaseModule> torch_stack_case_modules() {
  return {
      {"torch.nn.TransformerEncoder",
       and_layer_options({"num_layers", "norm"}),
       {"src", "mask", "src_key_padding_mask"},
       false,
       encoder,
       {"is_causal"}},
      {"torch.nn.TransformerDecoder",
       and_layer_options({"num_layers", "norm"}),
       {"tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"},
       false,
       decoder,
       {"tgt_is_causal", "memory_is_causal"}},
      {"torch.nn.Transformer",
       and_layer_options({"num_encoder_layers", "num_decoder_layers"}),
       {"src", "tgt", "src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask", "tgt_key_padding_mask",
        "memory_key_padding_mask"},
       false,
       transformer,
       {"src_is_causal", "tgt_is_causal", "memory_is_causal"}},
  };
}

}  // namespace attentive
