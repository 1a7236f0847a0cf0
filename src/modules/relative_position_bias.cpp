#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <attentive/modules/relative_position_bias.h>

#include "core/kept_tensors.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/position_bias.h"

namespace attentive {
namespace {

// Returns the number of buckets of one direction.
int64_t buckets_of_direction(const RelativePositionBiasOptions& options) {
  return options.bidirectional() ? options.num_buckets() / 2 : options.num_buckets();
}

}  // namespace

RelativePositionBiasImpl::RelativePositionBiasImpl(RelativePositionBiasOptions options_) : options(options_) {
  build();
}

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
  return reserving(kName, "a bias of its queries and keys", [&] {
    if (queries == 0 || keys == 0) return at::zeros({options.num_heads(), queries, keys}, weight.options());
    const auto differences =
        at::arange(1 - keys, queries, at::TensorOptions(at::kLong).device(weight.device()));
    const auto values = summed_wide(weight).index_select(0, buckets(differences)).t();
    return by_difference(values, 1, keys).to(weight.scalar_type());
  });
}

}  // namespace attentive
