#include "kernels/pytorch/aten_internals.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/SDPBackend.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "core/normal_tensors.h"

namespace attentive::kernels::aten {
namespace {

constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

thread_local bool flash_cpu_runs = false;

class FlashCpuScope {
 public:
  FlashCpuScope() : before_(std::exchange(flash_cpu_runs, true)) {}
  ~FlashCpuScope() { flash_cpu_runs = before_; }
  FlashCpuScope(const FlashCpuScope&) = delete;
  FlashCpuScope& operator=(const FlashCpuScope&) = delete;

 private:
  bool before_;
};

// A mask that adds zero to every score.
const at::Tensor& zero_of(at::ScalarType type) {
  static const auto zeros = [] {
    const NormalTensorsGuard kept;
    std::array<at::Tensor, 4> made;
    std::transform(kTypes.begin(), kTypes.end(), made.begin(), [](at::ScalarType one) {
      return at::zeros({1, 1, 1, 1}, one);
    });
    return made;
  }();
  return zeros[static_cast<size_t>(std::find(kTypes.begin(), kTypes.end(), type) - kTypes.begin())];
}

}  // namespace

at::Tensor leaf_of(const torch::autograd::Node& node) {
  const auto* of_leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return of_leaf ? of_leaf->variable : at::Tensor();
}

FusedResult flash_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                      const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const FlashCpuScope scope;
  // Without a mask, the kernel ignores NaN scores in the partial vector of keys at the end of a row if that
  // vector holds nothing else. With a mask, the maximum of such a row becomes NaN.
  const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      q, k, v, /*dropout_p=*/0.0, causal, mask ? *mask : zero_of(q.scalar_type()), scale);
  return {output, logsumexp};
}

std::array<at::Tensor, 3> flash_cpu_backward(const at::Tensor& grad_output, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const FusedResult& result, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale) {
  const FlashCpuScope scope;
  const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_output, q, k, v, result.output, result.logsumexp, /*dropout_p=*/0.0, causal, mask, scale);
  return {grad_q, grad_k, grad_v};
}

bool in_flash_cpu() {
  return flash_cpu_runs;
}

FusedResult flash_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       int64_t window_left, int64_t window_right, double dropout_p,
                       std::optional<double> scale, bool logsumexp) {
  const auto bound = [](int64_t value) { return value < 0 ? std::nullopt : std::optional<int64_t>(value); };
  const auto result = at::_flash_attention_forward(
      q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), /*cum_seq_q=*/std::optional<at::Tensor>(),
      /*cum_seq_k=*/std::optional<at::Tensor>(), q.size(2), k.size(2), dropout_p, causal,
      /*return_debug_mask=*/false, scale, bound(window_left), bound(window_right));
  const auto output = std::get<0>(result).transpose(1, 2);
  if (!logsumexp) return {output, {}};
  // The kernel returns +inf for a row without keys.
  const auto& lse = std::get<1>(result);
  return {output, lse.masked_fill(lse.eq(std::numeric_limits<double>::infinity()),
                                  -std::numeric_limits<double>::infinity())};
}

bool prefers_cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                   std::optional<double> scale) {
  const auto choice =
      at::_fused_sdp_choice(q, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0, causal, scale);
  return choice == static_cast<int64_t>(at::SDPBackend::cudnn_attention);
}

FusedResult cudnn_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       std::optional<double> scale, bool for_backward) {
  const auto result =
      at::_scaled_dot_product_cudnn_attention(q, k, v, /*attn_bias=*/std::nullopt, for_backward,
                                              /*dropout_p=*/0.0, causal,
                                              /*return_debug_mask=*/false, scale);
  return {std::get<0>(result), {}};
}

FusedResult efficient_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                           double dropout_p, std::optional<double> scale, bool logsumexp, bool for_backward) {
  const auto result = at::_scaled_dot_product_efficient_attention(
      q, k, v, /*attn_bias=*/std::nullopt, logsumexp || for_backward, dropout_p, causal, scale);
  // The statistics are padded to a multiple of the kernel's block of rows.
  return {std::get<0>(result), logsumexp ? std::get<1>(result).slice(2, 0, q.size(2)) : at::Tensor()};
}

}  // namespace attentive::kernels::aten
