// Examples of docs/guide/start.md and docs/guide/masks.md, and of docs/conventions.md.

#include <ATen/ATen.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

EXAMPLE(own_module) {
  struct PoolerImpl : torch::nn::Module {
    PoolerImpl() {
      attention = register_module("attention", MultiHeadAttention(32, 32, /*context_length=*/0, 0.1, 4));
      head = register_module("head", torch::nn::Linear(32, 2));
    }
    at::Tensor forward(const at::Tensor& x, const Mask& mask) {
      return head->forward(attention->forward(x, mask).select(1, 0));  // the first token's
    }
    MultiHeadAttention attention{nullptr};
    torch::nn::Linear head{nullptr};
  };

  PoolerImpl model;
  model.eval();
  std::cout << model.forward(at::rand({5, 7, 32}), Mask::key_lengths(at::tensor({7, 7, 3, 1, 5}))).sizes()
            << "\n";
  for (const auto& item : model.named_parameters())
    std::cout << item.key() << " " << item.value().sizes() << "\n";
}

EXAMPLE(bad_call) {
  MultiHeadAttention mha(768, 768, /*context_length=*/1024, /*dropout=*/0.1, /*num_heads=*/12);
  try {
    mha->forward(at::rand({2, 5, 512}));
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(mask_terms) {
  const auto q = at::rand({2, 1, 3, 8}), k = at::rand({2, 1, 5, 8});
  const auto later = at::ones({3, 5}, at::kBool).triu(1);  // query i sees the keys after i
  const auto mask = Mask::key_lengths(at::tensor({5, 2})) & Mask::keep(later);
  const auto result = attention(q, k, k, {}, {.mask = mask, .weights = Weights::Clean});
  std::cout << result.weights[1][0].gt(0).to(at::kInt) << "\n";  // the second sequence: two keys
  std::cout << "output of its last query: " << result.output[1][0][2].abs().max().item<float>() << "\n";
}

EXAMPLE(pytorch_masks) {
  const auto x = at::rand({2, 4, 6, 8});
  auto key_padding_mask = at::zeros({2, 6}, at::kBool);  // torch.nn.MultiheadAttention: true hides
  key_padding_mask[1].slice(0, 4, 6).fill_(true);
  const auto attn_mask = at::ones({6, 6}, at::kBool).triu(1);
  const auto ported = attention(x, x, x, {}, Mask::key_keep(~key_padding_mask) & Mask::hide(attn_mask));

  const auto said =
      attention(x, x, x, {.causal = Causal::BottomRight}, Mask::key_lengths(at::tensor({6, 4})));
  std::cout << "the same: " << ported.allclose(said, 1e-5, 1e-6) << "\n";
}

EXAMPLE(refused_masks) {
  const auto x = at::rand({2, 4, 6, 8});
  const auto attempt = [&](auto&& make_mask) {
    try {
      attention(x, x, x, {}, make_mask());
    } catch (const c10::Error& error) {
      std::cout << error.what_without_backtrace() << "\n";
    }
  };
  attempt([] { return Mask(at::ones({6, 6})); });                // floating: 0/1, or added to the scores?
  attempt([] { return Mask(at::ones({4, 6, 6}, at::kBool)); });  // rank 3: of each sequence, or of each head?
}

EXAMPLE(window_and_bias) {
  const auto x = at::rand({1, 8, 512, 64});
  const auto near =
      attention(x, x, x, {.causal = Causal::BottomRight, .window = {255, 0}});  // 256 keys, itself included
  const AttentionExtras extras{.alibi_slopes = alibi_slopes(8)};
  const auto sloped = attention(x, x, x, {.causal = Causal::BottomRight}, extras).output;
  std::cout << near.sizes() << " " << sloped.sizes() << "\n";
}

EXAMPLE(aligned_lengths) {
  const auto q = at::rand({2, 4, 1, 8});        // the next token of two sequences
  const auto cached = at::rand({2, 4, 64, 8});  // of which 5 and 40 keys are written
  const auto mask = Mask::key_lengths(at::tensor({5, 40}));
  const AttentionOptions options{.causal = Causal::BottomRight, .window = {15, 0}, .align = Align::Lengths};
  const auto y = attention(q, cached, cached, options, mask);
  const auto first = cached.slice(0, 0, 1).slice(2, 0, 5);  // the first sequence alone
  std::cout << "the same: " << y[0].equal(attention(q.slice(0, 0, 1), first, first, {.window = {15, 0}})[0])
            << "\n";
}

EXAMPLE(mask_warnings) {
  const auto x = at::rand({1, 4, 6, 8});
  const auto attn_mask = at::ones({6, 6}, at::kBool).triu(1);  // from Python, where true hides
  for (const auto& note : explain(x, x, x, {}, {.mask = Mask::keep(attn_mask)}).notes)
    std::cout << note << "\n";
}

EXAMPLE(mask_pictures) {
  auto bias = at::zeros({3, 5});
  bias.select(1, 0).fill_(-2);  // less weight for the first key
  const auto mask = Mask::key_lengths(at::tensor({5, 4})) & Mask::bias(bias);
  std::cout << mask.describe(3, 5, {.batch = 1}) << "\n";
  std::cout << describe_mask(mask, {.causal = Causal::BottomRight, .window = {3, 0}}, 3, 5) << "\n";
  std::cout << describe_mask({}, {.causal = Causal::BottomRight}, 1000, 1000, {.most = 6});
}
