// Examples of docs/guide/biases.md.

#include <ATen/ATen.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

EXAMPLE(position_bias_option) {
  const auto bias = RelativePositionBiasOptions(/*num_heads=*/4).num_buckets(16).max_distance(64);
  auto block = encoder_block(TransformerBlockOptions(TransformerAttentionOptions(32, 4).position_bias(bias)));
  block->forward(at::rand({2, 10, 32})).sum().backward();
  const auto& weight = block->att->position_bias->as<RelativePositionBias>()->weight;
  std::cout << "att.position_bias.weight " << weight.sizes() << ", gradient " << weight.grad().sizes()
            << "\n";
}

EXAMPLE(position_buckets) {
  RelativePositionBias both(/*num_heads=*/8), before(RelativePositionBiasOptions(8).bidirectional(false));
  const auto differences = at::tensor({-1000, -100, -20, -8, -1, 0, 1, 8, 20}, at::kLong);  // key - query
  std::cout << both->buckets(differences).view({1, -1}) << "\n";
  std::cout << before->buckets(differences).view({1, -1}) << "\n";
}

EXAMPLE(bias_with_cache) {
  auto options = TransformerAttentionOptions(32, 4);
  options.position_bias(RelativePositionBiasOptions(4).bidirectional(false));
  TransformerAttention layer(options);
  layer->eval();
  const at::NoGradGuard no_grad;
  const auto x = at::rand({1, 9, 32});
  const auto whole = layer->forward(x);
  DenseKVCache cache({.num_kv_heads = 4, .head_dim = 8}, /*capacity=*/9);
  layer->forward_cached(x.slice(1, 0, 8), cache, /*layer=*/0);
  const auto last = layer->forward_cached(x.slice(1, 8, 9), cache, 0);  // one query, nine keys
  std::cout << "the same: " << last.allclose(whole.slice(1, 8, 9), 1e-4, 1e-5) << "\n";
}

EXAMPLE(shared_bias) {
  RelativePositionBias bias(/*num_heads=*/4);
  std::vector<TransformerBlock> blocks;
  for (int n = 0; n < 3; ++n) blocks.push_back(encoder_block(TransformerBlockOptions(32, 4)));
  auto x = at::rand({2, 10, 32});
  const auto shared = Mask::per_head(Mask::bias(bias->forward(10, 10)));
  for (auto& block : blocks) x = block->forward(x, shared & Mask::key_lengths(at::tensor({10, 7})));
  x.sum().backward();
  std::cout << "gradient of all layers " << bias->weight.grad().sizes() << "\n";
}

EXAMPLE(swin_windows) {
  // An image of 8 x 12 tokens in windows of 4 x 4, shifted by 2 x 2.
  TransformerAttention attention(TransformerAttentionOptions(32, 4)
                                     .qkv_bias(true)
                                     .position_bias(RelativePositionBias2dOptions(4, 4, /*num_heads=*/4))
                                     .attention({}));  // not causal
  const auto image = at::rand({2, 8, 12, 32});
  const auto windows = window_partition(image, {4, 4}, {2, 2});
  const auto keep = shifted_window_mask({8, 12}, {4, 4}, {2, 2});
  const auto mask = Mask::per_batch(Mask::keep(keep.repeat({2, 1, 1})));  // both images
  const auto y = image + window_merge(attention->forward(windows, mask), {8, 12}, {4, 4}, {2, 2});
  std::cout << windows.sizes() << " " << keep.sizes() << " " << y.sizes() << "\n";
}

EXAMPLE(learned_slopes) {
  MultiHeadAttention mha(MultiHeadAttentionOptions(32, 32, /*context_length=*/0, /*dropout=*/0.0, 4)
                             .position_bias(DistanceBiasOptions(4)));
  const auto& slopes = mha->position_bias->as<DistanceBias>()->slopes;
  std::cout << slopes.detach().view({1, -1}) << "\n";  // the fixed slopes of ALiBi, at first
  mha->forward(at::rand({2, 10, 32})).square().sum().backward();
  std::cout << "gradient " << slopes.grad().sizes() << "\n";
}
