// Examples of docs/porting.md.

#include <cmath>
#include <sstream>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <attentive/attentive.h>

#include "docs/examples.h"
#include "support/golden.h"

using namespace attentive;
using attentive::test::naive;

EXAMPLE(item_mask) {
  at::manual_seed(1);
  const auto x = at::randn({2, 2, 3, 2});  // B == H == 2
  auto keep = at::ones({2, 3, 3}, at::kBool);
  keep[1].slice(-1, 1).fill_(false);  // item 1 may see its first key only, item 0 all three
  // mask.expand(B, H, T, T): the mask's first size lands on the heads.
  const auto wrong = naive(x, x, x, keep.expand({2, 2, 3, 3})).weights;
  std::cout << "naive: item 0, head 1: key 0 gets " << wrong[0][1][0][0].item<float>() << "\n";

  const AttentionExtras extras{.mask = Mask::per_batch(keep), .weights = Weights::Clean};
  const auto right = attention(x, x, x, {}, extras).weights;
  std::cout << "ours:  item 0, head 1: key 0 gets " << right[0][1][0][0].item<float>() << "\n";
  try {
    attention(x, x, x, {}, keep);
  } catch (const c10::Error& error) {
    std::cout << "ours:  " << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(additive_mask) {
  at::manual_seed(1);
  const auto x = at::randn({3, 2});
  const auto additive = at::full({3, 3}, -INFINITY).triu(1);  // 0: may look, -inf: may not
  const auto wrong = naive(x, x, x, additive).weights;        // mask == 0 hides what may be seen
  std::cout << "naive: token 0 looks at token 2 with " << wrong[0][2].item<float>() << ", row 2 is "
            << wrong[2][0].item<float>() << "\n";
  const AttentionExtras extras{.mask = Mask::bias(additive), .weights = Weights::Clean};
  const auto right = attention(x, x, x, {}, extras).weights;
  std::cout << "ours:  token 0 looks at token 2 with " << right[0][2].item<float>() << ", row 2 is "
            << right[2][0].item<float>() << "\n";
}

EXAMPLE(dropped_weights) {
  at::manual_seed(1);
  MultiHeadSelfAttention module(8, 2, /*dropout=*/0.5);  // in training
  const auto x = at::randn({2, 4, 8});
  const auto dropped = module->forward(x).second;  // as the notebook returns them
  std::cout << "naive: weight rows sum to one: " << dropped.sum(-1).allclose(at::ones({2, 2, 4})) << "\n";
  const auto clean = module->forward_with_weights(x).second;
  std::cout << "ours:  weight rows sum to one: " << clean.sum(-1).allclose(at::ones({2, 2, 4})) << "\n";
}

EXAMPLE(empty_row) {
  at::manual_seed(1);
  auto q = at::randn({3, 2}).requires_grad_(true);
  const auto k = at::randn({3, 2});
  auto keep = at::ones({3, 3}, at::kBool);
  keep[1].fill_(false);  // token 1 may see nothing
  const auto hidden = at::zeros({3, 3}).masked_fill(keep.bitwise_not(), -INFINITY);
  // Repaired after the softmax, as one finds it in forums: the output is mended, the gradient is not.
  const auto patched = at::softmax(q.matmul(k.t()) / std::sqrt(2.0) + hidden, -1).nan_to_num(0.0).matmul(k);
  patched.square().sum().backward();
  std::cout << "naive: output " << naive(q, k, k, keep).output[1][0].item<float>() << ", repaired "
            << patched[1][0].item<float>() << ", its gradient " << q.grad()[1][0].item<float>() << "\n";
  q.mutable_grad().reset();
  const auto y = attention(q, k, k, {}, keep);
  y.square().sum().backward();
  std::cout << "ours:  output " << y[1][0].item<float>() << ", its gradient " << q.grad()[1][0].item<float>()
            << "\n";
}

EXAMPLE(member_order) {
  struct KeyFirst {  // members are made in the order of their declaration
    torch::nn::Linear W_key{torch::nn::LinearOptions(3, 2).bias(false)};
    torch::nn::Linear W_query{torch::nn::LinearOptions(3, 2).bias(false)};
  };
  at::manual_seed(789);
  const KeyFirst shifted;
  at::manual_seed(789);
  torch::nn::Linear replaced(3, 2);  // made once by the holder, once more below: two draws
  replaced = torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false));
  std::cout << "naive: W_query starts with " << shifted.W_query->weight[0][0].item<float>()
            << ", replaced with " << replaced->weight[0][0].item<float>() << "\n";
  at::manual_seed(789);
  SelfAttentionV2 module(3, 2);
  std::cout << "ours:  W_query starts with " << module->W_query->weight[0][0].item<float>() << "\n";
}

EXAMPLE(layers_of_one_call) {
  at::manual_seed(789);
  torch::nn::Sequential both(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));  // which one draws first?
  std::cout << "naive: the first layer starts with: "
            << both->at<torch::nn::LinearImpl>(0).weight[0][0].item<float>() << "\n";
  at::manual_seed(789);
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(3, 2));
  model->push_back(torch::nn::Linear(2, 2));
  std::cout << "one by one, as in Python: " << model->at<torch::nn::LinearImpl>(0).weight[0][0].item<float>()
            << "\n";
}

EXAMPLE(packed_projection) {
  at::manual_seed(4);
  FusedSelfAttention module(16, 4);
  const auto x = at::randn({2, 5, 16});
  const auto packed = module->qkv->forward(x);
  const auto by_head = packed.view({2, 5, 4, 3, 4}).permute({3, 0, 2, 1, 4});  // rows as [head][3][dim]
  const auto wrong = module->proj->forward(merge_heads(naive(by_head[0], by_head[1], by_head[2]).output));
  const auto by_part = packed.view({2, 5, 3, 4, 4}).permute({2, 0, 3, 1, 4});  // rows as [3][head][dim]
  const auto right = module->proj->forward(merge_heads(naive(by_part[0], by_part[1], by_part[2]).output));
  std::cout << "naive: " << wrong[0][0][0].item<float>() << "\n";
  std::cout << "ours:  " << module->forward(x)[0][0][0].item<float>() << ", by hand "
            << right[0][0][0].item<float>() << "\n";
}

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
