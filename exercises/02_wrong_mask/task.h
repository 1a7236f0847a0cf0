#pragma once

#include <attentive/core/mask.h>

namespace exercises {

/// The mask of a language model in training: each of T tokens sees itself and the tokens before it, provided
/// that they belong to the same document and are not padding.
///
///   lengths (B)    how many tokens of each sequence are real
///   documents (T)  the number of the document that each token belongs to
attentive::Mask training_mask(const at::Tensor& lengths, const at::Tensor& documents);

}  // namespace exercises
