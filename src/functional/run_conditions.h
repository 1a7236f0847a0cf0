#pragma once

// A function that runs a second time must find the conditions of its first run: everything besides its inputs
// that its result depends on.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <attentive/core/options.h>

#include "functional/recording.h"

namespace attentive {

/// Generators, and the states that they had at one time.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators) : generators_(generators) {
    for (auto& generator : generators_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  void restore() const {
    for (size_t i = 0; i < states_.size(); ++i) {
      auto generator = generators_[i];
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(states_[i]);
    }
  }
  const std::vector<at::Generator>& generators() const { return generators_; }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

/// The settings of a thread that change how operations compute.
struct ThreadSettings {
  static constexpr at::DeviceType kDevices[] = {at::kCPU, at::kCUDA};
  struct Autocast {
    bool enabled;
    at::ScalarType type;
  };
  std::vector<Autocast> autocast;
  Backend backend = BackendGuard::current();
  DropoutStream stream = DropoutStreamGuard::current();

  ThreadSettings() {
    for (const auto device : kDevices) {
      autocast.push_back(
          {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
    }
  }
  void set_autocast() const {
    for (size_t i = 0; i < autocast.size(); ++i) {
      at::autocast::set_autocast_enabled(kDevices[i], autocast[i].enabled);
      at::autocast::set_autocast_dtype(kDevices[i], autocast[i].type);
    }
  }
};

/// Autocast keeps the casts of weights, with their place in the graph. The two runs must not find casts of
/// the code around them, or each other's.
class NoCastCache {
 public:
  NoCastCache() : enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoCastCache() { at::autocast::set_autocast_cache_enabled(enabled_); }
  NoCastCache(const NoCastCache&) = delete;
  NoCastCache& operator=(const NoCastCache&) = delete;

 private:
  bool enabled_;
};

/// Whether modules and their children are in training mode, parents first.
class TrainingFlags {
 public:
  explicit TrainingFlags(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    for (const auto& module : modules) {
      for (const auto& one : module->modules()) flags_.emplace_back(one, one->is_training());
    }
  }
  // Sets them, and returns those before.
  TrainingFlags exchange() const {
    auto before = *this;
    bool differ = false;
    for (auto& [module, flag] : before.flags_) {
      differ |= flag != module->is_training();
      flag = module->is_training();
    }
    if (differ) set();
    return before;
  }
  void set() const {
    for (const auto& [module, flag] : flags_) {
      if (module->is_training() != flag) module->train(flag);
    }
  }

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> flags_;
};

/// The conditions of one run.
struct RunConditions {
  RunConditions(const std::vector<at::Generator>& generators_,
                const std::vector<std::shared_ptr<torch::nn::Module>>& modules)
      : generators(generators_), training(modules) {}

  ThreadSettings settings;
  GeneratorStates generators;
  TrainingFlags training;
};

/// The conditions of the first run, for the duration of the second.
class SecondRun {
 public:
  explicit SecondRun(const RunConditions& first)
      : backend_(first.settings.backend),
        stream_(first.settings.stream),
        generators_(first.generators.generators()),
        training_(first.training.exchange()),
        listeners_(std::exchange(recording::listeners, nullptr)) {
    first.settings.set_autocast();
    first.generators.restore();
  }
  ~SecondRun() {
    recording::listeners = listeners_;
    training_.set();
    generators_.restore();
    settings_.set_autocast();
  }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  ThreadSettings settings_;
  BackendGuard backend_;
  DropoutStreamGuard stream_;
  at::AutoGradMode gradients_{true};
  NoCastCache no_cache_;
  GeneratorStates generators_;
  TrainingFlags training_;
  recording::Listeners* listeners_;
};

}  // namespace attentive
