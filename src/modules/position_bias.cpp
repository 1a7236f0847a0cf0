#include <cmath>
#include <type_traits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <attentive/functional/attention.h>
#include <attentive/modules/position_bias.h>

#include "core/normal_tensors.h"
#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

// Returns the number of buckets of one direction.
int64_t buckets_of_direction(const RelativePositionBiasOptions& options) {
  return options.bidirectional() ? options.num_buckets() / 2 : options.num_buckets();
}

// Values by difference -> one value for each pair (query i, key j): dimension `dim`, of size queries + keys
// - 1, becomes i, and j is appended. Pair (i, j) reads value j - i + queries - 1. Neither number may be 0.
at::Tensor by_difference(const at::Tensor& values, int64_t dim, int64_t keys) {
  // Window n holds the values n .. n + keys - 1, and query i reads window queries - 1 - i. Selecting the
  // windows makes one contiguous copy, whereas at::flip would choose its own order of strides.
  const auto queries = values.size(dim) - keys + 1;
  const auto backwards = at::arange(queries - 1, -1, -1, values.options().dtype(at::kLong));
  return values.unfold(dim, keys, 1).index_select(dim, backwards);
}

// A parameter in the dtype in which its gradients are summed: float32 for half types.
at::Tensor summed_wide(const at::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? parameter.to(at::kFloat) : parameter;
}

}  // namespace

void RelativePositionBiasImpl::reset() {
  check_positive(kName, "num_heads", options.num_heads());
  check_positive(kName, "num_buckets", options.num_buckets());
  const auto exact = buckets_of_direction(options) / 2;
  TORCH_CHECK_VALUE(exact > 0, kName, ": expected num_buckets >= ", options.bidirectional() ? 4 : 2,
                    options.bidirectional() ? " for both directions" : "", ", got ", options.num_buckets());
  TORCH_CHECK_VALUE(options.max_distance() > exact, kName, ": expected max_distance > ", exact,
                    ", the number of distances with a bucket each, got ", options.max_distance());
  weight = register_parameter("weight", normal_parameter({options.num_buckets(), options.num_heads()}));
}

at::Tensor RelativePositionBiasImpl::buckets(const at::Tensor& differences) const {
  check_defined(kName, "differences", differences);
  TORCH_CHECK_TYPE(differences.scalar_type() == at::kLong, kName, ": expected differences as int64, got ",
                   differences.scalar_type());
  const auto of_direction = buckets_of_direction(options);
  const auto exact = of_direction / 2;
  const auto distance = options.bidirectional() ? differences.abs() : differences.neg().clamp_min(0);
  // The steps and their dtypes are those of transformers' T5, because rounding decides about distances at the
  // edge of a bucket.
  const auto ratio = static_cast<double>(options.max_distance()) / static_cast<double>(exact);
  const auto far = distance.clamp_min(exact)
                       .to(at::kFloat)
                       .div(exact)
                       .log()
                       .div(std::log(ratio))
                       .mul(of_direction - exact)
                       .to(at::kLong)
                       .add(exact)
                       .clamp_max(of_direction - 1);
  const auto bucket = at::where(distance.lt(exact), distance, far);
  return options.bidirectional() ? bucket + differences.gt(0).to(at::kLong).mul(of_direction) : bucket;
}

at::Tensor RelativePositionBiasImpl::forward(int64_t queries, int64_t keys) {
  check_length(kName, "queries", queries);
  check_length(kName, "keys", keys);
  return with_allocation_errors(kName, "a bias of its queries and keys", [&] {
    if (queries == 0 || keys == 0) return at::zeros({options.num_heads(), queries, keys}, weight.options());
    const auto differences =
        at::arange(1 - keys, queries, at::TensorOptions(at::kLong).device(weight.device()));
    const auto values = summed_wide(weight).index_select(0, buckets(differences)).t();
    return by_difference(values, 1, keys).to(weight.scalar_type());
  });
}

void RelativePositionBias2dImpl::reset() {
  check_count(kName, "height", options.height());
  check_count(kName, "width", options.width());
  check_positive(kName, "num_heads", options.num_heads());
  const auto rows = (2 * options.height() - 1) * (2 * options.width() - 1);
  relative_position_bias_table =
      register_parameter("relative_position_bias_table", at::zeros({rows, options.num_heads()}));
}

at::Tensor RelativePositionBias2dImpl::forward() {
  const auto height = options.height(), width = options.width();
  return with_allocation_errors(kName, "a bias of all pairs of its window", [&] {
    const auto table = summed_wide(relative_position_bias_table)
                           .view({2 * height - 1, 2 * width - 1, options.num_heads()})
                           .permute({2, 0, 1})
                           .flip({1, 2});  // Swin counts query - key, by_difference key - query
    return by_difference(by_difference(table, 1, height), 2, width)
        .reshape({options.num_heads(), height * width, height * width})
        .to(relative_position_bias_table.scalar_type());
  });
}

void DistanceBiasImpl::reset() {
  check_positive(kName, "num_heads", options.num_heads());
  slopes = register_parameter("slopes",
                              alibi_slopes(options.num_heads()).to(c10::get_default_dtype_as_scalartype()));
}

at::Tensor DistanceBiasImpl::forward(int64_t queries, int64_t keys) {
  check_length(kName, "queries", queries);
  check_length(kName, "keys", keys);
  return with_allocation_errors(kName, "a bias of its queries and keys", [&] {
    const auto wide = summed_wide(slopes);
    const auto query = at::arange(keys - queries, keys, wide.options()).unsqueeze(1);
    const auto distance = (query - at::arange(keys, wide.options())).abs();
    return (wide.view({options.num_heads(), 1, 1}) * -distance).to(slopes.scalar_type());
  });
}

namespace {

template <class Holder, class Options>
std::shared_ptr<torch::nn::Module> built(const char* caller, const Options& options, int64_t num_heads) {
  TORCH_CHECK_VALUE(options.num_heads() == num_heads, caller, ": expected a position_bias of ", num_heads,
                    " heads like the layer, got a ", Options::kModule, " of ", options.num_heads());
  return Holder(options).ptr();
}

}  // namespace

std::shared_ptr<torch::nn::Module> make_position_bias(const char* caller, const PositionBiasOptions& options,
                                                      int64_t num_heads) {
  if (const auto* line = std::get_if<RelativePositionBiasOptions>(&options))
    return built<RelativePositionBias>(caller, *line, num_heads);
  if (const auto* plane = std::get_if<RelativePositionBias2dOptions>(&options))
    return built<RelativePositionBias2d>(caller, *plane, num_heads);
  if (const auto* distance = std::get_if<DistanceBiasOptions>(&options))
    return built<DistanceBias>(caller, *distance, num_heads);
  return nullptr;
}

void check_position_bias_tokens(const char* caller, const PositionBiasOptions& options, int64_t tokens) {
  const auto* plane = std::get_if<RelativePositionBias2dOptions>(&options);
  if (!plane) return;
  TORCH_CHECK_VALUE(tokens == plane->height() * plane->width(), caller, ": expected the ",
                    plane->height() * plane->width(), " tokens of a window of ", plane->height(), " x ",
                    plane->width(), " (position_bias), got ", tokens);
}

void check_position_bias_cache(const char* caller, const PositionBiasOptions& options) {
  TORCH_CHECK_VALUE(!std::holds_alternative<RelativePositionBias2dOptions>(options), caller,
                    ": expected no cache with a RelativePositionBias2d, whose window is one call");
}

void add_position_bias(torch::nn::Module& bias, int64_t queries, int64_t keys, AttentionExtras& extras) {
  if (const auto* distance = bias.as<DistanceBias>()) {
    extras.alibi_slopes = distance->slopes;
    return;
  }
  auto* line = bias.as<RelativePositionBias>();
  const auto table = line ? line->forward(queries, keys) : bias.as<RelativePositionBias2d>()->forward();
  extras.mask &= Mask::per_head(Mask::bias(table));
}

}  // namespace attentive
