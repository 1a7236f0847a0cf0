#include "operators/operator_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/randperm.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/operators.h>

namespace attentive::test {
namespace {

at::IValue optional(const at::Tensor& x) {
  return x.defined() ? at::IValue(x) : at::IValue();
}

// One tensor for several terms, as a caller of the operator combines them.
template <class Combine>
at::IValue combined(const std::vector<at::Tensor>& terms, const Combine& combine) {
  at::Tensor all;
  for (const auto& term : terms) all = all.defined() ? combine(all, term) : term;
  return optional(all);
}

std::string named(std::initializer_list<const char*> names, int value) {
  return *(names.begin() + value);
}

}  // namespace

std::vector<at::IValue> call_operator(const std::string& name, const std::vector<at::IValue>& positional,
                                      const Named& named) {
  load_operators();
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("attentive::" + name).c_str(), "");
  std::vector<at::IValue> stack(positional);
  size_t used = 0;
  for (size_t i = positional.size(); i < op.schema().arguments().size(); ++i) {
    const auto& argument = op.schema().arguments()[i];
    const auto given = named.find(argument.name());
    used += given != named.end() ? 1 : 0;
    stack.push_back(given != named.end() ? given->second : argument.default_value().value());
  }
  REQUIRE(used == named.size());
  op.callBoxed(stack);
  return stack;
}

Named arguments_of(const AttentionOptions& options, const AttentionExtras& extras) {
  const auto add = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  const auto both = [](const at::Tensor& a, const at::Tensor& b) { return a & b; };
  const auto shorter = [](const at::Tensor& a, const at::Tensor& b) { return a.minimum(b); };
  const auto& mask = extras.mask;
  Named named_ones = {
      {"keep", combined(mask.keep_terms(), both)},
      {"bias", combined(mask.bias_terms(), add)},
      {"key_keep", combined(mask.key_keep_terms(), both)},
      {"key_lengths", combined(mask.key_length_terms(), shorter)},
      {"query_lengths", combined(mask.query_length_terms(), shorter)},
      {"alibi_slopes", optional(extras.alibi_slopes)},
      {"sinks", optional(extras.sinks)},
      {"scale", options.scale},
      {"causal",
       named({"none", "bottom_right", "top_left"}, static_cast<int>(static_cast<Causal>(options.causal)))},
      {"window_left", options.window.left},
      {"window_right", options.window.right},
      {"align", named({"bottom_right", "top_left", "lengths"}, static_cast<int>(options.align))},
      {"softcap", options.softcap},
      {"softmax_plus_one", options.softmax_plus_one},
      {"dropout_p", options.dropout_p},
      {"dropout_stream", named({"any", "aten", "counter"}, static_cast<int>(options.dropout_stream))},
      {"backend", named({"auto", "reference", "torch", "native"}, static_cast<int>(options.backend))},
      {"weights", named({"none", "clean", "dropped"}, static_cast<int>(extras.weights))},
      {"logsumexp", extras.logsumexp},
  };
  return named_ones;
}

Named with_key(Named named, at::IntArrayRef sizes, const at::Tensor& ends_q, const at::Tensor& ends_k) {
  const double p = named.at("dropout_p").toDouble();
  if (!(p > 0.0 && p < 1.0)) return named;
  const bool aten = named.at("dropout_stream").toStringRef() == "aten";
  const auto salt = at::randperm(0);
  named["dropout_key"] =
      (aten ? call_operator("draw_dropout_state", {salt, p, sizes, optional(ends_q), optional(ends_k)})
            : call_operator("draw_dropout_key", {salt}))[0];
  return named;
}

at::Tensor if_asked(bool asked, const at::IValue& result) {
  const auto& x = result.toTensor();
  if (!asked) CHECK(x.sizes() == at::IntArrayRef{0});
  return asked ? x : at::Tensor();
}

AttentionResult by_operator(const OptionCall& call) {
  at::DimVector weights(call.q.sizes());
  weights.back() = call.k.size(-2);
  const auto results = call_operator("attention", {call.q, call.k, call.v},
                                     with_key(arguments_of(call.options, call.extras), weights));
  REQUIRE(results.size() == 4);
  return {results[0].toTensor(), if_asked(call.extras.weights != Weights::None, results[1]),
          if_asked(call.extras.logsumexp, results[2])};
}

}  // namespace attentive::test
