#pragma once

// Options and masks of small layers.

#include <ATen/ops/full.h>

#include <attentive/compat/transformer_layers.h>

namespace attentive::test {

inline at::Tensor bools(at::IntArrayRef sizes, bool value = false) {
  return at::full(sizes, value, at::kBool);
}

inline compat::TransformerLayerOptions small() {
  return compat::TransformerLayerOptions(6, 2).dim_feedforward(5).dropout(0.25).batch_first(true);
}

}  // namespace attentive::test
