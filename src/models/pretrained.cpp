#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/core/module_state.h>
#include <attentive/models/pretrained.h>
#include <attentive/modules/first_weights.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "core/kept_tensors.h"
#include "files/mapped_file.h"
#include "files/state_entries.h"
#include "files/torch/torch_dtypes.h"
#include "models/config_demands.h"
#include "models/family_options.h"
#include "models/model_config.h"
#include "models/name_rules.h"

namespace attentive {
namespace {

constexpr const char* kLoadPretrained = "load_pretrained";
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

std::string_view how_to_ignore(const NameFaults& faults) {
  return faults.unexpected.empty() ? "" : "\nPretrainedOptions::ignore leaves out weights by their names";
}

at::ScalarType dtype_of(const RenamedState& renamed, const FileValue& config) {
  std::optional<at::ScalarType> common;
  bool one = true;
  for (const auto& [name, tensor] : renamed.tensors) {
    const auto dtype = tensor.value.scalar_type();
    one = one && (!common || *common == dtype) && c10::isFloatingType(dtype);
    common = dtype;
  }
  if (one && common) return *common;
  const ModelConfig fields(kLoadPretrained, config);
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

  // The same for parameters that are packed next.
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

struct PackedModule {
  PackedParameters* module = nullptr;
  std::vector<std::string> names;  // of its packed parameters within the model
};

std::vector<PackedModule> packed_modules(const torch::nn::Module& model) {
  std::vector<PackedModule> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* packed = dynamic_cast<PackedParameters*>(item.value().get());
    if (packed == nullptr) continue;
    auto names = packed->packed_parameters();
    for (auto& name : names) name.insert(0, item.key() + '.');
    found.push_back({packed, std::move(names)});
  }
  return found;
}

}  // namespace

void load_weights(const std::shared_ptr<torch::nn::Module>& module, ModelFolder&& folder,
                  const PretrainedOptions& options) {
  const auto given = std::exchange(folder.weights, {});
  std::map<std::string, bool> exclusive;
  for (const auto& [name, tensor] : given) {
    TORCH_CHECK_VALUE(tensor.defined(), kLoadPretrained, ": expected ", quoted_name(name),
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
  TORCH_CHECK_VALUE(faults.empty(), kLoadPretrained, ": ", folder.path.string(),
                    ": the weights do not fit the ", folder.family, " of config.json",
                    foreign_names(folder.family, wanted), ":", faults.text(), how_to_ignore(faults));

  const auto dtype = options.dtype.value_or(dtype_of(renamed, folder.config));
  Installation installation(parameters, renamed, dtype, given, exclusive);
  const auto packed = packed_modules(*module);
  std::set<std::string> packed_names;
  for (const auto& part : packed) packed_names.insert(part.names.begin(), part.names.end());
  for (const auto& [name, parameter] : parameters) {
    if (!packed_names.contains(name)) installation.put(name);
  }
  for (const auto& part : packed) {
    for (const auto& name : part.names) installation.put_for_now(name);
    part.module->pack();
    for (const auto& name : part.names) installation.give_back(name);
  }
}

namespace {

std::string_view model_of(const char* who, const ModelFolder& folder) {
  const auto* family = find_family(folder.family);
  TORCH_CHECK_VALUE(family != nullptr, who, ": ", folder.path.string(), ": expected one of the families ",
                    known_families(), "; got \"", folder.family, '"');
  return family->model;
}

// Refuses a folder of a family that the model does not read, and a config of more layers than the folder has
// weights for, as options may hold something for each layer. Returns how errors about the config begin:
// "<who>: <folder>/config.json".
std::string check_folder(const char* who, std::string_view model, const ModelFolder& folder) {
  const auto path = folder.path.string();
  TORCH_CHECK_VALUE(folder.config.is<FileValue::Dict>(), who, ": ", path, ": expected a config, got a ",
                    folder.config.kind());
  const auto reader = model_of(who, folder);
  TORCH_CHECK_VALUE(reader == model, who, ": ", path, ": expected a folder that attentive::", model,
                    " reads, got a ", folder.family, ", which attentive::", reader, " reads");
  const auto prefix = fmt::format("{}: {}/config.json", who, path);
  if (folder.family != "albert") {  // whose layers share their weights
    const auto* layers = folder.family == "gpt2" ? "n_layer" : "num_hidden_layers";
    check_layers(ModelConfig(prefix, folder.config), layers, folder.weights);
  }
  return prefix;
}

bool has_weight(const NameTable& table, const StateDict& weights, std::string_view ours) {
  return std::any_of(weights.begin(), weights.end(), [&](const auto& item) {
    std::optional<int64_t> layer;
    const auto pairs = table.of_theirs(table.without_prefix(item.first), layer);
    return !pairs.empty() && pairs.front()->ours == ours;
  });
}

// The first class of `architectures`; empty if that is absent.
std::string architecture_of(const ModelFolder& folder, const std::string& who) {
  const auto classes = ModelConfig(who, folder.config).words("architectures");
  return classes.empty() ? std::string() : classes[0];
}

// Whether the model has a classifier, with such a class in Python or none named: unless it is to be ignored.
bool has_classifier(const ModelFolder& folder, const PretrainedOptions& options, bool named, bool unnamed) {
  for (const auto& [name, tensor] : folder.weights) {
    if (!name.starts_with("classifier.")) continue;
    return (named || unnamed) && !matches_any(options.ignore, name);
  }
  return named && !matches_any(options.ignore, "classifier.weight");
}

BertParts parts_of(const ModelFolder& folder, const std::string& who, const PretrainedOptions& options) {
  const auto name = architecture_of(folder, who);
  const bool texts = name.ends_with("ForSequenceClassification"),
             tokens = name.ends_with("ForTokenClassification"), masked = name.ends_with("ForMaskedLM");
  BertParts parts{!masked && !tokens && !(texts && folder.family == "roberta"),
                  masked || name.ends_with("ForPreTraining")};
  bool pools = parts.pooler;
  if (!folder.weights.empty()) {
    const NameTable table(find_family(folder.family)->rules);
    parts.pooler = has_weight(table, folder.weights, "pooler.weight");
    parts.masked_lm = has_weight(table, folder.weights, "mlm_dense.weight");
    pools = parts.pooler || has_weight(table, folder.weights, "classifier_out.weight");
  }
  if (has_classifier(folder, options, texts || tokens, name.empty())) {
    parts.head = texts || (!tokens && pools) ? BertHead::Sequence : BertHead::Tokens;
  }
  return parts;
}

template <class Model, class Options>
Model load(ModelFolder&& folder, const Options& options, const PretrainedOptions& pretrained) {
  const auto who = fmt::format("{}: {}/config.json", kLoadPretrained, folder.path.string());
  check_demands(who, demands_of(options), folder.weights);
  const KeptTensors kept;  // parameters that can be trained, also under InferenceMode
  Model model(nullptr);
  {
    const NoFirstWeights guard;
    model = Model(options);
  }
  load_weights(model.ptr(), std::move(folder), pretrained);
  model->eval();
  return model;
}

}  // namespace

std::string pretrained_model(const ModelFolder& folder) {
  return std::string(model_of("pretrained_model", folder));
}

GPTOptions gpt_options(const ModelFolder& folder, const PretrainedOptions& options) {
  return read_gpt_options(check_folder("gpt_options", GPTImpl::kName, folder), folder.config, options);
}

LlamaOptions llama_options(const ModelFolder& folder, const PretrainedOptions& options) {
  return read_llama_options(check_folder("llama_options", LlamaImpl::kName, folder), folder.family,
                            folder.config, options);
}

BertOptions bert_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto who = check_folder("bert_options", BertImpl::kName, folder);
  return read_bert_options(who, folder.family, folder.config, parts_of(folder, who, options), options);
}

ViTOptions vit_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto who = check_folder("vit_options", ViTImpl::kName, folder);
  const auto name = architecture_of(folder, who);
  const bool base = name == "ViTModel" || name == "DeiTModel";
  const bool described = folder.weights.empty();
  const bool classifier =
      has_classifier(folder, options, described ? !base : name.ends_with("ForImageClassification"), !base);
  return read_vit_options(who, folder.family, folder.config, classifier, options);
}

template <>
GPT load_pretrained<GPT>(ModelFolder&& folder, const PretrainedOptions& options) {
  const auto model = gpt_options(folder, options);
  return load<GPT>(std::move(folder), model, options);
}

template <>
Llama load_pretrained<Llama>(ModelFolder&& folder, const PretrainedOptions& options) {
  const auto model = llama_options(folder, options);
  return load<Llama>(std::move(folder), model, options);
}

template <>
Bert load_pretrained<Bert>(ModelFolder&& folder, const PretrainedOptions& options) {
  const auto model = bert_options(folder, options);
  return load<Bert>(std::move(folder), model, options);
}

template <>
ViT load_pretrained<ViT>(ModelFolder&& folder, const PretrainedOptions& options) {
  const auto model = vit_options(folder, options);
  return load<ViT>(std::move(folder), model, options);
}

}  // namespace attentive
