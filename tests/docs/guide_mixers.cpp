// Examples of docs/guide/delta_rule.md and docs/guide/latent_attention.md.

#include <ATen/ATen.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

EXAMPLE(delta_overwrites) {
  const auto k = at::ones({1, 1, 2, 1}), v = at::tensor({3.F, 5.F}).view({1, 1, 2, 1});
  const auto half = at::full({1, 1, 2}, 0.5);
  const auto last = [](const GatedDeltaRuleResult& y) { return y.output[0][0][1].item<float>(); };
  std::cout << "linear " << last(gated_delta_rule(k, k, v, {}, {}, {.delta = false})) << ", gated "
            << last(gated_delta_rule(k, k, v, half.log(), {}, {.delta = false})) << ", delta "
            << last(gated_delta_rule(k, k, v)) << ", with beta " << last(gated_delta_rule(k, k, v, {}, half))
            << "\n";
}

EXAMPLE(delta_state) {
  GatedDeltaNet net(GatedDeltaNetOptions(/*emb_dim=*/64, /*num_heads=*/16));  // D = 128
  DeltaCache cache(net->cache_options(/*layers=*/1, /*batch=*/1));
  for (const int64_t tokens : {1000, 1}) net->forward_cached(at::randn({1, tokens, 64}), cache, 0);
  std::cout << cache.position() << " tokens in " << cache.layer(0).recurrent.nbytes() / 1024 << " KiB\n";
}

EXAMPLE(latent_cache) {
  const at::NoGradGuard no_grad;
  LatentAttention layer(LatentAttentionOptions(/*emb_dim=*/64, /*num_heads=*/16));  // a latent of 512 + 64
  layer->to(at::kBFloat16);
  DenseKVCache latents(layer->cache_options(/*layers=*/1, /*batch=*/1), /*capacity=*/1024);
  const auto bytes = [](int64_t heads) {
    return DenseKVCache({.num_kv_heads = heads, .head_dim = 128, .dtype = at::kBFloat16}, 1024).bytes() /
           1024;
  };
  std::cout << "bytes per token: " << bytes(16) << ", " << bytes(4) << ", " << latents.bytes() / 1024 << "\n";
  const auto x = at::randn({1, 9, 64}, at::kBFloat16);
  layer->forward_cached(x.slice(1, 0, 8), latents, 0);
  const auto last = layer->forward_cached(x.slice(1, 8), latents, 0);  // absorbed: no key or value is made
  std::cout << "the same: " << last.allclose(layer->forward(x).slice(1, 8), 2e-2, 2e-2) << "\n";
}
