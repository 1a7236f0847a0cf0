#include <algorithm>
#include <set>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <attentive/io/state_dict.h>
#include <attentive/modules/module.h>

#include "core/check.h"
#include "io/state_dict_file.h"

namespace attentive {
namespace {

// `*` stands for any run of characters.
bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the last star take one character more
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// Parameters and buffers by name; the tensors share memory with the module.
StateDict tensors_of(const torch::nn::Module& module) {
  StateDict result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace(item.key(), item.value());
  return result;
}

// Keys of the causal masks that the Python class keeps as buffers, with their sides (0: any).
std::map<std::string, int64_t> causal_masks_of(const torch::nn::Module& module) {
  std::map<std::string, int64_t> result;
  const auto add = [&](const std::string& prefix, const torch::nn::Module& part) {
    if (const auto* owner = dynamic_cast<const CausalMaskBuffer*>(&part)) {
      result.emplace(prefix + "mask", owner->context_length());
    }
  };
  // The module itself apart: listing it would ask for a shared_ptr to it, which a caller need not have.
  add("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add(item.key() + ".", *item.value());
  return result;
}

at::Tensor causal_mask(int64_t side) {
  return at::ones({side, side}).triu(1);
}

// Why `mask` is not the causal mask of this side; empty if it is.
std::string refuse_mask(const at::Tensor& mask, int64_t side) {
  const bool square = mask.dim() == 2 && mask.size(0) == mask.size(1);
  if (!square || (side > 0 && mask.size(0) != side)) {
    return fmt::format("expected a causal mask of {}, got {}",
                       side > 0 ? fmt::format("shape ({0}, {0})", side) : "square shape", describe(mask));
  }
  if (mask.is_complex() || !mask.to(at::kCPU, at::kFloat).equal(causal_mask(mask.size(0)))) {
    return "expected a causal mask with ones strictly above the diagonal and zeros elsewhere, got other "
           "numbers";
  }
  return {};
}

std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) {
    return fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  }
  if (got.is_complex() != want.is_complex()) {
    return fmt::format("expected dtype {}, got {}", c10::toString(want.scalar_type()),
                       c10::toString(got.scalar_type()));
  }
  return {};
}

// What a caller can do whose keys differ from the module's by a prefix alone.
std::string prefix_hint(const StateDict& state, const StateDict& targets) {
  const auto prefix = wrapper_prefix(state);
  const bool fits = !prefix.empty() && std::any_of(state.begin(), state.end(), [&](const auto& item) {
    return targets.count(item.first.substr(prefix.size())) > 0;
  });
  if (!fits) return {};
  return fmt::format(
      "\nevery key begins with \"{0}\", which a wrapper put there: "
      "attentive::without_prefix(state, \"{0}\") takes it off",
      prefix);
}

}  // namespace

std::string LoadStateReport::to_string() const {
  std::string text;
  const auto add = [&](std::string_view title, const std::vector<std::string>& keys) {
    for (const auto& key : keys) text += fmt::format("{}{} {}", text.empty() ? "" : "\n", title, key);
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("misshapen", misshapen);
  return text;
}

LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options) {
  const auto ignored = [&](const std::string& key) {
    return std::any_of(options.ignore.begin(), options.ignore.end(),
                       [&](const std::string& pattern) { return matches(pattern, key); });
  };
  const auto targets = tensors_of(module);
  const auto masks = causal_masks_of(module);
  LoadStateReport report;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [key, source] : state) {
    if (ignored(key)) continue;
    check_defined("load_state_dict", key, source);
    const auto target = targets.find(key);
    const auto mask = masks.find(key);
    if (target == targets.end() && mask == masks.end()) {
      report.unexpected.push_back(key);
      continue;
    }
    const auto reason =
        target != targets.end() ? refuse_tensor(source, target->second) : refuse_mask(source, mask->second);
    if (!reason.empty()) {
      report.misshapen.push_back(fmt::format("{}: {}", key, reason));
    } else if (target != targets.end()) {
      copies.emplace_back(target->second, source);
    }
  }
  for (const auto& [key, target] : targets) {
    if (!state.count(key) && !ignored(key)) report.missing.push_back(key);
  }
  TORCH_CHECK_VALUE(!options.strict || report.empty(), "load_state_dict: the state dict does not fit ",
                    module.name(), "; nothing was changed:\n", report.to_string(),
                    prefix_hint(state, targets));
  const at::NoGradGuard no_grad;
  // A source may be another parameter of this very module (two keys swapped): read all of those before
  // writing any.
  std::set<const c10::StorageImpl*> written;
  for (const auto& [target, source] : copies) written.insert(target.storage().unsafeGetStorageImpl());
  for (auto& [target, source] : copies) {
    if (written.count(source.storage().unsafeGetStorageImpl())) source = source.clone();
  }
  for (auto& [target, source] : copies) target.copy_(source);
  return report;
}

StateDict state_dict(const torch::nn::Module& module, const StateDictOptions& options) {
  StateDict result;
  for (const auto& [key, tensor] : tensors_of(module)) result.emplace(key, tensor.detach());
  if (!options.causal_mask_buffers) return result;
  const auto parameters = module.parameters();
  for (const auto& [key, side] : causal_masks_of(module)) {
    TORCH_CHECK_VALUE(side > 0, "state_dict: expected a limited context_length for the buffer \"", key,
                      "\", got 0 (no limit)");
    result.emplace(key,
                   parameters.empty() ? causal_mask(side) : causal_mask(side).to(parameters[0].options()));
  }
  return result;
}

}  // namespace attentive
