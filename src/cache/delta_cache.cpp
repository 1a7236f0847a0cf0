#include <utility>

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

}  // namespace

DeltaCache::DeltaCache(DeltaCacheOptions options) : options_(options) {
  check_size(kDeltaCache, "layers", options.layers);
  check_size(kDeltaCache, "batch", options.batch);
  check_size(kDeltaCache, "conv_dim", options.conv_dim);
  check_size(kDeltaCache, "kernel", options.kernel);
  check_size(kDeltaCache, "num_heads", options.num_heads);
  check_size(kDeltaCache, "key_dim", options.key_dim);
  check_size(kDeltaCache, "value_dim", options.value_dim);
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
  check_defined(kDeltaCache, "padding", padding);
  for (const auto& layer : layers_) {
    TORCH_CHECK_VALUE(layer.position == 0, kDeltaCache,
                      ": expected padding before the first token, got it after ", layer.position);
  }
  const NormalTensorsGuard kept;
  padding_ = checked_padding(kDeltaCache, padding, options_.batch, options_.device);
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
  check_size(kDeltaCache, "batch", batch);
  if (batch != options_.batch) layers_ = empty_layers(batch);
  options_.batch = batch;
  reset();
}

void DeltaCache::reorder(const at::Tensor& rows) {
  check_defined(kDeltaCache, "rows", rows);
  const auto index = checked_rows(kDeltaCache, rows, options_.batch);
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
    result[std::to_string(n) + ".conv"] = layers_[n].conv;
    result[std::to_string(n) + ".recurrent"] = layers_[n].recurrent;
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
  const auto& first = saved.find("0.conv");
  TORCH_CHECK_VALUE(first.dim() == 3 && first.size(0) > 0, kDeltaCache, ": expected 0.conv of shape (B, ",
                    options_.conv_dim, ", ", options_.kernel, "), got ", shape_string(first.sizes()));
  const auto batch = first.size(0);
  const auto positions = saved.positions(options_.layers);
  auto layers = empty_layers(batch);
  for (size_t n = 0; n < layers.size(); ++n) {
    auto& [conv, recurrent, position] = layers[n];
    conv.copy_(saved.take(std::to_string(n) + ".conv", conv.scalar_type(), conv.sizes()));
    recurrent.copy_(saved.take(std::to_string(n) + ".recurrent", recurrent.scalar_type(), recurrent.sizes()));
    position = positions.const_data_ptr<int64_t>()[n];
  }
  auto padding = saved.padding(batch, options_.device);
  layers_ = std::move(layers);
  padding_ = std::move(padding);
  options_.batch = batch;
}

}  // namespace attentive
