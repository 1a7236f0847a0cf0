#include <ATen/ops/cat.h>

#include <attentive/functional/attention.h>

#include "06_cache/task.h"

namespace exercises {

at::Tensor step(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  cache = cache.k.defined() ? Cache{at::cat({cache.k, k}, 2), at::cat({cache.v, v}, 2)} : Cache{k, v};
  return attentive::attention(q, cache.k, cache.v, {.causal = attentive::Causal::BottomRight});
}

}  // namespace exercises
