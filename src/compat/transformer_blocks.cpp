#include "compat/transformer_blocks.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include "modules/checks.h"
#include "modules/projection.h"

namespace attentive::compat {
namespace {

at::Tensor activate(const Activation& activation, const at::Tensor& x) {
  if (std::holds_alternative<torch::enumtype::kReLU>(activation)) return at::relu(x);
  if (std::holds_alternative<torch::enumtype::kGELU>(activation)) return at::gelu(x);
  return std::get<std::function<at::Tensor(const at::Tensor&)>>(activation)(x);
}

}  // namespace

void check_layer_options(const char* caller, const TransformerLayerOptions& options) {
  check_positive(caller, "d_model", options.d_model());
  check_heads(caller, "d_model", options.d_model(), options.nhead(), "nhead");
  check_positive(caller, "dim_feedforward", options.dim_feedforward());
  check_probability(caller, "dropout", options.dropout());
  const auto* function = std::get_if<std::function<at::Tensor(const at::Tensor&)>>(&options.activation());
  TORCH_CHECK_VALUE(!function || *function, caller,
                    ": expected activation to be callable, got an empty function");
}

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return MultiheadAttentionOptions(options.d_model(), options.nhead())
      .dropout(options.dropout())
      .bias(options.bias())
      .batch_first(options.batch_first());
}

LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return LayerNormOptions(options.d_model()).eps(options.layer_norm_eps()).bias(options.bias());
}

void check_encoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& src, const CallMasks& masks) {
  check_sequences(caller, "src", src, options.d_model(), options.batch_first());
  check_input(caller, "src", src, src.dim(), options.d_model(), parameter);
  check_masks(caller, masks, mask_sizes(src, src, options.nhead(), options.batch_first()));
}

void check_decoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& tgt, const char* memory_name,
                        const at::Tensor& memory, const CallMasks& masks, const CallMasks& memory_masks) {
  check_sequences(caller, "tgt", tgt, options.d_model(), options.batch_first());
  check_input(caller, "tgt", tgt, tgt.dim(), options.d_model(), parameter);
  check_input(caller, memory_name, memory, tgt.dim(), options.d_model(), parameter);
  const auto tgt_sizes = mask_sizes(tgt, tgt, options.nhead(), options.batch_first());
  const int64_t batch_dim = options.batch_first() ? 0 : 1;
  TORCH_CHECK_VALUE(!tgt_sizes.batched || memory.size(batch_dim) == tgt_sizes.batch, caller, ": expected ",
                    memory_name, " of batch ", tgt_sizes.batch, " like tgt, got ",
                    shape_string(memory.sizes()));
  check_masks(caller, masks, tgt_sizes);
  check_masks(caller, memory_masks, mask_sizes(tgt, memory, options.nhead(), options.batch_first()));
}

int64_t tokens_of(const at::Tensor& x, const TransformerLayerOptions& options) {
  return x.size(x.dim() == 3 && options.batch_first() ? 1 : 0);
}

void check_last_norm(const char* caller, const TransformerLayerOptions& options,
                     const std::optional<LayerNormOptions>& norm) {
  TORCH_CHECK_VALUE(!norm || norm->features() == options.d_model(), caller,
                    ": expected a norm of d_model = ", options.d_model(), " features, got ",
                    norm ? norm->features() : 0);
}

at::Tensor drop_attention(const TransformerLayerOptions& options, torch::nn::Dropout& dropout,
                          const at::Tensor& output) {
  const bool draws = dropout->is_training() && dropout->options.p() > 0.0;
  if (!draws || !options.batch_first() || output.dim() != 3) return dropout->forward(output);
  return dropout->forward(output.transpose(0, 1).contiguous().transpose(0, 1));
}

at::Tensor feed_forward(const TransformerLayerOptions& options, const at::Tensor& x,
                        torch::nn::Linear& linear1, torch::nn::Dropout& dropout, torch::nn::Linear& linear2) {
  return project(linear2, dropout->forward(activate(options.activation(), project(linear1, x))));
}

at::Tensor residual(bool norm_first, const at::Tensor& x, LayerNorm& norm,
                    const std::function<at::Tensor(const at::Tensor&)>& block) {
  return norm_first ? x + block(norm->forward(x)) : norm->forward(x + block(x));
}

}  // namespace attentive::compat
