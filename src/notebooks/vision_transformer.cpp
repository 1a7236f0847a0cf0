#include <ATen/ops/cat.h>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/notebooks/vision_transformer.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

void FusedSelfAttentionImpl::reset() {
  check_positive(kName, "embed_dim", options.embed_dim());
  check_heads(kName, "embed_dim", options.embed_dim(), options.num_heads());
  check_attention_options(kName, options);

  qkv =
      register_module("qkv", linear_layer(options.embed_dim(), 3 * options.embed_dim(), options.qkv_bias()));
  proj = register_module("proj", linear_layer(options.embed_dim(), options.embed_dim()));
}

std::pair<at::Tensor, at::Tensor> FusedSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                               const Mask& mask,
                                                                               Weights which) {
  check_sequence(kName, "x", x, options.embed_dim(), qkv->weight);
  const auto packed = project(qkv, batched(x)).chunk(3, 2);
  const auto heads = [&](size_t part) { return split_heads(packed[part], options.num_heads()); };
  return project_out(proj, attend(*this, heads(0), heads(1), heads(2), mask, which), x);
}

at::Tensor pack_qkv(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  check_defined("pack_qkv", "query", query);
  check_defined("pack_qkv", "key", key);
  check_defined("pack_qkv", "value", value);
  TORCH_CHECK_VALUE(query.dim() > 0 && key.sizes() == query.sizes() && value.sizes() == query.sizes(),
                    "pack_qkv: expected three tensors of one shape, got ", shape_string(query.sizes()), ", ",
                    shape_string(key.sizes()), ", ", shape_string(value.sizes()));
  return at::cat({query, key, value}, 0);
}

std::array<at::Tensor, 3> unpack_qkv(const at::Tensor& packed) {
  check_defined("unpack_qkv", "packed", packed);
  TORCH_CHECK_VALUE(packed.dim() > 0 && packed.size(0) > 0 && packed.size(0) % 3 == 0,
                    "unpack_qkv: expected a first size that 3 divides, got ", shape_string(packed.sizes()));
  const auto parts = packed.chunk(3, 0);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace attentive
