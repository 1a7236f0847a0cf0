#pragma once

#include <attentive/core/mask.h>

namespace exercises {

/// What a language model may see in training: of T tokens, each sees itself and the tokens before it, if they
/// are of the same document and are not padding.
///
///   lengths (B)    how many tokens of each sequence are real
///   documents (T)  the number of the document that each token belongs to
attentive::Mask training_mask(const at::Tensor& lengths, const at::Tensor& documents);

}  // namespace exercises
