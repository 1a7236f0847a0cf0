#include <algorithm>
#include <cmath>

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <attentive/models/llama.h>

#include "functional/linear.h"
#include "models/decoder_only.h"
#include "models/model_config.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

// The window of a layer; 0: none.
int64_t window_of(const LlamaOptions& options, int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  return index < options.windows().size() ? options.windows()[index] : 0;
}

// The largest window if every layer has one, otherwise 0.
int64_t window_of_all(const LlamaOptions& options) {
  int64_t largest = 0;
  for (int64_t i = 0; i < options.num_layers(); ++i) {
    const auto window = window_of(options, i);
    if (window == 0) return 0;
    largest = std::max(largest, window);
  }
  return largest;
}

RMSNormOptions norm_options(const LlamaOptions& options) {
  return RMSNormOptions(options.emb_dim()).eps(options.eps()).unit_offset(options.unit_offset());
}

TransformerAttentionOptions attention_options(const LlamaOptions& options, int64_t layer) {
  const auto window = window_of(options, layer);
  AttentionOptions call_options{
      .scale = options.scale(), .causal = Causal::BottomRight, .softcap = options.softcap()};
  if (window > 0) call_options.window = {window - 1, 0};
  const bool rotates_differently = window > 0 && options.window_rotary().has_value();
  return TransformerAttentionOptions(options.emb_dim(), options.num_heads())
      .num_kv_heads(options.num_kv_heads())
      .head_dim(options.head_dim())
      .context_length(options.context_length())
      .dropout(options.dropout())
      .qkv_bias(options.qkv_bias())
      .out_bias(options.out_bias())
      .rotary(rotates_differently ? *options.window_rotary() : options.rotary())
      .qk_norm(options.qk_norm())
      .head_norm(norm_options(options))
      .attention(call_options);
}

FeedForward feed_forward(const LlamaOptions& options) {
  return FeedForward(FeedForwardOptions(options.emb_dim())
                         .hidden_dim(options.hidden_dim())
                         .bias(options.ff_bias())
                         .activation(options.activation())
                         .gated(true));
}

DecoderSizes llama_sizes(const LlamaOptions& options) {
  return {LlamaImpl::kName, options.vocab_size(), options.num_layers(), options.context_length()};
}

void check_options(const char* caller, const LlamaOptions& options) {
  check_positive(caller, "vocab_size", options.vocab_size());
  check_positive(caller, "emb_dim", options.emb_dim());
  check_count(caller, "num_layers", options.num_layers());
  check_count(caller, "num_heads", options.num_heads());
  if (options.head_dim() == 0) check_heads(caller, "emb_dim", options.emb_dim(), options.num_heads());
  TORCH_CHECK_VALUE(options.context_length() >= 0, caller, ": expected context_length >= 0, got ",
                    options.context_length());
  check_probability(caller, "dropout", options.dropout());
  check_eps(caller, options.eps());
  const auto cap = options.logit_softcap().value_or(1.0);
  TORCH_CHECK_VALUE(std::isfinite(cap) && cap > 0, caller, ": expected logit_softcap > 0, got ", cap);
  TORCH_CHECK_VALUE(options.windows().size() <= static_cast<size_t>(options.num_layers()), caller,
                    ": expected windows for at most num_layers = ", options.num_layers(), " layers, got ",
                    options.windows().size());
  TORCH_CHECK_VALUE(options.checkpoint() >= 0, caller, ": expected checkpoint >= 0, got ",
                    options.checkpoint());
  for (const auto window : options.windows())
    TORCH_CHECK_VALUE(window >= 0, caller, ": expected windows >= 0, got ", window);
}

}  // namespace

LlamaBlockImpl::LlamaBlockImpl(LlamaOptions options_, int64_t layer)
    : options(std::move(options_)), layer_(layer) {
  build();
}

void LlamaBlockImpl::reset() {
  check_options(kName, options);
  TORCH_CHECK_VALUE(layer_ >= 0 && layer_ < options.num_layers(), kName, ": expected layer in [0, ",
                    options.num_layers(), "), got ", layer_);
  att = register_module("att", TransformerAttention(attention_options(options, layer_)));
  ff = register_module("ff", feed_forward(options));
  norm1 = register_module("norm1", RMSNorm(norm_options(options)));
  norm2 = register_module("norm2", RMSNorm(norm_options(options)));
  if (options.norm_after()) {
    after1 = register_module("after1", RMSNorm(norm_options(options)));
    after2 = register_module("after2", RMSNorm(norm_options(options)));
  }
}

at::Tensor LlamaBlockImpl::forward(const at::Tensor& x, const Mask& mask) {
  return run(x, nullptr, 0, mask);
}

at::Tensor LlamaBlockImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                          const Mask& mask) {
  return run(x, &cache, layer, mask);
}

at::Tensor LlamaBlockImpl::run(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask) {
  const auto normed = norm1->forward(x);
  auto y = cache ? att->forward_cached(normed, *cache, layer, mask) : att->forward(normed, mask);
  const auto attended = x + (after1 ? after1->forward(y) : y);
  y = ff->forward(norm2->forward(attended));
  return attended + (after2 ? after2->forward(y) : y);
}

void LlamaImpl::reset() {
  check_options(kName, options);
  tok_emb = register_module("tok_emb", embedding_layer(options.vocab_size(), options.emb_dim()));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers(); ++i) blocks->push_back(LlamaBlock(options, i));
  final_norm = register_module("final_norm", RMSNorm(norm_options(options)));
  if (!options.tied()) {
    out_head =
        register_module("out_head", linear_layer(options.emb_dim(), options.vocab_size(), /*bias=*/false));
  }
}

at::Tensor LlamaImpl::forward(const at::Tensor& ids, const Mask& mask, Logits which, const Padding& padding) {
  const PaddedRows rows(kName, ids, padding, /*whole=*/!mask.empty());
  const auto weights = tied_embedding(rows.ids);
  return rows.restored(head(weights).logits(features(weights, rows, nullptr, mask & rows.mask(), which)),
                       which);
}

at::Tensor LlamaImpl::forward_cached(const at::Tensor& ids, KVCache& cache, const Mask& mask, Logits which) {
  const auto weights = tied_embedding(ids);
  return head(weights).logits(features(weights, {kName, ids, {}}, &cache, mask, which));
}

TiedEmbedding LlamaImpl::tied_embedding(const at::Tensor& ids) const {
  return {tok_emb->weight, options.tied() ? tok_emb->weight : out_head->weight, ids};
}

LogitHead LlamaImpl::head(const TiedEmbedding& weights) const {
  return {weights.head(), options.logit_softcap()};
}

at::Tensor LlamaImpl::features(const TiedEmbedding& weights, const PaddedRows& rows, KVCache* cache,
                               const Mask& mask, Logits which) {
  check_ids(llama_sizes(options), rows.ids, cache);
  auto x = weights.rows_of(rows.ids);
  if (options.scaled_embedding()) {  // the factor is rounded to x's dtype, as in Gemma's training
    const auto root = std::sqrt(static_cast<double>(options.emb_dim()));
    x = x * at::scalar_tensor(root, at::TensorOptions(x.scalar_type()));
  }
  if (!cache) {
    x = run_blocks<LlamaBlockImpl>(
        *blocks, x, options.checkpoint(),
        [mask](LlamaBlockImpl& block, const at::Tensor& y) { return block.forward(y, mask); });
  } else {
    for (int64_t i = 0; i < options.num_layers(); ++i) {
      x = blocks->at<LlamaBlockImpl>(static_cast<size_t>(i)).forward_cached(x, *cache, i, mask);
    }
  }
  return final_norm->forward(tokens_with_logits(x, which, rows));
}

at::Tensor LlamaImpl::loss(const at::Tensor& ids, const at::Tensor& targets, const Padding& padding) {
  const PaddedRows rows(kName, ids, padding);
  const auto weights = tied_embedding(rows.ids);
  return next_token_loss(llama_sizes(options), rows, targets, head(weights),
                         [&] { return features(weights, rows, nullptr, rows.mask(), Logits::All); });
}

std::unique_ptr<KVCache> LlamaImpl::make_cache(int64_t batch, int64_t capacity) const {
  TORCH_CHECK_VALUE(capacity != 0 || options.context_length() > 0 || window_of_all(options) > 0, kName,
                    ": expected a capacity, because there is neither a context_length nor a window in every "
                    "layer");
  return empty_cache(llama_sizes(options), *blocks->at<LlamaBlockImpl>(0).att, tok_emb->weight, batch,
                     capacity, window_of_all(options));
}

namespace {

constexpr int64_t kDefaultWindow = 4096;

// The lengths in config.json beside the rotations.
struct Lengths {
  double context;                  // max_position_embeddings
  std::optional<double> original;  // original_max_position_embeddings, which replaces that of a rotation
};

// Reads the scaling "yarn". As in Python, null is an absent factor but a false `truncate`, and 0 an absent beta
// or mscale.
RotaryPositionsOptions read_yarn(const ModelConfig& scaling, RotaryPositionsOptions rotary,
                                 const Lengths& lengths) {
  const auto checked = [&](std::string_view name, double value, bool valid, std::string_view expected) {
    if (!valid || !std::isfinite(value)) scaling.refuse(name, expected);
    return value;
  };
  const auto not_zero = [&](std::string_view name, double fallback) {
    const auto value = scaling.number(name, 0.0);
    return value == 0 ? fallback : value;
  };
  checked("rope_theta", rotary.base(), rotary.base() > 1, "a number above 1");
  const auto original =
      lengths.original.value_or(scaling.number("original_max_position_embeddings", lengths.context));
  checked("original_max_position_embeddings", original, original > 0, "a number above 0");
  const auto given = scaling.number("factor");
  const auto factor = scaling.is_null("factor") ? lengths.context / original : given.value_or(0.0);
  const auto slow = not_zero("beta_slow", 1.0), fast = not_zero("beta_fast", 32.0);
  const bool has_fast = scaling.find("beta_fast") != nullptr;
  const auto mscale = scaling.number("mscale", 0.0), all_dim = scaling.number("mscale_all_dim", 0.0);
  const auto magnitude = scaling.number("attention_factor");
  if (magnitude) checked("attention_factor", *magnitude, *magnitude > 0, "a number above 0");
  return rotary.scaling(RotaryScaling::Yarn)
      .original_context(original)
      .factor(checked("factor", factor, factor >= 1, "a number of at least 1"))
      .beta_slow(checked("beta_slow", slow, slow > 0 && (has_fast || slow < fast),
                         "a number above 0 and below beta_fast"))
      .beta_fast(checked("beta_fast", fast, fast > slow, "a number above beta_slow"))
      .truncate(!scaling.is_null("truncate") && scaling.flag("truncate", true))
      .mscale(checked("mscale", mscale, mscale >= 0, "a number of at least 0"))
      .mscale_all_dim(checked("mscale_all_dim", all_dim, all_dim >= 0, "a number of at least 0"))
      .attention_factor(magnitude);
}

// Reads one rotation. Old files have rope_theta next to the scaling, new ones inside it.
RotaryPositionsOptions read_rotary(const std::optional<ModelConfig>& scaling, double theta,
                                   const Lengths& lengths) {
  auto rotary = RotaryPositionsOptions(0).pairing(RotaryPairing::Halves).base(theta);
  if (!scaling) return rotary;
  rotary.base(scaling->number("rope_theta", theta));
  if (scaling->number("partial_rotary_factor", 1.0) != 1.0) {
    scaling->refuse("partial_rotary_factor", "1, the rotation of all features");
  }
  const auto* field = scaling->find("rope_type") != nullptr ? "rope_type" : "type";
  const auto kind = scaling->word(field, "default");
  if (kind == "default") return rotary;
  const auto required = [&](std::string_view name) {
    const auto value = scaling->number(name);
    if (!value) scaling->refuse(name, "a number");
    return *value;
  };
  if (kind == "linear") return rotary.scaling(RotaryScaling::Linear).factor(required("factor"));
  if (kind == "yarn") return read_yarn(*scaling, rotary, lengths);
  if (kind != "llama3") scaling->refuse(field, R"("default", "linear", "llama3" or "yarn")");
  return rotary.scaling(RotaryScaling::Llama3)
      .factor(required("factor"))
      .low_freq_factor(required("low_freq_factor"))
      .high_freq_factor(required("high_freq_factor"))
      .original_context(
          lengths.original.value_or(scaling->number("original_max_position_embeddings", lengths.context)));
}

// An object of rotations; none if it is absent or, as in Python, empty.
std::optional<ModelConfig> rope_object(const ModelConfig& config, std::string_view field) {
  auto object = config.object(field);
  if (object && config.find(field)->as<FileValue::Dict>().items.empty()) object.reset();
  return object;
}

// Refuses what Python's class does not read as it is written: Gemma 3 wants rope_parameters for each kind of
// layer, ignores others, and reads rope_scaling into those of full attention, whose default rope_type hides
// an old "type". The other families have one rotation.
void check_rotations(const ModelConfig& config, const DecoderTraits& traits, bool nested) {
  const auto old = rope_object(config, "rope_scaling");
  if (!traits.local_theta) {
    if (nested) config.refuse("rope_parameters", "one rotation for all layers");
    return;
  }
  if (!nested && rope_object(config, "rope_parameters"))
    config.refuse("rope_parameters", "\"full_attention\" and \"sliding_attention\", a rotation each");
  if (old && old->find("rope_type") == nullptr)
    old->refuse("rope_type", "the kind of the rotation (Python's Gemma 3 ignores \"type\")");
  if (old) old->must_be("truncate", true);  // ignored where each kind of layer has a rotation
}

// As in Python, rope_scaling (old files) takes precedence over rope_parameters (new files), which for Gemma 3
// hold a rotation for each kind of layer.
void read_rotations(const ModelConfig& config, const DecoderTraits& traits, LlamaOptions& options) {
  if (config.number("partial_rotary_factor", 1.0) != 1.0) {
    config.refuse("partial_rotary_factor", "1, the rotation of all features");
  }
  const auto theta = config.number("rope_theta", traits.theta);
  const auto old = rope_object(config, "rope_scaling"), parameters = rope_object(config, "rope_parameters");
  Lengths lengths{static_cast<double>(options.context_length()), std::nullopt};
  if (!traits.local_theta) lengths.original = config.number("original_max_position_embeddings");
  const bool nested = parameters && (parameters->find("full_attention") != nullptr ||
                                     parameters->find("sliding_attention") != nullptr);
  check_rotations(config, traits, nested);
  const auto full = nested ? parameters->object("full_attention") : parameters;
  const auto base = old && nested && full ? full->number("rope_theta", theta) : theta;
  if (traits.local_theta && full) full->must_be("truncate", true);
  options.rotary(read_rotary(old ? old : full, base, lengths));
  if (!traits.local_theta) return;
  const auto local = config.number("rope_local_base_freq", *traits.local_theta);
  const auto sliding = nested ? parameters->object("sliding_attention") : std::nullopt;
  if (sliding) sliding->must_be("truncate", true);
  options.window_rotary(read_rotary(sliding, local, lengths));
}

// Whether each layer has a window, from layer_types or, if that is absent, from the family's rule.
std::vector<bool> sliding_layers(const ModelConfig& config, const Family& family, int64_t layers) {
  const auto rule = family.decoder.windows;
  std::vector<bool> sliding(static_cast<size_t>(layers));
  const auto types = config.words("layer_types");
  if (!types.empty()) {
    if (types.size() != sliding.size()) {
      config.refuse("layer_types", fmt::format("{} kinds, one a layer", layers));
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] != "full_attention" && types[i] != "sliding_attention") {
        config.refuse("layer_types",
                      fmt::format("\"full_attention\" or \"sliding_attention\" for layer {}", i));
      }
      if (rule == WindowRule::All && types[i] != "sliding_attention") {
        config.refuse("layer_types", fmt::format("windows in all layers of a {}", family.name));
      }
      sliding[i] = types[i] == "sliding_attention";
    }
    return sliding;
  }
  constexpr int64_t kPattern = 6;
  const auto pattern = config.size("sliding_window_pattern", kPattern);
  if (rule == WindowRule::AllButEveryNth && pattern != config.size("_sliding_window_pattern", pattern))
    config.refuse("_sliding_window_pattern",
                  fmt::format("layer_types beside it, or {} (Python's class ignores the field)", pattern));
  const auto first = config.integer("max_window_layers", 28);
  for (int64_t i = 0; i < layers; ++i) {
    const bool window = rule == WindowRule::EveryOther       ? (i + 1) % 2 != 0
                        : rule == WindowRule::AllButEveryNth ? (i + 1) % pattern != 0
                        : rule == WindowRule::FromLayer      ? i >= first
                                                             : rule == WindowRule::All;
    sliding[static_cast<size_t>(i)] = window;
  }
  return sliding;
}

void read_windows(const ModelConfig& config, const Family& family, LlamaOptions& options) {
  const auto rule = family.decoder.windows;
  if (rule == WindowRule::None) return;
  const bool none = config.is_null("sliding_window") ||
                    (rule == WindowRule::FromLayer && !config.flag("use_sliding_window", false));
  const auto sliding = sliding_layers(config, family, options.num_layers());
  const bool any = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
  if (none) {
    if (any && config.find("layer_types") != nullptr) {
      config.refuse("sliding_window", "a number of tokens for the layers with a window");
    }
    return;
  }
  const auto window = config.size("sliding_window", kDefaultWindow);
  std::vector<int64_t> windows;
  for (const bool has_window : sliding) windows.push_back(has_window ? window : 0);
  if (any) options.windows(std::move(windows));
}

void read_gemma(const ModelConfig& config, const DecoderTraits& traits, LlamaOptions& options) {
  config.must_be("use_bidirectional_attention", false);
  const auto softcap = [&](std::string_view field, std::optional<double> fallback) {
    return config.find(field) == nullptr && !config.is_null(field) ? fallback : config.number(field);
  };
  options.unit_offset(true)
      .scaled_embedding(true)
      .scale(std::pow(config.number("query_pre_attn_scalar", 256.0), -0.5))
      .logit_softcap(softcap("final_logit_softcapping", traits.logit_softcap));
  if (traits.softcap) options.softcap(softcap("attn_logit_softcapping", traits.softcap));
}

}  // namespace

LlamaOptions read_llama_options(const std::string& caller, const Family& family, const FileValue& config_,
                                const PretrainedOptions& pretrained) {
  const ModelConfig config(caller, config_);
  check_common_fields(config);
  const auto heads = config.size("num_attention_heads");
  LlamaOptions options(config.size("vocab_size"), config.size("hidden_size"), heads,
                       config.layers("num_hidden_layers"));
  const bool null_heads = config.is_null("num_key_value_heads");
  const auto& traits = family.decoder;
  const bool biases = traits.attention_bias_field && config.flag("attention_bias", false);
  options.hidden_dim(config.size("intermediate_size"))
      .context_length(config.size("max_position_embeddings", traits.context))
      .num_kv_heads(null_heads
                        ? heads
                        : config.size("num_key_value_heads", traits.kv_heads > 0 ? traits.kv_heads : heads))
      .head_dim(config.size("head_dim", config.is_null("head_dim") ? 0 : traits.head_dim))
      .activation(config.activation(traits.activation_field, traits.activation))
      .qkv_bias(biases || traits.qkv_bias)
      .out_bias(biases)
      .ff_bias(traits.mlp_bias_field && config.flag("mlp_bias", false))
      .qk_norm(traits.qk_norm)
      .norm_after(traits.norm_after)
      .tied(config.flag("tie_word_embeddings", traits.tied))
      .eps(config.number("rms_norm_eps", 1e-6))
      .dropout(config.dropout({"attention_dropout"}, 0.0, pretrained.dropout));
  if (traits.gemma) read_gemma(config, traits, options);
  read_windows(config, family, options);
  read_rotations(config, traits, options);
  return options;
}

namespace {

FileValue::Dict rope_parameters(const RotaryPositionsOptions& rotary) {
  FileValue::Dict dict;
  set_field(dict, "rope_theta", rotary.base());
  if (rotary.scaling() == RotaryScaling::Linear) {
    set_field(dict, "rope_type", "linear");
    set_field(dict, "factor", rotary.factor());
  } else if (rotary.scaling() == RotaryScaling::Llama3) {
    set_field(dict, "rope_type", "llama3");
    set_field(dict, "factor", rotary.factor());
    set_field(dict, "low_freq_factor", rotary.low_freq_factor());
    set_field(dict, "high_freq_factor", rotary.high_freq_factor());
    set_field(dict, "original_max_position_embeddings", static_cast<int64_t>(rotary.original_context()));
  } else if (rotary.scaling() == RotaryScaling::Yarn) {
    set_field(dict, "rope_type", "yarn");
    set_field(dict, "factor", rotary.factor());
    set_field(dict, "original_max_position_embeddings", static_cast<int64_t>(rotary.original_context()));
    set_field(dict, "beta_fast", rotary.beta_fast());
    set_field(dict, "beta_slow", rotary.beta_slow());
    if (!rotary.truncate()) set_field(dict, "truncate", false);
    if (rotary.mscale() != 0) set_field(dict, "mscale", rotary.mscale());
    if (rotary.mscale_all_dim() != 0) set_field(dict, "mscale_all_dim", rotary.mscale_all_dim());
    if (rotary.attention_factor()) set_field(dict, "attention_factor", *rotary.attention_factor());
  } else {
    set_field(dict, "rope_type", "default");
  }
  return dict;
}

// Writes the fields that versions 4 and 5 of transformers read.
void write_rotations(const DecoderTraits& traits, const LlamaOptions& options, FileValue::Dict& config) {
  const auto full = rope_parameters(options.rotary());
  const bool scaled = options.rotary().scaling() != RotaryScaling::None;
  set_field(config, "rope_theta", options.rotary().base());
  set_field(config, "rope_scaling", scaled ? FileValue(full) : FileValue());
  if (!traits.local_theta) {
    set_field(config, "rope_parameters", full);
    return;
  }
  const auto& sliding = options.window_rotary() ? *options.window_rotary() : options.rotary();
  set_field(config, "rope_local_base_freq", sliding.base());
  FileValue::Dict both;
  set_field(both, "full_attention", full);
  set_field(both, "sliding_attention", rope_parameters(sliding));
  set_field(config, "rope_parameters", both);
}

void write_windows(const DecoderTraits& traits, const LlamaOptions& options, FileValue::Dict& config) {
  if (traits.windows == WindowRule::None) return;
  const auto& windows = options.windows();
  const auto widest = windows.empty() ? 0 : *std::max_element(windows.begin(), windows.end());
  if (traits.windows != WindowRule::All) {
    FileValue::List types;
    for (size_t i = 0; i < static_cast<size_t>(options.num_layers()); ++i) {
      const bool window = i < windows.size() && windows[i] > 0;
      types.items.emplace_back(window ? "sliding_attention" : "full_attention");
    }
    set_field(config, "layer_types", types);
  }
  if (traits.windows == WindowRule::FromLayer) set_field(config, "use_sliding_window", widest > 0);
  if (widest > 0) {
    set_field(config, "sliding_window", widest);
  } else if (!traits.gemma) {
    set_field(config, "sliding_window", FileValue());
  } else if (const FileValue before(config);  // Python's Gemma cannot run without a number
             ModelConfig("save_model_folder", before).find("sliding_window") == nullptr) {
    set_field(config, "sliding_window", kDefaultWindow);
  }
}

void write_gemma(const DecoderTraits& traits, const LlamaOptions& options, FileValue::Dict& config) {
  const auto head_dim = options.head_dim() > 0 ? options.head_dim() : options.emb_dim() / options.num_heads();
  const auto scale = options.scale().value_or(std::pow(static_cast<double>(head_dim), -0.5));
  const auto cap = [](const std::optional<double>& value) { return value ? FileValue(*value) : FileValue(); };
  set_field(config, "query_pre_attn_scalar", static_cast<int64_t>(std::llround(1.0 / (scale * scale))));
  if (traits.softcap) set_field(config, "attn_logit_softcapping", cap(options.softcap()));
  set_field(config, "final_logit_softcapping", cap(options.logit_softcap()));
}

}  // namespace

void write_options(const Family& family, const LlamaOptions& options, FileValue::Dict& config) {
  const auto& traits = family.decoder;
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  const auto or_else = [](int64_t value, int64_t fallback) { return value > 0 ? value : fallback; };
  set("architectures", FileValue::List{{std::string(family.python_class) + "ForCausalLM"}});
  set("vocab_size", options.vocab_size());
  set("hidden_size", options.emb_dim());
  set("num_hidden_layers", options.num_layers());
  set("num_attention_heads", options.num_heads());
  set("num_key_value_heads", or_else(options.num_kv_heads(), options.num_heads()));
  set("head_dim", or_else(options.head_dim(), options.emb_dim() / std::max<int64_t>(options.num_heads(), 1)));
  set("intermediate_size", hidden_dim_of(options));
  set("max_position_embeddings", or_else(options.context_length(), 131072));
  set(traits.activation_field, std::string(activation_word(options.activation())));
  set("rms_norm_eps", options.eps());
  set("tie_word_embeddings", options.tied());
  set("attention_dropout", options.dropout());
  if (traits.attention_bias_field) set("attention_bias", options.qkv_bias());
  if (traits.mlp_bias_field) set("mlp_bias", options.ff_bias());
  if (traits.gemma) write_gemma(traits, options, config);
  write_windows(traits, options, config);
  write_rotations(traits, options, config);
}

}  // namespace attentive
