// Examples of docs/porting.md: the traps of the notebooks.

#include <cmath>

#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <attentive/attentive.h>

#include "docs/examples.h"
#include "support/naive_notebook.h"

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

EXAMPLE(padding_mask) {
  at::manual_seed(1);
  const auto x = at::randn({3, 1, 3, 2});                                             // B == T == 3
  const auto real = at::tensor({1, 1, 1, 1, 1, 0, 1, 0, 0}, at::kLong).view({3, 3});  // (B, T)
  const auto wrong = naive(x, x, x, real).weights;                                    // read as (T, T)
  std::cout << "naive: item 0 has no padding, its last token gives key 1 " << wrong[0][0][2][1].item<float>()
            << "\n";
  const AttentionExtras extras{.mask = Mask::key_keep(real), .weights = Weights::Clean};
  std::cout << "ours:  item 0 has no padding, its last token gives key 1 "
            << attention(x, x, x, {}, extras).weights[0][0][2][1].item<float>() << "\n";
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

EXAMPLE(draw_order) {
  // The notebook: torch.manual_seed(42), x = torch.randn(2, 5, 128), then the module.
  at::manual_seed(42);
  MultiHeadSelfAttention module_first(128, 4);
  std::cout << "naive: W_q starts with " << module_first->W_q->weight[0][0].item<float>() << "\n";
  at::manual_seed(42);
  at::randn({2, 5, 128});
  MultiHeadSelfAttention module(128, 4);
  std::cout << "ours:  W_q starts with " << module->W_q->weight[0][0].item<float>()
            << " (notebook: -0.0640)\n";
}

EXAMPLE(dot_T) {
  at::manual_seed(123);
  SelfAttentionV1 module(3, 3);
  const auto x = at::rand({3, 3, 3});                            // B == T == d_out: it runs
  const auto keys = x.matmul(module->W_key).permute({2, 1, 0});  // what .T is in three dimensions
  const auto scores = x.matmul(module->W_query).matmul(keys) / std::sqrt(3.0);
  const auto wrong = at::softmax(scores, -1).matmul(x.matmul(module->W_value));
  std::cout << "naive: item 1 starts with " << wrong[1][0][0].item<float>() << "\n";
  std::cout << "ours:  item 1 starts with " << module->forward(x)[1][0][0].item<float>() << ", alone with "
            << module->forward(x[1])[0][0].item<float>() << "\n";
}

EXAMPLE(context_of_one) {
  at::manual_seed(123);
  const auto x = at::rand({4, 3});
  const auto buffer = at::ones({1, 1}).triu(1);  // context_length 1, but four tokens come
  const auto part = buffer.slice(0, 0, 4).slice(1, 0, 4);
  const auto wrong = naive(x, x, x, part.eq(0)).weights;  // (1, 1) broadcasts
  std::cout << "naive: token 0 looks at token 3 with " << wrong[0][3].item<float>() << "\n";
  CausalAttention module(3, 2, /*context_length=*/1, /*dropout=*/0.0);
  try {
    module->forward(x);
  } catch (const c10::Error& error) {
    std::cout << "ours:  " << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(scale_and_mask) {
  at::manual_seed(123);
  MultiHeadAttention module(3, 4, 6, 0.0, 2);
  const auto x = at::randn({1, 3, 3}) * 4;
  const auto scores = split_heads(module->W_query->forward(x), 2)
                          .matmul(split_heads(module->W_key->forward(x), 2).transpose(2, 3));
  const auto hidden = at::ones({3, 3}, at::kBool).triu(1);
  const auto mask_first = at::softmax(scores.masked_fill(hidden, -INFINITY) / std::sqrt(2.0), -1);
  const auto scale_first = at::softmax((scores / std::sqrt(2.0)).masked_fill(hidden, -INFINITY), -1);
  const auto by_width = at::softmax(scores.masked_fill(hidden, -INFINITY) / std::sqrt(4.0), -1);
  std::cout << "naive: sqrt of d_out, not of head_dim: " << by_width[0][1][2][0].item<float>() << "\n";
  std::cout << "ours:  mask, then scale: " << mask_first[0][1][2][0].item<float>()
            << ", scale, then mask: " << scale_first[0][1][2][0].item<float>()
            << ", module: " << module->forward_with_weights(x).second[0][1][2][0].item<float>() << "\n";
}

EXAMPLE(wrapper_width) {
  at::manual_seed(123);
  MultiHeadAttentionWrapper wrapper(/*d_in=*/3, /*d_out=*/2, 6, 0.0, /*num_heads=*/2);
  const auto x = at::rand({1, 6, 3});
  const auto y = wrapper->forward(x);
  std::cout << "naive: d_out is 2, the output has " << y.size(2) << " features; the first key is "
            << wrapper->named_parameters().keys().front() << "\n";
  // These heads in one class: d_out counts all of them, and the projection becomes the identity.
  MultiHeadAttention heads(3, 4, 6, 0.0, 2);
  load_state_dict(*heads, convert::wrapper_to_multi_head(state_dict(*wrapper)));
  std::cout << "ours:  wrapper " << y[0][5][3].item<float>() << ", converted "
            << heads->forward(x)[0][5][3].item<float>() << "\n";
}

EXAMPLE(dropout_table) {
  // The table that the notebook prints depends on how PyTorch was built and on the processor's vendor.
  at::manual_seed(123);
  const auto table = at::dropout(at::ones({6, 6}), 0.5, /*train=*/true)[0].to(at::kLong);
  std::cout << "naive: row 0:";
  for (int64_t j = 0; j < 6; ++j) std::cout << " " << table[j].item<int64_t>();
  // The counter stream is a function of the seed and the indices alone.
  at::manual_seed(123);
  const auto zeros = at::zeros({1, 1, 6, 6});
  const AttentionOptions options{.dropout_p = 0.5, .dropout_stream = DropoutStream::Counter};
  const AttentionExtras extras{.weights = Weights::Dropped};
  const auto dropped = (attention(zeros, zeros, zeros, options, extras).weights[0][0][0] * 6).round();
  std::cout << "\nours:  row 0:";
  for (int64_t j = 0; j < 6; ++j) std::cout << " " << dropped[j].item<int64_t>();
  std::cout << "\n";
}

EXAMPLE(initial_weights) {
  // "Linear uses Xavier", says the notebook's comment.
  at::manual_seed(789);
  torch::nn::Linear believed(torch::nn::LinearOptions(512, 64).bias(false));
  torch::nn::init::xavier_uniform_(believed->weight);
  at::manual_seed(789);
  SelfAttentionV2 module(512, 64);
  std::cout << "naive: largest weight " << believed->weight.abs().max().item<float>() << "\n";
  std::cout << "ours:  largest weight " << module->W_query->weight.abs().max().item<float>()
            << ", below 1/sqrt(512) = " << 1 / std::sqrt(512.0) << "\n";
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

EXAMPLE(rounded_weights) {
  // The tutorial neither scales nor keeps the digits of its softmax.
  const auto q = at::tensor({1.f, 0.f, 2.f, 2.f, 2.f, 2.f, 2.f, 1.f, 3.f}).view({3, 3});
  const auto k = at::tensor({0.f, 1.f, 1.f, 4.f, 4.f, 0.f, 2.f, 3.f, 1.f}).view({3, 3});
  const auto v = at::tensor({1.f, 2.f, 3.f, 2.f, 8.f, 0.f, 2.f, 6.f, 3.f}).view({3, 3});
  const auto by_hand = at::tensor({0.f, .5f, .5f}).matmul(v);
  const auto exact = attention(q, k, v, {.scale = 1.0})[0], scaled = attention(q, k, v)[0];
  std::cout << "naive: " << by_hand[0].item<float>() << " " << by_hand[1].item<float>() << " "
            << by_hand[2].item<float>() << "\n";
  std::cout << "ours:  " << exact[0].item<float>() << " " << exact[1].item<float>() << " "
            << exact[2].item<float>() << " with scale 1; by default " << scaled[1].item<float>()
            << " in the middle\n";
}

EXAMPLE(heads_for_tokens) {
  at::manual_seed(3);
  SharedHeadAttention module(8, 2);
  const auto x = at::randn({1, 4, 8});
  auto changed = x.clone();
  changed.slice(1, 1).add_(1.0);  // every token but the first
  // The blog's forward, with its view moved so that it runs: (B, T, H, d) is never transposed.
  const auto as_published = [&](const at::Tensor& y) {
    const auto split = y.unflatten(-1, {2, -1});
    return naive(module->queries->forward(split), module->keys->forward(split),
                 module->values->forward(split))
        .output[0][0][0][0]
        .item<float>();
  };
  const auto ours = [&](const at::Tensor& y) { return module->forward(y, y, y)[0][0][0].item<float>(); };
  std::cout << "naive: token 0 before " << as_published(x) << ", after the others changed "
            << as_published(changed) << "\n";
  std::cout << "ours:  token 0 before " << ours(x) << ", after the others changed " << ours(changed) << "\n";
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

EXAMPLE(divisibility) {
  const auto packed = at::zeros({2, 5, 36});  // embed_dim 12
  try {
    packed.view({2, 5, 3, 8, 12 / 8});
  } catch (const std::exception& error) {
    const std::string what = error.what();
    std::cout << "naive: " << what.substr(0, what.find('\n')) << "\n";
  }
  try {
    FusedSelfAttention module(12, 8);
  } catch (const c10::Error& error) {
    std::cout << "ours:  " << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(float_scale) {
  at::manual_seed(3);
  const auto q = at::randn({5, 6}, at::kDouble);
  const auto root = at::tensor(6.0f).sqrt();  // torch.sqrt(torch.tensor(d_k)) is a float32 number
  const auto blog = at::softmax(q.matmul(q.t()) / root, -1).matmul(q), exact = naive(q, q, q).output;
  const auto off = [](const at::Tensor& a, const at::Tensor& b) {
    return 1e8 * (a - b).abs().max().item<double>();
  };
  std::cout << "naive: the root is off by " << 1e8 * (root.item<double>() - std::sqrt(6.0))
            << "e-8, the output by " << off(blog, exact) << "e-8\n";
  std::cout << "ours:  the output is off by " << off(attention(q, q, q), exact) << "e-8\n";
  const AttentionOptions as_blog{.scale = 1 / root.item<double>()};  // to have the blog's numbers in float64
  std::cout << "ours:  with the blog's scale, off the blog by " << off(attention(q, q, q, as_blog), blog)
            << "e-8\n";
}
