// Compiled without fused products: a rounded maximum, taken from an exact one, would leave a difference as
// large as its last digit.

#include "kernels/cpu/row_end.h"

namespace attentive::kernels::cpu {
namespace {

float natural(const Call& call, int64_t b, int64_t h, float maximum) {
  return maximum * call.rule_of(b, h).to_natural(static_cast<bool>(call.bias));
}

// No key has any weight: there is none, or every score is -inf. Then the weights are 0 / 0, unless a sink
// takes all.
RowEnd end_without_total(const Call& call, int64_t b, int64_t h, int64_t i) {
  RowEnd end;
  if (!call.sees_a_key(b, h, i)) return end;
  if (call.sinks && call.sinks[h] != -kInfinity) {
    end.top = end.above = call.sinks[h];
  } else {
    end.factor = end.maximum = std::nanf("");
  }
  return end;
}

}  // namespace

RowEnd end_of_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total) {
  if (total == 0.0f) return end_without_total(call, b, h, i);
  const float largest = natural(call, b, h, maximum);
  if (!call.sinks) return {1.0f / total, largest, total, maximum, 0.0f};
  // The sink joins at the end as one more logit whose value is zero.
  const float sink = call.sinks[h];
  if (sink == kInfinity) return {0.0f, kInfinity, 1.0f, maximum, kInfinity};
  const float top = std::max(largest, sink), shrink = std::exp(largest - top);
  total = total * shrink + std::exp(sink - top);
  return {shrink / total, top, total, maximum, top - largest};
}

float sink_weight(const Call& call, int64_t b, int64_t h, float maximum, float log_total) {
  if (log_total == kInfinity) return 0.0f;  // no keys, or a sink of +inf, which is a constant
  return std::exp(call.sinks[h] - natural(call, b, h, maximum) - log_total);
}

}  // namespace attentive::kernels::cpu
