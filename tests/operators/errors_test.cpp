// Errors of the operators name the argument, what was expected and what came.

#include "support/errors.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "operators/compute.h"
#include "operators/operator_calls.h"
#include "support/autocast.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

std::string refusal(const Named& named) {
  const auto x = at::randn({1, 2, 3, 4});
  return value_error([&] { call_operator("attention", {x, x, x}, named); });
}

}  // namespace

TEST_CASE("an option that does not exist is refused by name", "[operators][errors]") {
  CHECK(refusal({{"causal", "yes"}}) ==
        "attention: expected causal to be \"none\", \"bottom_right\" or \"top_left\", got \"yes\"");
  CHECK(refusal({{"backend", "flash"}}) ==
        "attention: expected backend to be \"auto\", \"reference\", \"torch\" or \"native\", got \"flash\"");
  CHECK(refusal({{"weights", "all"}}) ==
        "attention: expected weights to be \"none\", \"clean\" or \"dropped\", got \"all\"");
  CHECK(refusal({{"dropout_stream", "mine"}}) ==
        "attention: expected dropout_stream to be \"any\", \"aten\" or \"counter\", got \"mine\"");
}

TEST_CASE("a dropout key of another kind is refused", "[operators][errors]") {
  CHECK(refusal({{"dropout_p", 0.5}, {"dropout_key", at::zeros({2}, at::kLong)}}) ==
        "attention: expected dropout_key to be one int64 number on the CPU (draw_dropout_key), got Long "
        "tensor of shape (2,)");
  CHECK(refusal({{"dropout_p", 0.5}, {"dropout_key", at::zeros({})}}) ==
        "attention: expected dropout_key to be one int64 number on the CPU (draw_dropout_key), got Float "
        "tensor of shape ()");
  CHECK(
      refusal({{"dropout_p", 0.5}, {"dropout_stream", "aten"}, {"dropout_key", at::zeros({}, at::kLong)}}) ==
      "attention: expected dropout_key to be the state of a CPU generator (draw_dropout_state), got Long "
      "tensor of shape ()");
}

TEST_CASE("dropout without a key is refused, because a compiler would merge equal calls",
          "[operators][errors]") {
  CHECK(refusal({{"dropout_p", 0.5}}) ==
        "attention: expected dropout_key to be one int64 number on the CPU (draw_dropout_key), got none");
  CHECK(refusal({{"dropout_p", 0.5}, {"dropout_stream", "aten"}}) ==
        "attention: expected dropout_key to be the state of a CPU generator (draw_dropout_state), got none");
}

TEST_CASE("the operators refuse what the functions refuse", "[operators][errors]") {
  const auto x = at::randn({1, 2, 3, 4});
  CHECK(refusal({{"scale", 0.0}}) == "attention: expected scale to be finite and not 0, got 0");
  CHECK(refusal({{"keep", at::zeros({2, 3, 3}, at::kBool)}}).find("Mask::per_batch") != std::string::npos);
  CHECK(type_error([&] {
          call_operator("attention", {x, x, x.to(at::kDouble)});
        }).find("expected q, k and v of one dtype") != std::string::npos);
  CHECK(type_error([&] {
          call_operator("attention", {x, x, x}, {{"bias", at::zeros({3, 3}, at::kBool)}});
        }).find("bias") != std::string::npos);
  CHECK(value_error([&] {
          call_operator("attention", {x.to(at::kDouble), x.to(at::kDouble), x.to(at::kDouble)},
                        {{"backend", "native"}});
        }) ==
        "attention: backend native cannot express this call: it accepts only float32, bfloat16 and float16");
  const auto packed = at::randn({5, 2, 4});
  CHECK(value_error([&] {
          call_operator("attention_varlen", {packed, packed, packed, at::tensor({0, 4}), at::tensor({0, 5})});
        }).find("cu_seqlens_q") != std::string::npos);
  CHECK(value_error([&] {
          const auto meta = at::zeros({3}, at::kMeta);
          call_operator("attention", {meta, meta, meta});
        }) == "attention: expected q, k and v of one rank of at least 2, got 1, 1 and 1");
}

// Results for tensors without memory have the shapes, dtypes and strides of the results for tensors with
// memory.

namespace {

at::IValue without_memory(const at::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? at::IValue(value.toTensor().detach().to(at::kMeta))
                                                        : value;
}

void check_alike(const std::vector<at::IValue>& meta, const std::vector<at::IValue>& real) {
  REQUIRE(meta.size() == real.size());
  for (size_t i = 0; i < real.size(); ++i) {
    INFO("result " << i);
    const auto &found = meta[i].toTensor(), &wanted = real[i].toTensor();
    CHECK(found.is_meta());
    CHECK(found.sizes() == wanted.sizes());
    CHECK(found.strides() == wanted.strides());
    CHECK(found.scalar_type() == wanted.scalar_type());
  }
}

// Calls an operator for tensors with memory and without.
std::vector<at::IValue> check_operator(const std::string& name, const std::vector<at::IValue>& positional,
                                       const Named& named) {
  auto real = call_operator(name, positional, named);
  std::vector<at::IValue> meta_positional;
  for (const auto& value : positional) meta_positional.push_back(without_memory(value));
  Named meta_named;
  for (const auto& [key, value] : named) meta_named[key] = without_memory(value);
  check_alike(call_operator(name, meta_positional, meta_named), real);
  return real;
}

// Both operators of a call, in inference and for training.
void check_both(const OptionCall& call) {
  const at::NoGradGuard no_grad;
  at::DimVector weights(call.q.sizes());
  weights.back() = call.k.size(-2);
  auto named = with_key(arguments_of(call.options, call.extras), weights);
  check_operator("attention", {call.q, call.k, call.v}, named);
  named["for_backward"] = true;
  const auto results = check_operator("attention", {call.q, call.k, call.v}, named);
  named.erase("for_backward");
  named.erase("logsumexp");
  named["want_bias"] = !call.extras.mask.bias_terms().empty();
  named["want_alibi_slopes"] = call.extras.alibi_slopes.defined();
  named["want_sinks"] = call.extras.sinks.defined();
  const auto gradient = [](bool asked, const at::IValue& of) {
    return asked ? at::IValue(at::randn_like(of.toTensor())) : at::IValue();
  };
  check_operator(
      "attention_backward",
      {gradient(true, results[0]), gradient(call.extras.weights != Weights::None, results[1]),
       gradient(call.extras.logsumexp, results[2]), call.q, call.k, call.v, results[0], results[3]},
      named);
}

}  // namespace

TEST_CASE("operators know the shapes of their results for every option", "[operators][shapes]") {
  const auto n = GENERATE(range(size_t{0}, option_cases().size()));
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  INFO(option_cases()[n].name);
  auto call = plain_call();
  option_cases()[n].apply(call);
  check_both(cast(call, type));
}

TEST_CASE("operators know the shapes of their results for every rank and layout", "[operators][shapes]") {
  const auto leading = GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 4},
                                std::vector<int64_t>{1, 1}, std::vector<int64_t>{2, 3, 4});
  const bool transposed = GENERATE(false, true);
  const bool expanded = GENERATE(false, true);
  OptionCall call;
  const auto draw = [&](int64_t rows, int64_t dim) {
    auto sizes = leading;
    sizes.push_back(transposed ? dim : rows);
    sizes.push_back(transposed ? rows : dim);
    auto x = at::randn(sizes);
    if (transposed) x = x.transpose(-1, -2);
    if (expanded && !leading.empty()) x = x.narrow(0, 0, 1).expand(x.sizes());
    return x;
  };
  call.q = draw(5, 8);
  call.k = draw(6, 8);
  call.v = draw(6, 3);
  call.extras.weights = Weights::Clean;
  call.extras.logsumexp = true;
  check_both(call);
}

TEST_CASE("a result is copied only if its numbers lie otherwise than promised", "[operators][shapes]") {
  const auto heads_inside = [](int64_t batch) { return at::randn({batch, 5, 4, 8}).transpose(1, 2); };
  const auto batch = GENERATE(int64_t{1}, int64_t{3});
  const auto like = heads_inside(batch), same = heads_inside(batch), other = at::randn(like.sizes());
  CHECK(operators::laid_like(same, like).data_ptr() == same.data_ptr());
  const auto copy = operators::laid_like(other, like);
  CHECK(copy.strides() == like.strides());
  CHECK(at::equal(copy, other));
  // A stride of a dimension of one item may be any number.
  const auto one = heads_inside(1), odd = one.as_strided(one.sizes(), {7, 8, 32, 1});
  const auto view = operators::laid_like(odd, one);
  CHECK(view.data_ptr() == odd.data_ptr());
  CHECK(view.strides() == one.strides());
}

TEST_CASE("the packed operators know the shapes of their results", "[operators][shapes]") {
  const at::NoGradGuard no_grad;
  const auto q = at::randn({9, 4, 8}), k = at::randn({7, 2, 8}), v = at::randn({7, 2, 5});
  const auto ends_q = at::tensor({0, 4, 9}), ends_k = at::tensor({0, 5, 7}), slopes = at::rand({4});
  Named named{{"alibi_slopes", slopes}, {"logsumexp", GENERATE(true, false)}};
  check_operator("attention_varlen", {q, k, v, ends_q, ends_k}, named);
  named["for_backward"] = true;
  const auto results = check_operator("attention_varlen", {q, k, v, ends_q, ends_k}, named);
  check_operator(
      "attention_varlen_backward",
      {at::randn_like(results[0].toTensor()), at::IValue(), q, k, v, ends_q, ends_k, results[0], results[2]},
      {{"alibi_slopes", slopes}, {"want_alibi_slopes", true}});
}

TEST_CASE("the drawing operators know the shapes of their results", "[operators][shapes]") {
  const auto salt = at::randperm(0);
  check_operator("draw_dropout_key", {salt}, {});
  check_operator("draw_dropout_state", {salt, 0.5, at::IntArrayRef{2, 4, 7, 9}}, {});
  const auto ends = at::tensor({0, 4, 9});
  check_operator("draw_dropout_state", {salt, 0.5, at::IntArrayRef{4}, ends, ends}, {});
}

// The operator `attention_varlen` computes what the function of the same name computes.

namespace {

struct Packed {
  at::Tensor q, k, v, ends_q, ends_k;
};

Packed packed_call(at::ScalarType type, const std::vector<int64_t>& ends_q,
                   const std::vector<int64_t>& ends_k) {
  at::manual_seed(11);
  const auto draw = [&](int64_t rows, int64_t heads, int64_t dim) {
    return at::randn({rows, heads, dim}, at::kDouble).to(type).requires_grad_();
  };
  return {draw(ends_q.back(), 4, 8), draw(ends_k.back(), 2, 8), draw(ends_k.back(), 2, 5), at::tensor(ends_q),
          at::tensor(ends_k)};
}

Named without_masks(Named named) {
  for (const auto* name : {"keep", "bias", "key_keep", "key_lengths", "query_lengths", "weights"})
    named.erase(name);
  return named;
}

std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& results,
                                  const std::vector<at::Tensor>& leaves, bool create_graph = false) {
  std::vector<at::Tensor> outputs, directions;
  at::manual_seed(43);
  for (const auto& x : results) {
    if (!x.defined()) continue;
    const auto finite = x.masked_fill(x.isinf(), 0.0);
    outputs.push_back(finite);
    directions.push_back(at::randn(x.sizes(), x.options()));
  }
  return torch::autograd::grad(outputs, leaves, directions, create_graph, create_graph,
                               /*allow_unused=*/true);
}

}  // namespace

TEST_CASE("the packed operator computes what the function does", "[operators][packed]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const auto lengths = GENERATE(0, 1, 2);
  const bool learned = GENERATE(false, true);
  const std::vector<std::vector<int64_t>> ends_q = {{0, 4, 9, 10}, {0, 0, 6, 6}, {0}};
  const std::vector<std::vector<int64_t>> ends_k = {{0, 5, 5, 8}, {0, 3, 7, 7}, {0}};
  const auto call = packed_call(type, ends_q[lengths], ends_k[lengths]);
  AttentionOptions options{.causal = GENERATE(Causal::None, Causal::BottomRight), .window = {3, 1}};
  options.dropout_p = GENERATE(0.0, 0.4);
  options.dropout_stream =
      options.dropout_p > 0 ? GENERATE(DropoutStream::Counter, DropoutStream::Aten) : DropoutStream::Counter;
  AttentionExtras extras;
  extras.logsumexp = learned;
  if (learned) {
    extras.alibi_slopes = at::rand({4}, at::kDouble).to(type).requires_grad_();
    extras.sinks = at::randn({4}, at::kDouble).to(type).requires_grad_();
  }
  std::vector<at::Tensor> leaves{call.q, call.k, call.v};
  if (learned) leaves.insert(leaves.end(), {extras.alibi_slopes, extras.sinks});

  at::manual_seed(13);
  const auto results = call_operator(
      "attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k},
      with_key(without_masks(arguments_of(options, extras)), {call.q.size(1)}, call.ends_q, call.ends_k));
  const auto logsumexp = if_asked(learned, results[1]);
  at::manual_seed(13);
  const auto want = attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k, options, extras);
  CHECK(difference(results[0].toTensor(), want.output, kEqual) == "");
  CHECK(difference(logsumexp, want.logsumexp, kEqual) == "");
  const auto got_gradients = gradients({results[0].toTensor(), logsumexp}, leaves);
  const auto want_gradients = gradients({want.output, want.logsumexp}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    INFO("gradient " << i << " of q, k, v, slopes, sinks");
    // The sums over sequences of slopes and sinks are rounded in another order.
    const auto tolerance = i < 3 ? kEqual : tolerance_of(type, /*gradient=*/true);
    CHECK(difference(got_gradients[i], want_gradients[i], tolerance) == "");
  }
}

TEST_CASE("gradients of the packed operator can be differentiated again", "[operators][packed]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto call = packed_call(type, {0, 4, 9}, {0, 3, 8});
  const std::vector<at::Tensor> leaves{call.q, call.k, call.v};
  const auto second = [&](const at::Tensor& output) {
    at::Tensor sum;
    for (const auto& x : gradients({output}, leaves, /*create_graph=*/true))
      sum = sum.defined() ? sum + x.square().sum() : x.square().sum();
    return torch::autograd::grad({sum}, leaves);
  };
  const auto got = second(
      call_operator("attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k})[0].toTensor());
  const auto want = second(attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k).output);
  for (size_t i = 0; i < leaves.size(); ++i)
    CHECK(difference(got[i], want[i], tolerance_of(type, /*gradient=*/true)) == "");
}

TEST_CASE("under autocast, the packed operator casts q, k and v", "[operators][packed]") {
  const auto call = packed_call(at::kFloat, {0, 4, 9}, {0, 3, 8});
  const CpuAutocast autocast(at::kBFloat16);
  const auto got =
      call_operator("attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k})[0].toTensor();
  CHECK(got.scalar_type() == at::kBFloat16);
  CHECK(difference(got, attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k).output, kEqual) ==
        "");
}
