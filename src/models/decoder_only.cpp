#include "models/decoder_only.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "core/autocast.h"
#include "modules/checks.h"

namespace attentive {
namespace {

// An embedding would only say that an index is out of range; on a GPU it ends the process.
void check_tokens(const DecoderSizes& sizes, const char* name, const at::Tensor& ids) {
  if (ids.numel() == 0 || ids.is_meta()) return;
  const auto [low, high] = at::aminmax(ids);
  const auto least = low.item<int64_t>(), most = high.item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0 && most < sizes.vocab_size, sizes.who, ": expected ", name, " in [0, ",
                    sizes.vocab_size, "), got ", least < 0 ? least : most);
}

}  // namespace

int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache) {
  TORCH_CHECK_VALUE(!cache || cache->options().layers == sizes.num_layers, sizes.who,
                    ": expected a cache of ", sizes.num_layers, " layers, got ", cache->options().layers);
  check_defined(sizes.who, "ids", ids);
  TORCH_CHECK_VALUE(ids.dim() == 2 && (ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt),
                    sizes.who, ": expected ids as int64 or int32 of shape (B, T), got ", describe(ids));
  const auto first = cache ? cache->position() : 0;
  check_context(sizes.who, first + ids.size(1), sizes.context_length);
  check_tokens(sizes, "ids", ids);
  return first;
}

at::Tensor next_token_loss(const DecoderSizes& sizes, const at::Tensor& ids, const at::Tensor& targets,
                           const std::function<at::Tensor()>& logits) {
  check_defined(sizes.who, "ids", ids);
  check_defined(sizes.who, "targets", targets);
  TORCH_CHECK_VALUE(targets.sizes() == ids.sizes(), sizes.who, ": expected targets of shape ",
                    shape_string(ids.sizes()), ", got ", shape_string(targets.sizes()));
  TORCH_CHECK_VALUE(at::isIntegralType(targets.scalar_type(), /*includeBool=*/false), sizes.who,
                    ": expected targets as integers, got ", describe(targets));
  check_tokens(sizes, "targets", targets);
  return at::cross_entropy_loss(logits().flatten(0, 1), targets.flatten().to(at::kLong));
}

std::unique_ptr<KVCache> empty_cache(const DecoderSizes& sizes, const TransformerAttentionImpl& attention,
                                     const at::Tensor& weight, int64_t batch, int64_t capacity,
                                     int64_t window) {
  const KVCacheOptions its{sizes.num_layers,
                           batch,
                           attention.num_kv_heads(),
                           attention.head_dim(),
                           autocast_type(weight.scalar_type(), weight.device()),
                           weight.device()};
  if (window > 0 && sizes.context_length == 0) return std::make_unique<RingKVCache>(its, window);
  return std::make_unique<DenseKVCache>(its, capacity == 0 ? sizes.context_length : capacity);
}

}  // namespace attentive
