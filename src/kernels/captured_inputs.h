#pragma once

// The tensors that a problem's own score and mask function captured, in the types that vector code reads.

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/score/pair_functions.h>

#include "kernels/problem.h"

namespace attentive::kernels {

/// A captured tensor of a call.
struct CapturedInput {
  std::shared_ptr<const detail::CapturedTensor> owner;
  at::Tensor numbers;  ///< float32, or int32 for indices
};

/// The captured tensors of a problem's functions that need a view, each once. Throws c10::ValueError for a
/// number of `captured_indices` beyond int32, and for a tensor that is not on the CPU.
std::vector<CapturedInput> captured_inputs(const Problem& problem);

/// How vector code reads these tensors; they must live as long.
std::vector<detail::CapturedView> captured_views(const std::vector<CapturedInput>& inputs);

}  // namespace attentive::kernels
