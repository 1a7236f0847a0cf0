#pragma once

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention.h>

namespace exercises {

/// A score function and a mask function for a call of `attention`, as `score` and `block_mask`.
///
///   table (H, D), float32: the score of head h grows by table[h][d], where d is the distance between the
///     query's position and the key's; pairs that are D - 1 or more apart take the last number of the head.
///     Gradients flow to it.
///   documents (S), integers: a query sees the keys of its own document, whose number is the same.
attentive::AttentionExtras user_functions(const at::Tensor& table, const at::Tensor& documents);

}  // namespace exercises
