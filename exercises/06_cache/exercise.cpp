#include <attentive/functional/attention.h>

#include "task.h"

namespace exercises {

at::Tensor step(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  // THE GAP: every step forgets the steps before it.
  cache = {k, v};
  return attentive::attention(q, cache.k, cache.v, {.causal = attentive::Causal::TopLeft});
}

}  // namespace exercises
