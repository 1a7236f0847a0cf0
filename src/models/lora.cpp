#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>

#include <attentive/models/lora.h>
#include <attentive/modules/module.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "files/state_fit.h"
#include "models/adapter_sites.h"
#include "models/families.h"
#include "models/python_names.h"

namespace attentive {
namespace {

constexpr std::string_view kWeight = ".weight";

// The names of a model's family, and whether Python's class puts the prefix before them.
struct FamilyNames {
  const Family* family = nullptr;
  bool prefixed = true;
};

FamilyNames family_names(const torch::nn::Module& model) {
  bool prefixed = true;
  if (const auto* bert = dynamic_cast<const BertImpl*>(&model))
    prefixed = bert->options.masked_lm() || bert->options.head() != BertHead::None;
  if (const auto* vit = dynamic_cast<const ViTImpl*>(&model)) prefixed = vit->options.num_classes() > 0;
  return {natural_family(model), prefixed};
}

std::string without_weight(std::string name) {
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

std::string parent_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// The last part of a name: "c_attn".
std::string short_name(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

// The name in the modules of transformers 5, which the tables list as an alias where saved weights have older
// names.
const NamePair& module_name(const NameTable& table, const NamePair& pair) {
  for (const auto& other : table.pairs()) {
    if ((other.flags & kAlias) != 0 && other.our_name == pair.our_name && other.part == pair.part &&
        short_name(other.python_name) == short_name(pair.python_name))
      return other;
  }
  return pair;
}

// Collects the sites of a model, layer by layer.
class Sites {
 public:
  explicit Sites(const std::shared_ptr<torch::nn::Module>& model) : names_(family_names(*model)) {
    if (names_.family) table_.emplace(names_.family->rules);
    for (const auto& item : model->named_modules()) modules_.emplace(item.key(), item.value());
    for (const auto& item : model->named_modules()) {
      // A weight that several names share has one adapter.
      const auto* layer = dynamic_cast<const torch::nn::LinearImpl*>(item.value().get());
      if (layer && seen_.insert(layer->weight.unsafeGetTensorImpl()).second) add(item.key(), layer->weight);
    }
  }

  std::vector<AdapterSite> take() { return std::move(sites_); }

 private:
  void add(const std::string& path, const at::Tensor& weight) {
    if (!table_) {
      put(path, path, "lora", {weight, 0, 0, weight.size(0)});
      return;
    }
    std::optional<int64_t> layer;
    for (const auto* pair : table_->of_our_name(path + std::string(kWeight), layer)) {
      if ((pair->flags & kFlattened) != 0 || pair->our_name == "out_head.weight") continue;
      const auto& written = module_name(*table_, *pair);
      const auto name = without_weight(table_->name_in_file(written, layer, names_.prefixed));
      const auto part = static_cast<int64_t>(pair->part), parts = static_cast<int64_t>(pair->parts);
      if (parts == 1) {
        put(name, path, "lora", {weight, 0, 0, weight.size(0)});
      } else if (pair->joined) {
        const auto rows = weight.size(0) / parts;
        put(name, path, "lora_" + short_name(name), {weight, part * rows, 0, rows});
      } else {
        put(name, parent_of(path), "lora", {weight, 0, 0, weight.size(0)});
      }
    }
  }

  // Layers of the same name make up one site.
  void put(const std::string& name, const std::string& owner, const std::string& child,
           AdapterSite::Rows rows) {
    auto site =
        std::find_if(sites_.begin(), sites_.end(), [&](const auto& known) { return known.name == name; });
    if (site == sites_.end()) {
      site = sites_.insert(site, {.name = name, .owner = modules_.at(owner), .child = child});
      site->features = rows.weight.size(1);
      site->own = is_own(owner);
    }
    rows.first_of_b = site->outputs;
    site->outputs += rows.count;
    site->rows.push_back(std::move(rows));
  }

  // Whether the layer belongs to a module of this package, at any distance. The name of the class decides,
  // because a program may derive classes from this package's, and they call the layers' own functions.
  bool is_own(std::string path) const {
    while (true) {
      if (modules_.at(path)->name().starts_with("attentive::")) return true;
      if (path.empty()) return false;
      path = parent_of(path);
    }
  }

  FamilyNames names_;
  std::optional<NameTable> table_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
  std::set<const c10::TensorImpl*> seen_;
  std::vector<AdapterSite> sites_;
};

}  // namespace

std::vector<AdapterSite> adapter_sites(const std::shared_ptr<torch::nn::Module>& model) {
  return Sites(model).take();
}

std::string site_name(const torch::nn::Module& model, std::string_view python_name) {
  return without_weight(parameter_name(model, std::string(python_name) + std::string(kWeight)));
}

std::string parameter_name(const torch::nn::Module& model, std::string_view python_name) {
  const auto names = family_names(model);
  if (!names.family) {
    const bool own = model.named_parameters().contains(std::string(python_name));
    return own ? std::string(python_name) : without_wrappers(python_name);
  }
  const NameTable table(names.family->rules);
  std::optional<int64_t> layer;
  for (const auto* pair : table.of_python_name(table.without_prefix(python_name), layer)) {
    std::optional<int64_t> same;
    for (const auto* written : table.of_our_name(with_layer(pair->our_name, layer), same)) {
      if (!pair->joined || written->part == pair->part)
        return table.name_in_file(module_name(table, *written), same, names.prefixed);
    }
  }
  return {};
}

std::vector<PythonParameter> python_parameters(const torch::nn::Module& model) {
  const auto names = family_names(model);
  std::optional<NameTable> table;
  if (names.family) table.emplace(names.family->rules);
  std::vector<PythonParameter> found;
  for (const auto& item : model.named_parameters()) {
    PythonParameter one{item.key(), item.value()};
    std::optional<int64_t> layer;
    if (!table) one.python_names = {one.name};
    for (const auto* pair : table ? table->of_our_name(one.name, layer) : std::vector<const NamePair*>()) {
      one.python_names.push_back(table->name_in_file(module_name(*table, *pair), layer, names.prefixed));
    }
    found.push_back(std::move(one));
  }
  return found;
}

StateDict to_python_parameters(const torch::nn::Module& model, const StateDict& own) {
  const auto names = family_names(model);
  if (!names.family) return own;
  PythonNamesOptions options{.prefix = names.prefixed};
  if (const auto* vit = dynamic_cast<const ViTImpl*>(&model)) options.channels = vit->options.channels();
  StateDict python;
  for (const auto& [name, tensor] : to_python_names(names.family->name, own, options))
    python[parameter_name(model, name)] = tensor;
  return python;
}

StateDict from_python_parameters(const torch::nn::Module& model, const StateDict& python) {
  const auto* family = natural_family(model);
  return family ? from_python_names(family->name, python) : python;
}

bool belongs_to(std::string_view parameter, const std::vector<std::string>& modules) {
  for (auto end = parameter.rfind('.'); end != std::string_view::npos && end > 0;
       end = parameter.rfind('.', end - 1)) {
    const auto module = parameter.substr(0, end);
    for (const auto& one : modules) {
      if (!one.empty() && module.ends_with(one)) return true;
    }
  }
  return false;
}

bool ties_embedding(const torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  const bool decoder = dynamic_cast<const GPTImpl*>(&model) || dynamic_cast<const LlamaImpl*>(&model);
  return (decoder && !parameters.contains("out_head.weight")) ||
         (dynamic_cast<const BertImpl*>(&model) && parameters.contains("mlm_bias"));
}

namespace {

constexpr const char* kLora = "Lora";

// The layers that peft adapts if it is not told which; empty if it has to be told.
std::vector<std::string> default_targets(const torch::nn::Module& model) {
  const auto* family = natural_family(model);
  if (!family) return {};
  return {family->peft_targets.begin(), family->peft_targets.end()};
}

// Whether peft adapts a layer for this target: all of them, the name, or its end.
bool is_target(std::string_view target, std::string_view name) {
  if (target == "all-linear" || target == name) return true;
  return !target.empty() && name.size() > target.size() && name.ends_with(target) &&
         name[name.size() - target.size() - 1] == '.';
}

// The shortest list of targets for which peft adapts exactly the layers `chosen` among `all`: short names
// where they suffice.
std::vector<std::string> targets_of(const std::vector<std::string>& chosen,
                                    const std::vector<std::string>& all) {
  const std::set<std::string> wanted(chosen.begin(), chosen.end());
  std::set<std::string> targets;
  for (const auto& name : chosen) {
    const auto last = short_name(name);
    const bool whole = std::all_of(all.begin(), all.end(), [&](const std::string& other) {
      return !is_target(last, other) || wanted.contains(other);
    });
    targets.insert(whole ? last : name);
  }
  return {targets.begin(), targets.end()};
}

LoraOptions checked_lora(LoraOptions options) {
  const auto check_rank = [](int64_t rank) {
    TORCH_CHECK_VALUE(rank >= 1, kLora, ": expected rank >= 1, got ", rank);
  };
  const auto check_alpha = [](double alpha) {
    TORCH_CHECK_VALUE(std::isfinite(alpha), kLora, ": expected a finite alpha, got ", alpha);
  };
  check_rank(options.rank);
  check_alpha(options.alpha);
  for (const auto& [key, rank] : options.rank_pattern) check_rank(rank);
  for (const auto& [key, alpha] : options.alpha_pattern) check_alpha(alpha);
  check_probability(kLora, "dropout", options.dropout);
  return options;
}

std::vector<std::string> names_of(const std::vector<AdapterSite>& sites) {
  std::vector<std::string> names;
  for (const auto& site : sites) names.push_back(site.name);
  return names;
}

std::string known_targets(const std::vector<AdapterSite>& sites) {
  std::set<std::string> known;
  for (const auto& site : sites) known.insert(short_name(site.name));
  return fmt::format("{}", fmt::join(known, ", "));
}

// The sites that the targets name.
std::vector<AdapterSite> chosen_sites(const std::vector<AdapterSite>& sites,
                                      const std::vector<std::string>& targets) {
  TORCH_CHECK_VALUE(!sites.empty(), kLora, ": expected a model with linear layers, got one without");
  TORCH_CHECK_VALUE(!targets.empty(), kLora,
                    ": expected targets, which peft does not choose for this model, got none; known are ",
                    known_targets(sites), " and all-linear");
  std::vector<bool> chosen(sites.size());
  for (const auto& target : targets) {
    bool found = false;
    for (size_t i = 0; i < sites.size(); ++i) {
      if (!is_target(target, sites[i].name)) continue;
      chosen[i] = found = true;
    }
    TORCH_CHECK_VALUE(found, kLora, ": expected targets of ", known_targets(sites),
                      " and all-linear, or names that end in them, got \"", target, '"');
  }
  std::vector<AdapterSite> result;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (chosen[i]) result.push_back(sites[i]);
  }
  return result;
}

// A layer of torch::nn. It reads its member `weight`, and everything else the registered parameter.
torch::nn::LinearImpl& foreign_layer(const AdapterSite& site) {
  return dynamic_cast<torch::nn::LinearImpl&>(*site.owner);
}

void check_site(const AdapterSite& site, const LoraOptions& options) {
  TORCH_CHECK_VALUE(site.own || options.dropout == 0, kLora, ": expected dropout 0 for \"", site.name,
                    "\", a layer of torch::nn whose input its adapter does not see, got ", options.dropout);
  TORCH_CHECK_VALUE(!site.owner->named_children().contains(site.child), kLora, ": expected no child \"",
                    site.child, "\" of the layer \"", site.name, "\", got one");
  for (const auto& rows : site.rows) {
    TORCH_CHECK_TYPE(at::isFloatingType(rows.weight.scalar_type()), kLora,
                     ": expected a floating weight of \"", site.name, "\", got a ", describe(rows.weight));
    TORCH_CHECK_VALUE(rows.weight.device() == site.rows[0].weight.device(), kLora, ": expected \"", site.name,
                      "\" on one device, got ", rows.weight.device(), " and ", site.rows[0].weight.device());
  }
}

// Weights get the numbers of their copies.
void restore(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
  for (const auto& [weight, before] : copies) at::Tensor(weight).copy_(before);
}

double factor_of(int64_t rank, double alpha, bool rslora) {
  const auto wide = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(wide) : wide);
}

std::vector<PythonParameter> parameters_to_save(const torch::nn::Module& model,
                                                const std::vector<std::string>& modules) {
  std::vector<PythonParameter> chosen;
  if (modules.empty()) return chosen;
  for (auto& one : python_parameters(model)) {
    const auto& names = one.python_names;
    const auto count = std::count_if(names.begin(), names.end(),
                                     [&](const auto& name) { return belongs_to(name, modules); });
    if (count == 0) continue;
    TORCH_CHECK_VALUE(static_cast<size_t>(count) == names.size(), kLora, ": expected all of ",
                      fmt::format("{}", fmt::join(names, ", ")),
                      " in modules_to_save, which are one parameter here, got some");
    TORCH_CHECK_VALUE(one.name != "tok_emb.weight" || !ties_embedding(model), kLora,
                      ": expected modules_to_save without ", names[0], ", which the head shares");
    chosen.push_back(std::move(one));
  }
  TORCH_CHECK_VALUE(!chosen.empty(), kLora, ": expected modules_to_save of the model, got ",
                    fmt::format("{}", fmt::join(modules, ", ")));
  return chosen;
}

}  // namespace

Lora::Lora(LoraOptions options) : state_(std::make_shared<State>(checked_lora(std::move(options)))) {}

Lora Lora::attach(const std::shared_ptr<torch::nn::Module>& model) {
  TORCH_CHECK_VALUE(model, kLora, ": expected a model, got none");
  TORCH_CHECK_VALUE(!attached(), kLora, ": expected an object that is not attached, got one with a model");
  detail::refuse_adapters(kLora, *model);
  auto& options = state_->options;
  const auto all = adapter_sites(model);
  const auto sites = chosen_sites(all, options.targets.empty() ? default_targets(*model) : options.targets);
  for (const auto& site : sites) check_site(site, options);
  auto whole = parameters_to_save(*model, options.modules_to_save);
  const LayerValues ranks(options.rank_pattern, options.rank);
  const LayerValues alphas(options.alpha_pattern, options.alpha);
  decltype(options.rank_pattern) own_ranks;
  decltype(options.alpha_pattern) own_alphas;

  std::vector<State::Adapter> adapters;
  with_allocation_errors(kLora, "its adapters", [&] {
    for (const auto& site : sites) {
      const auto rank = ranks.of(site.name);
      const auto alpha = alphas.of(site.name);
      put_layer_value(own_ranks, site.name, rank, options.rank);
      put_layer_value(own_alphas, site.name, alpha, options.alpha);
      const LowRankShape shape{
          rank,        site.features, site.outputs, factor_of(rank, alpha, options.rslora), options.dropout,
          options.dora};
      adapters.push_back({site, std::make_shared<LowRankAdapterImpl>(shape, site.rows[0].weight)});
    }
  });
  std::vector<at::Tensor> sums;  // of the sites that are layers of torch::nn
  for (const auto& [site, module] : adapters)
    sums.push_back(site.own ? at::Tensor() : module->sum_with(site.rows[0].weight));
  std::vector<std::pair<at::Tensor, bool>> required;
  for (const auto& parameter : model->parameters()) {
    required.emplace_back(parameter, parameter.requires_grad());
    parameter.set_requires_grad(false);
  }
  for (const auto& one : whole) one.tensor.set_requires_grad(true);
  for (size_t i = 0; i < adapters.size(); ++i) {
    const auto& [site, module] = adapters[i];
    if (!site.own) foreign_layer(site).weight = sums[i];
    module->train(site.owner->is_training());
    site.owner->register_module(site.child, module);
    for (const auto& rows : site.rows) module->put_on(rows.weight, rows.first, rows.first_of_b, rows.count);
  }
  options.targets = targets_of(names_of(sites), names_of(all));
  options.rank_pattern = std::move(own_ranks);
  options.alpha_pattern = std::move(own_alphas);
  state_->whole = std::move(whole);
  state_->required = std::move(required);
  state_->adapters = std::move(adapters);
  state_->model = model;
  return *this;
}

void Lora::merge() {
  TORCH_CHECK_VALUE(attached(), kLora, ": expected attach(model) before merge()");
  TORCH_CHECK_VALUE(!merged(), kLora, ": expected adapters that are not merged, got merged ones");
  const NormalTensorsGuard kept;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;
  with_allocation_errors(kLora, "the weights before merge()", [&] {
    for (const auto& adapter : state_->adapters) {
      for (const auto& rows : adapter.site.rows) {
        const auto same = [&](const auto& one) { return one.first.is_same(rows.weight); };
        if (std::none_of(saved.begin(), saved.end(), same))
          saved.emplace_back(rows.weight, rows.weight.clone());
      }
    }
  });
  const auto add_products = [&] {
    for (const auto& weight_and_copy : saved) {
      for (const auto& rows : adapters_of(weight_and_copy.first)) {
        const auto product = dense_addition(rows, weight_and_copy.first);
        auto part = weight_and_copy.first.narrow(0, rows.first, rows.count);
        part.copy_(part.to(product.scalar_type()) + product);
      }
    }
  };
  try {
    with_allocation_errors(kLora, "a weight's product in merge()", add_products);
  } catch (...) {
    restore(saved);
    throw;
  }
  for (const auto& adapter : state_->adapters) adapter.module->low_rank().merged = true;
  state_->saved = std::move(saved);
}

void Lora::unmerge() {
  TORCH_CHECK_VALUE(merged(), kLora, ": expected merged adapters, got ones that are not merged");
  for (const auto& [weight, before] : state_->saved) {
    TORCH_CHECK_VALUE(weight.scalar_type() == before.scalar_type(), kLora, ": expected weights of ",
                      before.scalar_type(), " as before merge(), got ", weight.scalar_type());
  }
  const at::NoGradGuard no_grad;
  restore(state_->saved);
  for (const auto& adapter : state_->adapters) adapter.module->low_rank().merged = false;
  state_->saved.clear();
}

void Lora::detach() {
  TORCH_CHECK_VALUE(attached(), kLora, ": expected attach(model) before detach()");
  for (const auto& [site, module] : state_->adapters) {
    site.owner->unregister_module(site.child);
    remove_adapter(module->low_rank());
    if (!site.own) foreign_layer(site).weight = site.rows[0].weight;
  }
  for (const auto& [parameter, required] : state_->required) parameter.set_requires_grad(required);
  if (!merged()) {
    const at::NoGradGuard no_grad;
    restore(state_->replaced);
  }
  state_->replaced.clear();
  state_->whole.clear();
  state_->adapters.clear();
  state_->required.clear();
  state_->saved.clear();
  state_->model.reset();
}

bool Lora::attached() const {
  return state_->model != nullptr;
}

bool Lora::merged() const {
  return !state_->saved.empty();
}

std::vector<at::Tensor> Lora::parameters() const {
  std::vector<at::Tensor> found;
  for (const auto& adapter : state_->adapters) {
    const auto& low_rank = adapter.module->low_rank();
    found.insert(found.end(), {low_rank.a, low_rank.b});
  }
  for (const auto& adapter : state_->adapters) {
    const auto& magnitude = adapter.module->low_rank().magnitude;
    if (magnitude.defined()) found.push_back(magnitude);
  }
  for (const auto& one : state_->whole) found.push_back(one.tensor);
  return found;
}

std::vector<std::string> Lora::layers() const {
  std::vector<std::string> names;
  for (const auto& adapter : state_->adapters) names.push_back(adapter.site.name);
  return names;
}

std::string_view Lora::family() const {
  const auto* family = attached() ? natural_family(*state_->model) : nullptr;
  return family ? family->name : std::string_view();
}

const LoraOptions& Lora::options() const {
  return state_->options;
}

}  // namespace attentive
