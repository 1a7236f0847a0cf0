#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/nn/cloneable.h>

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
};

/// A module whose Python class keeps its causal mask as a buffer called `mask`, (context_length,
/// context_length) with ones above the diagonal. Here the mask is not state; code that reads or writes Python
/// state dicts asks this interface.
class CausalMaskBuffer {
 public:
  virtual ~CausalMaskBuffer() = default;
  /// Side of the mask; 0 if the number of tokens is not limited.
  virtual int64_t context_length() const = 0;
};

}  // namespace attentive
