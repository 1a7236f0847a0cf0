#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>

#include "10_merge/task.h"

namespace exercises {

attentive::AttentionResult merge_halves(const attentive::AttentionResult& a,
                                        const attentive::AttentionResult& b) {
  const auto top = at::maximum(a.logsumexp, b.logsumexp);
  const auto finite_top = top.masked_fill(top.isinf(), 0.0);  // a query without any key: no inf - inf
  const auto share_a = (a.logsumexp - finite_top).exp(), share_b = (b.logsumexp - finite_top).exp();
  const auto total = share_a + share_b;
  const auto divisor = total.masked_fill(total.eq(0), 1.0);
  attentive::AttentionResult result;
  result.output = (share_a / divisor).unsqueeze(-1) * a.output + (share_b / divisor).unsqueeze(-1) * b.output;
  result.logsumexp = finite_top + total.log();
  return result;
}

}  // namespace exercises
