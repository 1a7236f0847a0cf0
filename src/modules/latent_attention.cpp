#include <cmath>
#include <tuple>

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/latent_attention.h>

#include "functional/adapters.h"
#include "functional/linear.h"
#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

// x (B, H, T, K) times a matrix per head (H, K, N): (B, H, T, N). Each matrix is read once for all tokens.
at::Tensor times_matrix_of_head(const at::Tensor& x, const at::Tensor& matrices) {
  const auto B = x.size(0), H = x.size(1), T = x.size(2);
  const auto rows = x.transpose(0, 1).reshape({H, B * T, x.size(3)});
  const auto product = widens_products(rows)
                           ? at::bmm(rows.to(at::kFloat), matrices.to(at::kFloat)).to(rows.scalar_type())
                           : at::bmm(rows, matrices);
  return product.view({H, B, T, matrices.size(2)}).transpose(0, 1);
}

}  // namespace

void LatentAttentionImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  check_count(kName, "num_heads", options.num_heads());
  check_length(kName, "q_lora_rank", options.q_lora_rank());
  check_positive(kName, "kv_lora_rank", options.kv_lora_rank());
  check_count(kName, "qk_nope_head_dim", options.qk_nope_head_dim());
  check_count(kName, "qk_rope_head_dim", options.qk_rope_head_dim());
  check_count(kName, "v_head_dim", options.v_head_dim());
  check_eps(kName, options.eps());
  check_attention_options(kName, options);

  const auto heads = options.num_heads(), rank = options.kv_lora_rank();
  const auto q_features = heads * (options.qk_nope_head_dim() + options.qk_rope_head_dim());
  const auto norm = [&](int64_t features) { return RMSNorm(RMSNormOptions(features).eps(options.eps())); };
  if (options.q_lora_rank() == 0) {
    q_proj = register_module("q_proj", linear_layer(options.emb_dim(), q_features, /*bias=*/false));
  } else {
    q_a_proj = register_module(
        "q_a_proj", linear_layer(options.emb_dim(), options.q_lora_rank(), options.attention_bias()));
    q_a_layernorm = register_module("q_a_layernorm", norm(options.q_lora_rank()));
    q_b_proj = register_module("q_b_proj", linear_layer(options.q_lora_rank(), q_features, /*bias=*/false));
  }
  kv_a_proj_with_mqa = register_module(
      "kv_a_proj_with_mqa",
      linear_layer(options.emb_dim(), rank + options.qk_rope_head_dim(), options.attention_bias()));
  kv_a_layernorm = register_module("kv_a_layernorm", norm(rank));
  kv_b_proj = register_module(
      "kv_b_proj",
      linear_layer(rank, heads * (options.qk_nope_head_dim() + options.v_head_dim()), /*bias=*/false));
  o_proj = register_module(
      "o_proj", linear_layer(heads * options.v_head_dim(), options.emb_dim(), options.attention_bias()));
  rotary = register_module(
      "rotary",
      RotaryPositions(RotaryPositionsOptions(options.rotary()).head_dim(options.qk_rope_head_dim())));
}

KVCacheOptions LatentAttentionImpl::cache_options(int64_t layers, int64_t batch) const {
  return {.layers = layers,
          .batch = batch,
          .num_kv_heads = 1,
          .head_dim = options.kv_lora_rank() + options.qk_rope_head_dim(),
          .dtype = kv_b_proj->weight.scalar_type(),
          .device = kv_b_proj->weight.device(),
          .values_in_keys = options.kv_lora_rank()};
}

LatentAttentionImpl::Projected LatentAttentionImpl::project_tokens(const at::Tensor& x, int64_t first) {
  const auto nope = options.qk_nope_head_dim(), rope = options.qk_rope_head_dim();
  const auto& query_layer = q_proj ? q_proj : q_a_proj;
  const auto projected = linears(batched(x), {{query_layer->weight, query_layer->bias},
                                              {kv_a_proj_with_mqa->weight, kv_a_proj_with_mqa->bias}});
  const auto q = split_heads(q_proj ? projected[0] : project(q_b_proj, q_a_layernorm->forward(projected[0])),
                             options.num_heads());
  const auto& kv = projected[1];
  const auto rank = options.kv_lora_rank();
  // The fused norm reads contiguous rows.
  const auto latent = kv.narrow(2, 0, rank);
  return {q.narrow(3, 0, nope), rotary->forward(q.narrow(3, nope, rope), first),
          kv_a_layernorm->forward(kv.requires_grad() ? latent : latent.contiguous()),
          rotary->forward(kv.narrow(2, rank, rope).unsqueeze(1), first)};
}

at::Tensor LatentAttentionImpl::attend_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const Mask& mask) {
  auto call = options.attention();
  if (!call.scale) {
    const auto mscale = rotary->mscale(options.rotary().mscale_all_dim());
    call.scale = mscale * mscale /
                 std::sqrt(static_cast<double>(options.qk_nope_head_dim() + options.qk_rope_head_dim()));
  }
  call.dropout_p = dropout_now(*this);
  AttentionExtras extras;
  extras.mask = mask;
  extras.caller = this;
  return attention(q, k, v, call, extras).output;
}

at::Tensor LatentAttentionImpl::attend_expanded(const Projected& tokens, const Mask& mask) {
  const auto heads = options.num_heads(), nope = options.qk_nope_head_dim();
  const auto kv = split_heads(project(kv_b_proj, tokens.latent), heads);
  const auto k_rope = tokens.k_rope.expand({-1, heads, -1, -1});
  return attend_heads(at::cat({tokens.q_nope, tokens.q_rope}, 3), at::cat({kv.narrow(3, 0, nope), k_rope}, 3),
                      kv.narrow(3, nope, options.v_head_dim()), mask);
}

at::Tensor LatentAttentionImpl::attend_absorbed(const Projected& tokens, const at::Tensor& keys,
                                                const Mask& mask) {
  const auto heads = options.num_heads(), nope = options.qk_nope_head_dim(), rank = options.kv_lora_rank();
  const auto weight = kv_b_proj->weight.view({heads, nope + options.v_head_dim(), rank});
  const auto q = times_matrix_of_head(tokens.q_nope, weight.narrow(1, 0, nope));
  const auto latents = attend_heads(at::cat({q, tokens.q_rope}, 3), keys, keys.narrow(3, 0, rank), mask);
  return times_matrix_of_head(latents, weight.narrow(1, nope, options.v_head_dim()).transpose(1, 2));
}

at::Tensor LatentAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  check_sequence(kName, "x", x, options.emb_dim(), kv_a_proj_with_mqa->weight);
  check_context(kName, x.size(-2), options.context_length());
  const auto heads = attend_expanded(project_tokens(x, 0), mask);
  return project_out(o_proj, {heads, /*weights=*/{}}, x).first;
}

at::Tensor LatentAttentionImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                               const Mask& mask) {
  const auto rank = options.kv_lora_rank(), rope = options.qk_rope_head_dim(),
             made = options.qk_nope_head_dim() + options.v_head_dim();
  const auto& sizes = cache.options();
  check_cached_attention(kName, options.attention(), cache, layer);
  TORCH_CHECK_VALUE(sizes.num_kv_heads == 1 && sizes.head_dim == rank + rope && sizes.values_in_keys == rank,
                    kName,
                    ": expected a cache of its cache_options(): num_kv_heads = 1, head_dim = ", rank + rope,
                    ", values_in_keys = ", rank, ", got ", sizes.num_kv_heads, ", ", sizes.head_dim, ", ",
                    sizes.values_in_keys);
  check_sequence(kName, "x", x, options.emb_dim(), kv_a_proj_with_mqa->weight);
  const auto first = cache.position(layer);
  check_context(kName, first + x.size(-2) - cache.least_padding(), options.context_length());

  auto tokens = project_tokens(x, first);
  const auto keys = cache.append(layer, at::cat({tokens.latent.unsqueeze(1), tokens.k_rope}, 3)).first;
  const auto seen = without_padding(mask, cache, layer);
  // Making keys and values takes rank * made products for each cached token and head; absorbed, each query
  // takes 2 * rank - made more for each.
  const bool expands = x.size(-2) * (2 * rank - made) > rank * made;
  at::Tensor heads;
  if (expands || is_adapted({{kv_b_proj->weight, kv_b_proj->bias}})) {
    tokens.latent = keys.squeeze(1).narrow(2, 0, rank);
    tokens.k_rope = keys.narrow(3, rank, rope);
    heads = attend_expanded(tokens, seen);
  } else {
    heads = attend_absorbed(tokens, keys, seen);
  }
  return project_out(o_proj, {heads, /*weights=*/{}}, x).first;
}

}  // namespace attentive
