#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace attentive {

/// How the losses of tokens become the result. Mean is over the tokens that are not ignored.
enum class LossReduction { None, Mean, Sum };
std::string_view to_string(LossReduction value);

/// The options of `linear_cross_entropy`.
struct LinearCrossEntropyOptions {
  at::Tensor bias = {};         ///< (vocabulary), added to the logits; undefined: none
  int64_t ignore_index = -100;  ///< tokens with this target count for nothing
  LossReduction reduction = LossReduction::Mean;
  /// The share, in [0, 1], of each target that is spread evenly over the vocabulary.
  double label_smoothing = 0.0;
  /// The factor of logsumexp², which is added to the loss of each token and keeps logits from growing.
  double z_loss = 0.0;
  std::optional<double> softcap = std::nullopt;  ///< logits become softcap · tanh(logits / softcap)
};

/// The cross-entropy of logits = hidden weightᵀ + bias, in nats, without ever holding all logits.
///
///   hidden (..., width), weight (vocabulary, width), targets (...) in [0, vocabulary) or ignore_index
///     -> (), or with LossReduction::None the shape of targets
///
/// The value is that of `cross_entropy(linear(hidden, weight, bias), targets)`, up to rounding; logits are
/// computed for 256 tokens at a time. With Mean or Sum, the call also computes the gradients, in the three
/// matrix products that the composed call needs; the backward pass multiplies them by the incoming gradient.
/// A second backward pass over a retained graph, and any backward pass after None, computes the logits again
/// (a fourth product). Without gradients, only the loss is computed; a frozen weight costs no product.
///
/// - Ignored tokens take no time; their rows of hidden may hold NaN and get zero gradients. If every token is
///   ignored, a mean is NaN and its gradients are zero, as in PyTorch.
/// - float64 and float32 compute in their own precision. With bfloat16 and float16, logits and their
///   gradients are rounded to that type, as in the composed call, unless this CPU multiplies float32 faster;
///   losses and sums over chunks of tokens are float32, and so is the result, because a sum of losses may
///   exceed float16; gradients are rounded once.
/// - Under autocast, products are computed in its dtype. The gradient of a float32 weight is summed in
///   float32.
/// - Bits depend on the number of threads, as those of LibTorch's products do; where chunks begin does not.
/// - Gradients can be differentiated again, in O(tokens · vocabulary) memory.
///
/// Throws c10::ValueError for shapes that do not fit, a target out of range (checked on the host, so that on
/// CUDA the call waits for the device), label_smoothing outside [0, 1], a z_loss that is negative or not
/// finite, and a softcap that is not positive; c10::TypeError for dtypes: hidden, weight and bias must have
/// the same one, except under autocast.
/// Memory: O(256 · vocabulary) beyond inputs and gradients. For a weight of a half type also its gradient in
/// float32, and a copy of weight if its dtype differs from the products'.
/// Source: Hsu et al. 2024, "Liger Kernel", section 3.2; z_loss: Chowdhery et al. 2022, "PaLM", section 5.
///
///   auto loss = attentive::linear_cross_entropy(hidden, head->weight, targets, {.ignore_index = 0});
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options = {});

}  // namespace attentive
