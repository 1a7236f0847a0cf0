#include "functional/adapters.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/mm.h>

#include "core/modes.h"
#include "functional/elementwise.h"

namespace attentive {
namespace {

struct AdaptedWeight {
  at::Tensor weight;  // keeps the key of the table valid
  std::vector<AdaptedRows> rows;
};

struct AdapterTable {
  std::shared_mutex mutex;
  std::unordered_map<const c10::TensorImpl*, AdaptedWeight> weights;
  std::atomic<size_t> size{0};
};

// Not destroyed: modules may outlive static objects.
AdapterTable& adapter_table() {
  static auto* const table = new AdapterTable;
  return *table;
}

bool no_adapters() {
  return adapter_table().size.load(std::memory_order_relaxed) == 0;
}

std::vector<AdaptedRows> active_adapters_of(const at::Tensor& weight) {
  auto rows = adapters_of(weight);
  std::erase_if(rows, [](const AdaptedRows& one) { return one.adapter->merged.load(); });
  return rows;
}

at::Tensor rows_of_b(const AdaptedRows& rows) {
  const auto& b = rows.adapter->b;
  return rows.count == b.size(0) ? b : b.narrow(0, rows.first_of_b, rows.count);
}

// Products of one input with the A of several adapters, each computed once.
class InnerProducts {
 public:
  explicit InnerProducts(const at::Tensor& x) : x_(x) {}

  const at::Tensor& of(const LowRank& adapter) {
    for (const auto& [known, product] : products_) {
      if (known == &adapter) return product;
    }
    auto x = x_;
    if (adapter.dropout > 0 && adapter.training.load()) x = drop_features(x, adapter.dropout, true);
    if (!is_autocast(x.device())) x = x.to(adapter.a.scalar_type());
    return products_.emplace_back(&adapter, attentive::linear(x, adapter.a)).second;
  }

 private:
  const at::Tensor& x_;
  std::vector<std::pair<const LowRank*, at::Tensor>> products_;
};

}  // namespace

void put_adapter(const at::Tensor& weight, const AdaptedRows& rows) {
  auto& table = adapter_table();
  const std::unique_lock lock(table.mutex);
  auto& entry = table.weights[weight.unsafeGetTensorImpl()];
  entry.weight = weight;
  entry.rows.push_back(rows);
  table.size = table.weights.size();
}

void remove_adapter(const LowRank& adapter) {
  auto& table = adapter_table();
  std::vector<AdaptedWeight> released;  // destroyed without the lock
  const std::unique_lock lock(table.mutex);
  for (auto item = table.weights.begin(); item != table.weights.end();) {
    auto& entry = item->second;
    std::erase_if(entry.rows, [&](const AdaptedRows& rows) { return rows.adapter.get() == &adapter; });
    if (entry.rows.empty()) {
      released.push_back(std::move(entry));
      item = table.weights.erase(item);
    } else {
      ++item;
    }
  }
  table.size = table.weights.size();
}

std::vector<AdaptedRows> adapters_of(const at::Tensor& weight) {
  if (no_adapters()) return {};
  auto& table = adapter_table();
  const std::shared_lock lock(table.mutex);
  const auto found = table.weights.find(weight.unsafeGetTensorImpl());
  return found == table.weights.end() ? std::vector<AdaptedRows>() : found->second.rows;
}

bool is_adapted(at::ArrayRef<LinearLayer> layers) {
  return !no_adapters() && std::any_of(layers.begin(), layers.end(), [](const LinearLayer& layer) {
    return !active_adapters_of(layer.weight).empty();
  });
}

std::vector<at::Tensor> adapter_products(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  std::vector<at::Tensor> additions(layers.size());
  if (no_adapters()) return additions;
  InnerProducts inner(x);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto outputs = layers[i].weight.size(0);
    for (const auto& rows : active_adapters_of(layers[i].weight)) {
      auto addition = attentive::linear(inner.of(*rows.adapter), rows_of_b(rows)) * rows.adapter->scale;
      if (rows.count < outputs)
        addition = at::constant_pad_nd(addition, {rows.first, outputs - rows.first - rows.count});
      additions[i] = additions[i].defined() ? additions[i] + addition : addition;
    }
  }
  return additions;
}

at::Tensor with_addition(const at::Tensor& y, const at::Tensor& addition) {
  return addition.defined() ? (y + addition).to(y.scalar_type()) : y;
}

at::Tensor dense_product(const AdaptedRows& rows) {
  const auto& a = rows.adapter->a;
  const auto wide = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::mm(rows_of_b(rows).to(wide), a.to(wide)) * rows.adapter->scale;
}

}  // namespace attentive
