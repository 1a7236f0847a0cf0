#include "models/decoder_only.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/ScalarType.h>

#include <attentive/functional/linear_cross_entropy.h>

#include "core/autocast_modes.h"
#include "functional/linear.h"
#include "modules/checks.h"

namespace attentive {

PaddedRows::PaddedRows(const char* caller, const at::Tensor& ids_, const Padding& padding, bool whole)
    : ids(ids_), given(ids_) {
  const auto& lengths = padding.lengths;
  if (!lengths.defined()) return;
  check_tokens(caller, "ids", given);
  const auto batch = given.size(0), columns = given.size(1);
  TORCH_CHECK_VALUE(lengths.dim() == 1 && lengths.size(0) == batch && !lengths.is_meta() &&
                        at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false),
                    caller, ": expected lengths as integers of shape (", batch, ",), got ",
                    describe(lengths));
  if (batch == 0) return;
  const auto counts = lengths.to(at::kLong);
  const auto [low, high] = at::aminmax(counts);
  const auto least = low.item<int64_t>(), most = high.item<int64_t>();
  TORCH_CHECK_VALUE(least >= 1 && most <= columns, caller, ": expected lengths in [1, ", columns, "], got ",
                    least < 1 ? least : most);
  const auto tokens = whole ? columns : most;
  const bool left = padding.side == PaddingSide::Left;
  first = left ? columns - tokens : 0;
  ids = given.narrow(1, first, tokens);
  if (least == tokens) return;
  const auto place = counts.to(given.device());
  const auto column = at::arange(tokens, place.options());
  if (left) {
    starts = tokens - place;
    real = column.ge(starts.unsqueeze(1));
  } else {
    ends = place;
    real = column.lt(ends.unsqueeze(1));
  }
  ids = ids.masked_fill(real.logical_not(), 0);
}

at::Tensor PaddedRows::restored(const at::Tensor& logits, Logits which) const {
  const auto left_out = given.size(1) - ids.size(1);
  if (which == Logits::Last || left_out == 0) return logits;
  return at::constant_pad_nd(logits, {0, 0, first, left_out - first});
}

at::Tensor PaddedRows::targets_of(const at::Tensor& targets) const {
  const auto kept = targets.narrow(1, first, ids.size(1));
  return real.defined() ? kept.masked_fill(real.logical_not(), kIgnoredTarget) : kept;
}

int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache) {
  TORCH_CHECK_VALUE(!cache || cache->options().layers == sizes.num_layers, sizes.caller,
                    ": expected a cache of ", sizes.num_layers, " layers, got ", cache->options().layers);
  check_tokens(sizes.caller, "ids", ids);
  const auto first = cache ? cache->position() : 0;
  check_context(sizes.caller, first + ids.size(1) - (cache ? cache->least_padding() : 0),
                sizes.context_length);
  check_indices(sizes.caller, "ids", ids, sizes.vocab_size);
  return first;
}

at::Tensor positions_after(const at::Tensor& starts, int64_t first, int64_t tokens) {
  return (at::arange(first, first + tokens, starts.options()) - starts.unsqueeze(1)).clamp_min(0);
}

at::Tensor tokens_with_logits(const at::Tensor& x, Logits which, const PaddedRows& rows) {
  if (which == Logits::All || x.size(1) <= 1) return x;
  if (!rows.ends.defined()) return x.narrow(1, x.size(1) - 1, 1);
  return x.gather(1, (rows.ends - 1).view({-1, 1, 1}).expand({-1, 1, x.size(2)}));
}

at::Tensor LogitHead::logits(const at::Tensor& x) const {
  const auto plain = attentive::linear(x, weight);
  return softcap ? plain.div(*softcap).tanh().mul(*softcap) : plain;
}

namespace {

// The targets as int64, of which some are in the vocabulary and all others equal kIgnoredTarget.
at::Tensor checked_targets(const DecoderSizes& sizes, const PaddedRows& rows, const at::Tensor& targets) {
  const auto result = rows.targets_of(targets.to(at::kLong));
  if (result.numel() == 0 || result.is_meta() || result.min().item<int64_t>() != kIgnoredTarget) {
    check_indices(sizes.caller, "targets", result, sizes.vocab_size);
    return result;
  }
  const auto counted = result.masked_select(result.ne(kIgnoredTarget));
  TORCH_CHECK_VALUE(counted.numel() > 0, sizes.caller, ": expected a target that is not ", kIgnoredTarget,
                    ", got ", kIgnoredTarget, " alone");
  check_indices(sizes.caller, "targets", counted, sizes.vocab_size);
  return result;
}

}  // namespace

at::Tensor next_token_loss(const DecoderSizes& sizes, const PaddedRows& rows, const at::Tensor& targets,
                           const LogitHead& head, const std::function<at::Tensor()>& features) {
  check_tokens(sizes.caller, "ids", rows.ids);
  check_defined(sizes.caller, "targets", targets);
  TORCH_CHECK_VALUE(targets.sizes() == rows.given.sizes(), sizes.caller, ": expected targets of shape ",
                    shape_string(rows.given.sizes()), ", got ", shape_string(targets.sizes()));
  TORCH_CHECK_VALUE(at::isIntegralType(targets.scalar_type(), /*includeBool=*/false), sizes.caller,
                    ": expected targets as integers, got ", describe(targets));
  const auto wanted = checked_targets(sizes, rows, targets);
  const auto bytes = at::elementSize(autocast_type(head.weight.scalar_type(), head.weight.device()));
  if (rows.ids.numel() > kMostLogitBytes / (sizes.vocab_size * static_cast<int64_t>(bytes)))
    return linear_cross_entropy(features(), head.weight, wanted,
                                {.ignore_index = kIgnoredTarget, .softcap = head.softcap});
  const auto logits = head.logits(features()).flatten(0, 1);
  // The loss is float32 for half types, as in chunks.
  return at::cross_entropy_loss(logits.to(c10::promoteTypes(logits.scalar_type(), at::kFloat)),
                                wanted.flatten(), {}, at::Reduction::Mean, kIgnoredTarget);
}

std::unique_ptr<KVCache> empty_cache(const DecoderSizes& sizes, const TransformerAttentionImpl& attention,
                                     const at::Tensor& weight, int64_t batch, int64_t capacity,
                                     int64_t window) {
  const KVCacheOptions options{sizes.num_layers,
                               batch,
                               attention.num_kv_heads(),
                               attention.head_dim(),
                               autocast_type(weight.scalar_type(), weight.device()),
                               weight.device()};
  if (window > 0 && sizes.context_length == 0) return std::make_unique<RingKVCache>(options, window);
  return std::make_unique<DenseKVCache>(options, capacity == 0 ? sizes.context_length : capacity);
}

}  // namespace attentive
