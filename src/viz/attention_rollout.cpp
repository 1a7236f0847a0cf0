#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>

#include <attentive/viz/attention_rollout.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "viz/checked_view.h"

namespace attentive {
namespace {

constexpr const char* kAttentionRollout = "attention_rollout";

// The contribution of a layer with a residual branch: a matrix (T, T) whose rows sum to 1.
at::Tensor passed_on(const RecordedAttention& call) {
  const auto mean = call.weights()[0].mean(0).to(at::kCPU, at::kDouble);
  const auto mixed = (mean + at::eye(mean.size(0), mean.options())) / 2;
  return mixed / mixed.sum(1, /*keepdim=*/true);
}

}  // namespace

std::vector<at::Tensor> attention_rollout(const std::vector<RecordedAttention>& calls, int64_t batch) {
  const KeptTensors normal;
  std::vector<at::Tensor> rollouts;
  at::Tensor product;  // of the layers so far
  for (const auto& call : calls) {
    const auto item = viz::batch_item(kAttentionRollout, call, batch);
    const auto tokens = product.defined() ? product.size(0) : item.q.size(2);
    TORCH_CHECK_VALUE(tokens > 0 && item.q.size(2) == tokens && item.k.size(2) == tokens, kAttentionRollout,
                      ": ", call.path, ": expected self-attention over ", tokens, " tokens, got ",
                      item.q.size(2), " queries and ", item.k.size(2), " keys");
    const auto layer = passed_on(item);
    product = product.defined() ? at::matmul(layer, product) : layer;
    rollouts.push_back(product[0].to(at::kFloat).contiguous());
  }
  return rollouts;
}

}  // namespace attentive
