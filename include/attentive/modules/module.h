#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <attentive/io/causal_mask_buffer.h>

namespace attentive {

/// Saves the state of the default CPU generator and puts it back at the end of its life.
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

/// Runs a module's `reset`; memory that is refused is refused by the module's name (c10::OutOfMemoryError).
void build_module(const std::type_info& type, const std::function<void()>& reset);

/// Throws c10::ValueError that names the holder of such a module as empty.
[[noreturn]] void fail_empty_holder(const std::type_info& type);

}  // namespace detail

/// Base of every module here: a `torch::nn::Cloneable` whose `clone()` leaves the random state as it was.
/// (`Cloneable::clone` runs `reset()`, which draws initial weights and would shift everything drawn
/// afterwards.)
template <class Derived>
class Module : public torch::nn::Cloneable<Derived> {
 public:
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    const RandomStateGuard guard;
    return torch::nn::Cloneable<Derived>::clone(device);
  }

 protected:
  /// What a constructor calls in place of `reset()`.
  void build() {
    detail::build_module(typeid(Derived), [this] { this->reset(); });
  }
};

/// The holder of a module: `torch::nn::ModuleHolder`, except that an empty one says by name that it is empty.
/// Throws c10::ValueError wherever the module of an empty holder is asked for.
///
///   using MultiHeadAttention = ModuleHolder<MultiHeadAttentionImpl>;  // in place of TORCH_MODULE
template <class Contained>
class ModuleHolder : public torch::nn::ModuleHolder<Contained> {
  using Base = torch::nn::ModuleHolder<Contained>;

 public:
  using Impl = Contained;

  // Not inherited: g++ would name this line for a caller's mistake, not the caller's.
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
    if (this->is_empty()) detail::fail_empty_holder(typeid(Contained));
  }
};

}  // namespace attentive
