#include "support/naive_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace attentive::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor as_double(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() ? tensor.detach().to(at::kCPU, at::kDouble).expand(sizes).contiguous() : tensor;
}

}  // namespace

AttentionResult naive_attention(const NaiveCall& call) {
  const int64_t B = call.q.size(0), H = call.q.size(1), L = call.q.size(2), D = call.q.size(3);
  const int64_t S = call.k.size(2), Dv = call.v.size(3), group = H / std::max<int64_t>(call.k.size(1), 1);
  const auto q = as_double(call.q, call.q.sizes()), k = as_double(call.k, call.k.sizes()),
             v = as_double(call.v, call.v.sizes());
  const auto keep = as_double(call.keep, {B, H, L, S}), bias = as_double(call.bias, {B, H, L, S}),
             survivors = as_double(call.survivors, {B, H, L, S});
  const auto slopes = as_double(call.slopes, {H}), sinks = as_double(call.sinks, {H});
  const auto& options = call.options;
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(D)));

  AttentionResult result{at::zeros({B, H, L, Dv}, at::kDouble), at::zeros({B, H, L, S}, at::kDouble),
                         at::full({B, H, L}, -kInfinity, at::kDouble)};
  auto qa = q.accessor<double, 4>(), ka = k.accessor<double, 4>(), va = v.accessor<double, 4>();
  auto out = result.output.accessor<double, 4>(), weights = result.weights.accessor<double, 4>();
  auto lse = result.logsumexp.accessor<double, 3>();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = 0; i < L; ++i) {
        std::vector<double> score(S, -kInfinity);
        std::vector<bool> seen(S, false);
        double largest = -kInfinity;
        const int64_t aligned = i + S - L;
        for (int64_t j = 0; j < S; ++j) {
          bool visible = true;
          if (options.causal == Causal::BottomRight) visible = visible && j <= aligned;
          if (options.causal == Causal::TopLeft) visible = visible && j <= i;
          if (options.window.left >= 0) visible = visible && j >= aligned - options.window.left;
          if (options.window.right >= 0) visible = visible && j <= aligned + options.window.right;
          if (keep.defined()) visible = visible && keep.accessor<double, 4>()[b][h][i][j] != 0.0;
          if (bias.defined()) visible = visible && bias.accessor<double, 4>()[b][h][i][j] != -kInfinity;
          if (!visible) continue;
          double s = 0.0;
          for (int64_t d = 0; d < D; ++d) s += qa[b][h][i][d] * ka[b][h / group][j][d];
          s *= scale;
          if (options.softcap) s = *options.softcap * std::tanh(s / *options.softcap);
          if (bias.defined()) s += bias.accessor<double, 4>()[b][h][i][j];
          if (slopes.defined())
            s -= slopes.accessor<double, 1>()[h] * static_cast<double>(std::abs(aligned - j));
          score[j] = s;
          seen[j] = true;
          largest = std::max(largest, s);
        }
        if (largest == -kInfinity) continue;  // a query without keys: zeros and -inf
        double sink = -kInfinity;
        if (sinks.defined()) sink = sinks.accessor<double, 1>()[h];
        if (options.softmax_plus_one) sink = 0.0;
        largest = std::max(largest, sink);
        double total = std::exp(sink - largest);
        for (int64_t j = 0; j < S; ++j) {
          if (seen[j]) total += std::exp(score[j] - largest);
        }
        lse[b][h][i] = largest + std::log(total);
        for (int64_t j = 0; j < S; ++j) {
          if (!seen[j]) continue;
          double w = std::exp(score[j] - largest) / total;
          weights[b][h][i][j] = w;
          if (survivors.defined())
            w *= survivors.accessor<double, 4>()[b][h][i][j] * 65536 /
                 std::round((1 - options.dropout_p) * 65536);
          for (int64_t d = 0; d < Dv; ++d) out[b][h][i][d] += w * va[b][h / group][j][d];
        }
      }
    }
  }
  return result;
}

}  // namespace attentive::test
