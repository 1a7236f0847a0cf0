// This source is compiled without fused multiply-add: subtracting a rounded maximum from an unrounded one
// would leave a difference as large as its last digit.

#include "kernels/attention/passes.h"

namespace attentive::kernels::cpu {
namespace {

float natural(const Call& call, int64_t b, int64_t h, float maximum) {
  return maximum * call.rule_of(b, h).to_natural(static_cast<bool>(call.bias));
}

}  // namespace

RowEnd end_of_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total) {
  if (total == 0.0f && !call.sees_a_key(b, h, i)) return {};
  // Weights that are scores need no factor; only a row without keys has none.
  if (!call.normalise) return {.factor = 1.0f, .top = 0.0f, .total = 1.0f, .above = 0.0f, .maximum = 0.0f};
  const float sink = call.sinks ? call.sinks[h] : -kInfinity;
  return kernels::end_of_row(natural(call, b, h, maximum), total, sink, maximum);
}

float sink_weight(const Call& call, int64_t b, int64_t h, float maximum, float log_total) {
  return kernels::sink_weight(call.sinks[h], natural(call, b, h, maximum), log_total);
}

}  // namespace attentive::kernels::cpu
