#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <attentive/cache/kv_cache.h>

#include "core/check.h"

namespace attentive {
namespace {

constexpr const char* kWho = "KVCache";

void check_size(const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, kWho, ": expected ", name, " > 0, got ", value);
}

int64_t checked_chunk(int64_t window, int64_t chunk) {
  check_size("window", window);
  if (chunk == 0) return window;
  check_size("chunk", chunk);
  return chunk;
}

}  // namespace

KVCache::KVCache(KVCacheOptions options, int64_t slots) : options_(options), slots_(slots) {
  check_size("layers", options.layers);
  check_size("batch", options.batch);
  check_size("num_kv_heads", options.num_kv_heads);
  check_size("head_dim", options.head_dim);
  TORCH_CHECK_TYPE(at::isFloatingType(options.dtype), kWho, ": expected a floating dtype, got ",
                   options.dtype);
  layers_.resize(static_cast<size_t>(options.layers));
  allocate();
}

void KVCache::allocate() {
  const auto type = at::TensorOptions(options_.dtype).device(options_.device);
  for (auto& layer : layers_) {
    layer.k = at::empty({options_.batch, options_.num_kv_heads, slots_, options_.head_dim}, type);
    layer.v = at::empty_like(layer.k);
  }
}

int64_t KVCache::position(int64_t layer) const {
  return layers_.at(static_cast<size_t>(layer)).position;
}

int64_t KVCache::stored(int64_t layer) const {
  const auto& its = layers_.at(static_cast<size_t>(layer));
  return its.end - its.begin;
}

size_t KVCache::bytes() const {
  return 2 * layers_.size() * layers_[0].k.nbytes();
}

void KVCache::check_new(int64_t layer, const at::Tensor& k, const at::Tensor& v) const {
  TORCH_CHECK_VALUE(layer >= 0 && layer < options_.layers, kWho, ": expected a layer in [0, ",
                    options_.layers, "), got ", layer);
  check_defined(kWho, "k", k);
  check_defined(kWho, "v", v);
  TORCH_CHECK_VALUE(k.dim() == 4 && k.size(0) == options_.batch && k.size(1) == options_.num_kv_heads &&
                        k.size(3) == options_.head_dim && v.sizes() == k.sizes(),
                    kWho, ": expected k and v of shape (", options_.batch, ", ", options_.num_kv_heads,
                    ", T, ", options_.head_dim, "), got ", shape_string(k.sizes()), " and ",
                    shape_string(v.sizes()), "; reset(batch) starts with another batch");
  TORCH_CHECK_TYPE(k.scalar_type() == options_.dtype && v.scalar_type() == options_.dtype, kWho,
                   ": expected k and v of dtype ", options_.dtype, ", got ", k.scalar_type(), " and ",
                   v.scalar_type());
  const auto device = layers_[0].k.device();
  TORCH_CHECK_VALUE(k.device() == device && v.device() == device, kWho, ": expected k and v on ", device,
                    ", got ", k.device(), " and ", v.device());
  TORCH_CHECK_VALUE(
      !(at::GradMode::is_enabled() && (k.requires_grad() || v.requires_grad())), kWho,
      ": expected at::NoGradGuard around a cached forward pass, got keys that require gradients");
  const auto& its = layers_[static_cast<size_t>(layer)];
  if (layer == 0) {
    const bool level = std::all_of(layers_.begin(), layers_.end(),
                                   [&](const Layer& other) { return other.position == its.position; });
    TORCH_CHECK_VALUE(level, kWho,
                      ": expected the other layers before layer 0 again: the last forward pass did "
                      "not reach them all; reset() starts anew");
  } else {
    const auto& before = layers_[static_cast<size_t>(layer) - 1];
    TORCH_CHECK_VALUE(its.position + k.size(2) == before.position, kWho, ": expected layer ", layer,
                      " to append the ", before.position - its.position, " tokens that layer ", layer - 1,
                      " appended, got ", k.size(2));
  }
}

std::pair<at::Tensor, at::Tensor> KVCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  check_new(layer, k, v);
  const at::NoGradGuard no_grad;
  auto& its = layers_[static_cast<size_t>(layer)];
  const auto tokens = k.size(2);
  make_room(its, tokens);
  its.k.narrow(2, its.end, tokens).copy_(k);
  its.v.narrow(2, its.end, tokens).copy_(v);
  its.end += tokens;
  its.position += tokens;
  return {its.k.narrow(2, its.begin, its.end - its.begin), its.v.narrow(2, its.begin, its.end - its.begin)};
}

void KVCache::reset() {
  for (auto& layer : layers_) layer.begin = layer.end = layer.position = 0;
}

void KVCache::reset(int64_t batch) {
  check_size("batch", batch);
  reset();
  if (batch == options_.batch) return;
  options_.batch = batch;
  allocate();
}

void KVCache::check_between_passes(const char* what) const {
  const bool level = layers_.front().position == layers_.back().position;
  TORCH_CHECK_VALUE(level, kWho, ": expected ", what, " between two forward passes, got it inside one");
}

void KVCache::reorder(const at::Tensor& rows) {
  check_defined(kWho, "rows", rows);
  check_between_passes("reorder");
  TORCH_CHECK_VALUE(rows.dim() == 1 && rows.size(0) > 0 && at::isIntegralType(rows.scalar_type(), false),
                    kWho, ": expected rows as integers of shape (B,), got ", describe(rows));
  const auto index = rows.to(at::kLong);
  const auto low = index.min().item<int64_t>(), high = index.max().item<int64_t>();
  TORCH_CHECK_VALUE(low >= 0 && high < options_.batch, kWho, ": expected rows in [0, ", options_.batch,
                    "), got ", low < 0 ? low : high);
  const at::NoGradGuard no_grad;
  const bool same_size = index.size(0) == options_.batch;
  const auto place = index.to(layers_[0].k.device());
  options_.batch = index.size(0);
  for (auto& layer : layers_) {
    for (auto* tensor : {&layer.k, &layer.v}) {
      const auto kept = tensor->narrow(2, layer.begin, layer.end - layer.begin).index_select(0, place);
      if (!same_size)
        *tensor = at::empty({options_.batch, kept.size(1), slots_, kept.size(3)}, tensor->options());
      tensor->narrow(2, layer.begin, layer.end - layer.begin).copy_(kept);
    }
  }
}

void KVCache::truncate(int64_t length) {
  check_between_passes("truncate");
  const auto& first = layers_.front();
  TORCH_CHECK_VALUE(length >= 0 && length <= first.position, kWho, ": expected a length in [0, ",
                    first.position, "], got ", length);
  TORCH_CHECK_VALUE(length == first.position || first.end - first.begin == first.position, kWho,
                    ": expected a cache that has forgotten nothing, got one that holds ",
                    first.end - first.begin, " of ", first.position, " tokens");
  for (auto& layer : layers_) {
    layer.end -= layer.position - length;
    layer.position = length;
  }
}

DenseKVCache::DenseKVCache(KVCacheOptions options, int64_t capacity)
    : KVCache(options, (check_size("capacity", capacity), capacity)) {}

int64_t DenseKVCache::room() const {
  return slots() - layers()[0].end;
}

void DenseKVCache::make_room(Layer& layer, int64_t tokens) {
  TORCH_CHECK_VALUE(layer.end + tokens <= slots(), "DenseKVCache: expected at most capacity = ", slots(),
                    " tokens, got ", layer.end, " + ", tokens);
}

RingKVCache::RingKVCache(KVCacheOptions options, int64_t window, int64_t chunk)
    : KVCache(options, window - 1 + checked_chunk(window, chunk)),
      window_(window),
      chunk_(checked_chunk(window, chunk)) {}

void RingKVCache::make_room(Layer& layer, int64_t tokens) {
  TORCH_CHECK_VALUE(tokens <= chunk_, "RingKVCache: expected at most chunk = ", chunk_,
                    " tokens at once, got ", tokens);
  layer.begin = std::max(layer.begin, layer.end - (window_ - 1));
  if (layer.end + tokens <= slots()) return;
  const auto kept = layer.end - layer.begin;
  for (auto* tensor : {&layer.k, &layer.v}) {
    const auto source = tensor->narrow(2, layer.begin, kept);
    // Where the two ranges overlap, a copy in place would read what it has written.
    tensor->narrow(2, 0, kept).copy_(layer.begin >= kept ? source : source.clone());
  }
  layer.begin = 0;
  layer.end = kept;
}

}  // namespace attentive
