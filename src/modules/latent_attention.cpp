#include <cmath>

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
  const auto linear = [&](const char* name, int64_t from, int64_t to, bool bias) {
    return register_module(name, linear_layer(from, to, bias));
  };
  const auto norm = [&](const char* name, int64_t features) {
    return register_module(name, RMSNorm(RMSNormOptions(features).eps(options.eps())));
  };
  if (options.q_lora_rank() == 0) {
    q_proj = linear("q_proj", options.emb_dim(), q_features, false);
  } else {
    q_a_proj = linear("q_a_proj", options.emb_dim(), options.q_lora_rank(), options.attention_bias());
    q_a_layernorm = norm("q_a_layernorm", options.q_lora_rank());
    q_b_proj = linear("q_b_proj", options.q_lora_rank(), q_features, false);
  }
  kv_a_proj_with_mqa = linear("kv_a_proj_with_mqa", options.emb_dim(), rank + options.qk_rope_head_dim(),
                              options.attention_bias());
  kv_a_layernorm = norm("kv_a_layernorm", rank);
  kv_b_proj = linear("kv_b_proj", rank, heads * (options.qk_nope_head_dim() + options.v_head_dim()), false);
  o_proj = linear("o_proj", heads * options.v_head_dim(), options.emb_dim(), options.attention_bias());
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

at::Tensor LatentAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  check_sequence(kName, "x", x, options.emb_dim(), kv_a_proj_with_mqa->weight);
  check_context(kName, x.size(-2), options.context_length());
  return project_out(o_proj, {attended(x, nullptr, 0, mask), /*weights=*/{}}, x).first;
}

at::Tensor LatentAttentionImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                               const Mask& mask) {
  const auto rank = options.kv_lora_rank(), rope = options.qk_rope_head_dim();
  const auto& sizes = cache.options();
  check_cached_attention(kName, options.attention(), cache, layer);
  TORCH_CHECK_VALUE(sizes.num_kv_heads == 1 && sizes.head_dim == rank + rope && sizes.values_in_keys == rank,
                    kName,
                    ": expected a cache of its cache_options(): num_kv_heads = 1, head_dim = ", rank + rope,
                    ", values_in_keys = ", rank, ", got ", sizes.num_kv_heads, ", ", sizes.head_dim, ", ",
                    sizes.values_in_keys);
  check_sequence(kName, "x", x, options.emb_dim(), kv_a_proj_with_mqa->weight);
  check_context(kName, cache.position(layer) + x.size(-2) - cache.least_padding(), options.context_length());
  return project_out(o_proj, {attended(x, &cache, layer, mask), /*weights=*/{}}, x).first;
}

at::Tensor LatentAttentionImpl::attended(const at::Tensor& x, KVCache* cache, int64_t layer,
                                         const Mask& mask) {
  const auto heads = options.num_heads(), nope = options.qk_nope_head_dim(),
             rope = options.qk_rope_head_dim(), value = options.v_head_dim(), rank = options.kv_lora_rank();
  const auto first = cache ? cache->position(layer) : 0;
  const auto& query_layer = q_proj ? q_proj : q_a_proj;
  const auto projected = linears(batched(x), {{query_layer->weight, query_layer->bias},
                                              {kv_a_proj_with_mqa->weight, kv_a_proj_with_mqa->bias}});
  const auto queries =
      split_heads(q_proj ? projected[0] : project(q_b_proj, q_a_layernorm->forward(projected[0])), heads);
  const auto q_nope = queries.narrow(3, 0, nope),
             q_rope = rotary->forward(queries.narrow(3, nope, rope), first);
  auto latent = projected[1].narrow(2, 0, rank);
  // The fused norm reads contiguous rows.
  latent = kv_a_layernorm->forward(latent.requires_grad() ? latent : latent.contiguous());
  auto k_rope = rotary->forward(projected[1].narrow(2, rank, rope).unsqueeze(1), first);

  AttentionExtras extras;
  extras.mask = mask;
  extras.caller = this;
  at::Tensor q, k, v;
  bool absorbs = false;
  if (cache) {
    k = cache->append(layer, at::cat({latent.unsqueeze(1), k_rope}, 3)).first;
    extras.mask = without_padding(mask, *cache, layer);
    // Making keys and values takes rank * made products for each cached token and head; absorbed, each query
    // takes 2 * rank - made more for each.
    const auto made = nope + value;
    absorbs =
        x.size(-2) * (2 * rank - made) <= rank * made && !is_adapted({{kv_b_proj->weight, kv_b_proj->bias}});
    latent = k.squeeze(1).narrow(2, 0, rank);
    k_rope = k.narrow(3, rank, rope);
  }
  const auto rows_of_heads = [&](int64_t begin, int64_t count) {
    return kv_b_proj->weight.view({heads, nope + value, rank}).narrow(1, begin, count);
  };
  if (absorbs) {
    q = at::cat({times_matrix_of_head(q_nope, rows_of_heads(0, nope)), q_rope}, 3);
    v = k.narrow(3, 0, rank);
  } else {
    const auto kv = split_heads(project(kv_b_proj, latent), heads);
    q = at::cat({q_nope, q_rope}, 3);
    k = at::cat({kv.narrow(3, 0, nope), k_rope.expand({-1, heads, -1, -1})}, 3);
    v = kv.narrow(3, nope, value);
  }

  auto call = options.attention();
  if (!call.scale) {
    const auto mscale = rotary->mscale(options.rotary().mscale_all_dim());
    call.scale = mscale * mscale / std::sqrt(static_cast<double>(nope + rope));
  }
  call.dropout_p = dropout_now(*this);
  const auto output = attention(q, k, v, call, extras).output;
  return absorbs ? times_matrix_of_head(output, rows_of_heads(nope, value).transpose(1, 2)) : output;
}

}  // namespace attentive
