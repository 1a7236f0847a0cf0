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
  double temperature = 1.0;  ///< divides the logits; 0: the most likely token
  int64_t top_k = 0;         ///< only the k most likely tokens; 0: all
  double top_p = 1.0;        ///< only the most likely tokens that make up this probability
};

/// Draws a token from logits (vocab_size). It uses one draw of the CPU generator (none at temperature 0), in
/// float64, so the same logits and seed give the same token on every device.
/// Throws c10::ValueError for logits of another rank or without a finite maximum, and for options without
/// meaning.
///
///   auto id = attentive::sample_token(logits[0][-1], {.temperature = 0.8, .top_k = 50}, generator);
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, at::Generator generator);

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  /// What happens when context_length tokens are reached: stop, or (true) forget the older half and go on.
  bool slide = false;
  bool use_cache = true;  ///< false: every token recomputes the whole context; the same tokens, slowly
  /// Called with every new token; false ends the generation.
  std::function<bool(int64_t)> on_token = {};
};

/// Continues a prompt and returns the new tokens. The model is in evaluation mode meanwhile.
///
/// There may be fewer than max_new_tokens: without `slide` no more than context_length - prompt.size() + 1 of
/// them, where the context ends (the last one is drawn from a full context); and as many as `on_token` let
/// pass.
///
/// Throws c10::ValueError for an empty prompt, an id outside the vocabulary, or a prompt that does not fit
/// the context (with `slide` its end is used). Memory: the cache and one forward pass.
///
///   auto ids = attentive::generate(*model, tokenizer.encode("ROMEO:"), {.max_new_tokens = 200, .seed = 1});
std::vector<int64_t> generate(GPTImpl& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {});

}  // namespace attentive
