#include "models/load_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/equal.h>
#include <fmt/ranges.h>

#include "io/mapped_tensor.h"
#include "io/safetensors_header.h"
#include "io/state_fit.h"
#include "io/torch_dtypes.h"
#include "io/wildcard.h"
#include "models/model_config.h"
#include "models/name_table.h"
#include "modules/packed_projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "load_pretrained";
constexpr std::string_view kHeadName = "out_head.weight", kEmbeddingName = "tok_emb.weight";

// A head that a tied model does not have: the embedding's numbers once more.
void drop_tied_head(const StateDict& parameters, RenamedState& renamed) {
  const auto head = renamed.tensors.find(std::string(kHeadName));
  const auto embedding = renamed.tensors.find(std::string(kEmbeddingName));
  if (head == renamed.tensors.end() || embedding == renamed.tensors.end() ||
      parameters.contains(std::string(kHeadName))) {
    return;
  }
  const auto &ours = head->second.value, &tied = embedding->second.value;
  if (ours.sizes() != tied.sizes() || !at::equal(ours, tied)) {
    renamed.misshapen.push_back(
        {head->second.theirs[0],
         fmt::format(": expected the numbers of {} (tie_word_embeddings), got other ones",
                     embedding->second.theirs[0])});
  }
  renamed.tensors.erase(head);
}

std::vector<std::string> their_names(const NameTable& table, const std::string& ours, bool prefixed) {
  std::optional<int64_t> layer;
  std::vector<std::string> names;
  for (const auto* pair : table.of_ours(ours, layer)) {
    names.push_back(table.their_name(*pair, layer, prefixed));
  }
  return names;
}

// Whether a missing tensor's names, or parts of it, are listed already.
bool is_listed(const NameTable& table, const std::vector<std::string>& names, const RenamedState& renamed) {
  std::set<std::string> listed(renamed.missing.begin(), renamed.missing.end());
  for (const auto& line : renamed.misshapen) listed.insert(table.without_prefix(line.name));
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return listed.contains(table.without_prefix(name)); });
}

// Everything that does not fit, before anything changes.
NameFaults faults_against(const NameTable& table, const StateDict& parameters, const RenamedState& renamed) {
  auto faults = faults_of(table, renamed);
  for (const auto& [ours, tensor] : renamed.tensors) {
    const auto target = parameters.find(ours);
    if (target == parameters.end()) {
      faults.unexpected.push_back({tensor.theirs[0], fmt::format(": the model has no {}", ours)});
    } else if (const auto reason = refuse_tensor(tensor.value, target->second); !reason.empty()) {
      faults.misshapen.push_back({tensor.theirs[0], fmt::format(", here {}: {}", ours, reason)});
    }
  }
  for (const auto& [ours, parameter] : parameters) {
    if (renamed.tensors.contains(ours)) continue;
    const auto names = their_names(table, ours, renamed.prefixed);
    if (is_listed(table, names, renamed)) continue;
    const auto nearest = names.empty() ? "" : nearest_name(names[0], renamed.unexpected);
    faults.missing.push_back(
        {fmt::format("{}", fmt::join(names, ", ")),
         nearest.empty() ? std::string() : fmt::format(" (the nearest name given is {})", nearest)});
  }
  return faults;
}

// For the files of two models in one folder: whose names these are, if they are not the family's.
std::string foreign_names(std::string_view family, const StateDict& weights) {
  const auto theirs = families_of_names(weights);
  if (theirs.empty() || std::find(theirs.begin(), theirs.end(), family) != theirs.end()) return {};
  return fmt::format(", but have the names of {}", fmt::join(theirs, ", "));
}

at::ScalarType dtype_of(const RenamedState& renamed, const TorchValue& config) {
  std::optional<at::ScalarType> common;
  bool one = true;
  for (const auto& [name, tensor] : renamed.tensors) {
    const auto dtype = tensor.value.scalar_type();
    one = one && (!common || *common == dtype) && c10::isFloatingType(dtype);
    common = dtype;
  }
  if (one && common) return *common;
  const ModelConfig fields(kWho, config);
  const auto word = fields.word(fields.find("dtype") != nullptr ? "dtype" : "torch_dtype", "float32");
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    if (word == find_torch_dtype(dtype)->name) return dtype;
  }
  return at::kFloat;
}

// Puts tensors into parameters.
class Installation {
 public:
  Installation(const StateDict& parameters, RenamedState& renamed, at::ScalarType dtype,
               const StateDict& given, const std::map<std::string, bool>& exclusive)
      : parameters_(parameters), renamed_(renamed), dtype_(dtype), given_(given), exclusive_(exclusive) {}

  // The parameter takes the tensor itself, or a copy.
  void put(const std::string& name) {
    auto& tensor = renamed_.tensors.at(name);
    const auto& value = tensor.value;
    const bool ours =
        tensor.fresh || (tensor.whole && exclusive_.at(tensor.theirs[0]) && !value.is_inference());
    if (ours && value.scalar_type() == dtype_ && value.is_contiguous()) {
      set(name, value);
      return;
    }
    auto copy = value.to(dtype_).contiguous();
    if (copy.is_alias_of(value)) copy = copy.clone();
    set(name, copy);
    give_back(tensor);
  }

  // The same for parameters that are copied to adjacent memory next.
  void put_for_now(const std::string& name) { set(name, renamed_.tensors.at(name).value.to(dtype_)); }
  void give_back(const std::string& name) { give_back(renamed_.tensors.at(name)); }

 private:
  void set(const std::string& name, const at::Tensor& value) {
    auto parameter = parameters_.at(name);
    parameter.set_data(value.detach());
  }

  void give_back(const RenamedState::Tensor& tensor) {
    for (const auto& theirs : tensor.theirs) {
      if (exclusive_.at(theirs)) give_back_pages(given_.at(theirs));
    }
  }

  const StateDict& parameters_;
  RenamedState& renamed_;
  at::ScalarType dtype_;
  const StateDict& given_;
  const std::map<std::string, bool>& exclusive_;
};

// Whose queries, keys and values are adjacent in memory.
std::map<std::string, TransformerAttentionImpl*> attentions_of(const torch::nn::Module& module) {
  std::map<std::string, TransformerAttentionImpl*> found;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (auto* attention = dynamic_cast<TransformerAttentionImpl*>(item.value().get())) {
      found.emplace(item.key() + '.', attention);
    }
  }
  return found;
}

std::vector<std::string> packed_names(const std::string& prefix, const TransformerAttentionImpl& attention) {
  std::vector<std::string> names;
  for (const auto* layer : {"W_query", "W_key", "W_value"}) {
    names.push_back(prefix + layer + ".weight");
    if (attention.options.qkv_bias()) names.push_back(prefix + layer + ".bias");
  }
  return names;
}

}  // namespace

void load_weights(const std::shared_ptr<torch::nn::Module>& module, ModelFolder&& folder,
                  const PretrainedOptions& options) {
  const auto given = std::exchange(folder.weights, {});
  std::map<std::string, bool> exclusive;
  for (const auto& [name, tensor] : given) {
    TORCH_CHECK_VALUE(tensor.defined(), kWho, ": expected ", quoted_name(name),
                      " to be a tensor, got an undefined one");
    exclusive[name] = tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
  }
  StateDict wanted, parameters;
  for (const auto& [name, tensor] : given) {
    if (!matches_any(options.ignore, name)) wanted.emplace(name, tensor);
  }
  for (const auto& item : module->named_parameters()) parameters.emplace(item.key(), item.value());

  const NameTable table(find_family(folder.family)->rules);
  auto renamed = rename_from_python(table, wanted);
  drop_tied_head(parameters, renamed);
  const auto faults = faults_against(table, parameters, renamed);
  TORCH_CHECK_VALUE(faults.empty(), kWho, ": ", folder.path.string(), ": the weights do not fit the ",
                    folder.family, " of config.json", foreign_names(folder.family, wanted), ":",
                    faults.text());

  const auto dtype = options.dtype.value_or(dtype_of(renamed, folder.config));
  Installation installation(parameters, renamed, dtype, given, exclusive);
  const auto attentions = attentions_of(*module);
  std::set<std::string> packed;
  for (const auto& [prefix, attention] : attentions) {
    for (auto& name : packed_names(prefix, *attention)) packed.insert(std::move(name));
  }
  for (const auto& [name, parameter] : parameters) {
    if (!packed.contains(name)) installation.put(name);
  }
  for (const auto& [prefix, attention] : attentions) {
    const auto names = packed_names(prefix, *attention);
    for (const auto& name : names) installation.put_for_now(name);
    make_adjacent({attention->W_query, attention->W_key, attention->W_value});
    for (const auto& name : names) installation.give_back(name);
  }
}

}  // namespace attentive
