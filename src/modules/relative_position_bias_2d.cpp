#include <ATen/ops/zeros.h>

#include <attentive/modules/relative_position_bias_2d.h>

#include "core/kept_tensors.h"
#include "modules/checks.h"
#include "modules/position_bias.h"

namespace attentive {

RelativePositionBias2dImpl::RelativePositionBias2dImpl(RelativePositionBias2dOptions options_)
    : options(options_) {
  build();
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
  return reserving(kName, "a bias of all pairs of its window", [&] {
    const auto table = summed_wide(relative_position_bias_table)
                           .view({2 * height - 1, 2 * width - 1, options.num_heads()})
                           .permute({2, 0, 1})
                           .flip({1, 2});  // Swin counts query - key, by_difference key - query
    return by_difference(by_difference(table, 1, height), 2, width)
        .reshape({options.num_heads(), height * width, height * width})
        .to(relative_position_bias_table.scalar_type());
  });
}

}  // namespace attentive
