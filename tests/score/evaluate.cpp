#include "score/evaluate.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "core/cpu_features.h"

namespace attentive::test {
namespace {

// The captured tensors as the kernels read them. `gradient` may be null.
std::vector<detail::CapturedView> views_of(const detail::PairFunction& function, float* gradient = nullptr) {
  std::vector<detail::CapturedView> views;
  for (const auto& captured : function.captured()) {
    const auto& tensor = captured->tensor;
    if (tensor.scalar_type() != (captured->indices ? at::kInt : at::kFloat))
      throw std::logic_error("a test captures float32 or int32");
    detail::CapturedView view{
        .owner = captured.get(), .numbers = tensor.const_data_ptr(), .rank = static_cast<int>(tensor.dim())};
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), view.sizes.begin());
    std::copy(tensor.strides().begin(), tensor.strides().end(), view.strides.begin());
    view.gradient = captured->indices ? nullptr : gradient;
    views.push_back(view);
  }
  return views;
}

}  // namespace

std::vector<NamedSet> vector_sets() {
  const auto& cpu = this_cpu();
  std::vector<NamedSet> sets = {{"portable", detail::VectorSet::Portable}};
  if (cpu.avx2) sets.push_back({"avx2", detail::VectorSet::Avx2});
  if (cpu.avx512) sets.push_back({"avx512", detail::VectorSet::Avx512});
  if (cpu.neon) sets.push_back({"neon", detail::VectorSet::Neon});
  return sets;
}

Evaluation evaluate(const ScoreMod& score, detail::VectorSet set, const std::vector<float>& scores,
                    const at::Tensor& second) {
  const auto count = static_cast<int64_t>(scores.size());
  const size_t padded = scores.size() + detail::kMostLanes;
  std::vector<float> keys = scores;
  keys.resize(padded, 0.0f);
  std::vector<float> queries = keys, inputs = keys;
  std::vector<float> slopes(padded), ones(scores.size(), 1.0f),
      gradient(second.defined() ? static_cast<size_t>(second.numel()) : 0);
  ones.resize(padded, -0.0f);  // as of hidden pairs
  const auto& function = *score.function();
  const auto views = views_of(function, gradient.data());
  const auto& code = function.code(set);
  const detail::CallbackRange range{0, count};
  detail::CallbackStrip strip{.ranges = &range};
  detail::CallbackRow& row = strip.row;
  row.set_lengths(count, count);
  row.captured = views.data();
  row.captured_count = static_cast<int64_t>(views.size());
  row.scores = keys.data();
  code.scores_along_keys(function.function(), strip);
  row.scores = queries.data();
  row.slopes = slopes.data();
  code.scores_along_queries(function.function(), strip);
  if (second.defined()) {
    row.hi = count;
    row.scores = inputs.data();
    row.logit_gradients = ones.data();
    code.captured_gradients(function.function(), row);
  }
  if (row.bad) throw std::logic_error("a lookup was out of range");
  for (auto* numbers : {&keys, &queries, &slopes}) numbers->resize(scores.size());
  return {std::move(keys), std::move(queries), std::move(slopes), std::move(gradient)};
}

std::vector<int64_t> hidden_columns(const MaskMod& mask, detail::VectorSet set, const RowPlace& place,
                                    int64_t count) {
  const auto& function = *mask.function();
  const auto views = views_of(function);
  std::vector<uint8_t> keep(static_cast<size_t>(count + detail::kMostLanes), 1);
  detail::CallbackRow row;
  row.batch = place.batch;
  row.head = place.head;
  row.query = place.query;
  row.key = place.first_key;
  row.set_lengths(count, count);
  row.hi = count;
  row.keep = keep.data();
  row.captured = views.data();
  row.captured_count = static_cast<int64_t>(views.size());
  function.code(set).mask_along_keys(function.function(), row);
  if (row.bad) throw std::logic_error("a lookup was out of range");
  std::vector<int64_t> hidden;
  for (int64_t c = 0; c < count; ++c) {
    if (keep[static_cast<size_t>(c)] == 0) hidden.push_back(c);
  }
  return hidden;
}

namespace {
constexpr int64_t kTileQueries = 500, kTileKeys = 600;
}  // namespace

TileReading read_tile(const MaskMod& mask, const TilePlace& place) {
  const auto& function = *mask.function();
  const auto views = views_of(function);
  detail::TileEvaluation tile{.captured = views.data()};
  const auto range = [&](int64_t lo, int64_t hi) { return detail::TileIndex(lo, hi - 1, &tile); };
  const auto number = [&](int64_t n) { return range(n, n + 1); };
  const auto said = function.mask_of_tile(
      {number(place.batch), number(place.head), range(place.queries.lo, place.queries.hi),
       range(place.keys.lo, place.keys.hi), number(kTileQueries), number(kTileKeys)});
  return {said, tile.faulty};
}

at::Tensor read_pairs(const MaskMod& mask, const TilePlace& place) {
  const detail::TensorEvaluation evaluation{.numbers = at::TensorOptions().dtype(at::kDouble)};
  const auto index = [&](const at::Tensor& indices) { return detail::TensorIndex(indices, &evaluation); };
  const auto number = [&](int64_t n) { return index(at::full({1, 1, 1, 1}, n, at::kLong)); };
  const auto queries = at::arange(place.queries.lo, place.queries.hi),
             keys = at::arange(place.keys.lo, place.keys.hi);
  const auto shown =
      mask.function()->mask({number(place.batch), number(place.head), index(queries.view({1, 1, -1, 1})),
                             index(keys.view({1, 1, 1, -1})), number(kTileQueries), number(kTileKeys)});
  return shown.pairs.expand({1, 1, queries.numel(), keys.numel()})[0][0];
}

}  // namespace attentive::test
