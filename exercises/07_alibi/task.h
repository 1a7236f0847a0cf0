#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// The bias of ALiBi, which is added to the scores: slopes (H) -> (H, L, S). Head h adds -slopes[h] times the
/// distance between the query's position and the key's. The last query has the position of the last key.
at::Tensor alibi_bias(const at::Tensor& slopes, int64_t L, int64_t S);

}  // namespace exercises
