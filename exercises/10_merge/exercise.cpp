#include <ATen/TensorOperators.h>

#include "task.h"

namespace exercises {

attentive::AttentionResult merge_halves(const attentive::AttentionResult& a,
                                        const attentive::AttentionResult& b) {
  attentive::AttentionResult result;
  // THE GAP: both halves count the same, however large their scores are.
  result.output = (a.output + b.output) / 2;
  result.logsumexp = (a.logsumexp.exp() + b.logsumexp.exp()).log();
  return result;
}

}  // namespace exercises
