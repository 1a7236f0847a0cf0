#include "support/option_cases.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "support/cells.h"
#include "support/compare.h"

namespace attentive::test {
namespace {

at::Tensor numbers(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble);
}

// A mask for the current sizes of q and k, so that it combines with options that change these sizes.
at::Tensor pairs(const OptionCall& c, bool per_head) {
  return at::rand({per_head ? c.q.size(0) : 1, per_head ? c.q.size(1) : 1, c.q.size(2), c.k.size(2)}).gt(0.3);
}

// The first of the items is whole, the second has about half of the tokens.
at::Tensor unequal(int64_t items, int64_t whole) {
  return at::tensor({whole, whole / 2 + 1}, at::kLong).clamp_max(whole).slice(0, 0, items);
}

void dropout(OptionCall& c, DropoutStream stream) {
  c.options.dropout_p = 0.4;
  c.options.dropout_stream = stream;
}

}  // namespace

OptionCall plain_call() {
  at::manual_seed(17);
  OptionCall call;
  call.q = numbers({2, 4, 7, 8});
  call.k = numbers({2, 4, 9, 8});
  call.v = numbers({2, 4, 9, 8});
  return call;
}

const std::vector<OptionCase>& option_cases() {
  // Options that change shapes come first, because the others make tensors for the current shapes.
  static const std::vector<OptionCase> cases = {
      {"grouped heads (4 over 2)", "kv",
       [](OptionCall& c) {
         c.k = c.k.slice(1, 0, 2);
         c.v = c.v.slice(1, 0, 2);
       }},
      {"one key head (MQA)", "kv",
       [](OptionCall& c) {
         c.k = c.k.slice(1, 0, 1);
         c.v = c.v.slice(1, 0, 1);
       }},
      {"value dim 5, head dim 8", "value dim", [](OptionCall& c) { c.v = c.v.slice(3, 0, 5); }},
      {"one query", "length", [](OptionCall& c) { c.q = c.q.slice(2, 0, 1); }},
      {"more queries than keys", "length",
       [](OptionCall& c) {
         c.k = c.k.slice(2, 0, 4);
         c.v = c.v.slice(2, 0, 4);
       }},
      {"no queries (L = 0)", "length", [](OptionCall& c) { c.q = c.q.slice(2, 0, 0); }},
      {"no keys (S = 0)", "length",
       [](OptionCall& c) {
         c.k = c.k.slice(2, 0, 0);
         c.v = c.v.slice(2, 0, 0);
       }},
      {"no batch (B = 0)", "length",
       [](OptionCall& c) {
         for (auto* x : {&c.q, &c.k, &c.v}) *x = x->slice(0, 0, 0);
       }},
      {"scale", "scale", [](OptionCall& c) { c.options.scale = 0.7; }},
      {"negative scale", "scale", [](OptionCall& c) { c.options.scale = -0.5; }},
      {"causal, bottom-right", "causal", [](OptionCall& c) { c.options.causal = Causal::BottomRight; }},
      {"causal, top-left", "causal", [](OptionCall& c) { c.options.causal = Causal::TopLeft; }},
      {"window left and right", "window",
       [](OptionCall& c) {
         c.options.window = {3, 2};
       }},
      {"window left only", "window",
       [](OptionCall& c) {
         c.options.window = {2, -1};
       }},
      {"softcap", "softcap", [](OptionCall& c) { c.options.softcap = 1.5; }},
      {"ALiBi", "alibi", [](OptionCall& c) { c.extras.alibi_slopes = at::rand({4}, at::kDouble); }},
      {"ALiBi with gradient", "alibi",
       [](OptionCall& c) {
         c.extras.alibi_slopes = at::rand({4}, at::kDouble);
         c.slopes_gradient = true;
       }},
      {"sinks", "sink", [](OptionCall& c) { c.extras.sinks = numbers({4}); }},
      {"softmax plus one", "sink", [](OptionCall& c) { c.options.softmax_plus_one = true; }},
      {"keep mask (L, S)", "keep", [](OptionCall& c) { c.extras.mask &= Mask(pairs(c, false)[0][0]); }},
      {"keep mask (B, H, L, S)", "keep", [](OptionCall& c) { c.extras.mask &= Mask(pairs(c, true)); }},
      {"hide mask (1, 1, S)", "keep",
       [](OptionCall& c) {
         c.extras.mask &= Mask::hide(at::rand({1, 1, 1, c.k.size(2)}).gt(0.6));
       }},
      {"key_keep", "keys",
       [](OptionCall& c) {
         c.extras.mask &= Mask::key_keep(at::rand({c.q.size(0), c.k.size(2)}).gt(0.3));
       }},
      {"key_lengths, NaN beyond them", "keys",
       [](OptionCall& c) {
         const int64_t length = c.k.size(2) / 2;
         for (auto* x : {&c.k, &c.v}) {
           *x = x->clone();
           x->slice(2, length).fill_(kNaN);
         }
         c.extras.mask &= Mask::key_lengths(at::full({c.q.size(0)}, length, at::kLong));
       }},
      {"query_lengths, NaN beyond them", "queries",
       [](OptionCall& c) {
         const auto lengths = unequal(c.q.size(0), c.q.size(2));
         c.q = c.q.clone();
         for (int64_t b = 0; b < c.q.size(0); ++b) c.q[b].slice(1, lengths[b].item<int64_t>()).fill_(kNaN);
         c.extras.mask &= Mask::query_lengths(lengths);
       }},
      {"aligned at the top left", "align", [](OptionCall& c) { c.options.align = Align::TopLeft; }},
      {"aligned by lengths", "align",
       [](OptionCall& c) {
         c.options.align = Align::Lengths;
         c.extras.mask &= Mask::key_lengths(unequal(c.q.size(0), c.k.size(2)).flip(0));
       }},
      {"bias", "bias",
       [](OptionCall& c) {
         c.extras.mask &= Mask::bias(numbers({4, c.q.size(2), c.k.size(2)}).unsqueeze(0));
       }},
      {"bias with gradient", "bias",
       [](OptionCall& c) {
         c.extras.mask &= Mask::bias(numbers({1, 4, c.q.size(2), c.k.size(2)}));
         c.bias_gradient = true;
       }},
      {"bias (L, S) with gradient", "bias",
       [](OptionCall& c) {
         auto bias = numbers({c.q.size(2), c.k.size(2)});
         bias.masked_fill_(at::rand(bias.sizes()).gt(0.9), -kInfinity);
         c.extras.mask &= Mask::bias(bias);
         c.bias_gradient = true;
       }},
      {"bias (B, 1, 1, S) with gradient", "bias",
       [](OptionCall& c) {
         c.extras.mask &= Mask::bias(numbers({c.q.size(0), 1, 1, c.k.size(2)}));
         c.bias_gradient = true;
       }},
      {"bias (1, H, L, 1) with gradient", "bias",
       [](OptionCall& c) {
         c.extras.mask &= Mask::bias(numbers({1, 4, c.q.size(2), 1}));
         c.bias_gradient = true;
       }},
      {"dropout, any stream", "dropout", [](OptionCall& c) { dropout(c, DropoutStream::Any); }},
      {"dropout, Aten stream", "dropout", [](OptionCall& c) { dropout(c, DropoutStream::Aten); }},
      {"dropout, Counter stream", "dropout", [](OptionCall& c) { dropout(c, DropoutStream::Counter); }},
      {"weights", "weights", [](OptionCall& c) { c.extras.weights = Weights::Clean; }},
      {"weights after dropout", "weights", [](OptionCall& c) { c.extras.weights = Weights::Dropped; }},
      {"logsumexp", "logsumexp", [](OptionCall& c) { c.extras.logsumexp = true; }},
  };
  return cases;
}

bool takes(Backend backend, const OptionCall& call) {
  return takes(backend, call.q, call.k, call.v, call.options, call.extras);
}

OptionCall cast(const OptionCall& call, at::ScalarType type) {
  OptionCall result = call;
  for (auto* x : {&result.q, &result.k, &result.v})
    *x = x->detach().to(type, false, /*copy=*/true).requires_grad_(true);
  auto& slopes = result.extras.alibi_slopes;
  if (slopes.defined())
    slopes = slopes.detach().to(type, false, /*copy=*/true).requires_grad_(call.slopes_gradient);
  if (result.extras.sinks.defined()) result.extras.sinks = result.extras.sinks.to(type);
  const Mask& given = call.extras.mask;
  Mask mask;
  for (const auto& term : given.keep_terms()) mask &= Mask::keep(term);
  for (const auto& term : given.key_keep_terms()) mask &= Mask::key_keep(term);
  for (const auto& term : given.key_length_terms()) mask &= Mask::key_lengths(term);
  for (const auto& term : given.query_length_terms()) mask &= Mask::query_lengths(term);
  for (const auto& term : given.bias_terms()) {
    mask &= Mask::bias(term.detach().to(type, false, /*copy=*/true).requires_grad_(call.bias_gradient));
  }
  result.extras.mask = mask;
  for (auto& x : result.captured) {
    if (x.is_floating_point()) x = x.detach().to(type, false, /*copy=*/true).requires_grad_(true);
  }
  for (const auto& define : result.functions) define(result);
  return result;
}

std::vector<at::Tensor> leaves_of(const OptionCall& call) {
  std::vector<at::Tensor> leaves = {call.q, call.k, call.v};
  if (call.bias_gradient) leaves.push_back(call.extras.mask.bias_terms().front());
  if (call.slopes_gradient) leaves.push_back(call.extras.alibi_slopes);
  for (const auto& x : call.captured) {
    if (x.is_floating_point()) leaves.push_back(x);
  }
  return leaves;
}

namespace {

OptionResult run(const OptionCall& given, Backend backend, const Attend& attend, bool inference) {
  OptionResult outcome;
  auto call = given;
  call.options.backend = backend;
  const auto forward = [&] {
    at::manual_seed(23);
    return attend ? attend(call) : attention(call.q, call.k, call.v, call.options, call.extras);
  };
  try {
    outcome.result = forward();
  } catch (const c10::ValueError& error) {
    const std::string text = error.what_without_backtrace();
    const std::string marker = "cannot express this call: ";
    const auto offset = text.find(marker);
    if (offset == std::string::npos) throw;
    outcome.refused = true;
    outcome.reason = text.substr(offset + marker.size());
    return outcome;
  }
  if (inference) {
    const at::NoGradGuard no_grad;
    outcome.inference = forward();
  }
  // Fixed directions, drawn in float64 so that every dtype differentiates along the same ones.
  std::vector<at::Tensor> outputs, directions;
  const auto differentiate = [&](const at::Tensor& result, uint64_t seed) {
    at::manual_seed(seed);
    outputs.push_back(result);
    directions.push_back(at::randn(result.sizes(), at::kDouble).to(result.options()));
  };
  differentiate(outcome.result.output, 29);
  if (const auto& statistics = outcome.result.logsumexp; statistics.defined() && statistics.requires_grad()) {
    // Rows without keys hold -inf, a constant without a gradient.
    differentiate(statistics.masked_fill(statistics.eq(-kInfinity), 0.0), 31);
  }
  if (outcome.result.weights.defined()) differentiate(outcome.result.weights, 37);
  outcome.gradients = torch::autograd::grad(outputs, leaves_of(call), directions, /*retain_graph=*/false,
                                            /*create_graph=*/false, /*allow_unused=*/true);
  return outcome;
}

}  // namespace

OptionResult run_on(const OptionCall& call, Backend backend, const Attend& attend) {
  return run(call, backend, attend, /*inference=*/true);
}

OptionResult expected_of(const OptionCall& call) {
  return run(cast(call, at::kDouble), Backend::Reference, {}, /*inference=*/false);
}

void check_result(const OptionResult& got, const OptionResult& want, at::ScalarType type) {
  const auto forward = tolerance_of(type), backward = tolerance_of(type, /*gradient=*/true);
  for (const auto* result : {&got.result, &got.inference}) {
    INFO((result == &got.result ? "with" : "without") << " a graph");
    CHECK(difference(result->output, want.result.output, forward) == "");
    CHECK(difference(result->weights, want.result.weights, forward) == "");
    CHECK(difference(result->logsumexp, want.result.logsumexp, forward) == "");
  }
  REQUIRE(got.gradients.size() == want.gradients.size());
  double largest = 0.0;  // as in attentive::parity, the tolerance is relative to the largest gradient
  for (const auto& gradient : want.gradients) {
    if (gradient.defined() && gradient.numel() > 0)
      largest = std::max(largest, gradient.abs().max().item<double>());
  }
  for (size_t n = 0; n < want.gradients.size(); ++n) {
    INFO("gradient " << n << " of q, k, v, bias, slopes");
    CHECK(difference(got.gradients[n], want.gradients[n], {0.0, backward.atol + backward.rtol * largest}) ==
          "");
  }
}

}  // namespace attentive::test
