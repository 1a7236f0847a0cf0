#include <attentive/notebooks/attention_blog.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

void SharedHeadAttentionImpl::reset() {
  check_positive(kName, "embed_size", options.embed_size());
  check_heads(kName, "embed_size", options.embed_size(), options.heads(), "heads");
  check_attention_options(kName, options);

  const int64_t head_dim = options.embed_size() / options.heads();
  const auto shared = torch::nn::LinearOptions(head_dim, head_dim).bias(false);
  values = register_module("values", linear_layer(shared));
  keys = register_module("keys", linear_layer(shared));
  queries = register_module("queries", linear_layer(shared));
  fc_out = register_module("fc_out", linear_layer(options.embed_size(), options.embed_size()));
}

std::pair<at::Tensor, at::Tensor> SharedHeadAttentionImpl::forward_with_weights(const at::Tensor& values_,
                                                                                const at::Tensor& keys_,
                                                                                const at::Tensor& query,
                                                                                const Mask& mask,
                                                                                Weights which) {
  check_sequence(kName, "values", values_, options.embed_size(), fc_out->weight);
  check_sequence(kName, "keys", keys_, options.embed_size(), fc_out->weight);
  check_sequence(kName, "query", query, options.embed_size(), fc_out->weight);
  check_same_batch(kName, "values", values_, "query", query);
  check_same_batch(kName, "keys", keys_, "query", query);
  TORCH_CHECK_VALUE(values_.size(-2) == keys_.size(-2), kName, ": expected as many values as keys, got ",
                    values_.size(-2), " and ", keys_.size(-2));

  // The heads are split before the projection, because one small layer projects every head.
  const auto heads = [&](const torch::nn::Linear& layer, const at::Tensor& x) {
    return project(layer, batched(x).unflatten(2, {options.heads(), -1})).transpose(1, 2);
  };
  const auto attended =
      attend(*this, heads(queries, query), heads(keys, keys_), heads(values, values_), mask, which);
  return project_out(fc_out, attended, query);
}

}  // namespace attentive
