// The suites of learned terms and of score and mask functions.

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

#include "suites.h"

namespace bench {

// Forward and backward with terms that learn: a bias, ALiBi slopes, and a loss on the weights.

namespace {

using attentive::AttentionExtras;
using attentive::AttentionOptions;
using attentive::Backend;
using attentive::Causal;
using attentive::Mask;
using attentive::Weights;

// Checks a result against that of the composed definition.
Check against_definition(const std::function<Tensors(Backend)>& run, at::ScalarType type) {
  return {"composed definition", difference(run(Backend::Auto), run(Backend::Reference)),
          allowed_error(type)};
}

Tensors results(const at::Tensor& output, const Tensors& leaves, const at::Tensor& grad) {
  auto all = torch::autograd::grad({output}, leaves, {grad});
  all.insert(all.begin(), output);
  return all;
}

// A bias (H, T, T), added in every batch item. Beside it stand the step without a bias, and the traffic that
// cannot be saved: two reads of the bias and a write of its gradient.
void bias(Runner& runner, const Shape& shape, at::ScalarType type, bool causal) {
  Case c{"learned",
         fmt::format("bias (H,T,T) {} B{} T={}", causal ? "causal" : "full", shape.B, token_count(shape.T)),
         type_name(type), limit_of(type), kWithBackward * attention_flops(shape, causal)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto learned = at::randn({shape.H, shape.T, shape.T}).to(type).requires_grad_();
  const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None};
  const auto package = [=](Backend backend) {
    auto with = options;
    with.backend = backend;
    return results(attentive::attention(x.q, x.k, x.v, with, Mask::per_head(Mask::bias(learned))),
                   {x.q, x.k, x.v, learned}, grad);
  };
  c.check = [=] { return against_definition(package, type); };
  c.contenders = {{"attentive", [=] { return package(Backend::Auto); }},
                  {"attentive, no bias",
                   with_backward(x, grad, [=] { return attentive::attention(x.q, x.k, x.v, options); })},
                  {"2 reads + 1 write of it", [=] {
                     const auto plain = learned.detach();
                     const auto first = plain.sum(), second = plain.sum();
                     return Tensors{first, second, at::empty_like(plain).fill_(1)};
                   }}};
  if (shape.T <= 4096 && shape.B == 1) {
    c.contenders.push_back({"composed", [=] {
                              const auto hidden = causal ? hidden_by(shape.T, {}, at::kCPU) : at::Tensor();
                              const auto y = composed(x, {.hidden = hidden, .bias = learned.unsqueeze(0)});
                              return results(y, {x.q, x.k, x.v, learned}, grad);
                            }});
  }
  runner.run(c);
}

void slopes(Runner& runner, const Shape& shape, at::ScalarType type) {
  Case c{"learned", fmt::format("slopes (H) causal T={}", token_count(shape.T)), type_name(type),
         limit_of(type), kWithBackward * attention_flops(shape, true)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto fixed = attentive::alibi_slopes(shape.H), learned = fixed.clone().requires_grad_();
  const auto package = [=](const at::Tensor& of, Backend backend) {
    const auto y = attentive::attention(x.q, x.k, x.v, {.causal = Causal::BottomRight, .backend = backend},
                                        AttentionExtras{.alibi_slopes = of})
                       .output;
    Tensors leaves = {x.q, x.k, x.v};
    if (of.requires_grad()) leaves.push_back(of);
    return results(y, leaves, grad);
  };
  c.check = [=] {
    return against_definition([&](Backend backend) { return package(learned, backend); }, type);
  };
  c.contenders = {{"attentive", [=] { return package(learned, Backend::Auto); }},
                  {"attentive, fixed", [=] { return package(fixed, Backend::Auto); }}};
  runner.run(c);
}

void weights(Runner& runner, const Shape& shape, at::ScalarType type) {
  Case c{"learned", fmt::format("weights and output, full T={}", token_count(shape.T)), type_name(type),
         limit_of(type), kWithBackward * attention_flops(shape, false)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto of_weights = at::randn({shape.B, shape.H, shape.T, shape.T}).to(type);
  const auto package = [=](Backend backend) {
    const auto result =
        attentive::attention(x.q, x.k, x.v, {.backend = backend}, AttentionExtras{.weights = Weights::Clean});
    auto all = torch::autograd::grad({result.output, result.weights}, {x.q, x.k, x.v}, {grad, of_weights});
    all.push_back(result.output);
    all.push_back(result.weights);
    return all;
  };
  c.check = [=] { return against_definition(package, type); };
  c.contenders = {{"attentive", [=] { return package(Backend::Auto); }},
                  {"composed definition", [=] { return package(Backend::Reference); }}};
  runner.run(c);
}

}  // namespace

void learned_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const bool causal : {true, false}) {
      for (const int64_t T : {1024, 4096}) bias(runner, {1, 12, T, 64}, type, causal);
      bias(runner, {8, 12, 512, 64}, type, causal);
    }
    slopes(runner, {1, 12, 1024, 64}, type);
    weights(runner, {1, 12, 512, 64}, type);
  }
}

// Score and mask functions of a program's own: against built-in options that say the same, against the
// composed definition, and block masks of documents against a causal call and packed sequences.

namespace {

using namespace attentive;

struct Variant {
  std::string name;
  AttentionExtras extras;
};

// A forward pass, or one with a backward pass.
struct Pass {
  Qkv x;
  at::Tensor grad;
  bool backward;

  Tensors operator()(const AttentionOptions& options, const AttentionExtras& extras) const {
    const auto y = attention(x.q, x.k, x.v, options, extras).output;
    if (!backward) return {y};
    auto all = torch::autograd::grad({y}, {x.q, x.k, x.v}, {grad});
    all.insert(all.begin(), y);
    return all;
  }
};

Pass pass_of(const Shape& shape, at::ScalarType type, bool backward) {
  const auto x = make_qkv(shape, type, backward);
  return {x, at::randn_like(x.q), backward};
}

Case case_of(const std::string& name, const Shape& shape, at::ScalarType type, bool backward,
             const std::string& suite = "scores") {
  return {suite, fmt::format("{} {} T={}", backward ? "fwd+bwd" : "forward", name, token_count(shape.T)),
          type_name(type), limit_of(type), (backward ? kWithBackward : 1.0) * attention_flops(shape, true)};
}

// A function that restates a built-in option, beside that option and the composed definition.
void restated(Runner& runner, const Shape& shape, at::ScalarType type, bool backward) {
  const int64_t H = shape.H, T = shape.T;
  const auto slopes = alibi_slopes(H), table = at::randn({H, 2 * T});
  const auto slope = captured(slopes), number = captured(table);
  const auto differences = at::arange(T).unsqueeze(1) - at::arange(T) + T;
  const AttentionOptions causal{.causal = Causal::BottomRight};
  auto capped = causal;
  capped.softcap = 20.0;
  struct Pair {
    const char* name;
    AttentionExtras own;
    AttentionOptions options;
    AttentionExtras built_in;
  };
  const std::vector<Pair> pairs = {
      {"ALiBi",
       {.score =
            score_mod([=](auto s, auto pair) { return s - slope(pair.head) * abs(pair.query - pair.key); })},
       causal,
       {.alibi_slopes = slopes}},
      {"softcap", {.score = score_mod([](auto s, auto) { return 20.0f * tanh(s / 20.0f); })}, capped, {}},
      {"relative bias",
       {.score = score_mod(
            [=](auto s, auto pair) { return s + number(pair.head, pair.query - pair.key + pair.keys); })},
       causal,
       {.mask = Mask::per_head(Mask::bias(table.index({at::indexing::Slice(), differences}).contiguous()))}}};
  for (const auto& pair : pairs) {
    auto c = case_of(pair.name, shape, type, backward);
    if (!runner.wants(c)) continue;
    const auto pass = pass_of(shape, type, backward);
    c.check = [=] {
      return Check{"built-in option", difference(pass(causal, pair.own), pass(pair.options, pair.built_in)),
                   allowed_error(type)};
    };
    auto definition = causal;
    definition.backend = Backend::Reference;
    c.contenders = {{"own function", [=] { return pass(causal, pair.own); }},
                    {"built-in option", [=] { return pass(pair.options, pair.built_in); }},
                    {"composed", [=] { return pass(definition, pair.own); }}};
    runner.run(c);
  }
}

// The functions of docs/guide/own_scores.md, beside the composed definition.
std::vector<Variant> gallery(int64_t heads, int64_t tokens) {
  const auto slope = captured(alibi_slopes(heads)), table = captured(at::randn({heads, 2 * tokens}));
  const auto width = captured(at::rand({heads}) * 50 + 20), graph = captured(at::randn({32}));
  const auto document = captured_indices(at::arange(tokens).div(200, "floor"));
  const auto hops = captured_indices(at::randint(32, {tokens, tokens}, at::kInt));
  return {
      {"relative",
       {.score = score_mod([](auto s, auto pair) { return s + 0.01f * (pair.query - pair.key); })}},
      {"ALiBi", {.score = score_mod([=](auto s, auto pair) {
                   return s + slope(pair.head) * (pair.key - pair.query);
                 })}},
      {"softcap", {.score = score_mod([](auto s, auto) { return 20.0f * tanh(s / 20.0f); })}},
      {"learned table", {.score = score_mod([=](auto s, auto pair) {
                           return s + table(pair.head, pair.query - pair.key + pair.keys);
                         })}},
      {"Gaussian", {.score = score_mod([=](auto s, auto pair) {
                      const auto d = (pair.query - pair.key) / width(pair.head);
                      return s - 0.5f * d * d;
                    })}},
      {"graph distance",
       {.score = score_mod([=](auto s, auto pair) { return s + graph(hops(pair.query, pair.key)); })}},
      {"softplus", {.score = score_mod([](auto s, auto) { return softplus(s); })}},
      {"causal", {.block_mask = mask_mod([](auto pair) { return pair.key <= pair.query; })}},
      {"window", {.block_mask = mask_mod([](auto pair) {
                    return (pair.key <= pair.query) & (pair.query - pair.key < 256);
                  })}},
      {"prefix LM",
       {.block_mask = mask_mod([](auto pair) { return (pair.key <= pair.query) | (pair.key < 128); })}},
      {"documents", {.block_mask = mask_mod([=](auto pair) {
                       return (document(pair.query) == document(pair.key)) & (pair.key <= pair.query);
                     })}},
      {"dilated", {.block_mask = mask_mod([](auto pair) {
                     return (pair.key <= pair.query) & ((pair.query - pair.key) % 4 == 0);
                   })}},
      {"sigmoid",
       {.score = score_mod([](auto s, auto pair) { return sigmoid(s - log(pair.keys)); }),
        .normalise = Normalise::None}},
  };
}

void galleries(Runner& runner, const Shape& shape, at::ScalarType type, bool backward) {
  for (const auto& variant : gallery(shape.H, shape.T)) {
    auto c = case_of(variant.name, shape, type, backward, "gallery");
    c.limit = Limit::None;  // each mask leaves other pairs
    if (!runner.wants(c)) continue;
    const auto pass = pass_of(shape, type, backward);
    const auto run = [=](Backend backend) { return pass({.backend = backend}, variant.extras); };
    c.check = [=] {
      return Check{"composed definition", difference(run(Backend::Auto), run(Backend::Reference)),
                   allowed_error(type)};
    };
    c.contenders = {{"own function", [=] { return run(Backend::Auto); }},
                    {"composed", [=] { return run(Backend::Reference); }}};
    runner.run(c);
  }
}

// Sigmoid attention beside the softmax.
void sigmoid_attention(Runner& runner, const Shape& shape, at::ScalarType type, bool backward) {
  auto c = case_of("sigmoid", shape, type, backward);
  if (!runner.wants(c)) return;
  const auto pass = pass_of(shape, type, backward);
  const AttentionExtras own{.score = score_mod([](auto s, auto pair) { return sigmoid(s - log(pair.keys)); }),
                            .normalise = Normalise::None};
  const AttentionOptions causal{.causal = Causal::BottomRight};
  auto definition = causal;
  definition.backend = Backend::Reference;
  c.check = [=] {
    return Check{"composed definition", difference(pass(causal, own), pass(definition, own)),
                 allowed_error(type)};
  };
  c.contenders = {{"sigmoid", [=] { return pass(causal, own); }},
                  {"softmax", [=] { return pass(causal, {}); }}};
  runner.run(c);
}

// Equal documents in one long sequence.
void documents(Runner& runner, const Shape& shape, int64_t count, at::ScalarType type) {
  auto c = case_of(fmt::format("{} documents", count), shape, type, false);
  c.work /= static_cast<double>(count);
  if (!runner.wants(c)) return;
  const auto pass = pass_of(shape, type, false);
  const int64_t T = shape.T, length = T / count;
  const auto document = captured_indices(at::arange(T).div(length, "floor"));
  const auto mask = mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); });
  const auto kept = BlockMask::kept(mask, 1, 1, T, T);
  const AttentionOptions causal{.causal = Causal::BottomRight};
  const auto ends = at::arange(0, T + 1, length);
  const auto packed = [](const at::Tensor& x) { return x[0].transpose(0, 1); };
  const auto apart = [=] {
    return Tensors{
        attention_varlen(packed(pass.x.q), packed(pass.x.k), packed(pass.x.v), ends, ends, causal).output};
  };
  c.check = [=] {
    return Check{"packed sequences",
                 difference({packed(pass(causal, {.block_mask = kept}).front())}, apart()),
                 allowed_error(type)};
  };
  c.contenders = {
      {"kept block mask", [=] { return pass(causal, {.block_mask = kept}); }},
      {"all of the past", [=] { return pass(causal, {}); }},
      {"attention_varlen", apart},
      {"keeping the mask", [=] { return Tensors{BlockMask::kept(mask, 1, 1, T, T).classes()->classes}; }}};
  runner.run(c);
}

}  // namespace

void score_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {1024, 4096}) {
      for (const bool backward : {false, true}) restated(runner, {1, 12, T, 64}, type, backward);
    }
    for (const bool backward : {false, true}) sigmoid_attention(runner, {1, 12, 1024, 64}, type, backward);
    documents(runner, {1, 12, 16384, 64}, 16, type);
  }
}

void gallery_suite(Runner& runner) {
  for (const auto type : kTypes) {
    for (const bool backward : {false, true}) {
      if (runner.wants(type)) galleries(runner, {1, 12, 1024, 64}, type, backward);
    }
  }
}

}  // namespace bench
