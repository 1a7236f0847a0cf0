#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>

#include <attentive/models/gpt.h>

#include "core/check.h"
#include "functional/elementwise.h"
#include "functional/linear.h"
#include "models/decoder_only.h"
#include "models/model_config.h"
#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

TransformerBlockOptions block_options(const GPTOptions& options) {
  TransformerAttentionOptions attention(options.emb_dim(), options.num_heads());
  attention.num_kv_heads(options.num_kv_heads())
      .context_length(options.context_length())
      .dropout(options.dropout())
      .qkv_bias(options.qkv_bias())
      .out_bias(options.bias());
  if (options.positions() == GPTPositions::Rotary) attention.rotary(options.rotary());
  if (options.window() > 0) {
    attention.attention({.causal = Causal::BottomRight, .window = {options.window() - 1, 0}});
  }
  return TransformerBlockOptions(attention)
      .hidden_dim(options.hidden_dim())
      .dropout(options.dropout())
      .bias(options.bias())
      .activation(options.activation())
      .eps(options.eps());
}

DecoderSizes gpt_sizes(const GPTOptions& options) {
  return {GPTImpl::kName, options.vocab_size(), options.num_layers(), options.context_length()};
}

}  // namespace

std::string_view to_string(GPTPositions value) {
  return enum_name(value, {"learned", "rotary"});
}

std::string_view to_string(GPTInit value) {
  return enum_name(value, {"book", "gpt2"});
}

void GPTImpl::reset() {
  check_positive(kName, "vocab_size", options.vocab_size());
  check_positive(kName, "emb_dim", options.emb_dim());
  check_count(kName, "num_layers", options.num_layers());
  check_heads(kName, "emb_dim", options.emb_dim(), options.num_heads());
  check_probability(kName, "dropout", options.dropout());
  check_eps(kName, options.eps());
  if (options.hidden_dim() != 0) check_positive(kName, "hidden_dim", options.hidden_dim());
  const bool rotary = options.positions() == GPTPositions::Rotary;
  TORCH_CHECK_VALUE(options.context_length() > 0 || (rotary && options.context_length() == 0), kName,
                    ": expected context_length > 0, or 0 with rotary positions, got ",
                    options.context_length());
  if (options.context_length() > 0) check_positive(kName, "context_length", options.context_length());
  TORCH_CHECK_VALUE(options.window() >= 0, kName, ": expected window >= 0, got ", options.window());
  TORCH_CHECK_VALUE(options.checkpoint() >= 0, kName, ": expected checkpoint >= 0, got ",
                    options.checkpoint());

  tok_emb = register_module("tok_emb", embedding_layer(options.vocab_size(), options.emb_dim()));
  if (!rotary) {
    pos_emb = register_module("pos_emb", LearnedPositions(options.context_length(), options.emb_dim()));
  }
  trf_blocks = register_module("trf_blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers(); ++i)
    trf_blocks->push_back(TransformerBlock(block_options(options)));
  final_norm = register_module(
      "final_norm", LayerNorm(LayerNormOptions(options.emb_dim()).bias(options.bias()).eps(options.eps())));
  if (!options.tied()) {
    out_head =
        register_module("out_head", linear_layer(options.emb_dim(), options.vocab_size(), /*bias=*/false));
  }
  reset_parameters();
}

void GPTImpl::reset_parameters() {
  if (options.init() != GPTInit::Gpt2 || !draws_first_weights()) return;
  const at::NoGradGuard no_grad;
  const double onto_residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options.num_layers()));
  for (auto& item : named_parameters()) {
    const auto& name = item.key();
    if (item->dim() >= 2) {
      const bool residual = name.ends_with("out_proj.weight") || name.ends_with("layers.2.weight");
      item->normal_(0.0, residual ? onto_residual : 0.02);
    } else if (name.ends_with("bias")) {
      item->zero_();
    }
  }
}

void GPTImpl::set_context(std::shared_ptr<AttentionContext> context) {
  context_ = std::move(context);
  for (const auto& block : *trf_blocks) block->as<TransformerBlockImpl>()->att->context = context_;
}

at::Tensor GPTImpl::forward(const at::Tensor& ids, Logits which, const Padding& padding) {
  const PaddedRows rows(kName, ids, padding);
  const auto weights = tied_embedding(rows.ids);
  return rows.restored(LogitHead{weights.head()}.logits(features(weights, rows, nullptr, which)), which);
}

at::Tensor GPTImpl::forward_cached(const at::Tensor& ids, KVCache& cache, Logits which) {
  const auto weights = tied_embedding(ids);
  return LogitHead{weights.head()}.logits(features(weights, {kName, ids, {}}, &cache, which));
}

TiedEmbedding GPTImpl::tied_embedding(const at::Tensor& ids) const {
  return {tok_emb->weight, options.tied() ? tok_emb->weight : out_head->weight, ids};
}

at::Tensor GPTImpl::features(const TiedEmbedding& weights, const PaddedRows& rows, KVCache* cache,
                             Logits which) {
  const auto first = check_ids(gpt_sizes(options), rows.ids, cache);
  TORCH_CHECK_NOT_IMPLEMENTED(!context_ || !rows.real.defined(), kName,
                              ": expected no padding in a part of a longer sequence");
  auto x = weights.rows_of(rows.ids);
  const auto& starts = cache ? cache->padding() : rows.starts;
  if (pos_emb && starts.defined()) {
    x = x + at::embedding(pos_emb->weight, positions_after(starts, first, x.size(1)));
  } else if (pos_emb) {
    x = by_runs(context_.get(), x, first,
                [&](const at::Tensor& piece, int64_t offset) { return pos_emb->forward(piece, offset); });
  }
  x = drop_features(x, options.dropout(), is_training());
  if (!cache) {
    TORCH_CHECK_NOT_IMPLEMENTED(options.checkpoint() == 0 || !context_, kName,
                                ": expected checkpoint = 0 for a part of a longer sequence, got ",
                                options.checkpoint());
    x = run_blocks<TransformerBlockImpl>(
        *trf_blocks, x, options.checkpoint(),
        [mask = rows.mask()](TransformerBlockImpl& block, const at::Tensor& y) {
          return block.forward(y, mask);
        });
  } else {
    for (int64_t i = 0; i < options.num_layers(); ++i) {
      x = trf_blocks->at<TransformerBlockImpl>(static_cast<size_t>(i)).forward_cached(x, *cache, i);
    }
  }
  return final_norm->forward(tokens_with_logits(x, which, rows));
}

at::Tensor GPTImpl::loss(const at::Tensor& ids, const at::Tensor& targets, const Padding& padding) {
  const PaddedRows rows(kName, ids, padding);
  const auto weights = tied_embedding(rows.ids);
  return next_token_loss(gpt_sizes(options), rows, targets, {weights.head()},
                         [&] { return features(weights, rows, nullptr, Logits::All); });
}

std::unique_ptr<KVCache> GPTImpl::make_cache(int64_t batch, int64_t capacity) const {
  const auto& attention = *trf_blocks->at<TransformerBlockImpl>(0).att;
  return empty_cache(gpt_sizes(options), attention, tok_emb->weight, batch, capacity, options.window());
}

GPTOptions read_gpt_options(const std::string& caller, const FileValue& config_,
                            const PretrainedOptions& pretrained) {
  const ModelConfig config(caller, config_);
  check_common_fields(config);
  const auto emb_dim = config.size("n_embd");
  GPTOptions options(config.size("vocab_size"), config.size("n_positions", 1024), emb_dim,
                     config.size("n_head"), config.layers("n_layer"));
  // Python's names of other families for these four, which it reads as well and prefers.
  config.must_be("max_position_embeddings", options.context_length());
  config.must_be("hidden_size", emb_dim);
  config.must_be("num_attention_heads", options.num_heads());
  config.must_be("num_hidden_layers", options.num_layers());
  config.must_be("scale_attn_weights", true);
  config.must_be("scale_attn_by_inverse_layer_idx", false);
  const auto inner = config.size("n_inner", 4 * emb_dim);
  return options.qkv_bias(true)
      .hidden_dim(inner == 4 * emb_dim ? 0 : inner)
      .activation(config.activation("activation_function", "gelu_new"))
      .eps(config.number("layer_norm_epsilon", 1e-5))
      .tied(config.flag("tie_word_embeddings", true))
      .dropout(config.dropout({"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1, pretrained.dropout));
}

void write_options(const Family& family, const GPTOptions& options, FileValue::Dict& config) {
  set_field(config, "architectures", FileValue::List{{std::string(family.python_class) + "LMHeadModel"}});
  set_field(config, "vocab_size", options.vocab_size());
  set_field(config, "n_positions", options.context_length());
  set_field(config, "n_embd", options.emb_dim());
  set_field(config, "n_head", options.num_heads());
  set_field(config, "n_layer", options.num_layers());
  const bool usual = hidden_dim_of(options) == 4 * options.emb_dim();
  set_field(config, "n_inner", usual ? FileValue() : FileValue(options.hidden_dim()));
  const bool gpt2 = options.activation() == Activation::GeluTanh;
  set_field(config, "activation_function",
            std::string(gpt2 ? "gelu_new" : activation_word(options.activation())));
  set_field(config, "layer_norm_epsilon", options.eps());
  set_field(config, "tie_word_embeddings", options.tied());
  for (const auto* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    set_field(config, field, options.dropout());
  }
}

}  // namespace attentive
