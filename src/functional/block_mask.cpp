#include <memory>
#include <utility>

#include <ATen/ops/empty.h>

#include <attentive/functional/attention.h>
#include <attentive/score/tensors.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "kernels/native_cpu/backend.h"

namespace attentive {
namespace {

using detail::CallbackRow;

// A tensor of pairs (B, H, L, S) as the rows of the kernel read it; B and H may be 1 for all.
struct KeepPairs {
  std::shared_ptr<const detail::CapturedTensor> tensor;
  int64_t batch, heads, queries, keys;
  const bool* pairs;

  explicit KeepPairs(const at::Tensor& keep)
      : tensor(std::make_shared<const detail::CapturedTensor>(
            detail::CapturedTensor{.tensor = keep, .in_place = true})),
        batch(keep.size(0)),
        heads(keep.size(1)),
        queries(keep.size(2)),
        keys(keep.size(3)),
        pairs(keep.const_data_ptr<bool>()) {}

  void check_lengths(int64_t of_queries, int64_t of_keys) const {
    TORCH_CHECK_VALUE(of_queries == queries && of_keys == keys, "BlockMask::kept: expected a call with ",
                      queries, " queries and ", keys, " keys, as the tensor has, got one with ", of_queries,
                      " and ", of_keys);
  }

  // The first pair of a row.
  const bool* at(const CallbackRow& row) const {
    check_lengths(row.queries, row.keys);
    const int64_t b = batch == 1 ? 0 : row.batch, h = heads == 1 ? 0 : row.head;
    if (b >= batch) detail::throw_captured_range(tensor->tensor.sizes(), 0, b);
    if (h >= heads) detail::throw_captured_range(tensor->tensor.sizes(), 1, h);
    const int64_t query = row.query - (row.keys - row.queries);
    return pairs + ((b * heads + h) * queries + query) * keys + row.key;
  }
};

void hide(CallbackRow& row, const bool* pairs, int64_t stride) {
  uint8_t* const keep = row.keep;
  for (int64_t c = row.lo; c < row.hi; ++c) keep[c] &= static_cast<uint8_t>(pairs[c * stride]);
}

void keep_along_keys(const void* function, CallbackRow& row) {
  hide(row, static_cast<const KeepPairs*>(function)->at(row), 1);
}

void keep_along_queries(const void* function, CallbackRow& row) {
  const auto& keep = *static_cast<const KeepPairs*>(function);
  hide(row, keep.at(row), keep.keys);
}

class KeepFunction final : public detail::PairFunction {
 public:
  explicit KeepFunction(const at::Tensor& keep) : PairFunction("keep", /*is_mask=*/true), keep_(keep) {}

  detail::TensorScore score(const detail::TensorScore& s, const detail::TensorPairs&) const override {
    return s;
  }
  detail::TensorMask mask(const detail::TensorPairs& pair) const override {
    const auto& places = *pair.batch.evaluation;
    if (!places.listed && !pair.queries.pairs.is_meta())
      keep_.check_lengths(pair.queries.pairs.item<int64_t>(), pair.keys.pairs.item<int64_t>());
    const detail::TensorIndex all = 0, query = pair.query - (pair.keys - pair.queries);
    const detail::TensorArguments place(keep_.batch == 1 ? all : pair.batch,
                                        keep_.heads == 1 ? all : pair.head, query, pair.key);
    return {look_up_numbers(keep_.tensor, place).pairs.ne(0)};
  }
  const void* function() const override { return &keep_; }
  const detail::PairFunctionCode& code(detail::VectorSet) const override {
    static constexpr detail::PairFunctionCode kCode{.mask_along_keys = keep_along_keys,
                                                    .mask_along_queries = keep_along_queries};
    return kCode;
  }

 private:
  const KeepPairs keep_;
};

}  // namespace

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

BlockMask BlockMask::kept(const at::Tensor& keep) {
  const char* const caller = "BlockMask::kept";
  check_defined(caller, "keep", keep);
  TORCH_CHECK_TYPE(keep.scalar_type() == at::kBool, caller,
                   ": expected keep to be a bool tensor (true: may attend), got ", describe(keep));
  TORCH_CHECK_VALUE(keep.dim() >= 2 && keep.dim() <= 4 && keep.numel() > 0, caller,
                    ": expected keep of shape (L, S), (H, L, S), (B, 1, L, S) or (B, H, L, S) and not empty, "
                    "got ",
                    describe(keep));
  TORCH_CHECK_VALUE(keep.is_cpu(), caller, ": expected keep on the CPU, got it on ", keep.device());
  const NormalTensorsGuard kept;
  auto pairs = keep;
  while (pairs.dim() < 4) pairs = pairs.unsqueeze(0);
  for (const int64_t d : {0, 1}) {
    if (pairs.stride(d) == 0) pairs = pairs.narrow(d, 0, 1);
  }
  pairs = pairs.clone(at::MemoryFormat::Contiguous);
  return BlockMask::kept(MaskMod(std::make_shared<KeepFunction>(pairs)), pairs.size(0), pairs.size(1),
                         pairs.size(2), pairs.size(3));
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
