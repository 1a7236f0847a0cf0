#pragma once

// Saved-tensor hooks, as Python's torch.autograd.graph.saved_tensors_hooks sets them: a program that offloads
// what autograd saves hands back copies, which lie elsewhere and may have other strides.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace attentive::test {

/// Gives the same numbers in other memory.
struct SavedTensorHook {
  const char* name;
  at::Tensor (*moved)(const at::Tensor&);
};

inline constexpr SavedTensorHook kSavedTensorHooks[] = {
    {"copies", [](const at::Tensor& x) { return x.clone(); }},
    {"dimensions in reverse order",
     [](const at::Tensor& x) {
       std::vector<int64_t> reverse(static_cast<size_t>(x.dim()));
       std::iota(reverse.rbegin(), reverse.rend(), 0);
       return x.permute(reverse).clone(at::MemoryFormat::Contiguous).permute(reverse);
     }},
    {"every other number of a larger tensor",
     [](const at::Tensor& x) {
       const auto between = x.is_floating_point() ? at::full_like(x, NAN) : at::zeros_like(x);
       return at::stack({x, between}, -1).select(-1, 0);
     }},
    {"one number for all that are equal",
     [](const at::Tensor& x) {
       auto once = x.clone();
       for (int64_t d = 0; d < x.dim(); ++d) {
         const auto all = once.slice(d, 0, 1).expand(x.sizes());
         if (x.numel() > 0 && all.equal(x)) once = all;
       }
       return once;
     }},
};

/// While it lives, whatever autograd saves, on any thread, comes back as the hook returns it.
class SavedTensorHooksGuard {
 public:
  explicit SavedTensorHooksGuard(const SavedTensorHook& hook) {
    HookedEngine::instance().hook = &hook;
    torch::autograd::set_default_engine_stub(
        []() -> torch::autograd::Engine& { return HookedEngine::instance(); });
  }
  ~SavedTensorHooksGuard() {
    torch::autograd::set_default_engine_stub(&torch::autograd::Engine::get_base_engine);
  }
  SavedTensorHooksGuard(const SavedTensorHooksGuard&) = delete;
  SavedTensorHooksGuard& operator=(const SavedTensorHooksGuard&) = delete;

 private:
  using variable_list = torch::autograd::variable_list;
  struct Hooks : torch::autograd::SavedVariableHooks {
    explicit Hooks(const SavedTensorHook& hook_) : hook(hook_) {}
    void call_pack_hook(const at::Tensor& x) override {
      kept = x.layout() == at::kStrided ? hook.moved(x.detach()) : x.detach();  // a sparse one has no strides
    }
    at::Tensor call_unpack_hook() override { return kept; }
    const SavedTensorHook& hook;
    at::Tensor kept;
  };
  // LibTorch asks its engine for the hooks. This one leaves the work to LibTorch's own.
  struct HookedEngine : torch::autograd::Engine {
    static HookedEngine& instance() {
      static auto* const engine = new HookedEngine;
      return *engine;
    }
    std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
      return std::make_unique<Hooks>(*hook);
    }
    variable_list execute(const torch::autograd::edge_list& roots, const variable_list& inputs,
                          bool keep_graph, bool create_graph, bool accumulate_grad,
                          const torch::autograd::edge_list& outputs) override {
      return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    }
    const SavedTensorHook* hook = nullptr;
  };
};

/// The gradients of a scalar at the leaves, those of a backward pass with a graph, and if `twice`, the
/// gradients of the sum of their squares.
inline std::vector<std::vector<at::Tensor>> derivatives_of(const std::function<at::Tensor()>& loss,
                                                           const std::vector<at::Tensor>& leaves,
                                                           bool twice = true) {
  using torch::autograd::grad;
  const auto value = loss();
  std::vector<std::vector<at::Tensor>> found{grad({value}, leaves, {}, /*retain_graph=*/true)};
  auto first = grad({value}, leaves, {}, true, /*create_graph=*/true);
  auto squares = at::zeros({}, at::kDouble);
  for (const auto& x : first) squares = squares + x.to(at::kDouble).square().sum();
  if (twice) {
    found.push_back(grad({squares}, leaves, {}, /*retain_graph=*/true, false, /*allow_unused=*/true));
    for (auto& x : found.back()) x = x.defined() ? x : at::zeros({}, at::kDouble);
  }
  found.push_back(std::move(first));
  return found;
}

/// How far these derivatives are from others, relative to the largest number of each list.
inline double distance(const std::vector<std::vector<at::Tensor>>& got,
                       const std::vector<std::vector<at::Tensor>>& want) {
  double worst = 0.0;
  for (size_t list = 0; list < want.size(); ++list) {
    double largest = 0.0, error = 0.0;
    for (size_t n = 0; n < want[list].size(); ++n) {
      const auto x = want[list][n].to(at::kDouble), difference = (got[list][n].to(at::kDouble) - x).abs();
      if (x.numel() == 0) continue;
      largest = std::max(largest, x.abs().max().item<double>());
      const auto off = difference.max().item<double>();
      error = std::isnan(off) ? INFINITY : std::max(error, off);
    }
    worst = std::max(worst, error / std::max(largest, 1e-30));
  }
  return worst;
}

}  // namespace attentive::test
