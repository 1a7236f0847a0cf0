#pragma once

// Converts a problem to the form that this package's own kernels read, on the CPU and on CUDA.

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/score/score_callbacks.h>

#include "kernels/problem.h"

namespace attentive::kernels {

/// A tensor that a program's score or mask function captured.
struct CapturedInput {
  std::shared_ptr<const detail::CapturedTensor> owner;
  at::Tensor numbers;  ///< float32, or int32 for indices, contiguous
};

/// The tensors that a call points to; undefined if there is none.
struct CallTensors {
  at::Tensor q, k, v;  ///< of the CPU kernel: with contiguous rows
  at::Tensor keep;     ///< bool (B, H, L, S), strides of 0 where it is broadcast
  at::Tensor bias;     ///< float or a half type (B, H, L, S), likewise
  at::Tensor slopes;   ///< float (B, H)
  at::Tensor lengths;  ///< int64 (B), contiguous
  at::Tensor sinks;    ///< float (H), contiguous
  std::vector<CapturedInput> captured;
  std::vector<detail::CapturedView> views;  ///< how vector code reads `captured`
  /// The classes of the mask's tiles, of each sequence if the call is packed. Null: not classified.
  std::vector<std::shared_ptr<const detail::BlockClasses>> blocks;

  /// Calls visit(tensor) for the tensors that autograd saves. It raises an error if one of them is changed
  /// before the backward pass.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (auto* tensor : {&q, &k, &v, &keep, &bias, &slopes, &lengths, &sinks}) visit(*tensor);
    for (auto& input : captured) visit(input.numbers);
  }
};

/// The numbers of a tensor, which T has to fit, and which are only read if T is const; null for none.
template <class T>
T* data_of(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  if constexpr (std::is_const_v<T>) {
    return static_cast<T*>(x.const_data_ptr());
  } else {
    return static_cast<T*>(x.mutable_data_ptr());
  }
}

/// Likewise a view of a tensor (B, H, T) or (B, H, T, D), of which rows are contiguous.
template <class T>
Strided<T> rows_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {data_of<T>(x), x.stride(0), x.stride(1), x.stride(2)};
}

/// Moves the tensors out of such slots into a list for save_for_backward, and back from it.
template <class Slots>
std::vector<at::Tensor> save(Slots& slots) {
  std::vector<at::Tensor> saved;
  slots.for_each([&](at::Tensor& slot) { saved.push_back(std::exchange(slot, {})); });
  return saved;
}
template <class Slots>
void load(Slots& slots, const std::vector<at::Tensor>& saved) {
  auto next = saved.begin();
  slots.for_each([&](at::Tensor& slot) { slot = *next++; });
}

/// The dropout key of a problem, drawn from its generator unless the problem already has one; 0 without
/// dropout.
uint64_t dropout_key_of(const Problem& problem);

/// The element types of biases that a kernel reads; a bias of another one is converted to float32.
enum class Biases { Float32, HalfTypes };

/// The masks, slopes and sinks of a problem. With `for_backward`, the caller may change the tensors
/// afterwards: autograd detects a changed mask of pairs, and everything smaller is copied, so that a buffer
/// of lengths may be refilled for the next forward pass. Inference tensors are copied as well, since they
/// have no version counter.
CallTensors mask_tensors_of(const Problem& problem, Biases read, bool for_backward);

/// The captured tensors of a problem's functions that need a view, each once. Throws c10::ValueError for a
/// number of `captured_indices` beyond int32, and for a tensor that is not on the CPU.
std::vector<CapturedInput> captured_inputs(const Problem& problem);

/// The call that a problem makes, which does not point to tensors yet.
Call call_of(const Problem& problem, uint64_t dropout_key);

/// Makes the rows of q, k, v, an output or an incoming gradient contiguous, as the CPU kernel reads them.
at::Tensor with_unit_stride(const at::Tensor& x);

/// Points a call to its tensors, after giving those the strides that the kernels rely on. Hooks of saved
/// tensors may return copies with other strides than were saved.
void point_to(Call& call, CallTensors& tensors);

/// The element type of float32 and the half types.
Element element_of(at::ScalarType type);

}  // namespace attentive::kernels
