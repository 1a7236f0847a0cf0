#include "functional/adapted_weight.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace attentive {
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
    const auto product = dense_product({adapter_, 0, 0, weight_.size(0)});
    return (weight_.to(product.scalar_type()) + product).to(weight_.scalar_type());
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
