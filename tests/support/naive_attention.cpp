#include "support/naive_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "support/compare.h"

namespace attentive::test {
namespace {

at::Tensor as_double(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() ? tensor.detach().to(at::kCPU, at::kDouble).resolve_neg().expand(sizes).contiguous()
                          : tensor;
}

const double* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<double>() : nullptr;
}

std::vector<int64_t> lengths_of(const at::Tensor& given, int64_t items, int64_t whole) {
  std::vector<int64_t> lengths(static_cast<size_t>(items), whole);
  for (int64_t b = 0; given.defined() && b < items; ++b) lengths[b] = given[b].item<int64_t>();
  return lengths;
}

double survivor_factor(const AttentionOptions& options) {
  if (options.dropout_p == 1.0) return 0.0;
  if (options.dropout_stream == DropoutStream::Aten) return 1.0 / (1.0 - options.dropout_p);
  return 65536 / std::max(1.0, std::round((1 - options.dropout_p) * 65536));
}

// The scores and weights of one query.
struct Row {
  std::vector<double> score, slope_of_cap, cap_terms, weight;
  std::vector<bool> seen;
  double sink_weight = 0.0, logsumexp = -kInfinity, score_terms = 1.0;
  bool empty = true, absorbed = false;
};

class Naive {
 public:
  Naive(const NaiveCall& call, const NaiveDirections& directions, HiddenPairs hidden)
      : options_(call.options),
        may_underflow_(call.may_underflow),
        hidden_(hidden),
        float64_(call.q.scalar_type() == at::kDouble),
        B(call.q.size(0)),
        H(call.q.size(1)),
        L(call.q.size(2)),
        D(call.q.size(3)),
        Hkv(call.k.size(1)),
        S(call.k.size(2)),
        Dv(call.v.size(3)),
        scale_(options_.scale.value_or(1.0 / std::sqrt(static_cast<double>(D)))),
        q_(as_double(call.q, call.q.sizes())),
        k_(as_double(call.k, call.k.sizes())),
        v_(as_double(call.v, call.v.sizes())),
        keep_(as_double(call.keep, {B, H, L, S})),
        bias_(as_double(call.bias, {B, H, L, S})),
        slopes_(as_double(call.slopes, {B, H})),
        sinks_(as_double(call.sinks, {H})),
        survivors_(as_double(call.survivors, {B, H, L, S})),
        query_lengths_(lengths_of(call.query_lengths, B, L)),
        key_lengths_(lengths_of(call.key_lengths, B, S)),
        origins_(naive_origins(call)),
        of_output_(as_double(directions.output, {B, H, L, Dv})),
        of_clean_(as_double(directions.clean_weights, {B, H, L, S})),
        of_dropped_(as_double(directions.dropped_weights, {B, H, L, S})),
        of_logsumexp_(as_double(directions.logsumexp, {B, H, L})) {}

  NaiveResults run() {
    auto& r = results_;
    const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); };
    r.forward = {zeros({B, H, L, Dv}), zeros({B, H, L, S}), at::full({B, H, L}, -kInfinity, at::kDouble)};
    r.dropped_weights = zeros({B, H, L, S});
    for (auto* g : {&r.gradients, &r.terms}) {
      *g = {zeros({B, H, L, D}), zeros({B, Hkv, S, D}), zeros({B, Hkv, S, Dv}),
            zeros({B, H, L, S}), zeros({B, H}),         zeros({H})};
    }
    r.output_terms = zeros({B, H, L, Dv});
    r.logsumexp_terms = zeros({B, H, L});
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t head = 0; head < Hkv; ++head) group(b, head);
    }
    return r;
  }

 private:
  // Computes the query heads of one key head, which share the set of unseen keys.
  void group(int64_t b, int64_t head) {
    const int64_t size = H / Hkv;
    std::vector<Row> rows;
    std::vector<bool> seen(S, false);
    for (int64_t h = head * size; h < (head + 1) * size; ++h) {
      for (int64_t i = 0; i < L; ++i) {
        rows.push_back(row(b, h, i));
        for (int64_t j = 0; j < S; ++j) seen[j] = seen[j] || rows.back().seen[j];
      }
    }
    for (int64_t n = 0; n < static_cast<int64_t>(rows.size()); ++n)
      use(rows[n], b, head * size + n / L, n % L, head, seen);
  }

  bool visible(int64_t place, int64_t b, int64_t i, int64_t j) const {
    const int64_t aligned = i + origins_[b];
    const bool by_lengths = options_.align == Align::Lengths;
    const auto& [left, right] = options_.window;
    if (i >= query_lengths_[b] || j >= key_lengths_[b] || (by_lengths && aligned < 0)) return false;
    if (options_.causal == Causal::BottomRight && j > (by_lengths ? aligned : i + S - L)) return false;
    if (options_.causal == Causal::TopLeft && j > i) return false;
    if (left >= 0 && (left < S + L && j < aligned - left)) return false;
    if (right >= 0 && (right < S + L && j > aligned + right)) return false;
    if (keep_.defined() && data(keep_)[place] == 0.0) return false;
    return !bias_.defined() || data(bias_)[place] != -kInfinity;
  }

  Row row(int64_t b, int64_t h, int64_t i) const {
    Row r;
    r.score.assign(S, -kInfinity);
    r.slope_of_cap.assign(S, 1.0);
    r.cap_terms.assign(S, 1.0);
    r.weight.assign(S, 0.0);
    r.seen.assign(S, false);
    const double* q = data(q_) + ((b * H + h) * L + i) * D;
    double largest = -kInfinity;
    bool nan = false;
    for (int64_t j = 0; j < S; ++j) {
      const int64_t place = ((b * H + h) * L + i) * S + j;
      const double* k = data(k_) + ((b * Hkv + h / (H / Hkv)) * S + j) * D;
      double s = 0.0, terms = 1.0;
      for (int64_t d = 0; d < D; ++d) {
        s += q[d] * k[d];
        terms += std::abs(q[d] * k[d] * scale_);
      }
      s *= scale_;
      if (options_.softcap) {
        const double t = std::tanh(s / *options_.softcap);
        s = *options_.softcap * t;
        r.slope_of_cap[j] = 1 - t * t;
        // Autograd forms this difference in the call's type; beside float64's tolerance its rounding is seen.
        r.cap_terms[j] = float64_ ? 1 + t * t : r.slope_of_cap[j];
      }
      if (bias_.defined()) s += data(bias_)[place];
      if (slopes_.defined())
        s -= data(slopes_)[b * H + h] * static_cast<double>(std::abs(i + origins_[b] - j));
      if (!visible(place, b, i, j)) continue;
      r.score[j] = s;
      r.score_terms = std::max(r.score_terms, terms + std::abs(s));
      r.seen[j] = true;
      r.empty = false;
      nan = nan || std::isnan(s);
      largest = std::max(largest, s);
    }
    if (r.empty) return r;
    double sink = -kInfinity;
    if (sinks_.defined()) sink = data(sinks_)[h];
    if (options_.softmax_plus_one) sink = 0.0;
    const bool undefined = nan || largest == kInfinity;                             // for any sink
    if (sink == kInfinity && !(undefined && hidden_ == HiddenPairs::Multiplied)) {  // it absorbs all weight
      r.absorbed = true;
      r.logsumexp = kInfinity;
      return r;
    }
    nan = nan || std::isnan(sink);
    largest = std::max(largest, sink);
    if (nan || std::isinf(largest)) {  // inf - inf, or 0 / 0
      std::fill(r.weight.begin(), r.weight.end(), std::nan(""));
      r.sink_weight = std::nan("");
      const bool either = largest == kInfinity && hidden_ == HiddenPairs::Multiplied;
      r.logsumexp = nan && !either ? std::nan("") : largest;
      return r;
    }
    double total = std::exp(sink - largest);
    for (int64_t j = 0; j < S; ++j) {
      if (r.seen[j]) total += std::exp(r.score[j] - largest);
    }
    for (int64_t j = 0; j < S; ++j) r.weight[j] = r.seen[j] ? std::exp(r.score[j] - largest) / total : 0.0;
    r.sink_weight = std::exp(sink - largest) / total;
    r.logsumexp = largest + std::log(total);
    return r;
  }

  // Whether a dropout of 1 leaves a query's scores without a gradient, except that of a finite logsumexp.
  bool cut(const Row& r) const {
    return options_.dropout_p == 1.0 && !of_clean_.defined() &&
           (!of_logsumexp_.defined() || !std::isfinite(r.logsumexp));
  }

  // Adds a row's contribution to every result.
  void use(const Row& r, int64_t b, int64_t h, int64_t i, int64_t head, const std::vector<bool>& seen) {
    const int64_t query = (b * H + h) * L + i, keys = (b * Hkv + head) * S;
    const auto &g = results_.gradients, &terms = results_.terms;
    const auto add = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<double>(); };
    const auto both = [&](const at::Tensor& sum, const at::Tensor& size, int64_t place, double term,
                          double extent) {
      add(sum)[place] += term;
      add(size)[place] += extent;
    };
    const auto direction = [](const at::Tensor& tensor, int64_t place) {
      return tensor.defined() ? data(tensor)[place] : 0.0;
    };
    add(results_.forward.logsumexp)[query] = r.logsumexp;
    add(results_.logsumexp_terms)[query] = r.score_terms;
    const bool lax = hidden_ == HiddenPairs::Multiplied;
    const double factor = survivors_.defined() || options_.dropout_p == 1.0 ? survivor_factor(options_) : 1.0;
    std::vector<double> weight(S, 0.0), kept(S, 1.0), of_weight(S, 0.0);
    std::vector<bool> part(S, false);
    const auto read = [&](int64_t j) { return seen[j] || std::isnan(r.weight[j]); };
    double mean = 0.0, mean_terms = 0.0;  // means of the weights' gradients, weighted by the weights
    std::vector<double> of_weight_terms(S, 0.0);
    for (int64_t j = 0; j < S; ++j) {
      const int64_t place = query * S + j;
      const bool weighs = r.score[j] != -kInfinity || std::isnan(r.weight[j]);
      part[j] = lax || (r.seen[j] && !r.absorbed && weighs);
      if (!part[j]) continue;
      weight[j] = r.weight[j];
      if (lax && (!r.seen[j] || r.weight[j] < may_underflow_) && !std::isnan(r.weight[j])) weight[j] = 0.0;
      if (survivors_.defined()) kept[j] = data(survivors_)[place];
      kept[j] *= factor;
      const bool dropped = kept[j] == 0.0 && !lax;  // even if the weight or the value is not finite
      const double w = dropped ? 0.0 : weight[j] * kept[j];
      add(results_.forward.weights)[place] = weight[j];
      add(results_.dropped_weights)[place] = w;
      const double* v = data(v_) + (keys + j) * Dv;
      double product = 0.0, product_terms = 0.0;
      for (int64_t d = 0; d < Dv && !dropped; ++d) {
        const double of_output = direction(of_output_, query * Dv + d);
        if (!read(j)) {  // for a key that no query sees, only the gradient may become 0 times NaN
          add(g.v)[(keys + j) * Dv + d] += w * of_output;
          continue;
        }
        both(results_.forward.output, results_.output_terms, query * Dv + d, w * v[d], std::abs(w * v[d]));
        both(g.v, terms.v, (keys + j) * Dv + d, w * of_output, std::abs(w * of_output));
        product += of_output * v[d];
        product_terms += std::abs(of_output * v[d]);
      }
      const double of_weights = direction(of_clean_, place);
      of_weight[j] = (dropped ? 0.0 : (product + direction(of_dropped_, place)) * kept[j]) + of_weights;
      of_weight_terms[j] =
          (product_terms + std::abs(direction(of_dropped_, place))) * kept[j] + std::abs(of_weights);
      mean += weight[j] * of_weight[j];
      mean_terms += weight[j] * of_weight_terms[j];
    }
    if (!lax && (r.absorbed || cut(r))) return;
    const double of_lse = r.empty ? 0.0 : direction(of_logsumexp_, query);
    if (!r.empty)
      both(g.sinks, terms.sinks, h, r.sink_weight * (of_lse - mean),
           r.sink_weight * (std::abs(of_lse) + mean_terms));
    for (int64_t j = 0; j < S; ++j) {
      if (!part[j]) continue;
      const double of_score = weight[j] * (of_weight[j] - mean + of_lse);
      const double extent = weight[j] * (of_weight_terms[j] + mean_terms + std::abs(of_lse));
      const auto distance = static_cast<double>(std::abs(i + origins_[b] - j));
      both(g.bias, terms.bias, query * S + j, of_score, extent);
      both(g.slopes, terms.slopes, b * H + h, -of_score * distance, extent * distance);
      const double of_product = of_score * r.slope_of_cap[j] * scale_;
      const double product_extent = extent * std::abs(r.cap_terms[j] * scale_);
      const double *q = data(q_) + query * D, *k = data(k_) + (keys + j) * D;
      // The key of a dropped pair whose gradient is 0 need not be finite. The terms of that 0 still count
      // elsewhere: if they cancel here, they are rounded in the kernel.
      const bool idle = kept[j] == 0.0 && of_product == 0.0 && !lax;
      for (int64_t d = 0; d < D; ++d) {
        if (read(j) && !(idle && !std::isfinite(k[d])))
          both(g.q, terms.q, query * D + d, of_product * k[d], product_extent * std::abs(k[d]));
        both(g.k, terms.k, (keys + j) * D + d, of_product * q[d], product_extent * std::abs(q[d]));
      }
    }
  }

  AttentionOptions options_;
  double may_underflow_;
  HiddenPairs hidden_;
  bool float64_;
  int64_t B, H, L, D, Hkv, S, Dv;
  double scale_;
  at::Tensor q_, k_, v_, keep_, bias_, slopes_, sinks_, survivors_;
  std::vector<int64_t> query_lengths_, key_lengths_, origins_;
  at::Tensor of_output_, of_clean_, of_dropped_, of_logsumexp_;
  NaiveResults results_;
};

}  // namespace

std::vector<int64_t> naive_origins(const NaiveCall& call) {
  const int64_t items = call.q.size(0), L = call.q.size(2), S = call.k.size(2);
  const auto queries = lengths_of(call.query_lengths, items, L),
             keys = lengths_of(call.key_lengths, items, S);
  std::vector<int64_t> origins;
  for (int64_t b = 0; b < items; ++b) {
    origins.push_back(call.options.align == Align::TopLeft       ? 0
                      : call.options.align == Align::BottomRight ? S - L
                                                                 : keys[b] - queries[b]);
  }
  return origins;
}

NaiveResults naive_attention(const NaiveCall& call, const NaiveDirections& directions, HiddenPairs hidden) {
  return Naive(call, directions, hidden).run();
}

AttentionResult naive_attention(const NaiveCall& call) {
  const auto results = naive_attention(call, {});
  return results.forward;
}

}  // namespace attentive::test
