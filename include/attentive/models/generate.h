#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/core/mask.h>

namespace attentive {

/// Selects the tokens for which a language model computes logits; each costs a product with the whole
/// vocabulary.
///   All   every given token: (B, T, vocab_size)
///   Last  only the last token: (B, 1, vocab_size)
enum class Logits { All, Last };
std::string_view to_string(Logits value);

/// The end of a row of ids that holds padding.
enum class PaddingSide { Left, Right };
std::string_view to_string(PaddingSide value);

/// Rows of different length in one batch of ids (B, T). What padding holds changes no result, and logits of
/// padding are finite numbers without a meaning. Positions and context_length count real tokens, and
/// `Logits::Last` means the last real token of each row.
///
///   auto logits = model->forward(ids, attentive::Logits::All, {.lengths = at::tensor({5, 2})});
struct Padding {
  /// (B) integers on any device: the real tokens of each row, in [1, T]; undefined: all T.
  at::Tensor lengths = {};
  PaddingSide side = PaddingSide::Right;
};

/// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  int64_t top_k = 0;         ///< draw only from the k most likely tokens; 0: all
  /// Draw only from the smallest set of most likely tokens with at least this total probability.
  double top_p = 1.0;
};

/// Draws a token from logits (vocab_size). It takes one draw from the CPU generator (none at temperature 0)
/// and computes in float64, so the same logits and seed give the same token on every device.
/// Throws c10::ValueError if the logits are not of rank 1 or have no finite maximum, for an undefined
/// generator (except at temperature 0), and for invalid options.
///
///   auto id = attentive::sample_token(logits[0][-1], {.temperature = 0.8, .top_k = 50}, generator);
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, at::Generator generator);

/// The reason why a generation ended; if several apply, the first in this order.
///   StopToken    the last token is one of `stop_tokens`
///   OnToken      `on_token` returned false
/// max_new_tokens have been generated
///   ContextFull  the context is full, and `slide` is not set
enum class GenerationEnd { StopToken, OnToken, Length, ContextFull };
std::string_view to_string(GenerationEnd value);

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  /// The behaviour when the context holds context_length tokens: false stops; true drops the older half of
  /// the context and continues.
  bool slide = false;
  bool use_cache = true;  ///< false: recompute the whole context for every token; the tokens are the same
  /// The most tokens of the prompt in one forward pass; the memory of its activations grows with this number.
  /// 0: no limit.
  int64_t prefill_chunk = 512;
  /// Called with every new token, a stop token included; returning false ends the generation.
  std::function<bool(int64_t)> on_token = {};
  /// Tokens that end the generation. A generated stop token is the last token of the result.
  std::vector<int64_t> stop_tokens = {};
  /// Called once, after the last token, with the reason for the end.
  std::function<void(GenerationEnd)> on_end = {};
};

/// The members that `generate` needs of a model; `GPT` and `Llama` have them.
///
///   class MyModelImpl : public torch::nn::Module {
///     at::Tensor forward(const at::Tensor& ids);  // (1, T) -> logits (1, T, vocabulary)
///     at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache);  // the same, after cached tokens
///     std::unique_ptr<KVCache> make_cache(int64_t batch, int64_t capacity);  // an empty one
///     int64_t context_length();  // or options.context_length(); 0: no limit
///   };
///
/// If `forward` and `forward_cached` accept a `Logits` as their last argument, only the last token's logits
/// (1, 1, vocabulary) are requested.
/// ids are int64, on the device of the first parameter. A prompt is passed to `forward_cached` in pieces of
/// at most `KVCache::room()` and `GenerateOptions::prefill_chunk` tokens. The model checks the ids.
template <class Model>
concept CausalLanguageModel = std::derived_from<Model, torch::nn::Module> &&
    requires(Model& model, const at::Tensor& ids, KVCache& cache) {
  { model.forward(ids) } -> std::convertible_to<at::Tensor>;
  { model.forward_cached(ids, cache) } -> std::convertible_to<at::Tensor>;
  { model.make_cache(int64_t{1}, int64_t{1}) } -> std::convertible_to<std::unique_ptr<KVCache>>;
} &&(
    requires(Model& model) {
      { model.context_length() } -> std::convertible_to<int64_t>;
    } ||
    requires(Model & model) {
      { model.options.context_length() } -> std::convertible_to<int64_t>;
    });

namespace detail {

template <class Model>
concept ChoosesLogits = requires(Model& model, const at::Tensor& ids, KVCache& cache) {
  model.forward(ids, Logits::Last);
  model.forward_cached(ids, cache, Logits::Last);
};
template <class Model>
concept ChoosesLogitsAfterMask = requires(Model& model, const at::Tensor& ids, KVCache& cache) {
  model.forward(ids, Mask(), Logits::Last);
  model.forward_cached(ids, cache, Mask(), Logits::Last);
};
template <class Model>
concept TakesPadding = ChoosesLogits<Model> && requires(Model& model, const at::Tensor& ids) {
  model.forward(ids, Logits::Last, Padding());
};
template <class Model>
concept TakesPaddingAfterMask = ChoosesLogitsAfterMask<Model> &&
    requires(Model& model, const at::Tensor& ids) {
  model.forward(ids, Mask(), Logits::Last, Padding());
};

// A model without padding is never given one.
template <class Model>
at::Tensor forward_with(Model& model, const at::Tensor& ids, Logits which, const Padding& padding) {
  if constexpr (TakesPadding<Model>)
    return model.forward(ids, which, padding);
  else if constexpr (TakesPaddingAfterMask<Model>)
    return model.forward(ids, Mask(), which, padding);
  else if constexpr (ChoosesLogits<Model>)
    return model.forward(ids, which);
  else if constexpr (ChoosesLogitsAfterMask<Model>)
    return model.forward(ids, Mask(), which);
  else
    return model.forward(ids);
}

template <class Model>
at::Tensor forward_cached_with(Model& model, const at::Tensor& ids, KVCache& cache, Logits which) {
  if constexpr (ChoosesLogits<Model>)
    return model.forward_cached(ids, cache, which);
  else if constexpr (ChoosesLogitsAfterMask<Model>)
    return model.forward_cached(ids, cache, Mask(), which);
  else
    return model.forward_cached(ids, cache);
}

/// A type-erased CausalLanguageModel.
struct LanguageModelView {
  torch::nn::Module& module;
  int64_t context_length;
  bool last_logits;  ///< whether the functions return the logits of the last token only
  std::function<at::Tensor(const at::Tensor&, const Padding&)> forward;
  std::function<at::Tensor(const at::Tensor&, KVCache&)> forward_cached;
  std::function<std::unique_ptr<KVCache>(int64_t batch, int64_t capacity)> make_cache;
};

std::vector<int64_t> generate(const LanguageModelView& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options);
std::vector<std::vector<int64_t>> generate(const LanguageModelView& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const std::vector<GenerateOptions>& options);

template <CausalLanguageModel Model>
int64_t context_length_of(Model& model) {
  if constexpr (requires { model.context_length(); }) {
    return model.context_length();
  } else {
    return model.options.context_length();
  }
}

template <CausalLanguageModel Model>
LanguageModelView view_of(Model& model) {
  return {model,
          context_length_of(model),
          ChoosesLogits<Model> || ChoosesLogitsAfterMask<Model>,
          [&](const at::Tensor& ids, const Padding& padding) {
            return forward_with(model, ids, Logits::Last, padding);
          },
          [&](const at::Tensor& ids, KVCache& cache) {
            return forward_cached_with(model, ids, cache, Logits::Last);
          },
          [&](int64_t batch, int64_t capacity) { return model.make_cache(batch, capacity); }};
}

}  // namespace detail

/// What `generate` needs of a model for several prompts: its functions take several rows and a `Logits`,
/// `forward` takes a `Padding` after it, and `forward_cached` counts positions from `KVCache::padding`.
template <class Model>
concept PaddedLanguageModel = CausalLanguageModel<Model> &&
    (detail::TakesPadding<Model> || detail::TakesPaddingAfterMask<Model>);

/// Continues a prompt and returns the new tokens. The model runs in evaluation mode.
///
/// The result may be shorter than max_new_tokens: without `slide`, it has at most context_length -
/// prompt.size() + 1 tokens (the last one is drawn from a full context), and `on_token` or a stop token may
/// end the generation. `on_end` is told the reason.
///
/// Throws c10::ValueError for an empty prompt, an id outside the vocabulary, or a prompt that does not fit
/// the context (with `slide`, the end of the prompt is used).
/// Memory: a cache for the prompt and max_new_tokens, but for no more than the context; one forward pass of
/// at most prefill_chunk tokens; and the logits of one token (or of all tokens of the pass, if the model does
/// not accept a `Logits`).
///
///   auto ids = attentive::generate(*model, tokenizer.encode("ROMEO:"), {.max_new_tokens = 200, .seed = 1});
template <CausalLanguageModel Model>
std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {}) {
  return detail::generate(detail::view_of(model), prompt, options);
}

/// Continues several prompts at once and returns one list of new tokens for each: what the function above
/// returns for it alone, up to the rounding of the logits. `options` has one element for all prompts, or one
/// for each. `use_cache` and `prefill_chunk` must agree; everything else, seeds and callbacks included,
/// belongs to the prompt, and one element for all prompts means the same seed and callbacks for each.
///
/// A prompt that has ended leaves the batch. One that slides leaves it as well, and continues with the others
/// that did, after all that did not. The order of callbacks of different prompts is not specified.
/// Throws the errors of the function above with the number of the prompt, and c10::ValueError for another
/// number of options.
/// Memory: that of one prompt, as if it were as long as the longest, times their number.
///
///   const std::vector<std::vector<int64_t>> prompts{{1, 5, 7, 2}, {3, 4}};
///   auto texts = attentive::generate(*model, prompts, {{.seed = 1}, {.seed = 2}});
template <PaddedLanguageModel Model, std::same_as<std::vector<int64_t>> Prompt>
std::vector<std::vector<int64_t>> generate(Model& model, const std::vector<Prompt>& prompts,
                                           const std::vector<GenerateOptions>& options) {
  return detail::generate(detail::view_of(model), prompts, options);
}

}  // namespace attentive
