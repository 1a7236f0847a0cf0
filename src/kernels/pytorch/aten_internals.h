#pragma once

// The fused attention kernels, which are ATen entries outside the documented API. They stand in this one
// file, so that a new LibTorch release is one place to look (tools/check_internals.py).

#include <array>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace attentive::kernels::aten {

struct FusedResult {
  at::Tensor output;     // (B, H, L, Dv)
  at::Tensor logsumexp;  // (B, H, L)
};

// q, k, v (B, H, L|S, D) with as many heads and last stride 1. `causal` is top-left. `mask`: added to the
// scores, dtype of q, (B|1, H|1, L, S). The output may be finite where a score is NaN or +inf; the logsumexp
// of such a row is not.
FusedResult flash_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                      const std::optional<at::Tensor>& mask, std::optional<double> scale);

// Gradients of q, k and v from that call's results.
std::array<at::Tensor, 3> flash_cpu_backward(const at::Tensor& grad_output, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const FusedResult& result, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale);

// CUDA, half types. Causal and window bounds (-1: none) are aligned bottom-right; H may be a multiple of Hkv.
FusedResult flash_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       int64_t window_left, int64_t window_right, double dropout_p,
                       std::optional<double> scale, const std::optional<at::Tensor>& alibi_slopes);

// CUDA, also float32. `causal` is top-left; as many heads for q, k and v.
FusedResult efficient_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                           double dropout_p, std::optional<double> scale, bool logsumexp);

}  // namespace attentive::kernels::aten
