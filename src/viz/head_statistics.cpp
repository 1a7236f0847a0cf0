#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <c10/util/Exception.h>

#include <attentive/viz/head_statistics.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "viz/head_rows.h"

namespace attentive {

HeadStatistics head_statistics(const AttentionView& view, int64_t place) {
  viz::check_view("head_statistics", view);
  TORCH_CHECK_VALUE(place >= 0 && place < std::ssize(view.heads), "head_statistics: expected a place in [0, ",
                    view.heads.size(), "), got ", place);
  return viz::statistics_of(viz::HeadMemory(view, place).rows, view.key_origin);
}

}  // namespace attentive

namespace attentive::viz {
namespace {

class Mean {
 public:
  void add(double value) { sum_ += value, ++count_; }
  std::optional<double> value() const {
    return count_ > 0 ? std::optional(sum_ / static_cast<double>(count_)) : std::nullopt;
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// Sums over the keys that one query sees.
struct Row {
  double entropy = 0, distance = 0, weights = 0;
  int64_t seen = 0;
};

Row row_of(const HeadRows& rows, int64_t query, int64_t position) {
  Row row;
  for (int64_t j = 0; j < rows.keys; ++j) {
    if (!rows.sees(query, j)) continue;
    const double weight = rows.weight(query, j);
    if (weight > 0) row.entropy -= weight * std::log2(weight);
    row.distance += weight * static_cast<double>(std::abs(position - j));
    row.weights += weight;
    ++row.seen;
  }
  return row;
}

}  // namespace

HeadStatistics statistics_of(const HeadRows& rows, int64_t key_origin) {
  Mean entropy, entropy_share, distance, previous, first, sink;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto position = i + key_origin;
    const auto row = row_of(rows, i, position);
    if (row.seen == 0) continue;
    entropy.add(row.entropy);
    if (row.seen > 1) entropy_share.add(row.entropy / std::log2(static_cast<double>(row.seen)));
    distance.add(row.distance);
    const auto before = position - 1;
    if (before >= 0 && before < rows.keys && rows.sees(i, before)) previous.add(rows.weight(i, before));
    first.add(rows.sees(i, 0) ? rows.weight(i, 0) : 0.0);
    sink.add(1 - row.weights);
  }
  HeadStatistics statistics{.entropy = entropy.value(),
                            .entropy_share = entropy_share.value(),
                            .distance = distance.value(),
                            .previous = previous.value(),
                            .first = first.value(),
                            .sink = sink.value()};
  if (statistics.sink)
    statistics.sink = std::max(0.0, *statistics.sink);  // by rounding, the sum may exceed 1
  return statistics;
}

}  // namespace attentive::viz

namespace attentive {
namespace {

constexpr const char* kAttentionRollout = "attention_rollout";

// The contribution of a layer with a residual branch: a matrix (T, T) whose rows sum to 1.
at::Tensor passed_on(const RecordedAttention& call) {
  const auto mean = call.weights()[0].mean(0).to(at::kCPU, at::kDouble);
  const auto mixed = (mean + at::eye(mean.size(0), mean.options())) / 2;
  return mixed / mixed.sum(1, /*keepdim=*/true);
}

}  // namespace

std::vector<at::Tensor> attention_rollout(const std::vector<RecordedAttention>& calls, int64_t batch) {
  const NormalTensorsGuard normal;
  std::vector<at::Tensor> rollouts;
  at::Tensor product;  // of the layers so far
  for (const auto& call : calls) {
    const auto item = viz::batch_item(kAttentionRollout, call, batch);
    const auto tokens = product.defined() ? product.size(0) : item.q.size(2);
    TORCH_CHECK_VALUE(tokens > 0 && item.q.size(2) == tokens && item.k.size(2) == tokens, kAttentionRollout,
                      ": ", call.path, ": expected self-attention over ", tokens, " tokens, got ",
                      item.q.size(2), " queries and ", item.k.size(2), " keys");
    const auto layer = passed_on(item);
    product = product.defined() ? at::matmul(layer, product) : layer;
    rollouts.push_back(product[0].to(at::kFloat).contiguous());
  }
  return rollouts;
}

}  // namespace attentive
