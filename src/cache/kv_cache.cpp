#include <algorithm>
#include <initializer_list>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <attentive/cache/kv_cache.h>

#include "cache/saved_state.h"
#include "core/autocast_modes.h"
#include "core/check.h"
#include "core/normal_tensors.h"

namespace attentive {
namespace {

constexpr const char* kKVCache = "KVCache";

int64_t checked_chunk(int64_t window, int64_t chunk) {
  check_size(kKVCache, "window", window);
  if (chunk == 0) return window;
  check_size(kKVCache, "chunk", chunk);
  return chunk;
}

// Returns window - 1 + chunk, checked for overflow.
int64_t ring_slots(int64_t window, int64_t chunk) {
  const auto most = checked_chunk(window, chunk);
  int64_t slots = 0;
  TORCH_CHECK_VALUE(!__builtin_add_overflow(window - 1, most, &slots), kKVCache,
                    ": expected window - 1 + chunk below 2^63, got ", window, " - 1 + ", most);
  return slots;
}

// Returns the bytes of all keys and values, checked for overflow.
int64_t checked_bytes(const KVCacheOptions& options, int64_t batch, int64_t slots) {
  int64_t bytes =
      (options.values_in_keys == 0 ? 2 : 1) * static_cast<int64_t>(c10::elementSize(options.dtype));
  bool fits = true;
  for (const auto size : {options.layers, batch, options.num_kv_heads, slots, options.head_dim})
    fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
  TORCH_CHECK_VALUE(fits, kKVCache, ": expected fewer than 2^63 bytes, got layers = ", options.layers,
                    ", batch = ", batch, ", num_kv_heads = ", options.num_kv_heads, ", slots = ", slots,
                    ", head_dim = ", options.head_dim);
  return bytes;
}

// Whether a cache of dtype `kept` may take numbers of dtype `given`. Under autocast, attention casts its
// inputs: the cache may already hold the cast numbers, or hold the given ones exactly until attention casts
// them.
bool takes(at::ScalarType kept, at::ScalarType given, at::Device device) {
  const auto read = autocast_type(given, device);
  if (kept == given || kept == read) return true;
  const bool exact = at::isFloatingType(given) && at::promote_types(kept, given) == kept;
  return exact && autocast_type(kept, device) == read;
}

}  // namespace

KVCache::KVCache(KVCacheOptions options, int64_t slots) : options_(options), slots_(slots) {
  check_size(kKVCache, "layers", options.layers);
  check_size(kKVCache, "batch", options.batch);
  check_size(kKVCache, "num_kv_heads", options.num_kv_heads);
  check_size(kKVCache, "head_dim", options.head_dim);
  TORCH_CHECK_VALUE(options.values_in_keys >= 0 && options.values_in_keys <= options.head_dim, kKVCache,
                    ": expected values_in_keys in [0, head_dim = ", options.head_dim, "], got ",
                    options.values_in_keys);
  TORCH_CHECK_TYPE(at::isFloatingType(options.dtype), kKVCache, ": expected a floating dtype, got ",
                   options.dtype);
  layers_ = empty_layers(options.batch);
}

std::vector<KVCache::Layer> KVCache::empty_layers(int64_t batch) const {
  const auto bytes = checked_bytes(options_, batch, slots_);
  return with_allocation_errors(kKVCache, std::to_string(bytes) + " bytes", [&] {
    const NormalTensorsGuard kept;
    const auto type = at::TensorOptions(options_.dtype).device(options_.device);
    std::vector<Layer> layers(static_cast<size_t>(options_.layers));
    for (auto& layer : layers) {
      layer.k = at::empty({batch, options_.num_kv_heads, slots_, options_.head_dim}, type);
      if (options_.values_in_keys == 0) layer.v = at::empty_like(layer.k);
    }
    return layers;
  });
}

const KVCache::Layer& KVCache::checked_layer(int64_t layer) const {
  TORCH_CHECK_VALUE(layer >= 0 && layer < options_.layers, kKVCache, ": expected a layer in [0, ",
                    options_.layers, "), got ", layer);
  return layers_[static_cast<size_t>(layer)];
}

int64_t KVCache::position(int64_t layer) const {
  return checked_layer(layer).position;
}

int64_t KVCache::stored(int64_t layer) const {
  const auto& held = checked_layer(layer);
  return held.end - held.begin;
}

size_t KVCache::bytes() const {
  return (options_.values_in_keys == 0 ? 2 : 1) * layers_.size() * layers_[0].k.nbytes();
}

void KVCache::check_new(int64_t layer, const at::Tensor& k, const at::Tensor& given_v) const {
  const auto& current = checked_layer(layer);
  check_defined(kKVCache, "k", k);
  TORCH_CHECK_VALUE(options_.values_in_keys == 0 || !given_v.defined(), kKVCache,
                    ": expected no v, since values are the first ", options_.values_in_keys,
                    " features of the keys (values_in_keys), got ", describe(given_v));
  if (options_.values_in_keys == 0) check_defined(kKVCache, "v", given_v);
  const auto& v = given_v.defined() ? given_v : k;
  TORCH_CHECK_VALUE(k.dim() == 4 && k.size(0) == options_.batch && k.size(1) == options_.num_kv_heads &&
                        k.size(3) == options_.head_dim && v.sizes() == k.sizes(),
                    kKVCache, ": expected k and v of shape (", options_.batch, ", ", options_.num_kv_heads,
                    ", T, ", options_.head_dim, "), got ", shape_string(k.sizes()), " and ",
                    shape_string(v.sizes()), "; reset(batch) starts with another batch");
  const auto device = layers_[0].k.device();
  TORCH_CHECK_VALUE(k.device() == device && v.device() == device, kKVCache, ": expected k and v on ", device,
                    ", got ", k.device(), " and ", v.device());
  TORCH_CHECK_TYPE(
      takes(options_.dtype, k.scalar_type(), device) && takes(options_.dtype, v.scalar_type(), device),
      kKVCache, ": expected k and v of dtype ", options_.dtype, ", got ", k.scalar_type(), " and ",
      v.scalar_type());
  TORCH_CHECK_VALUE(
      !(at::GradMode::is_enabled() && (k.requires_grad() || v.requires_grad())), kKVCache,
      ": expected at::NoGradGuard around a cached forward pass, got keys that require gradients");
  if (layer == 0) {
    const bool level = std::all_of(layers_.begin(), layers_.end(),
                                   [&](const Layer& other) { return other.position == current.position; });
    TORCH_CHECK_VALUE(level, kKVCache,
                      ": expected the other layers before layer 0 again: the last forward pass did "
                      "not reach them all; reset() starts over");
  } else {
    const auto& before = layers_[static_cast<size_t>(layer) - 1];
    TORCH_CHECK_VALUE(current.position + k.size(2) == before.position, kKVCache, ": expected layer ", layer,
                      " to append the ", before.position - current.position, " tokens that layer ", layer - 1,
                      " appended, got ", k.size(2));
  }
}

std::pair<at::Tensor, at::Tensor> KVCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  check_new(layer, k, v);
  const at::NoGradGuard no_grad;
  auto& current = layers_[static_cast<size_t>(layer)];
  const auto tokens = k.size(2);
  make_room(current, tokens);
  current.k.narrow(2, current.end, tokens).copy_(k);
  if (current.v.defined()) current.v.narrow(2, current.end, tokens).copy_(v);
  current.end += tokens;
  current.position += tokens;
  const auto keys = current.k.narrow(2, current.begin, current.end - current.begin);
  return {keys, current.v.defined() ? current.v.narrow(2, current.begin, keys.size(2))
                                    : keys.narrow(3, 0, options_.values_in_keys)};
}

void KVCache::set_padding(const at::Tensor& padding) {
  check_defined(kKVCache, "padding", padding);
  TORCH_CHECK_VALUE(layers_.front().position == 0, kKVCache,
                    ": expected padding before the first token, got it after ", layers_.front().position);
  const NormalTensorsGuard kept;
  padding_ = checked_padding(kKVCache, padding, options_.batch, layers_[0].k.device());
  least_padding_ = padding_.defined() ? padding_.min().item<int64_t>() : 0;
}

void KVCache::reset() {
  for (auto& layer : layers_) layer.begin = layer.end = layer.position = 0;
  padding_ = at::Tensor();
  least_padding_ = 0;
}

void KVCache::reset(int64_t batch) {
  check_size(kKVCache, "batch", batch);
  if (batch != options_.batch) layers_ = empty_layers(batch);
  options_.batch = batch;
  reset();
}

void KVCache::check_between_passes(const char* what) const {
  const bool level = layers_.front().position == layers_.back().position;
  TORCH_CHECK_VALUE(level, kKVCache, ": expected ", what, " between two forward passes, got it inside one");
}

void KVCache::reorder(const at::Tensor& rows) {
  check_defined(kKVCache, "rows", rows);
  check_between_passes("reorder");
  const auto index = checked_rows(kKVCache, rows, options_.batch);
  const NormalTensorsGuard kept;
  const auto place = index.to(layers_[0].k.device());
  const auto padding = padding_.defined() ? padding_.index_select(0, place) : at::Tensor();
  const auto least = padding.defined() ? padding.min().item<int64_t>() : 0;
  const auto choose_padding = [&] {
    padding_ = padding;
    least_padding_ = least;
    for (auto& layer : layers_) {
      const auto hidden = least - (layer.position - (layer.end - layer.begin));
      layer.begin = std::clamp(layer.begin + hidden, layer.begin, layer.end);
    }
  };
  const auto held = [](const Layer& layer, const at::Tensor& tensor) {
    return tensor.narrow(2, layer.begin, layer.end - layer.begin);
  };
  // All memory is allocated before the first number moves, so that a failure leaves the cache unchanged.
  if (index.size(0) == options_.batch) {
    auto chosen = with_allocation_errors(kKVCache, "a layer",
                                         [&] { return at::empty_like(held(layers_[0], layers_[0].k)); });
    for (auto& layer : layers_) {
      for (const auto* tensor : {&layer.k, &layer.v}) {
        if (!tensor->defined()) continue;
        at::index_select_out(chosen, held(layer, *tensor), 0, place);
        held(layer, *tensor).copy_(chosen);
      }
    }
    return choose_padding();
  }
  auto layers = empty_layers(index.size(0));
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& from = layers_[i];
    auto& to = layers[i];
    to.begin = from.begin, to.end = from.end, to.position = from.position;
    held(to, to.k).copy_(held(from, from.k).index_select(0, place));
    if (to.v.defined()) held(to, to.v).copy_(held(from, from.v).index_select(0, place));
  }
  layers_ = std::move(layers);
  options_.batch = index.size(0);
  choose_padding();
}

void KVCache::truncate(int64_t length) {
  check_between_passes("truncate");
  const auto& first = layers_.front();
  TORCH_CHECK_VALUE(length >= 0 && length <= first.position, kKVCache, ": expected a length in [0, ",
                    first.position, "], got ", length);
  TORCH_CHECK_VALUE(length == first.position || first.end - first.begin >= first.position - least_padding_,
                    kKVCache, ": expected a cache that has dropped no tokens, got one that holds ",
                    first.end - first.begin, " of ", first.position, " tokens");
  for (auto& layer : layers_) {
    layer.end -= layer.position - length;
    layer.begin = std::min(layer.begin, layer.end);  // what is gone was padding
    layer.position = length;
  }
}

std::map<std::string, at::Tensor> KVCache::tensors() const {
  std::map<std::string, at::Tensor> result;
  std::vector<int64_t> positions;
  for (size_t n = 0; n < layers_.size(); ++n) {
    const auto& layer = layers_[n];
    const auto held = [&](const at::Tensor& x) { return x.narrow(2, layer.begin, layer.end - layer.begin); };
    result[std::to_string(n) + ".k"] = held(layer.k);
    if (layer.v.defined()) result[std::to_string(n) + ".v"] = held(layer.v);
    positions.push_back(layer.position);
  }
  result["positions"] = at::tensor(positions, at::kLong);
  if (padding_.defined()) result["padding"] = padding_;
  return result;
}

void KVCache::load(const std::map<std::string, at::Tensor>& tensors) {
  const NormalTensorsGuard kept;
  const auto known = this->tensors();
  const SavedState saved(kKVCache, tensors, known);
  const auto& first = saved.find("0.k");
  TORCH_CHECK_VALUE(first.dim() == 4 && first.size(0) > 0 && first.size(2) <= slots_, kKVCache,
                    ": expected 0.k of shape (B, ", options_.num_kv_heads, ", at most ", slots_, ", ",
                    options_.head_dim, "), got ", shape_string(first.sizes()));
  const auto batch = first.size(0), stored_tokens = first.size(2);
  const auto positions = saved.positions(options_.layers);
  const auto* const position = positions.const_data_ptr<int64_t>();
  auto layers = empty_layers(batch);
  for (size_t n = 0; n < layers.size(); ++n) {
    auto& layer = layers[n];
    TORCH_CHECK_VALUE(position[n] == position[0] && position[0] >= stored_tokens, kKVCache,
                      ": expected equal positions of at least ", stored_tokens, ", got ", position[n]);
    for (const auto& [part, to] : {std::pair(".k", layer.k), std::pair(".v", layer.v)}) {
      if (!to.defined()) continue;
      const auto held = to.narrow(2, 0, stored_tokens);
      held.copy_(saved.take(std::to_string(n) + part, options_.dtype, held.sizes()));
    }
    layer.end = stored_tokens;
    layer.position = position[n];
  }
  auto padding = saved.padding(batch, options_.device);
  least_padding_ = padding.defined() ? padding.min().item<int64_t>() : 0;
  layers_ = std::move(layers);
  padding_ = std::move(padding);
  options_.batch = batch;
}

DenseKVCache::DenseKVCache(KVCacheOptions options, int64_t capacity)
    : KVCache(options, (check_size(kKVCache, "capacity", capacity), capacity)) {}

int64_t DenseKVCache::room() const {
  return slots() - layers()[0].end;
}

void DenseKVCache::make_room(Layer& layer, int64_t tokens) {
  TORCH_CHECK_VALUE(layer.end + tokens <= slots(), "DenseKVCache: expected at most capacity = ", slots(),
                    " tokens, got ", layer.end, " + ", tokens);
}

RingKVCache::RingKVCache(KVCacheOptions options, int64_t window, int64_t chunk)
    : KVCache(options, ring_slots(window, chunk)), window_(window), chunk_(checked_chunk(window, chunk)) {}

void RingKVCache::make_room(Layer& layer, int64_t tokens) {
  TORCH_CHECK_VALUE(tokens <= chunk_, "RingKVCache: expected at most chunk = ", chunk_,
                    " tokens at once, got ", tokens);
  layer.begin = std::max(layer.begin, layer.end - (window_ - 1));
  if (layer.end + tokens <= slots()) return;
  const auto kept = layer.end - layer.begin;
  const auto source = [&](const at::Tensor& tensor) {
    const auto held = tensor.narrow(2, layer.begin, kept);
    // If the two ranges overlap, a copy in place would read numbers that it has already overwritten.
    return layer.begin >= kept ? held : held.clone();
  };
  // Both sources are made before the first number moves, because allocating a clone may fail.
  const auto k = source(layer.k), v = layer.v.defined() ? source(layer.v) : at::Tensor();
  layer.k.narrow(2, 0, kept).copy_(k);
  if (v.defined()) layer.v.narrow(2, 0, kept).copy_(v);
  layer.begin = 0;
  layer.end = kept;
}

}  // namespace attentive
