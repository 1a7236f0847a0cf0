#include "functional/adapters.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "core/autocast_modes.h"
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

at::Tensor rows_of_weight(const AdaptedRows& rows, const at::Tensor& weight) {
  return weight.narrow(0, rows.first, rows.count).to(rows.adapter->a.scalar_type());
}

// scale * B A, in the dtype of the adapter, or float32 if that is a half type.
at::Tensor dense_product(const AdaptedRows& rows) {
  const auto& a = rows.adapter->a;
  const auto wide = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::mm(rows_of_b(rows).to(wide), a.to(wide)) * rows.adapter->scale;
}

// The magnitudes over the norms of `sum`, the rows of W + scale B A (https://arxiv.org/abs/2402.09353,
// section 4.3: no gradient flows through the norms).
at::Tensor magnitude_factors(const AdaptedRows& rows, const at::Tensor& sum) {
  return rows.adapter->magnitude.narrow(0, rows.first_of_b, rows.count) /
         at::linalg_vector_norm(sum.detach(), 2, 1);
}

// Products of one input with the A of several adapters, each computed once.
class InnerProducts {
 public:
  struct Product {
    const LowRank* adapter;
    at::Tensor x, value;
  };

  explicit InnerProducts(const at::Tensor& x) : x_(x) {}

  const Product& of(const LowRank& adapter) {
    for (const auto& known : products_) {
      if (known.adapter == &adapter) return known;
    }
    auto x = x_;
    if (adapter.dropout > 0 && adapter.training.load()) x = drop_features(x, adapter.dropout, true);
    if (!is_autocast(x.device())) x = x.to(adapter.a.scalar_type());
    return products_.emplace_back(Product{&adapter, x, attentive::linear(x, adapter.a)});
  }

 private:
  const at::Tensor& x_;
  std::vector<Product> products_;
};

// The factors for a layer's call, in which autocast must not round.
at::Tensor call_factors(const AdaptedRows& rows, const at::Tensor& weight) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::Tensor sum;
  {
    const at::NoGradGuard no_grad;
    sum = dense_product(rows) + weight;
  }
  return magnitude_factors(rows, sum);
}

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
      const auto& [adapter, in, product] = inner.of(*rows.adapter);
      auto addition = attentive::linear(product, rows_of_b(rows)) * adapter->scale;
      if (adapter->magnitude.defined()) {
        const auto weight = rows_of_weight(rows, layers[i].weight);
        const auto base = at::linear(in, weight);  // not attentive's, which would add this addition
        addition = (base + addition) * call_factors(rows, weight) - base;
      }
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

at::Tensor dense_addition(const AdaptedRows& rows, const at::Tensor& weight) {
  auto product = dense_product(rows);
  if (!rows.adapter->magnitude.defined()) return product;
  const auto base = rows_of_weight(rows, weight).to(product.scalar_type()), sum = base + product;
  return sum * magnitude_factors(rows, sum).unsqueeze(1) - base;
}

namespace {

// PyTorch reserves this key for wrappers in tests and registers nothing for it. It comes before autograd,
// autocast and every device, so that these see only the sum.
constexpr auto kSumKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

class AdaptedWeightImpl : public c10::TensorImpl {
 public:
  AdaptedWeightImpl(const at::Tensor& weight, std::shared_ptr<const LowRank> adapter)
      : c10::TensorImpl(weight.key_set().add(kSumKey), weight.dtype(), weight.device()),
        weight_(weight),
        adapter_(std::move(adapter)) {
    set_sizes_and_strides(weight.sizes(), weight.strides());
    set_storage_access_should_throw();
  }

  at::Tensor sum() const {
    if (adapter_->merged.load()) return weight_;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto addition = dense_addition({adapter_, 0, 0, weight_.size(0)}, weight_);
    return (weight_.to(addition.scalar_type()) + addition).to(weight_.scalar_type());
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool /*allow_change*/) const override {
    return copy(version);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool /*allow_change*/) const override {
    return copy(version);
  }

 private:
  c10::intrusive_ptr<TensorImpl> copy(const c10::VariableVersion& version) const {
    auto made = c10::make_intrusive<AdaptedWeightImpl>(weight_, adapter_);
    made->set_version_counter(version);
    return made;
  }

  at::Tensor weight_;
  std::shared_ptr<const LowRank> adapter_;
};

const AdaptedWeightImpl* adapted_impl(const at::Tensor& tensor) {
  return tensor.defined() ? dynamic_cast<const AdaptedWeightImpl*>(tensor.unsafeGetTensorImpl()) : nullptr;
}

// Replaces adapted weights in a value; returns whether there were any.
bool replace_by_sums(c10::IValue& value) {
  if (value.isTensor()) {
    const auto* impl = adapted_impl(value.toTensor());
    if (impl) value = impl->sum();
    return impl != nullptr;
  }
  if (!value.isList() && !value.isTensorList()) return false;
  bool found = false;
  c10::List<c10::IValue> list(value.toList().elementType());
  for (const c10::IValue& item : value.toList()) {
    auto one = item;
    found = replace_by_sums(one) || found;
    list.push_back(std::move(one));
  }
  if (found) value = list;
  return found;
}

// Stands for every operator that has an adapted weight among its arguments.
void compute_with_sums(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = *(stack->end() - static_cast<std::ptrdiff_t>(arguments.size() - i));
    if (!replace_by_sums(value)) continue;
    const auto* alias = arguments[i].alias_info();
    TORCH_CHECK_VALUE(!alias || !alias->isWrite(), "Lora: expected no change of a weight with an adapter by ",
                      op.schema().name(), "; change the module's parameter");
  }
  op.callBoxed(stack);
}

void register_sums() {
  // Tensors may outlive static objects, so it stays until the process ends.
  [[maybe_unused]] static const auto* const kept = [] {
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kSumKey, __FILE__, __LINE__);
    try {
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&compute_with_sums>());
    } catch (const c10::Error& error) {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "Lora: this LibTorch takes no adapters of torch::nn::Linear: ",
                                  error.what_without_backtrace());
    }
    return library.release();
  }();
}

}  // namespace

at::Tensor adapted_weight(const at::Tensor& weight, std::shared_ptr<const LowRank> adapter) {
  register_sums();
  return at::Tensor(c10::make_intrusive<AdaptedWeightImpl>(weight, std::move(adapter)));
}

}  // namespace attentive
