#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <attentive/models/gpt.h>

namespace attentive {

/// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  int64_t top_k = 0;         ///< draw only from the k most likely tokens; 0: all
  double top_p = 1.0;        ///< draw only from the most likely tokens whose probabilities add up to this
};

/// Draws a token from logits (vocab_size). It takes one draw from the CPU generator (none at temperature 0)
/// and computes in float64, so the same logits and seed give the same token on every device.
/// Throws c10::ValueError for logits of another rank or without a finite maximum, and for invalid options.
///
///   auto id = attentive::sample_token(logits[0][-1], {.temperature = 0.8, .top_k = 50}, generator);
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, at::Generator generator);

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  /// What happens at context_length tokens: false stops; true drops the older half of the context and
  /// continues.
  bool slide = false;
  bool use_cache = true;  ///< false: recompute the whole context for every token; the tokens are the same
  /// Called with every new token; false ends the generation.
  std::function<bool(int64_t)> on_token = {};
};

/// Continues a prompt and returns the new tokens. The model runs in evaluation mode.
///
/// There may be fewer than max_new_tokens of them: without `slide`, at most context_length - prompt.size() +
/// 1 (the last one is drawn from a full context); and `on_token` may end the generation.
///
/// Throws c10::ValueError for an empty prompt, an id outside the vocabulary, or a prompt that does not fit
/// the context (with `slide`, the end of the prompt is used).
/// Memory: the cache and one forward pass.
///
///   auto ids = attentive::generate(*model, tokenizer.encode("ROMEO:"), {.max_new_tokens = 200, .seed = 1});
std::vector<int64_t> generate(GPTImpl& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {});

}  // namespace attentive
