#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <attentive/core/module_state.h>
#include <attentive/files/state_dict.h>

#include "base/strings.h"
#include "core/check.h"
#include "files/state_dict_file.h"
#include "files/state_entries.h"

namespace attentive {
namespace {

// Parameters and buffers by name; the tensors share memory with the module.
StateDict tensors_of(const torch::nn::Module& module) {
  StateDict result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace(item.key(), item.value());
  return result;
}

// The keys of the causal masks that the Python classes keep as buffers, with the masks' side length (0: any).
std::map<std::string, int64_t> causal_masks_of(const torch::nn::Module& module) {
  std::map<std::string, int64_t> result;
  const auto add = [&](const std::string& prefix, const torch::nn::Module& part) {
    if (const auto* owner = dynamic_cast<const CausalMaskBuffer*>(&part)) {
      result.emplace(prefix + "mask", owner->context_length());
    }
  };
  // named_modules() cannot include the module itself: it would need a shared_ptr to it, which a caller need
  // not have.
  add("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add(item.key() + ".", *item.value());
  return result;
}

at::Tensor causal_mask(int64_t side) {
  return at::ones({side, side}, at::kFloat).triu(1);
}

// The reason why `mask` is not the causal mask of this side length; empty if it is.
std::string refuse_mask(const at::Tensor& mask, int64_t side) {
  if (const auto reason = refuse_source(mask); !reason.empty()) return reason;
  const bool square = mask.dim() == 2 && mask.size(0) == mask.size(1);
  if (!square || (side > 0 && mask.size(0) != side)) {
    return fmt::format("expected a causal mask of {}, got {}",
                       side > 0 ? fmt::format("shape ({0}, {0})", side) : "square shape", describe(mask));
  }
  const auto like = at::empty({1}, at::kFloat).expand(mask.sizes());
  if (const auto reason = refuse_tensor(mask, like); !reason.empty()) return reason;
  if (!mask.to(at::kCPU, at::kFloat).equal(causal_mask(mask.size(0)))) {
    return "expected a causal mask with ones strictly above the diagonal and zeros elsewhere, got other "
           "numbers";
  }
  return {};
}

// Recognises Hugging Face's GPT-2 by a name that no module of this package uses.
bool names_gpt2(const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [](const std::string& key) { return matches("*h.*.attn.c_attn.weight", key); });
}

// Advice for the case that only a prefix distinguishes the dict's keys from the module's.
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

// The copies that a load will make, and the tensors that do not fit.
struct LoadPlan {
  LoadStateReport report;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // target, source
};

LoadPlan plan_load(const torch::nn::Module& module, const StateDict& state, const LoadStateOptions& options) {
  const auto ignored = [&](const std::string& key) { return matches_any(options.ignore, key); };
  const auto targets = tensors_of(module);
  const auto masks = causal_masks_of(module);
  LoadPlan plan;
  for (const auto& [key, source] : state) {
    if (ignored(key)) continue;
    TORCH_CHECK_VALUE(source.defined(), "load_state_dict: expected ", key,
                      " to be a tensor, got an undefined one");
    const auto target = targets.find(key);
    const auto mask = masks.find(key);
    if (target == targets.end() && mask == masks.end()) {
      plan.report.unexpected.push_back(key);
      continue;
    }
    const auto reason =
        target != targets.end() ? refuse_tensor(source, target->second) : refuse_mask(source, mask->second);
    if (!reason.empty()) {
      plan.report.misshapen.push_back(fmt::format("{}: {}", key, reason));
    } else if (target != targets.end()) {
      plan.copies.emplace_back(target->second, source);
    }
  }
  for (const auto& [key, target] : targets) {
    if (!state.count(key) && !ignored(key)) plan.report.missing.push_back(key);
  }
  constexpr size_t most = 10;
  const auto* hint = names_gpt2(plan.report.unexpected)
                         ? ". These are the names of Hugging Face's GPT-2: "
                           "attentive::from_python_names(\"gpt2\", state) translates them"
                         : "";
  TORCH_CHECK_VALUE(!options.strict || plan.report.empty(), "load_state_dict: the state dict does not fit ",
                    module.name(), "; nothing was changed", hint, ":\n", plan.report.to_string(most),
                    prefix_hint(state, targets));
  return plan;
}

}  // namespace

std::string LoadStateReport::to_string(size_t most) const {
  std::string text;
  const auto add = [&](std::string_view title, const std::vector<std::string>& keys) {
    const auto line = [&](std::string_view what) {
      text += fmt::format("{}{}", text.empty() ? "" : "\n", what);
    };
    const auto shown = std::min(most, keys.size());
    for (size_t n = 0; n < shown; ++n) line(fmt::format("{} {}", title, keys[n]));
    if (shown < keys.size()) line(fmt::format("... and {} more {}", keys.size() - shown, title));
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("misshapen", misshapen);
  return text;
}

void check_state_dict(const torch::nn::Module& module, const StateDict& state) {
  (void)plan_load(module, state, {});
}

LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options) {
  auto [report, copies] = plan_load(module, state, options);
  // Parameters made under InferenceMode can only be written under it; others may be written under it too.
  const c10::InferenceMode writable;
  // A source may be another parameter of the same module (two keys swapped), so all such sources are cloned
  // before anything is written.
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
