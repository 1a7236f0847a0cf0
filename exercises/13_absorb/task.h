#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

// Latent attention makes the key and the value of a head from the latent of a token, R numbers: the key by
// the head's matrix of key_weight (H, N, R), the value by that of value_weight (H, V, R). A cache holds the
// latents. These functions attend over them without making a key or a value.

/// Queries (H, L, N) of keys -> queries (H, L, R) of latents, with the same scores.
at::Tensor queries_of_latents(const at::Tensor& q, const at::Tensor& key_weight);

/// Averages (H, L, R) of latents -> the averages (H, L, V) of the values that these latents make.
at::Tensor values_of_latents(const at::Tensor& averages, const at::Tensor& value_weight);

/// The factor of the scores, for keys of `nope` features and `rope` rotated ones, made of `rank` features.
double score_scale(int64_t nope, int64_t rope, int64_t rank);

}  // namespace exercises
