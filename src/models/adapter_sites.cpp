#include "models/adapter_sites.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <torch/nn/modules/linear.h>

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

// The name of the module in transformers 5, which the tables list as an alias where saved weights have older
// names.
const NamePair& module_name(const NameTable& table, const NamePair& pair) {
  for (const auto& other : table.pairs()) {
    if ((other.flags & kAlias) != 0 && other.our_name == pair.our_name && other.part == pair.part)
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
  const auto names = family_names(model);
  if (!names.family) return std::string(python_name);
  const NameTable table(names.family->rules);
  std::optional<int64_t> layer;
  const auto plain = table.without_prefix(python_name) + std::string(kWeight);
  for (const auto* pair : table.of_python_name(plain, layer)) {
    std::optional<int64_t> same;
    for (const auto* written : table.of_our_name(with_layer(pair->our_name, layer), same)) {
      if (!pair->joined || written->part == pair->part)
        return without_weight(table.name_in_file(module_name(table, *written), same, names.prefixed));
    }
  }
  return {};
}

std::vector<std::string> default_targets(const torch::nn::Module& model) {
  const auto* family = natural_family(model);
  if (!family) return {};
  return {family->peft_targets.begin(), family->peft_targets.end()};
}

bool is_target(std::string_view target, std::string_view name) {
  if (target == "all-linear" || target == name) return true;
  return !target.empty() && name.size() > target.size() && name.ends_with(target) &&
         name[name.size() - target.size() - 1] == '.';
}

std::string short_name(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

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

}  // namespace attentive
