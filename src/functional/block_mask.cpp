#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <attentive/functional/block_mask.h>

#include "kernels/native_cpu/compute.h"

namespace attentive {

BlockMask BlockMask::kept(MaskMod mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
  TORCH_CHECK_VALUE(mask, "BlockMask::kept: expected a mask function, got none");
  for (const auto& [name, size] : {std::pair("batch", batch), std::pair("heads", heads),
                                   std::pair("queries", queries), std::pair("keys", keys)}) {
    TORCH_CHECK_VALUE(size > 0, "BlockMask::kept: expected ", name, " above 0, got ", size);
  }
  kernels::Problem problem;
  problem.q = at::empty({1}).expand({batch, heads, queries, 1});
  problem.k = problem.v = at::empty({1}).expand({batch, heads, keys, 1});
  problem.band.origin = keys - queries;
  problem.mask = mask;
  BlockMask result(std::move(mask));
  result.classes_ = kernels::native_cpu::classify(problem);
  return result;
}

BlockMask::Count BlockMask::count() const {
  Count result;
  if (!classes_) return result;
  const auto& classes = classes_->classes;
  result.tiles = classes.numel();
  const auto* const kinds = classes.const_data_ptr<uint8_t>();
  for (int64_t n = 0; n < result.tiles; ++n) {
    result.empty += kinds[n] == detail::BlockClasses::Empty;
    result.full += kinds[n] == detail::BlockClasses::Full;
  }
  return result;
}

}  // namespace attentive
