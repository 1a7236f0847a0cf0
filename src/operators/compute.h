#pragma once

// The operators on tensors with memory.

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "operators/call_arguments.h"

namespace torch {
class Library;
}

namespace attentive::operators {

/// Registers the function gated_delta_rule, its gradients, and gated_delta_rule_.
void add_gated_delta_rule(torch::Library& library);

/// Inside an operator, only the arguments count. The inputs were cast before autograd saw the call; the
/// backward pass may run under another autocast mode. And torch.func.vmap calls an operator for each item
/// with its rules for random operators still set, which crash there.
struct Inside {
  const c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset |
                                                 c10::DispatchKeySet(c10::DispatchKey::FuncTorchVmapMode)};
};

/// Lets operations of this scope be recorded by autograd, although they run inside an operator.
class WithAutograd {
 public:
  WithAutograd()
      : guard_(keys().included_, keys().excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

 private:
  static c10::impl::LocalDispatchKeySet keys() { return c10::impl::tls_local_dispatch_key_set(); }
  c10::impl::ForceDispatchKeyGuard guard_;
  const at::AutoGradMode grad_mode_{true};
};

/// Computes a call without autograd.
Results forward(Kind kind, const CallArguments& call);

/// The gradients of a call from its results. Where the native kernel does not compute the call, it is
/// computed again with autograd.
Gradients backward(Kind kind, const BackwardArguments& arguments);

/// Gradients that can be differentiated again, by the definition, with O(L S) memory.
Gradients gradients_with_graph(Kind kind, const BackwardArguments& arguments);

// The operators that draw. PyTorch's compilers merge equal calls of every operator but its own random ones,
// and torch.func.vmap obeys its `randomness` in those alone. So these take a `salt`: the result, which may be
// empty, of one of those.

/// Draws the key of one call from a CPU generator; from the default one if none is given.
at::Tensor draw_dropout_key(const at::Tensor& salt, const std::optional<at::Generator>& generator);

/// The key of one call for the Aten stream: the state of the generator, which passes the numbers of the call.
/// `sizes`: of the weights, or with packed sequences the number of heads.
at::Tensor draw_dropout_state(const at::Tensor& salt, double dropout_p, at::IntArrayRef sizes,
                              const std::optional<at::Tensor>& cu_seqlens_q,
                              const std::optional<at::Tensor>& cu_seqlens_k,
                              const std::optional<at::Generator>& generator);

// Shapes and memory layouts that the operators promise, for tensors with memory and for those of symbolic
// size without.

/// An output of `attention`, (..., H, L, Dv), which lies in memory as (..., L, H, Dv), so that merging the
/// heads afterwards is a view. Without heads it is contiguous.
inline at::Tensor output_like(const at::Tensor& q, const at::Tensor& v) {
  c10::SymDimVector sizes(q.sym_sizes());
  sizes.back() = v.sym_size(-1);
  const auto rank = sizes.size();
  if (rank < 4) return at::empty_symint(sizes, q.options());
  std::swap(sizes[rank - 3], sizes[rank - 2]);
  return at::empty_symint(sizes, q.options()).transpose(-3, -2);
}

/// The place of a result that was not asked for.
inline at::Tensor nothing(const at::TensorOptions& options) {
  return at::empty({0}, options);
}

/// Returns x with the strides of at::empty_like(like), which are those of `like` itself if it has no gaps.
/// The stride of a dimension of one item says nothing about memory, so that it alone is no reason to copy.
inline at::Tensor laid_like(const at::Tensor& x, const at::Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const auto promised = dense ? like : at::empty_like(like);
  bool same = true;
  for (int64_t d = 0; d < x.dim(); ++d) same &= x.size(d) <= 1 || x.stride(d) == promised.stride(d);
  if (!same) return (dense ? at::empty_like(like) : promised).copy_(x);
  return x.strides() == promised.strides() ? x : x.as_strided(x.sizes(), promised.strides());
}

/// The dtype of a logsumexp.
inline at::ScalarType wide_type(const at::Tensor& q) {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The operators on tensors without memory, whose sizes may be symbolic.

/// Results and gradients of the shapes, dtypes and strides that `forward` and `backward` return.
Results shapes_of_results(Kind kind, const CallArguments& call);
Gradients shapes_of_gradients(const BackwardArguments& arguments);
at::Tensor shape_of_key(const at::Tensor& salt, const std::optional<at::Generator>& generator);
at::Tensor shape_of_state(const at::Tensor& salt, double dropout_p, c10::SymIntArrayRef sizes,
                          const std::optional<at::Tensor>& cu_seqlens_q,
                          const std::optional<at::Tensor>& cu_seqlens_k,
                          const std::optional<at::Generator>& generator);

// The operators under autograd and under autocast.

/// Kernels of the autograd keys. The backward operator can be differentiated again.
template <Kind kKind>
void forward_with_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack);
template <Kind kKind>
void backward_with_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Kernel of the autocast keys: q, k and v are cast.
template <Kind kKind>
void forward_with_autocast(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace attentive::operators
