#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/multihead_attention.h>
#include <attentive/files/state_dict.h>
#include <attentive/modules/convert.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/vision_transformer.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;

namespace {

// Returns a module's state with random numbers everywhere, because initial biases of zero would hide an
// error.
template <class Holder>
StateDict randomized(Holder& module) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.copy_(at::randn(parameter.sizes()) / 2);
  return state_dict(*module);
}

void check_equal(const StateDict& got, const StateDict& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [key, tensor] : want) {
    INFO(key);
    REQUIRE(got.count(key) == 1);
    CHECK(bit_equal(got.at(key), tensor));
    CHECK(got.at(key).data_ptr() != tensor.data_ptr());
  }
}

at::Tensor input() {
  return at::randn({2, 5, 6});
}

}  // namespace

TEST_CASE("convert: wrapper and stacked heads", "[convert]") {
  for (const bool bias : {false, true}) {
    MultiHeadAttentionWrapper wrapper(6, 4, 5, 0.0, 3, bias);
    const auto state = randomized(wrapper);
    MultiHeadAttention mha(6, 12, 5, 0.0, 3, bias);
    const auto stacked = convert::wrapper_to_multi_head(state);
    load_state_dict(*mha, stacked);
    const auto x = input();
    CHECK_CLOSE(mha->forward(x), wrapper->forward(x));
    check_equal(convert::multi_head_to_wrapper(stacked, 3), state);
  }
  // Python's mask buffers are converted as well.
  MultiHeadAttentionWrapper wrapper(6, 4, 5, 0.0, 2);
  const auto python = state_dict(*wrapper, {.causal_mask_buffers = true});
  const auto stacked = convert::wrapper_to_multi_head(python);
  CHECK(stacked.count("mask") == 1);
  check_equal(convert::multi_head_to_wrapper(stacked, 2), python);
}

TEST_CASE("convert: fused and split projections", "[convert]") {
  FusedSelfAttention fused(6, 2);
  const auto state = randomized(fused);
  const auto split = convert::fused_to_multi_head(state);
  MultiHeadAttention mha(
      MultiHeadAttentionOptions(6, 6, 0, 0.0, 2, /*qkv_bias=*/true).attention({.causal = Causal::None}));
  load_state_dict(*mha, split);
  const auto x = input();
  CHECK_CLOSE(mha->forward(x), fused->forward(x));
  check_equal(convert::multi_head_to_fused(split), state);
}

TEST_CASE("convert: chapter-3 MultiHeadAttention and torch.nn.MultiheadAttention", "[convert]") {
  MultiHeadAttention mha(6, 6, 5, 0.0, 2, /*qkv_bias=*/true);
  const auto state = randomized(mha);
  compat::MultiheadAttention module(compat::MultiheadAttentionOptions(6, 2).batch_first(true));
  const auto packed = convert::multi_head_to_torch(state);
  load_state_dict(*module, packed);
  const auto x = input();
  const auto causal = at::ones({5, 5}, at::kBool).triu(1);
  CHECK_CLOSE(std::get<0>(module->forward(x, x, x, {}, false, causal)), mha->forward(x));
  check_equal(convert::torch_to_multi_head(packed), state);

  SECTION("without biases") {
    MultiHeadAttention plain(6, 6, 5, 0.0, 2);
    auto unbiased = randomized(plain);
    check_equal(convert::torch_to_multi_head(convert::multi_head_to_torch(unbiased), /*qkv_bias=*/false),
                unbiased);
    unbiased.at("out_proj.bias").zero_();
    const auto bare = convert::multi_head_to_torch(unbiased, /*bias=*/false);
    CHECK(bare.size() == 2);
    compat::MultiheadAttention bare_module(
        compat::MultiheadAttentionOptions(6, 2).batch_first(true).bias(false));
    load_state_dict(*bare_module, bare);
    CHECK_CLOSE(std::get<0>(bare_module->forward(x, x, x, {}, false, causal)), plain->forward(x));
    check_equal(convert::torch_to_multi_head(bare, false), unbiased);
  }
  SECTION("a Python mask buffer is dropped") {
    auto python = state_dict(*mha, {.causal_mask_buffers = true});
    check_equal(convert::multi_head_to_torch(python), packed);
  }
  SECTION("separate projections") {
    auto separate = packed;
    const auto parts = packed.at("in_proj_weight").chunk(3);
    separate.erase("in_proj_weight");
    separate["q_proj_weight"] = parts[0];
    separate["k_proj_weight"] = parts[1];
    separate["v_proj_weight"] = parts[2];
    check_equal(convert::torch_to_multi_head(separate), state);
  }
}

TEST_CASE("convert: MultiHeadAttention and GroupedQueryAttention", "[convert]") {
  const auto options =
      GroupedQueryAttentionOptions(6, 16, 5, 0.0, 8, 2, /*qkv_bias=*/true).out_bias(true).sinks(true);
  GroupedQueryAttention gqa(options);
  const auto state = randomized(gqa);
  MultiHeadAttention mha(MultiHeadAttentionOptions(6, 16, 5, 0.0, 8, true).sinks(true));
  const auto written_out = convert::grouped_to_multi_head(state, 8, 2);
  load_state_dict(*mha, written_out);
  const auto x = input();
  CHECK_CLOSE(mha->forward(x), gqa->forward(x));
  // If the heads of a group are equal, their mean equals each of them.
  check_equal(convert::multi_head_to_grouped(written_out, 8, 2), state);

  // If they differ, the key head of the group is their mean, row by row.
  const auto other = randomized(mha);
  const auto pooled = convert::multi_head_to_grouped(other, 8, 2);
  CHECK(pooled.at("W_key.weight").sizes() == at::IntArrayRef({4, 6}));
  const auto& keys = other.at("W_key.weight");
  CHECK_CLOSE(pooled.at("W_key.weight")[3],
              (keys[9] + keys[11] + keys[13] + keys[15]) / 4);  // group 1, row 1: heads 4 to 7
  CHECK_CLOSE(pooled.at("W_value.bias").slice(0, 2),
              other.at("W_value.bias").slice(0, 8).view({4, 2}).mean(0));
  GroupedQueryAttention fresh(options);
  CHECK(load_state_dict(*fresh, pooled).empty());
}

TEST_CASE("convert names every mistake", "[convert]") {
  using test::value_error;
  MultiHeadAttention mha(6, 6, 5, 0.0, 2, true);
  const auto good = randomized(mha);
  auto state = good;
  state.erase("W_key.weight");
  CHECK(value_error([&] { return convert::multi_head_to_torch(state); }) ==
        "multi_head_to_torch: missing key W_key.weight");
  state = good;
  state["extra"] = at::rand({1});
  CHECK(value_error([&] { return convert::multi_head_to_torch(state); }) ==
        "multi_head_to_torch: unexpected key extra");
  state = good;
  state["W_value.weight"] = at::rand({4, 6});
  CHECK(value_error([&] { return convert::multi_head_to_fused(state); }) ==
        "multi_head_to_fused: expected W_value.weight of shape (6, 6), got (4, 6)");
  state = good;
  state["W_value.bias"] = at::rand({6}, at::kDouble);
  CHECK(value_error([&] {
          return convert::multi_head_to_fused(state);
        }).rfind("multi_head_to_fused: expected tensors of one dtype and device", 0) == 0);
  state["W_value.bias"] = at::Tensor();
  CHECK(value_error([&] { return convert::multi_head_to_fused(state); }) ==
        "multi_head_to_fused: expected a tensor at W_value.bias, got an undefined one");
  CHECK(value_error([&] { return convert::multi_head_to_fused({}); }) ==
        "multi_head_to_fused: expected a state dict, got an empty one");
  CHECK(value_error([&] { return convert::multi_head_to_torch(good, false); }) ==
        "multi_head_to_torch: expected the bias of W_query to be zero, because bias = false leaves it out");
  CHECK(value_error([&] { return convert::multi_head_to_wrapper(good, 2); }) ==
        "multi_head_to_wrapper: expected out_proj.weight to be the identity, because the wrapper has no "
        "out_proj");
  CHECK(value_error([&] { return convert::multi_head_to_wrapper(good, 4); }) ==
        "multi_head_to_wrapper: expected num_heads to divide d_out = 6, got 4");
  CHECK(value_error([&] { return convert::multi_head_to_grouped(good, 6, 4); }) ==
        "multi_head_to_grouped: expected num_kv_heads to divide num_heads = 6, got 4");
  CHECK(value_error([&] { return convert::wrapper_to_multi_head(good); }) ==
        "wrapper_to_multi_head: missing key heads.0.W_query.weight");

  auto wide = good;
  for (const char* name : {"W_query.weight", "W_key.weight", "W_value.weight"}) wide[name] = at::rand({6, 3});
  CHECK(value_error([&] {
          return convert::multi_head_to_torch(wide);
        }).rfind("multi_head_to_torch: expected d_in = d_out", 0) == 0);
  auto torch_state = convert::multi_head_to_torch(good);
  torch_state["bias_k"] = at::rand({1, 1, 6});
  CHECK(value_error([&] {
          return convert::torch_to_multi_head(torch_state);
        }).rfind("torch_to_multi_head: unexpected key bias_k or bias_v", 0) == 0);

  auto heads = convert::multi_head_to_wrapper(
      [&] {
        auto identity = good;
        identity.erase("out_proj.weight");
        identity.erase("out_proj.bias");
        return identity;
      }(),
      2);
  heads["heads.1.W_key.weight"] = at::rand({2, 6});
  CHECK(value_error([&] { return convert::wrapper_to_multi_head(heads); }) ==
        "wrapper_to_multi_head: expected heads.1.W_key.weight of shape (3, 6), got (2, 6)");
  heads.erase("heads.1.W_query.weight");
  CHECK(value_error([&] {
          return convert::wrapper_to_multi_head(heads);
        }).rfind("wrapper_to_multi_head: unexpected key heads.1.", 0) == 0);
}
