#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <attentive/functional/attention.h>
#include <attentive/modules/distance_bias.h>

#include "core/kept_tensors.h"
#include "modules/checks.h"
#include "modules/position_bias.h"

namespace attentive {

DistanceBiasImpl::DistanceBiasImpl(DistanceBiasOptions options_) : options(options_) {
  build();
}

void DistanceBiasImpl::reset() {
  check_positive(kName, "num_heads", options.num_heads());
  slopes = register_parameter("slopes",
                              alibi_slopes(options.num_heads()).to(c10::get_default_dtype_as_scalartype()));
}

at::Tensor DistanceBiasImpl::forward(int64_t queries, int64_t keys) {
  check_length(kName, "queries", queries);
  check_length(kName, "keys", keys);
  return reserving(kName, "a bias of its queries and keys", [&] {
    const auto wide = summed_wide(slopes);
    const auto query = at::arange(keys - queries, keys, wide.options()).unsqueeze(1);
    const auto distance = (query - at::arange(keys, wide.options())).abs();
    return (wide.view({options.num_heads(), 1, 1}) * -distance).to(slopes.scalar_type());
  });
}

}  // namespace attentive
