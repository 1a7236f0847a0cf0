#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/models/model_folder.h>
#include <attentive/modules/module.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "core/normal_tensors.h"
#include "files/dtypes.h"
#include "files/mapped_file.h"
#include "files/state_fit.h"
#include "models/model_config.h"
#include "models/python_names.h"

namespace attentive {
namespace {

constexpr const char* kLoadPretrained = "load_pretrained";
constexpr std::string_view kHeadName = "out_head.weight", kEmbeddingName = "tok_emb.weight";

// Drops the head of a tied model, after checking that it equals the embedding.
void drop_tied_head(const StateDict& parameters, RenamedState& renamed) {
  const auto head = renamed.tensors.find(std::string(kHeadName));
  const auto embedding = renamed.tensors.find(std::string(kEmbeddingName));
  if (head == renamed.tensors.end() || embedding == renamed.tensors.end() ||
      parameters.contains(std::string(kHeadName))) {
    return;
  }
  const auto &head_value = head->second.value, &tied = embedding->second.value;
  if (head_value.sizes() != tied.sizes() || !at::equal(head_value, tied)) {
    renamed.misshapen.push_back(
        {head->second.python_names[0],
         fmt::format(": expected the numbers of {} (tie_word_embeddings), got other ones",
                     embedding->second.python_names[0])});
  }
  renamed.tensors.erase(head);
}

std::vector<std::string> names_in_file(const NameTable& table, const std::string& our_name, bool prefixed) {
  std::optional<int64_t> layer;
  std::vector<std::string> names;
  for (const auto* pair : table.of_our_name(our_name, layer)) {
    names.push_back(table.name_in_file(*pair, layer, prefixed));
  }
  return names;
}

// Whether one of these names is already reported, as missing or because of its shape.
bool is_listed(const NameTable& table, const std::vector<std::string>& names, const RenamedState& renamed) {
  std::set<std::string> listed(renamed.missing.begin(), renamed.missing.end());
  for (const auto& line : renamed.misshapen) listed.insert(table.without_prefix(line.name));
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return listed.contains(table.without_prefix(name)); });
}

// Collects everything that does not fit, before anything is changed.
NameFaults faults_against(const NameTable& table, const StateDict& parameters, const RenamedState& renamed) {
  auto faults = faults_of(table, renamed);
  for (const auto& [our_name, tensor] : renamed.tensors) {
    const auto target = parameters.find(our_name);
    if (target == parameters.end()) {
      faults.unexpected.push_back({tensor.python_names[0], fmt::format(": the model has no {}", our_name)});
    } else if (const auto reason = refuse_tensor(tensor.value, target->second); !reason.empty()) {
      faults.misshapen.push_back({tensor.python_names[0], fmt::format(", here {}: {}", our_name, reason)});
    }
  }
  for (const auto& [our_name, parameter] : parameters) {
    if (renamed.tensors.contains(our_name)) continue;
    const auto names = names_in_file(table, our_name, renamed.prefixed);
    if (is_listed(table, names, renamed)) continue;
    const auto nearest = names.empty() ? "" : nearest_name(names[0], renamed.unexpected);
    faults.missing.push_back(
        {fmt::format("{}", fmt::join(names, ", ")),
         nearest.empty() ? std::string() : fmt::format(" (the nearest name given is {})", nearest)});
  }
  return faults;
}

// A hint for a folder with the files of two models: the families whose names these are, if `family` is not
// one of them.
std::string foreign_names(std::string_view family, const StateDict& weights) {
  const auto matching = families_of_names(weights);
  if (matching.empty() || std::find(matching.begin(), matching.end(), family) != matching.end()) return {};
  return fmt::format(", but have the names of {}", fmt::join(matching, ", "));
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

// Assigns tensors to parameters.
class Installation {
 public:
  Installation(const StateDict& parameters, RenamedState& renamed, at::ScalarType dtype,
               const StateDict& given, const std::map<std::string, bool>& exclusive)
      : parameters_(parameters), renamed_(renamed), dtype_(dtype), given_(given), exclusive_(exclusive) {}

  // Assigns the tensor itself if the parameter may own it, otherwise a copy.
  void put(const std::string& name) {
    auto& tensor = renamed_.tensors.at(name);
    const auto& value = tensor.value;
    const bool may_take =
        tensor.fresh || (tensor.whole && exclusive_.at(tensor.python_names[0]) && !value.is_inference());
    if (may_take && value.scalar_type() == dtype_ && value.is_contiguous()) {
      set(name, value);
      return;
    }
    auto copy = value.to(dtype_).contiguous();
    if (copy.is_alias_of(value)) copy = copy.clone();
    set(name, copy);
    give_back(tensor);
  }

 private:
  void set(const std::string& name, const at::Tensor& value) {
    auto parameter = parameters_.at(name);
    parameter.set_data(value.detach());
  }

  void give_back(const RenamedState::Tensor& tensor) {
    for (const auto& python_name : tensor.python_names) {
      if (exclusive_.at(python_name)) give_back_pages(given_.at(python_name));
    }
  }

  const StateDict& parameters_;
  RenamedState& renamed_;
  at::ScalarType dtype_;
  const StateDict& given_;
  const std::map<std::string, bool>& exclusive_;
};

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
  for (const auto& item : parameters) installation.put(item.first);
}

namespace {

const Family& family_of(const char* caller, const ModelFolder& folder) {
  const auto* family = find_family(folder.family);
  TORCH_CHECK_VALUE(family != nullptr, caller, ": ", folder.path.string(), ": expected one of the families ",
                    known_families(), "; got \"", folder.family, '"');
  return *family;
}

struct CheckedFolder {
  const Family& family;
  std::string caller;  // how errors about the config begin: "<caller>: <folder>/config.json"
};

// Refuses a folder of a family that the model does not read, and a config of more layers than the folder has
// weights for, as options may hold something for each layer.
CheckedFolder check_folder(const char* caller, std::string_view model, const ModelFolder& folder) {
  const auto path = folder.path.string();
  TORCH_CHECK_VALUE(folder.config.is<FileValue::Dict>(), caller, ": ", path, ": expected a config, got a ",
                    folder.config.kind());
  const auto& family = family_of(caller, folder);
  TORCH_CHECK_VALUE(family.model == model, caller, ": ", path, ": expected a folder that attentive::", model,
                    " reads, got a ", family.name, ", which attentive::", family.model, " reads");
  const auto prefix = fmt::format("{}: {}/config.json", caller, path);
  if (!family.layers_field.empty())
    check_layers(ModelConfig(prefix, folder.config), family.layers_field, folder.weights);
  return {family, prefix};
}

bool has_weight(const NameTable& table, const StateDict& weights, std::string_view our_name) {
  return std::any_of(weights.begin(), weights.end(), [&](const auto& item) {
    std::optional<int64_t> layer;
    const auto pairs = table.of_python_name(table.without_prefix(item.first), layer);
    return !pairs.empty() && pairs.front()->our_name == our_name;
  });
}

// The first class listed in `architectures`; empty if the field is absent.
std::string architecture_of(const ModelFolder& folder, const std::string& caller) {
  const auto classes = ModelConfig(caller, folder.config).words("architectures");
  return classes.empty() ? std::string() : classes[0];
}

// Whether the model has a classifier: `named` if config.json names a Python class with one, `unnamed` if it
// names none. Ignored weights do not count.
bool has_classifier(const ModelFolder& folder, const PretrainedOptions& options, bool named, bool unnamed) {
  for (const auto& [name, tensor] : folder.weights) {
    if (!name.starts_with("classifier.")) continue;
    return (named || unnamed) && !matches_any(options.ignore, name);
  }
  return named && !matches_any(options.ignore, "classifier.weight");
}

BertParts parts_of(const ModelFolder& folder, const CheckedFolder& checked,
                   const PretrainedOptions& options) {
  const auto& [family, caller] = checked;
  const auto name = architecture_of(folder, caller);
  const bool texts = name.ends_with("ForSequenceClassification"),
             tokens = name.ends_with("ForTokenClassification"), masked = name.ends_with("ForMaskedLM");
  BertParts parts{!masked && !tokens && !(texts && family.encoder.padding_positions),
                  masked || name.ends_with("ForPreTraining")};
  bool pools = parts.pooler;
  if (!folder.weights.empty()) {
    const NameTable table(family.rules);
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
  const auto caller = fmt::format("{}: {}/config.json", kLoadPretrained, folder.path.string());
  check_demands(caller, minimum_sizes_of(options), folder.weights);
  const NormalTensorsGuard kept;  // parameters must be trainable, even if this runs under InferenceMode
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
  return std::string(family_of("pretrained_model", folder).model);
}

GPTOptions gpt_options(const ModelFolder& folder, const PretrainedOptions& options) {
  return read_gpt_options(check_folder("gpt_options", GPTImpl::kName, folder).caller, folder.config, options);
}

LlamaOptions llama_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto& [family, caller] = check_folder("llama_options", LlamaImpl::kName, folder);
  return read_llama_options(caller, family, folder.config, options);
}

BertOptions bert_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto checked = check_folder("bert_options", BertImpl::kName, folder);
  return read_bert_options(checked.caller, checked.family, folder.config, parts_of(folder, checked, options),
                           options);
}

ViTOptions vit_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto& [family, caller] = check_folder("vit_options", ViTImpl::kName, folder);
  const auto name = architecture_of(folder, caller);
  const bool base = name.ends_with("Model");
  const bool described = folder.weights.empty();
  const bool classifier =
      has_classifier(folder, options, described ? !base : name.ends_with("ForImageClassification"), !base);
  return read_vit_options(caller, family, folder.config, classifier, options);
}

template <>
GPT load_pretrained<GPT>(ModelFolder&& folder, const PretrainedOptions& options) {
  return load<GPT>(std::move(folder), gpt_options(folder, options), options);
}

template <>
Llama load_pretrained<Llama>(ModelFolder&& folder, const PretrainedOptions& options) {
  return load<Llama>(std::move(folder), llama_options(folder, options), options);
}

template <>
Bert load_pretrained<Bert>(ModelFolder&& folder, const PretrainedOptions& options) {
  return load<Bert>(std::move(folder), bert_options(folder, options), options);
}

template <>
ViT load_pretrained<ViT>(ModelFolder&& folder, const PretrainedOptions& options) {
  return load<ViT>(std::move(folder), vit_options(folder, options), options);
}

}  // namespace attentive
