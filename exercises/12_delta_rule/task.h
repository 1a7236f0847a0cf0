#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace exercises {

/// The gated delta rule of one head, token by token: returns the outputs (T, Dv), and the state (Dk, Dv)
/// after the last token.
///
///   q, k (T, Dk), v (T, Dv); gate (T), logarithms, at most 0; beta (T); state (Dk, Dv) before the tokens
///
/// Token t multiplies the state by exp(gate[t]). Then beta[t] says by how much the state's answer to the key
/// k[t] moves towards v[t], along this key. Last, the state answers q[t].
std::pair<at::Tensor, at::Tensor> delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& gate, const at::Tensor& beta,
                                             at::Tensor state);

}  // namespace exercises
