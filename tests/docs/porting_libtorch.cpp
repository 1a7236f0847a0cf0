// Examples of docs/porting.md: what LibTorch itself does to a port.

#include <cmath>
#include <sstream>

#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

EXAMPLE(bool_mask) {
  at::manual_seed(2);
  torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(8, 2));
  const auto x = at::randn({5, 1, 8});                      // (T, B, C): there is no batch_first
  const auto hidden = at::ones({5, 5}, at::kBool).triu(1);  // true: may not look
  const auto lost = std::get<1>(theirs->forward(x, x, x, {}, /*need_weights=*/true, hidden));
  std::cout << "naive: token 0 looks at token 4 with " << lost[0][0][4].item<float>() << "\n";

  compat::MultiheadAttention ours(compat::MultiheadAttentionOptions(8, 2));
  const auto kept = std::get<1>(ours->forward(x, x, x, {}, /*need_weights=*/true, hidden));
  std::cout << "ours:  token 0 looks at token 4 with " << kept[0][0][4].item<float>() << "\n";
}

EXAMPLE(padded_sequence) {
  at::manual_seed(2);
  torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(8, 2));
  const auto x = at::randn({5, 2, 8});
  auto padding = at::zeros({2, 5}, at::kBool);
  padding[1].fill_(true);  // the second sequence is all padding
  std::cout << "naive: " << std::get<0>(theirs->forward(x, x, x, padding))[0][1][0].item<float>() << "\n";
  compat::MultiheadAttention ours(compat::MultiheadAttentionOptions(8, 2));
  const auto y = std::get<0>(ours->forward(x, x, x, padding));
  std::cout << "ours:  " << y[0][1][0].item<float>() << ", the bias of out_proj\n";
}

EXAMPLE(other_widths) {
  at::manual_seed(2);
  const auto q = at::randn({2, 1, 8}), k = at::randn({3, 1, 4}), v = at::randn({3, 1, 6});
  try {
    torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(8, 2).kdim(4).vdim(6));
    const auto y = std::get<0>(theirs->forward(q, k, v));
    std::cout << "naive: " << y[0][0][0].item<float>() << "\n";
  } catch (const std::exception&) {
    std::cout << "naive: an internal assertion of PyTorch fails\n";
  }
  at::manual_seed(2);
  compat::MultiheadAttention ours(compat::MultiheadAttentionOptions(8, 2).kdim(4).vdim(6));
  std::cout << "ours:  " << std::get<0>(ours->forward(q, k, v))[0][0][0].item<float>() << "\n";
}

EXAMPLE(causal_with_a_cache) {
  at::manual_seed(1);
  const auto q = at::randn({1, 1, 2, 4});  // two new tokens
  const auto k = at::randn({1, 1, 5, 4});  // three cached ones and the two
  const auto theirs = at::scaled_dot_product_attention(q, k, k, {}, 0.0, /*is_causal=*/true);
  const bool one_key = theirs[0][0][0].allclose(k[0][0][0]);
  std::cout << "naive: the first new token sees key 0 only: " << one_key << "\n";
  const AttentionExtras extras{.weights = Weights::Clean};
  const auto weights = attention(q, k, k, {.causal = Causal::BottomRight}, extras).weights[0][0];
  std::cout << "ours:  it sees " << weights[0].gt(0).sum().item<int64_t>() << " keys, the last one "
            << weights[1].gt(0).sum().item<int64_t>() << "\n";
}

EXAMPLE(dropout_in_eval) {
  at::manual_seed(1);
  const auto x = at::randn({1, 1, 6, 4});
  // A function does not know about eval().
  const auto a = at::scaled_dot_product_attention(x, x, x, {}, 0.5),
             b = at::scaled_dot_product_attention(x, x, x, {}, 0.5);
  std::cout << "naive: twice the same: " << a.equal(b) << "\n";
  MultiHeadAttention module(4, 4, 6, /*dropout=*/0.5, 1);
  module->eval();
  std::cout << "ours:  twice the same: " << module->forward(x[0]).equal(module->forward(x[0])) << "\n";
}

EXAMPLE(bool_buffer) {
  struct CausalImpl : torch::nn::Cloneable<CausalImpl> {
    CausalImpl() { reset(); }
    void reset() override { mask = register_buffer("mask", at::ones({4, 4}, at::kBool).triu(1)); }
    at::Tensor mask;
  };
  CausalImpl naive;
  naive.to(at::kDouble);
  std::cout << "naive: the mask is " << naive.mask.scalar_type() << ", and masked_fill refuses it\n";
  CausalAttention ours(3, 2, 4, 0.0);
  ours->to(at::kDouble);
  const auto [y, weights] = ours->forward_with_weights(at::rand({4, 3}, at::kDouble));
  std::cout << "ours:  " << ours->named_buffers().size() << " buffers, token 0 looks at token 3 with "
            << weights[0][3].item<double>() << "\n";
}

EXAMPLE(mask_types) {
  const auto scores = at::zeros({2, 2}), mask = at::ones({2, 2}).tril();  // floating numbers 0 and 1
  try {
    scores.masked_fill(mask, 0.0);
  } catch (const c10::Error& error) {
    std::cout << "naive: " << error.what_without_backtrace() << "\n";
  }
  const auto x = at::ones({2, 2});
  try {
    attention(x, x, x, {}, mask);
  } catch (const c10::Error& error) {
    std::cout << "ours:  " << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(clone_draws) {
  struct HeadImpl : torch::nn::Cloneable<HeadImpl> {
    HeadImpl() { reset(); }
    void reset() override { W = register_module("W", torch::nn::Linear(3, 2)); }
    torch::nn::Linear W{nullptr};
  };
  HeadImpl naive;
  CausalAttention ours(3, 2, 6, 0.0);
  at::manual_seed(7);
  std::cout << "undisturbed: " << at::rand({1}).item<float>() << "\n";
  at::manual_seed(7);
  naive.clone();  // runs reset() once more
  std::cout << "naive: after a clone " << at::rand({1}).item<float>() << "\n";
  at::manual_seed(7);
  ours->clone();
  std::cout << "ours:  after a clone " << at::rand({1}).item<float>() << "\n";
}

EXAMPLE(drawn_in_double) {
  at::manual_seed(5);
  const auto drawn_wide = at::rand({3, 2}, at::kDouble);  // a double model's weights, drawn as doubles
  at::manual_seed(5);
  SelfAttentionV1 module(3, 2);
  module->to(at::kDouble);
  std::cout << "naive: " << drawn_wide[0][0].item<double>() << "\n";
  std::cout << "ours:  " << module->W_query[0][0].item<double>() << "\n";
}

EXAMPLE(linear_in_three_dimensions) {
  at::manual_seed(0);
  torch::nn::Linear layer(768, 768);
  const auto x = at::randn({2, 196, 768});
  // C++ Linear::forward: a product, then an addition. Python: one fused call. They may round differently.
  const auto fused = at::linear(x, layer->weight, layer->bias);
  std::cout << "naive: Python's bits: " << layer->forward(x).equal(fused) << "\n";
  FusedSelfAttention module(768);
  const auto one = x.slice(1, 0, 1);  // one token: the softmax is 1, what is left are the projections
  const auto value = at::linear(one, module->qkv->weight, module->qkv->bias).slice(-1, 2 * 768).contiguous();
  const auto python = at::linear(value, module->proj->weight, module->proj->bias);
  std::cout << "ours:  Python's bits: " << module->forward(one).equal(python) << "\n";
}

EXAMPLE(load_checks_nothing) {
  torch::nn::Linear trained(5, 2), module(3, 2);
  std::stringstream file;
  torch::serialize::OutputArchive archive;
  trained->save(archive);
  archive.save_to(file);
  torch::serialize::InputArchive loaded;
  loaded.load_from(file);
  module->load(loaded);
  std::cout << "naive: a Linear(3, 2) now has weights of " << module->weight.size(1) << " features\n";
  try {
    torch::nn::Linear other(3, 2);
    load_state_dict(*other, state_dict(*trained));
  } catch (const c10::Error& error) {
    std::cout << "ours:  " << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(no_batch) {
  at::manual_seed(2);
  torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(8, 2));
  const auto x = at::randn({5, 8});
  try {
    theirs->forward(x, x, x);
    std::cout << "naive: takes (T, C)\n";
  } catch (const std::exception&) {
    std::cout << "naive: (T, C) fails deep inside\n";
  }
  compat::MultiheadAttention ours(compat::MultiheadAttentionOptions(8, 2));
  const auto y = std::get<0>(ours->forward(x, x, x));
  std::cout << "ours:  (T, C) in, " << y.sizes() << " out\n";
}
