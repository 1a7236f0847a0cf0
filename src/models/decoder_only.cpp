#include "models/decoder_only.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/ScalarType.h>

#include <attentive/functional/linear_cross_entropy.h>

#include "core/autocast_modes.h"
#include "functional/linear.h"
#include "modules/checks.h"

namespace attentive {

int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache) {
  TORCH_CHECK_VALUE(!cache || cache->options().layers == sizes.num_layers, sizes.caller,
                    ": expected a cache of ", sizes.num_layers, " layers, got ", cache->options().layers);
  check_tokens(sizes.caller, "ids", ids);
  const auto first = cache ? cache->position() : 0;
  check_context(sizes.caller, first + ids.size(1), sizes.context_length);
  check_indices(sizes.caller, "ids", ids, sizes.vocab_size);
  return first;
}

at::Tensor tokens_with_logits(const at::Tensor& x, Logits which) {
  return which == Logits::Last && x.size(1) > 1 ? x.narrow(1, x.size(1) - 1, 1) : x;
}

at::Tensor LogitHead::logits(const at::Tensor& x) const {
  const auto plain = attentive::linear(x, weight);
  return softcap ? plain.div(*softcap).tanh().mul(*softcap) : plain;
}

namespace {

// The targets as int64, of which some are in the vocabulary and all others equal kIgnoredTarget.
at::Tensor checked_targets(const DecoderSizes& sizes, const at::Tensor& targets) {
  const auto result = targets.to(at::kLong);
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

at::Tensor next_token_loss(const DecoderSizes& sizes, const at::Tensor& ids, const at::Tensor& targets,
                           const LogitHead& head, const std::function<at::Tensor()>& features) {
  check_defined(sizes.caller, "ids", ids);
  check_defined(sizes.caller, "targets", targets);
  TORCH_CHECK_VALUE(targets.sizes() == ids.sizes(), sizes.caller, ": expected targets of shape ",
                    shape_string(ids.sizes()), ", got ", shape_string(targets.sizes()));
  TORCH_CHECK_VALUE(at::isIntegralType(targets.scalar_type(), /*includeBool=*/false), sizes.caller,
                    ": expected targets as integers, got ", describe(targets));
  const auto wanted = checked_targets(sizes, targets);
  const auto bytes = at::elementSize(autocast_type(head.weight.scalar_type(), head.weight.device()));
  if (ids.numel() > kMostLogitBytes / (sizes.vocab_size * static_cast<int64_t>(bytes)))
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
