#pragma once

// The parts of a module that concern attention(): the check of its options, its position bias, its cache, and
// the call.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <torch/nn/module.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/position_bias.h>

#include "core/check.h"
#include "functional/problem_builder.h"

namespace attentive {

/// Builds the module that the option asks for; null for none. Throws c10::ValueError, whose message begins
/// with `caller`, for another number of heads than the layer's.
std::shared_ptr<torch::nn::Module> make_position_bias(const char* caller, const PositionBiasOptions& options,
                                                      int64_t num_heads);

/// Throws c10::ValueError if the bias is for another number of tokens.
void check_position_bias_tokens(const char* caller, const PositionBiasOptions& options, int64_t tokens);

/// Throws c10::ValueError if the bias cannot be used with a cache.
void check_position_bias_cache(const char* caller, const PositionBiasOptions& options);

/// Adds the bias to a call, in the form that costs the least memory.
void add_position_bias(torch::nn::Module& bias, int64_t queries, int64_t keys, AttentionExtras& extras);

/// Throws c10::ValueError unless the cache has the layer, attention is causal, since later keys do not exist
/// yet, and the cache keeps every key that a query may see.
void check_cached_attention(const char* caller, const AttentionOptions& options, const KVCache& cache,
                            int64_t layer);

/// The mask, and beside it one that hides those keys of a layer that are padding.
Mask without_padding(const Mask& mask, const KVCache& cache, int64_t layer);

/// Throws c10::ValueError, whose message begins with `caller`, for options that attention() would refuse.
template <class Options>
void check_attention_options(const char* caller, const Options& options) {
  if constexpr (requires { options.dropout(); }) check_probability(caller, "dropout", options.dropout());
  int64_t context_length = 0;
  if constexpr (requires { options.context_length(); }) context_length = options.context_length();
  check_module_options(caller, options.attention(), context_length);
  if constexpr (requires { options.position_bias(); }) {
    TORCH_CHECK_VALUE(options.attention().align == Align::BottomRight ||
                          !std::holds_alternative<RelativePositionBiasOptions>(options.position_bias()),
                      caller,
                      ": expected attention().align to stay bottom-right with a RelativePositionBias, ",
                      "whose table counts from there, got ", to_string(options.attention().align));
  }
  if constexpr (requires { options.sinks(); }) {
    TORCH_CHECK_VALUE(!options.sinks() || !options.attention().softmax_plus_one, caller,
                      ": expected sinks or attention().softmax_plus_one, got both");
  }
}

/// The current dropout probability of a module: 0 outside training.
template <class Module>
double dropout_now(const Module& module) {
  if constexpr (requires { module.options.dropout(); }) {
    return module.is_training() ? module.options.dropout() : 0.0;
  } else {
    return 0.0;
  }
}

/// Output and weights of attention() with a module's options, its dropout, and its slopes, sinks, position
/// bias and functions of pairs if it has them.
template <class Module>
std::pair<at::Tensor, at::Tensor> attend(const Module& module, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const Mask& mask, Weights which) {
  auto options = module.options.attention();
  options.dropout_p = dropout_now(module);
  AttentionExtras extras;
  extras.mask = mask;
  extras.weights = which;
  extras.caller = &module;
  if constexpr (requires { module.sinks; }) {
    if (module.options.alibi()) {
      extras.alibi_slopes = alibi_slopes(module.options.num_heads(), q.device());
    }
    extras.sinks = module.sinks;
  }
  if constexpr (requires { module.options.score(); }) {
    extras.score = module.options.score();
    extras.block_mask = module.options.block_mask();
  }
  if constexpr (requires { module.position_bias; }) {
    if (module.position_bias) add_position_bias(*module.position_bias, q.size(-2), k.size(-2), extras);
  }
  const auto result = [&] {
    if constexpr (requires { module.context; }) {
      if (module.context) return module.context->attention(q, k, v, options, extras);
    }
    return attention(q, k, v, options, extras);
  }();
  return {result.output, result.weights};
}

/// Calls at_position(x, p) for tokens x (…, T, features) of which the first has position p; with a context,
/// once for each run of its tokens.
template <class AtPosition>
at::Tensor by_runs(const AttentionContext* context, const at::Tensor& x, int64_t first,
                   const AtPosition& at_position) {
  if (context == nullptr) return at_position(x, first);
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (const auto& run : context->runs(x.size(-2))) {
    pieces.push_back(at_position(x.narrow(-2, begin, run.length), run.first));
    begin += run.length;
  }
  return at::cat(pieces, -2);
}

}  // namespace attentive
