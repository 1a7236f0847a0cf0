// Hooks of saved tensors may hand back copies of any strides (offloading, checkpoints on disk): no derivative
// of any function changes.

#include <string>
#include <vector>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/compat/transformer_layers.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/functional/merge_attention.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/score/score_mod.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "support/cells.h"
#include "support/option_cases.h"
#include "support/saved_tensor_hooks.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Checks the derivatives under every hook, or the first ones.
void check_hooks(const std::function<at::Tensor()>& loss, const std::vector<at::Tensor>& leaves,
                 bool twice = true, double tolerance = 2e-5, size_t hooks = std::size(kSavedTensorHooks)) {
  const auto seeded = [&] {
    at::manual_seed(5);
    return loss();
  };
  const auto want = derivatives_of(seeded, leaves, twice);
  for (size_t n = 0; n < hooks; ++n) {
    INFO(kSavedTensorHooks[n].name);
    const SavedTensorHooksGuard guard(kSavedTensorHooks[n]);
    CHECK(distance(derivatives_of(seeded, leaves, twice), want) <= tolerance);
  }
}

at::Tensor of_results(const AttentionResult& result) {
  auto loss = result.output.to(at::kDouble).square().sum();
  if (result.weights.defined()) loss = loss + result.weights.to(at::kDouble).sin().sum();
  if (!result.logsumexp.defined() || !result.logsumexp.requires_grad()) return loss;
  const auto sums = result.logsumexp.to(at::kDouble);  // -inf in a row without keys
  return loss + sums.masked_fill(sums.isinf(), 0.0).square().sum();
}

at::Tensor random_leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::kDouble).to(type).requires_grad_(true);
}

}  // namespace

TEST_CASE("hooks of saved tensors change no derivative of attention, whatever its options",
          "[saved_tensors]") {
  auto cases = option_cases();
  cases.insert(cases.end(), function_cases().begin(), function_cases().end());
  const auto backend = GENERATE(Backend::Native, Backend::Torch, Backend::Reference);
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  if (backend == Backend::Reference && type != at::kFloat) return;
  size_t taken = 0;
  for (const auto& option : cases) {
    INFO(to_string(backend) << ", " << c10::toString(type) << ", " << option.name);
    auto exact = plain_call();
    option.apply(exact);
    auto call = cast(exact, type);
    if (call.extras.sinks.defined()) call.extras.sinks = call.extras.sinks.detach().requires_grad_(true);
    if (!takes(backend, call)) continue;
    ++taken;
    call.options.backend = backend;
    auto leaves = leaves_of(call);
    if (call.extras.sinks.defined()) leaves.push_back(call.extras.sinks);
    check_hooks([&] { return of_results(attention(call.q, call.k, call.v, call.options, call.extras)); },
                leaves, backend != Backend::Torch, type == at::kFloat ? 2e-5 : 2e-2);
  }
  CHECK(taken > (backend == Backend::Torch ? 5 : cases.size() / 2));
}

TEST_CASE("hooks of saved tensors change no derivative of packed attention", "[saved_tensors][varlen]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  at::manual_seed(2);
  const auto q = random_leaf({11, 4, 8}, type), k = random_leaf({14, 2, 8}, type),
             v = random_leaf({14, 2, 5}, type);
  const auto numbers = random_leaf({3, 4, 8}, type), sinks = random_leaf({4}, type),
             slopes = random_leaf({4}, type);
  const auto ends_q = at::tensor({0, 4, 5, 11}), ends_k = at::tensor({0, 6, 8, 14});
  const auto table = captured(numbers);
  const auto far = captured_indices(at::tensor({2, 3, 9}));
  const AttentionExtras extras{
      .alibi_slopes = slopes,
      .sinks = sinks,
      .score = score_mod([=](auto s, auto pair) { return s + tanh(table(pair.batch, pair.head, pair.key)); }),
      .block_mask = mask_mod([=](auto pair) { return abs(pair.query - pair.key) <= far(pair.batch); }),
      .logsumexp = true};
  check_hooks([&] { return of_results(attention_varlen(q, k, v, ends_q, ends_k, {}, extras)); },
              {q, k, v, numbers, sinks, slopes}, true, type == at::kFloat ? 2e-5 : 2e-2);
}

TEST_CASE("hooks of saved tensors change no derivative of the other functions", "[saved_tensors]") {
  at::manual_seed(3);
  const auto x = random_leaf({2, 6, 8}), y = random_leaf({2, 6, 8}), table = random_leaf({40, 8}),
             bias = random_leaf({40});
  const auto heads = [&] { return x.unflatten(2, {2, 4}).transpose(1, 2); };
  const auto ids = at::randint(40, {2, 6}, at::kLong);
  const auto squares = [](const at::Tensor& of) { return of.square().sum(); };
  check_hooks([&] { return squares(gelu_tanh(x)); }, {x});
  check_hooks([&] { return squares(add_dropped(y, x, 0.3, true)); }, {x, y});
  check_hooks(
      [&] { return squares(linear_attention(heads(), heads(), heads(), {.causal = Causal::BottomRight})); },
      {x});
  for (const auto reduction : {LossReduction::None, LossReduction::Mean, LossReduction::Sum}) {
    check_hooks(
        [&] {
          return squares(linear_cross_entropy(
              x, table, ids,
              {.bias = bias, .reduction = reduction, .label_smoothing = 0.1, .z_loss = 0.1, .softcap = 3.0}));
        },
        {x, table, bias});
  }
  check_hooks(
      [&] {
        const TiedEmbedding tied(table, table, ids);
        return squares(attentive::linear(tied.rows_of(ids), tied.head()));
      },
      {table});
  check_hooks(
      [&] {
        const auto part = [&](const at::Tensor& k) {
          return attention(heads(), k, k, {}, {.logsumexp = true});
        };
        return of_results(merge_attention({part(heads()), part(y.unflatten(2, {2, 4}).transpose(1, 2))}));
      },
      {x, y});
  check_hooks(
      [&] {
        return squares(activation_checkpoint(
            [&](const at::Tensor& in) { return gelu_tanh(attention(in, in, in)) + in; }, x));
      },
      {x});
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto narrow = random_leaf({5, 8}, type), weight = random_leaf({6, 8}, type),
               offset = random_leaf({6}, type);
    check_hooks([&] { return squares(attentive::linear(narrow, weight, offset).to(at::kDouble)); },
                {narrow, weight, offset}, true, 2e-2);
  }
}

TEST_CASE("hooks of saved tensors change no derivative of models and layers", "[saved_tensors]") {
  at::manual_seed(4);
  const auto ids = at::randint(31, {2, 12}, at::kLong), targets = at::randint(31, {2, 12}, at::kLong);
  Llama llama(LlamaOptions(31, 16, 4, 2).num_kv_heads(2).qk_norm(true));
  check_hooks([&] { return llama->loss(ids, targets); }, llama->parameters());
  // PyTorch's own layer norm (2.11) reads the mean that it saved as if that were contiguous.
  constexpr size_t kCopies = 1;
  GPT gpt(GPTOptions(31, 16, 16, 2, 2).dropout(0.1));
  check_hooks([&] { return gpt->loss(ids, targets); }, gpt->parameters(), true, 2e-5, kCopies);
  compat::TransformerEncoderLayer layer(compat::TransformerEncoderLayerOptions(16, 2).dropout(0.1));
  const auto x = random_leaf({6, 2, 16});
  auto leaves = layer->parameters();
  leaves.push_back(x);
  check_hooks([&] { return layer->forward(x).square().sum(); }, leaves, true, 2e-5, kCopies);
}
