#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <attentive/cache/delta_cache.h>

#include "cache/saved_state.h"
#include "core/check.h"
#include "core/normal_tensors.h"

namespace attentive {
namespace {

constexpr const char* kDeltaCache = "DeltaCache";

void check_size_of(const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, kDeltaCache, ": expected ", name, " > 0, got ", value);
}

std::string name_of(size_t layer, const char* part) {
  return std::to_string(layer) + "." + part;
}

void check_integers(const char* name, const at::Tensor& x) {
  check_defined(kDeltaCache, name, x);
  TORCH_CHECK_VALUE(x.dim() == 1 && x.size(0) > 0 && !x.is_meta() &&
                        at::isIntegralType(x.scalar_type(), /*includeBool=*/false),
                    kDeltaCache, ": expected ", name, " as integers of shape (B,), got ", describe(x));
}

}  // namespace

DeltaCache::DeltaCache(DeltaCacheOptions options) : options_(options) {
  check_size_of("layers", options.layers);
  check_size_of("batch", options.batch);
  check_size_of("conv_dim", options.conv_dim);
  check_size_of("kernel", options.kernel);
  check_size_of("num_heads", options.num_heads);
  check_size_of("key_dim", options.key_dim);
  check_size_of("value_dim", options.value_dim);
  TORCH_CHECK_TYPE(at::isFloatingType(options.dtype), kDeltaCache, ": expected a floating dtype, got ",
                   options.dtype);
  layers_ = empty_layers(options.batch);
}

DeltaCache::DeltaCache(const DeltaCache& other)
    : options_(other.options_), layers_(other.layers_), padding_(other.padding_) {
  const NormalTensorsGuard kept;
  for (auto& layer : layers_) {
    layer.conv = layer.conv.clone();
    layer.recurrent = layer.recurrent.clone();
  }
}

DeltaCache& DeltaCache::operator=(DeltaCache other) noexcept {
  std::swap(options_, other.options_);
  std::swap(layers_, other.layers_);
  std::swap(padding_, other.padding_);
  return *this;
}

std::vector<DeltaCache::Layer> DeltaCache::empty_layers(int64_t batch) const {
  return with_allocation_errors(kDeltaCache, std::to_string(options_.layers) + " layers", [&] {
    const NormalTensorsGuard kept;
    const auto type = at::TensorOptions(options_.dtype).device(options_.device);
    const auto sums = type.dtype(c10::promoteTypes(options_.dtype, at::kFloat));
    std::vector<Layer> layers(static_cast<size_t>(options_.layers));
    for (auto& layer : layers) {
      layer.conv = at::zeros({batch, options_.conv_dim, options_.kernel}, type);
      layer.recurrent = at::zeros({batch, options_.num_heads, options_.key_dim, options_.value_dim}, sums);
    }
    return layers;
  });
}

const DeltaCache::Layer& DeltaCache::layer(int64_t index) const {
  TORCH_CHECK_VALUE(index >= 0 && index < options_.layers, kDeltaCache, ": expected a layer in [0, ",
                    options_.layers, "), got ", index);
  return layers_[static_cast<size_t>(index)];
}

DeltaCache::Layer& DeltaCache::layer(int64_t index) {
  return const_cast<Layer&>(std::as_const(*this).layer(index));
}

size_t DeltaCache::bytes() const {
  return layers_.size() * (layers_[0].conv.nbytes() + layers_[0].recurrent.nbytes());
}

void DeltaCache::set_padding(const at::Tensor& padding) {
  check_integers("padding", padding);
  TORCH_CHECK_VALUE(padding.size(0) == options_.batch, kDeltaCache, ": expected padding of shape (",
                    options_.batch, ",), got ", shape_string(padding.sizes()));
  for (const auto& layer : layers_) {
    TORCH_CHECK_VALUE(layer.position == 0, kDeltaCache,
                      ": expected padding before the first token, got it after ", layer.position);
  }
  const NormalTensorsGuard kept;
  auto counts = padding.to(options_.device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
  const auto least = counts.min().item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0, kDeltaCache, ": expected padding >= 0, got ", least);
  padding_ = counts.max().item<int64_t>() > 0 ? std::move(counts) : at::Tensor();
}

void DeltaCache::reset() {
  for (auto& layer : layers_) {
    layer.conv.zero_();
    layer.recurrent.zero_();
    layer.position = 0;
  }
  padding_ = at::Tensor();
}

void DeltaCache::reset(int64_t batch) {
  check_size_of("batch", batch);
  if (batch == options_.batch) return reset();
  layers_ = empty_layers(batch);
  options_.batch = batch;
  padding_ = at::Tensor();
}

void DeltaCache::reorder(const at::Tensor& rows) {
  check_integers("rows", rows);
  const auto index = rows.to(at::kLong);
  const auto low = index.min().item<int64_t>(), high = index.max().item<int64_t>();
  TORCH_CHECK_VALUE(low >= 0 && high < options_.batch, kDeltaCache, ": expected rows in [0, ", options_.batch,
                    "), got ", low < 0 ? low : high);
  const NormalTensorsGuard kept;
  const auto place = index.to(options_.device);
  auto layers = layers_;
  auto padding = padding_;
  with_allocation_errors(kDeltaCache, "the new batch", [&] {
    for (auto& layer : layers) {
      layer.conv = layer.conv.index_select(0, place);
      layer.recurrent = layer.recurrent.index_select(0, place);
    }
    if (padding.defined()) padding = padding.index_select(0, place);
  });
  layers_ = std::move(layers);
  padding_ = std::move(padding);
  options_.batch = index.size(0);
}

std::map<std::string, at::Tensor> DeltaCache::tensors() const {
  std::map<std::string, at::Tensor> result;
  std::vector<int64_t> positions;
  for (size_t n = 0; n < layers_.size(); ++n) {
    result[name_of(n, "conv")] = layers_[n].conv;
    result[name_of(n, "recurrent")] = layers_[n].recurrent;
    positions.push_back(layers_[n].position);
  }
  result["positions"] = at::tensor(positions, at::kLong);
  if (padding_.defined()) result["padding"] = padding_;
  return result;
}

void DeltaCache::load(const std::map<std::string, at::Tensor>& tensors) {
  const NormalTensorsGuard kept;
  const auto known = this->tensors();
  const SavedState saved(kDeltaCache, tensors, known);
  const auto& first = saved.find(name_of(0, "conv"));
  TORCH_CHECK_VALUE(first.dim() == 3 && first.size(0) > 0, kDeltaCache, ": expected 0.conv of shape (B, ",
                    options_.conv_dim, ", ", options_.kernel, "), got ", shape_string(first.sizes()));
  const auto batch = first.size(0);
  const auto positions = saved.positions(options_.layers);
  auto layers = empty_layers(batch);
  for (size_t n = 0; n < layers.size(); ++n) {
    auto& [conv, recurrent, position] = layers[n];
    conv.copy_(saved.take(name_of(n, "conv"), conv.scalar_type(), conv.sizes()));
    recurrent.copy_(saved.take(name_of(n, "recurrent"), recurrent.scalar_type(), recurrent.sizes()));
    position = positions.const_data_ptr<int64_t>()[n];
  }
  at::Tensor padding;
  if (saved.has("padding"))
    padding = saved.take("padding", at::kLong, {batch}).to(options_.device, at::kLong, false, /*copy=*/true);
  layers_ = std::move(layers);
  padding_ = std::move(padding);
  options_.batch = batch;
}

}  // namespace attentive
