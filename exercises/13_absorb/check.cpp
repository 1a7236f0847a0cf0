#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/latent_attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

void check_parts(int64_t heads, int64_t L, int64_t features) {
  const auto x = at::randn({heads, L, features}), latents = at::randn({5, 4}),
             weight = at::randn({heads, features, 4});
  const auto name = " (" + with("heads", heads) + ", " + with("L", L) + ")";
  const auto keys = at::matmul(latents, weight.transpose(1, 2));  // (H, 5, features)
  want_close(at::matmul(queries_of_latents(x, weight), latents.t()), at::matmul(x, keys.transpose(1, 2)), 1,
             "the scores of latents are not those of the keys" + name);
  const auto averages = at::randn({heads, L, 5}).softmax(-1);
  want_close(values_of_latents(at::matmul(averages, latents), weight), at::matmul(averages, keys), 2,
             "the averages of latents do not become those of the values" + name);
}

// The module's decoding: the token after T others.
void check_decoding(int64_t T) {
  const at::NoGradGuard no_grad;
  const int64_t heads = 3, rank = 6, nope = 4, rope = 2, value_dim = 5;
  attentive::LatentAttention module(attentive::LatentAttentionOptions(8, heads)
                                        .kv_lora_rank(rank)
                                        .qk_nope_head_dim(nope)
                                        .qk_rope_head_dim(rope)
                                        .v_head_dim(value_dim));
  attentive::DenseKVCache cache(module->cache_options(/*layers=*/1, /*batch=*/1), /*capacity=*/T + 1);
  const auto x = at::randn({1, T + 1, 8});
  module->forward_cached(x.narrow(1, 0, T), cache, 0);
  const auto token = x.narrow(1, T, 1), expected = module->forward_cached(token, cache, 0);

  // The rows of the cache: a latent and the rotated key that all heads share.
  const auto projected = module->kv_a_proj_with_mqa->forward(x);
  const auto latents =
      module->kv_a_layernorm->forward(projected.narrow(2, 0, rank).contiguous()).unsqueeze(1);
  const auto rotated = module->rotary->forward(projected.narrow(2, rank, rope).unsqueeze(1));
  const auto weight = module->kv_b_proj->weight.view({heads, nope + value_dim, rank});
  const auto q = attentive::split_heads(module->q_proj->forward(token), heads);
  const auto q_rotated = module->rotary->forward(q.narrow(3, nope, rope), T);
  const auto q_latent = queries_of_latents(q[0].narrow(2, 0, nope), weight.narrow(1, 0, nope)).unsqueeze(0);
  const auto averages =
      attentive::attention(at::cat({q_latent, q_rotated}, 3), at::cat({latents, rotated}, 3), latents,
                           {.scale = score_scale(nope, rope, rank)});
  const auto y = values_of_latents(averages[0], weight.narrow(1, nope, value_dim)).unsqueeze(0);
  want_close(module->o_proj->forward(attentive::merge_heads(y)), expected, 3,
             "the token after " + std::to_string(T) + " others differs from LatentAttention's");
}

}  // namespace
}  // namespace exercises

EXERCISE(13) {
  exercises::check_parts(1, 1, 3);
  exercises::check_parts(2, 3, 7);
  exercises::check_decoding(1);
  exercises::check_decoding(9);
}
