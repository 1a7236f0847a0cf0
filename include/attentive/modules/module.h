#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <attentive/core/module_state.h>
#include <attentive/modules/print_options.h>

namespace attentive {

/// While an object of this class lives, modules of this package that the same thread builds draw no first
/// weights: their parameters have the right shapes, undefined values, and no random number is drawn. Use it
/// for a model whose weights are loaded next: drawing the weights of a large model takes longer than reading
/// them, and memory that is never written takes no physical memory.
///
///   std::optional<attentive::NoFirstWeights> guard(std::in_place);
///   attentive::Llama model(options);
///   guard.reset();
///   attentive::load_state_dict(*model, state);
class NoFirstWeights {
 public:
  NoFirstWeights();
  ~NoFirstWeights();
  NoFirstWeights(const NoFirstWeights&) = delete;
  NoFirstWeights& operator=(const NoFirstWeights&) = delete;
};

/// Saves the state of the default CPU generator and restores it in its destructor.
class RandomStateGuard {
 public:
  RandomStateGuard();
  ~RandomStateGuard();
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  at::Tensor state_;
};

namespace detail {

/// Runs a module's `reset`. If memory cannot be allocated, the c10::OutOfMemoryError names the module.
void build_module(const char* name, const std::function<void()>& reset);

/// Throws c10::ValueError, beginning with `caller`, if the module has adapters (models/lora.h).
void refuse_adapters(const char* caller, const torch::nn::Module& module);

/// Throws c10::ValueError that names the holder as empty.
[[noreturn]] void fail_empty_holder(const char* name);

}  // namespace detail

/// Base of every module: a `torch::nn::Cloneable` that prints its options, and whose `clone()` draws no first
/// weights and leaves the random state unchanged. (`Cloneable::clone` runs `reset()`, which would draw them,
/// only to have them overwritten, and shift everything drawn afterwards.) A module with adapters
/// (models/lora.h) cannot be cloned: `clone()` throws c10::ValueError.
///
/// `Derived` has `kName`, its public name without "attentive::", with which every error message begins, and
/// `options`, a struct with `ATTENTIVE_OPTIONS`.
///
///   std::cout << attentive::LayerNorm(768);  // attentive::LayerNorm(emb_dim=768, eps=1e-05, bias=true)
template <class Derived>
class Module : public torch::nn::Cloneable<Derived> {
 public:
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    detail::refuse_adapters(Derived::kName, *this);
    const NoFirstWeights no_weights;
    const RandomStateGuard guard;  // for layers of a derived class that draw weights nevertheless
    return torch::nn::Cloneable<Derived>::clone(device);
  }

  /// Writes the name and every option.
  void pretty_print(std::ostream& stream) const override {
    detail::print_options(stream, Derived::kName,
                          detail::option_texts(static_cast<const Derived&>(*this).options));
  }

 protected:
  /// Runs `reset()`; constructors call it instead of `reset()`, so that an error names the module.
  void build() {
    detail::build_module(Derived::kName, [this] { this->reset(); });
  }
};

/// The holder of a module: `torch::nn::ModuleHolder`, except that access to the module of an empty holder
/// throws c10::ValueError with the name of the class. `Contained` has `kName`.
///
///   using MultiHeadAttention = ModuleHolder<MultiHeadAttentionImpl>;  // instead of TORCH_MODULE
template <class Contained>
class ModuleHolder : public torch::nn::ModuleHolder<Contained> {
  using Base = torch::nn::ModuleHolder<Contained>;

 public:
  using Impl = Contained;

  // These constructors are not inherited, because g++ would report a caller's mistake at the line that
  // inherits them.
  ModuleHolder() = default;
  ModuleHolder(std::nullptr_t) : Base(nullptr) {}                               // NOLINT
  ModuleHolder(std::shared_ptr<Contained> module) : Base(std::move(module)) {}  // NOLINT
  template <class Head, class... Tail>
  requires(sizeof...(Tail) > 0 ||
           !torch::detail::is_module_holder_of<Head, Contained>::value) explicit ModuleHolder(Head&& head,
                                                                                              Tail&&... tail)
      : Base(std::shared_ptr<Contained>(
            new Contained(std::forward<Head>(head), std::forward<Tail>(tail)...))) {}

  Contained* operator->() { return get(); }
  const Contained* operator->() const { return get(); }
  Contained& operator*() { return *get(); }
  const Contained& operator*() const { return *get(); }
  Contained* get() { return check(), this->impl_.get(); }
  const Contained* get() const { return check(), this->impl_.get(); }
  const std::shared_ptr<Contained>& ptr() const { return check(), this->impl_; }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return get()->forward(std::forward<Args>(args)...);
  }

 private:
  void check() const {
    if (this->is_empty()) detail::fail_empty_holder(Contained::kName);
  }
};

}  // namespace attentive
