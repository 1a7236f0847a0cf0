// PyTorch's own attention, transformer layers and stacks of them, with their Python names. Masks, alignment
// and shapes follow PyTorch's conventions here. The options of encoders and decoders are those of their
// layers, num_layers, and whether a final norm follows, with its eps and bias.

#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer.h>
#include <attentive/compat/transformer_layers.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>

#include "parity/case_modules.h"

namespace attentive {
namespace {

// The mask as PyTorch would use it: autocast rounds a floating-point mask like every other argument.
at::Tensor torch_mask(const CaseInputs& inputs, const std::string& name) {
  const auto mask = inputs.optional(name);
  if (!mask.defined() || !mask.is_floating_point()) return mask;
  const auto device = mask.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return mask;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), mask, device);
}

// A mask with fewer dimensions than q covers the last ones, as everywhere in PyTorch.
Mask mask_like(at::Tensor mask, int64_t rank) {
  if (!mask.defined()) return {};
  while (mask.dim() < rank) mask = mask.unsqueeze(0);
  return mask.scalar_type() == at::kBool ? Mask::keep(mask) : Mask::bias(mask);
}

// Broadcasts the leading dimensions of q, k and v, as PyTorch's matmul does.
void broadcast_leading(at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  const auto leading = [](const at::Tensor& x) {
    return x.sizes().slice(0, static_cast<size_t>(x.dim() - 2));
  };
  const auto common = at::infer_size_dimvector(at::infer_size_dimvector(leading(q), leading(k)), leading(v));
  for (auto* x : {&q, &k, &v}) {
    at::DimVector sizes(common);
    sizes.append({x->size(-2), x->size(-1)});
    *x = x->expand(sizes);
  }
}

CaseOutput run_sdpa(const CaseInputs& inputs, const CaseArguments& call, Weights which, Backend backend) {
  auto q = inputs.required("query");
  auto k = inputs.required("key");
  auto v = inputs.required("value");
  const auto mask = torch_mask(inputs, "attn_mask");
  const bool causal = call.boolean("is_causal", false);
  if (std::min({q.dim(), k.dim(), v.dim()}) < 2) {
    fail_case(inputs.case_name(), "expected query, key and value of rank 2 or more");
  }
  if (causal && mask.defined()) fail_case(inputs.case_name(), "PyTorch takes either attn_mask or is_causal");
  AttentionOptions options;
  options.backend = backend;
  options.causal = causal ? Causal::TopLeft : Causal::None;
  options.dropout_p = call.number("dropout_p", 0.0);
  options.scale = call.optional_number("scale");
  if (options.scale == 0.0) {
    // PyTorch accepts a scale of 0 (uniform weights), but `attention` refuses it as a likely mistake.
    q = q * 0;
    options.scale = 1.0;
  }
  // With grouped heads, the third dimension from the end is the head: rank 3 means (H, L, D), not (B, L, D).
  const bool grouped = call.boolean("enable_gqa", false);
  const bool unbatched = grouped && q.dim() == 3;
  if (unbatched) {
    for (auto* x : {&q, &k, &v}) *x = x->unsqueeze(0);
  } else if (!grouped) {
    broadcast_leading(q, k, v);
  }
  AttentionExtras extras;
  extras.mask = mask_like(mask, q.dim());
  extras.weights = which;
  const auto result = attention(q, k, v, options, extras);
  if (!unbatched) return {result.output, result.weights};
  return {result.output.squeeze(0), result.weights.defined() ? result.weights.squeeze(0) : result.weights};
}

CaseRunner sdpa(const CaseArguments&, Backend backend) {
  const auto forward = [backend](const CaseInputs& inputs, const CaseArguments& call, Weights which) {
    return run_sdpa(inputs, call, which, backend);
  };
  return {nullptr, forward};
}

CaseRunner multihead_attention(const CaseArguments& options, Backend backend) {
  auto settings =
      compat::MultiheadAttentionOptions(options.integer("embed_dim"), options.integer("num_heads"))
          .dropout(options.number("dropout", 0.0))
          .bias(options.boolean("bias", true))
          .add_bias_kv(options.boolean("add_bias_kv", false))
          .add_zero_attn(options.boolean("add_zero_attn", false))
          .kdim(options.optional_integer("kdim"))
          .vdim(options.optional_integer("vdim"))
          .batch_first(options.boolean("batch_first", false));
  compat::MultiheadAttention module(settings);
  const auto forward = [module, backend](const CaseInputs& inputs, const CaseArguments& call,
                                         Weights which) mutable -> CaseOutput {
    // The module has PyTorch's options only, so a backend can be preferred, but not forced.
    const BackendGuard guard(backend);
    const auto& query = inputs.required("query");
    const auto or_query = [&](const char* name) {
      const auto tensor = inputs.optional(name);
      return tensor.defined() ? tensor : query;
    };
    const bool clean = which == Weights::Clean;  // by head, to see which queries have keys
    const auto [output, weights] = module->forward(
        query, or_query("key"), or_query("value"), torch_mask(inputs, "key_padding_mask"),
        clean || call.boolean("need_weights", true), torch_mask(inputs, "attn_mask"),
        !clean && call.boolean("average_attn_weights", true), call.boolean("is_causal", false));
    return {output, weights};
  };
  CaseRunner runner{module.ptr(), forward, settings.bias() ? "out_proj.bias" : ""};
  runner.sequence_first = !settings.batch_first();
  runner.normal = {"bias_k", "bias_v"};
  return runner;
}

// "relu" and "gelu" are Python's names; the other names stand for functions of torch.nn.functional.
compat::Activation activation(const CaseArguments& options) {
  const auto name = options.choice("activation", "relu", {"relu", "gelu", "silu", "tanh"});
  if (name == "gelu") return torch::kGELU;
  if (name == "silu") return [](const at::Tensor& x) { return at::silu(x); };
  if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  return torch::kReLU;
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

CaseRunner encoder_layer(const CaseArguments& options, Backend backend) {
  compat::TransformerEncoderLayer layer(torch_layer_options(options));
  return preferring(
      backend, std::move(layer), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        return m->forward(inputs.required("src"), torch_mask(inputs, "src_mask"),
                          torch_mask(inputs, "src_key_padding_mask"), call.boolean("is_causal", false));
      });
}

CaseRunner decoder_layer(const CaseArguments& options, Backend backend) {
  compat::TransformerDecoderLayer layer(torch_layer_options(options));
  return preferring(
      backend, std::move(layer), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        return m->forward(inputs.required("tgt"), inputs.required("memory"), torch_mask(inputs, "tgt_mask"),
                          torch_mask(inputs, "memory_mask"), torch_mask(inputs, "tgt_key_padding_mask"),
                          torch_mask(inputs, "memory_key_padding_mask"), call.boolean("tgt_is_causal", false),
                          call.boolean("memory_is_causal", false));
      });
}

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
  return preferring(backend, std::move(stack),
                    [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
                      return m->forward(inputs.required("src"), torch_mask(inputs, "mask"),
                                        torch_mask(inputs, "src_key_padding_mask"), hint(call, "is_causal"));
                    });
}

CaseRunner decoder(const CaseArguments& options, Backend backend) {
  const auto layer = torch_layer_options(options);
  compat::TransformerDecoder stack(compat::TransformerDecoderOptions(layer, options.integer("num_layers"))
                                       .norm(last_norm(options, layer)));
  return preferring(
      backend, std::move(stack), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        return m->forward(inputs.required("tgt"), inputs.required("memory"), torch_mask(inputs, "tgt_mask"),
                          torch_mask(inputs, "memory_mask"), torch_mask(inputs, "tgt_key_padding_mask"),
                          torch_mask(inputs, "memory_key_padding_mask"), hint(call, "tgt_is_causal"),
                          call.boolean("memory_is_causal", false));
      });
}

CaseRunner transformer(const CaseArguments& options, Backend backend) {
  compat::Transformer model(compat::TransformerOptions(torch_layer_options(options))
                                .num_encoder_layers(options.integer("num_encoder_layers", 6))
                                .num_decoder_layers(options.integer("num_decoder_layers", 6)));
  return preferring(
      backend, std::move(model), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        return m->forward(inputs.required("src"), inputs.required("tgt"), torch_mask(inputs, "src_mask"),
                          torch_mask(inputs, "tgt_mask"), torch_mask(inputs, "memory_mask"),
                          torch_mask(inputs, "src_key_padding_mask"),
                          torch_mask(inputs, "tgt_key_padding_mask"),
                          torch_mask(inputs, "memory_key_padding_mask"), hint(call, "src_is_causal"),
                          hint(call, "tgt_is_causal"), call.boolean("memory_is_causal", false));
      });
}

std::vector<std::string_view> with_layer_options(std::vector<std::string_view> names,
                                                 const std::vector<std::string_view>& layer) {
  names.insert(names.end(), layer.begin(), layer.end());
  return names;
}

}  // namespace

std::vector<CaseModule> torch_case_modules() {
  const std::vector<std::string_view> layer{"d_model",     "nhead",      "dim_feedforward",
                                            "dropout",     "activation", "layer_norm_eps",
                                            "batch_first", "norm_first", "bias"};
  const auto stack = with_layer_options({"num_layers", "norm"}, layer);
  const auto both_stacks = with_layer_options({"num_encoder_layers", "num_decoder_layers"}, layer);
  return {
      {"torch.nn.MultiheadAttention",
       {"embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim",
        "batch_first"},
       {"query", "key", "value", "key_padding_mask", "attn_mask"},
       true,
       multihead_attention,
       {"need_weights", "average_attn_weights", "is_causal"}},
      {"torch.nn.functional.scaled_dot_product_attention",
       {},
       {"query", "key", "value", "attn_mask"},
       true,  // an eager function in its place may return weights
       sdpa,
       {"dropout_p", "is_causal", "scale", "enable_gqa"}},
      {"torch.nn.TransformerEncoderLayer",
       layer,
       {"src", "src_mask", "src_key_padding_mask"},
       false,
       encoder_layer,
       {"is_causal"}},
      {"torch.nn.TransformerDecoderLayer",
       layer,
       {"tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"},
       false,
       decoder_layer,
       {"tgt_is_causal", "memory_is_causal"}},
      {"torch.nn.TransformerEncoder",
       stack,
       {"src", "mask", "src_key_padding_mask"},
       false,
       encoder,
       {"is_causal"}},
      {"torch.nn.TransformerDecoder",
       stack,
       {"tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"},
       false,
       decoder,
       {"tgt_is_causal", "memory_is_causal"}},
      {"torch.nn.Transformer",
       both_stacks,
       {"src", "tgt", "src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask", "tgt_key_padding_mask",
        "memory_key_padding_mask"},
       false,
       transformer,
       {"src_is_causal", "tgt_is_causal", "memory_is_causal"}},
  };
}

}  // namespace attentive
