#pragma once

// The fused attention kernels, which are ATen functions outside the documented API, and a node of autograd's
// graph. All uses are in this one file, the only place to check for a new LibTorch release
// (tools/checks/check_internals.py).

#include <array>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace attentive::kernels::aten {

/// The leaf into whose gradient a node adds; undefined for any other node.
at::Tensor leaf_of(const torch::autograd::Node& node);

struct FusedResult {
  at::Tensor output;     ///< (B, H, L, Dv)
  at::Tensor logsumexp;  ///< (B, H, L)
};

/// q, k, v (B, H, L|S, D) have the same number of heads and last stride 1. `causal` is aligned top-left.
/// `mask` (B|1, H|1, L, S), of the dtype of q, is added to the scores. The output may be finite where a score
/// is NaN or +inf; the logsumexp of such a row is not.
FusedResult flash_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                      const std::optional<at::Tensor>& mask, std::optional<double> scale);

/// The gradients of q, k and v, from the result of `flash_cpu`.
std::array<at::Tensor, 3> flash_cpu_backward(const at::Tensor& grad_output, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const FusedResult& result, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale);

/// Whether this thread is in one of the two functions above. Their operators stay PyTorch's even if
/// attentive::accelerate computes the same operators for others.
bool in_flash_cpu();

/// FlashAttention on CUDA, for half types. Causal and window bounds (-1: none) are aligned bottom-right; H
/// may be a multiple of Hkv. The kernel reads 16 bytes at a time: rows of q, k and v begin at multiples of
/// that. The logsumexp is undefined unless it is asked for.
FusedResult flash_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       int64_t window_left, int64_t window_right, double dropout_p,
                       std::optional<double> scale, bool logsumexp);

/// Whether PyTorch itself would compute this call on CUDA, without a mask or dropout, by cuDNN's attention.
/// `causal` is aligned top-left; q, k and v have the same number of heads.
bool prefers_cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                   std::optional<double> scale);

/// The output of cuDNN's attention, for a call that `prefers_cudnn`. Without `for_backward`, the output has
/// no derivative.
FusedResult cudnn_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       std::optional<double> scale, bool for_backward);

/// Memory-efficient attention on CUDA, also for float32. `causal` is aligned top-left; q, k and v have the
/// same number of heads, and rows that begin at multiples of 16 bytes. The logsumexp is undefined unless it
/// is asked for. Without `for_backward`, the output has no derivative.
FusedResult efficient_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                           double dropout_p, std::optional<double> scale, bool logsumexp, bool for_backward);

}  // namespace attentive::kernels::aten
