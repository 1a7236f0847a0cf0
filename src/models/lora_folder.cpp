// Adapters in the folders of Python's peft.

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/models/lora.h>
#include <attentive/modules/module.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "core/check.h"
#include "core/normal_tensors.h"
#include "files/json_value.h"
#include "files/state_fit.h"
#include "models/adapter_sites.h"
#include "models/families.h"
#include "models/folder_writer.h"
#include "models/model_config.h"

namespace attentive {
namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char *kTensorsFile = "adapter_model.safetensors", *kTorchFile = "adapter_model.bin";
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight",
                           kMagnitude = ".lora_magnitude_vector",
                           kMagnitudeWeight = ".lora_magnitude_vector.weight", kBaseLayer = ".base_layer.";

[[noreturn]] void fail_lora(const char* caller, const std::filesystem::path& path, std::string_view reason) {
  C10_THROW_ERROR(ValueError, fmt::format("{}: {}: {}", caller, path.string(), reason));
}

bool is_empty_value(const FileValue& value) {
  return (value.is<bool>() && !value.as<bool>()) ||
         (value.is<FileValue::List>() && value.as<FileValue::List>().items.empty()) ||
         (value.is<FileValue::Dict>() && value.as<FileValue::Dict>().items.empty());
}

void check_empty(const ModelConfig& config, std::initializer_list<std::string_view> fields) {
  for (const auto field : fields) {
    const auto* value = config.find(field);
    if (value != nullptr && !is_empty_value(*value)) config.refuse(field, "null, false or an empty value");
  }
}

// Refuses what changes the numbers of a layer and has no counterpart here and, unless the names of tensors
// tell, what chooses layers.
void check_features(const ModelConfig& config, bool names_tell) {
  if (config.find("peft_type") == nullptr) config.refuse("peft_type", "\"LORA\"");
  config.must_be("peft_type", "LORA");
  check_empty(config, {"use_qalora", "lora_bias", "layer_replication", "trainable_token_indices",
                       "target_parameters", "alora_invocation_tokens", "use_bdlora", "arrow_config",
                       "kasa_config", "velora_config", "monteclora_config"});
  if (!names_tell) {
    config.must_be("bias", "none");
    check_empty(config, {"layers_to_transform", "layers_pattern", "exclude_modules"});
  }
  // Other ways to begin change the weights of the base.
  const auto* first = config.find("init_lora_weights");
  if (first == nullptr || first->is<bool>()) return;
  const auto word = config.word("init_lora_weights", "");
  if (word != "gaussian" && word != "orthogonal" && word != "eva")
    config.refuse("init_lora_weights", "true, false, \"gaussian\", \"orthogonal\" or \"eva\"");
}

// A pattern of peft is no list of targets; the names of the tensors then tell which layers it chose.
std::vector<std::string> read_targets(const ModelConfig& config) {
  const auto* targets = config.find("target_modules");
  if (targets != nullptr && targets->is<std::string>()) return {targets->as<std::string>()};
  return config.words("target_modules");
}

// The patterns in the order of the text, in which the first that matches counts.
template <class Value, class Read>
std::vector<std::pair<std::string, Value>> read_patterns(const ModelConfig& config, std::string_view field,
                                                         const std::string& text, const Read& read) {
  std::vector<std::pair<std::string, Value>> patterns;
  const auto object = config.object(field);
  if (!object) return patterns;
  for (const auto& key : keys_in_order(text, field)) patterns.emplace_back(key, read(*object, key));
  return patterns;
}

LoraOptions read_lora_options(const std::string& caller, const std::string& text, bool names_tell) {
  const auto value = parse_json(text, "text");
  if (!value.is<FileValue::Dict>()) refuse("expected an object, got a {}", value.kind());
  const ModelConfig config(caller, value);
  check_features(config, names_tell);
  const auto size = [](const ModelConfig& ranks, const std::string& key) { return ranks.size(key); };
  const auto number = [](const ModelConfig& alphas, const std::string& key) {
    const auto alpha = alphas.number(key);
    if (!alpha) alphas.refuse(key, "a number");
    return *alpha;
  };
  LoraOptions options{.rank = config.size("r", 8),
                      .alpha = config.number("lora_alpha", 8),
                      .dropout = config.number("lora_dropout", 0),
                      .targets = read_targets(config),
                      .rslora = config.flag("use_rslora", false),
                      .dora = config.flag("use_dora", false),
                      .rank_pattern = read_patterns<int64_t>(config, "rank_pattern", text, size),
                      .alpha_pattern = read_patterns<double>(config, "alpha_pattern", text, number),
                      .modules_to_save = config.words("modules_to_save"),
                      .base_model = config.word("base_model_name_or_path", "")};
  if (!(options.dropout >= 0 && options.dropout <= 1)) config.refuse("lora_dropout", "a number in [0, 1]");
  return options;
}

struct AdapterTensors {
  std::string layer;  // its name in the file
  at::Tensor a, b, magnitude;
};

struct AdapterFile {
  std::map<std::string, AdapterTensors> adapters;  // by the names of `adapter_sites`
  StateDict whole;                                 // other weights, by the names of `python_parameters`
};

bool is_site(const std::vector<AdapterSite>& sites, std::string_view name) {
  return std::any_of(sites.begin(), sites.end(), [&](const AdapterSite& one) { return one.name == name; });
}

// Takes one of the endings off a name.
std::string_view strip_ending(std::string& name, std::initializer_list<std::string_view> endings) {
  for (const auto ending : endings) {
    if (!name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    return ending;
  }
  return {};
}

AdapterFile read_adapters(const std::filesystem::path& path, const torch::nn::Module& model,
                          const std::vector<AdapterSite>& sites) {
  AdapterFile file;
  for (const auto& [name, tensor] : read_state_dict(path)) {
    const auto unknown = [&, shown = &name] {
      fail_lora("load_lora", path,
                fmt::format("expected adapters of the model's linear layers, got {}", quoted_name(*shown)));
    };
    const auto put = [&, shown = &name, value = &tensor](at::Tensor& place) {
      if (place.defined())
        fail_lora("load_lora", path,
                  fmt::format("{} is there twice, under several names", quoted_name(*shown)));
      place = *value;
    };
    // torch.compile or FSDP may have wrapped peft's own module.
    const auto begin = name.find(kPeftPrefix);
    if (begin == std::string::npos || !without_wrappers(name.substr(0, begin)).empty()) unknown();
    auto plain = name.substr(begin + kPeftPrefix.size());
    const auto kind = strip_ending(plain, {kA, kB, kMagnitude, kMagnitudeWeight});
    if (kind.empty()) {
      if (const auto base = plain.find(kBaseLayer); base != std::string::npos)
        plain.erase(base, kBaseLayer.size() - 1);
      const auto known = parameter_name(model, plain);
      if (known.empty()) unknown();
      put(file.whole[known]);
      continue;
    }
    const auto site = site_name(model, plain);
    if (!is_site(sites, site)) unknown();
    auto& adapter = file.adapters[site];
    adapter.layer = without_wrappers(plain);
    put(kind == kA ? adapter.a : kind == kB ? adapter.b : adapter.magnitude);
  }
  if (file.adapters.empty()) fail_lora("load_lora", path, "expected adapters, got no tensor");
  return file;
}

void check_tensor(const std::filesystem::path& path, const std::string& name, const at::Tensor& tensor,
                  at::IntArrayRef sizes) {
  if (!tensor.defined()) fail_lora("load_lora", path, fmt::format("expected {}, got none", name));
  if (tensor.sizes() != sizes || !at::isFloatingType(tensor.scalar_type())) {
    fail_lora("load_lora", path,
              fmt::format("expected {} as a floating tensor of shape {}, got a {}", name, shape_string(sizes),
                          describe(tensor)));
  }
}

bool is_old_adapter(std::string_view name) {
  return matches_any({kTensorsFile, kTorchFile}, name);
}

// The module of a parameter, by its name.
std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// The weights of a file that replace the model's, by this package's names, and their modules in Python.
struct Replacement {
  StateDict weights;
  std::vector<std::string> modules;
};

// `modules`: those that the configuration names.
Replacement replacement_of(const std::filesystem::path& path, const torch::nn::Module& model,
                           const AdapterFile& file, const std::vector<std::string>& modules) {
  const auto fail = [&](std::string_view reason) { fail_lora("load_lora", path, reason); };
  const bool tied = ties_embedding(model);
  StateDict own;
  PythonParameter shared;  // the embedding, if it is the head, too
  for (const auto& one : python_parameters(model)) {
    if (tied && one.name == "tok_emb.weight") shared = one;
    for (const auto& name : one.python_names) {
      if (file.whole.contains(name)) {
        own.emplace(one.name, one.tensor.detach());
      } else if (belongs_to(name, modules)) {
        fail(fmt::format("expected {} of modules_to_save, got none", name));
      }
    }
  }
  auto python = to_python_parameters(model, own);
  std::set<std::string> found;
  for (const auto& [name, tensor] : file.whole) {
    const auto place = python.find(name);
    const bool is_head = tied && name == "lm_head.weight";
    if (place == python.end() && !is_head)
      fail(fmt::format("expected weights of the model, got {}", quoted_name(name)));
    const auto now = is_head ? shared.tensor.detach() : place->second;
    check_tensor(path, name, tensor, now.sizes());
    const auto value = tensor.to(now.options());
    const auto module = module_of(name);
    const bool is_shared = is_head || (tied && name == shared.python_names.at(0)),
               is_adapted = file.adapters.contains(module), changed = !value.equal(now);
    if (changed && is_shared)
      fail(fmt::format(
          "expected the model's {}, whose embedding is the head's weight, too, got other numbers", name));
    if (changed && is_adapted)
      fail(fmt::format("expected the model's {}, as its layer has an adapter, got other numbers", name));
    if (changed || (belongs_to(name, modules) && !is_shared && !is_adapted)) found.insert(module);
    if (changed) place->second = value;
  }
  if (found.empty()) return {};
  return {from_python_parameters(model, python), {found.begin(), found.end()}};
}

}  // namespace

std::string lora_config(const Lora& lora) {
  const auto& options = lora.options();
  TORCH_CHECK_VALUE(lora.attached(), "Lora: expected attach(model) before lora_config()");
  const auto* family = find_family(lora.family());
  const auto model = family ? family->model : std::string_view();
  FileValue::List targets;
  for (const auto& target : options.targets) targets.items.emplace_back(target);
  const bool language = model == GPTImpl::kName || model == LlamaImpl::kName;
  FileValue::Dict config;
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  set("base_model_name_or_path", options.base_model.empty() ? FileValue() : FileValue(options.base_model));
  set("bias", "none");
  set("fan_in_fan_out", model == GPTImpl::kName);  // GPT-2's Conv1D stores (in, out)
  set("inference_mode", true);
  set("init_lora_weights", true);
  FileValue::Dict ranks, alphas;
  for (const auto& [key, rank] : options.rank_pattern) set_field(ranks, key, rank);
  for (const auto& [key, alpha] : options.alpha_pattern) set_field(alphas, key, alpha);
  FileValue::List modules;
  for (const auto& module : options.modules_to_save) modules.items.emplace_back(module);
  set("alpha_pattern", std::move(alphas));
  set("lora_alpha", options.alpha);
  set("lora_dropout", options.dropout);
  set("modules_to_save", options.modules_to_save.empty() ? FileValue() : FileValue(std::move(modules)));
  set("peft_type", "LORA");
  set("r", options.rank);
  set("rank_pattern", std::move(ranks));
  set("target_modules", std::move(targets));
  set("task_type", language ? FileValue("CAUSAL_LM") : FileValue());
  set("use_dora", options.dora);
  set("use_rslora", options.rslora);
  return json_text(config);
}

LoraOptions parse_lora_config(const std::string& json) {
  try {
    return read_lora_options("parse_lora_config", json, /*names_tell=*/false);
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, "parse_lora_config: ", refusal.what());
  }
}

void Lora::save(const std::filesystem::path& path) const {
  TORCH_CHECK_VALUE(attached(), "Lora: expected attach(model) before save()");
  StateDict tensors;
  for (const auto& [site, module] : state_->adapters) {
    const auto name = std::string(kPeftPrefix) + site.name;
    tensors[name + std::string(kA)] = module->low_rank().a.detach();
    tensors[name + std::string(kB)] = module->low_rank().b.detach();
    const auto& magnitude = module->low_rank().magnitude;
    if (magnitude.defined()) tensors[name + std::string(kMagnitude)] = magnitude.detach();
  }
  StateDict whole;
  for (const auto& one : state_->whole) whole.emplace(one.name, one.tensor.detach());
  for (const auto& [name, tensor] : to_python_parameters(*state_->model, whole))
    tensors[std::string(kPeftPrefix) + name] = tensor;
  const auto config = lora_config(*this);
  try {
    FolderWriter folder(path);
    write_file(folder / kConfigFile, config);
    save_safetensors(folder / kTensorsFile, tensors, {{"format", "pt"}});
    folder.commit(&is_old_adapter);
  } catch (const std::system_error& error) {
    fail_lora("Lora", path, error.what());
  }
}

Lora load_lora(const std::filesystem::path& path, const std::shared_ptr<torch::nn::Module>& model) {
  TORCH_CHECK_VALUE(model, "load_lora: expected a model, got none");
  const auto config = path / kConfigFile;
  const auto tensors = path / (is_there(path / kTensorsFile) ? kTensorsFile : kTorchFile);
  auto options = [&] {
    try {
      return read_lora_options("load_lora: " + config.string(), read_json_text(config, "file"),
                               /*names_tell=*/true);
    } catch (const Refusal& refusal) {
      fail_lora("load_lora", config, refusal.what());
    }
  }();
  const auto sites = adapter_sites(model);
  const auto file = read_adapters(tensors, *model, sites);
  auto [weights, modules] = replacement_of(tensors, *model, file, options.modules_to_save);
  const LayerValues ranks(options.rank_pattern, options.rank);
  const LayerValues alphas(options.alpha_pattern, options.alpha);
  options.rank_pattern.clear();
  options.alpha_pattern.clear();
  options.targets.clear();
  options.modules_to_save = std::move(modules);
  for (const auto& site : sites) {
    const auto found = file.adapters.find(site.name);
    if (found == file.adapters.end()) continue;
    const auto& [layer, a, b, magnitude] = found->second;
    const auto rank = ranks.of(layer);
    check_tensor(tensors, site.name + std::string(kA), a, {rank, site.features});
    check_tensor(tensors, site.name + std::string(kB), b, {site.outputs, rank});
    if (options.dora) check_tensor(tensors, site.name + std::string(kMagnitude), magnitude, {site.outputs});
    if (!options.dora && magnitude.defined())
      fail_lora("load_lora", tensors, fmt::format("{}: expected use_dora in {}", site.name, kConfigFile));
    put_layer_value(options.rank_pattern, site.name, rank, options.rank);
    put_layer_value(options.alpha_pattern, site.name, alphas.of(layer), options.alpha);
    options.targets.push_back(site.name);
  }
  const NoFirstWeights no_weights;
  auto lora = Lora(std::move(options)).attach(model);
  const NormalTensorsGuard kept;
  for (const auto& [site, module] : lora.state_->adapters) {
    const auto& [layer, a, b, magnitude] = file.adapters.at(site.name);
    const auto& low_rank = module->low_rank();
    at::Tensor(low_rank.a).copy_(a);
    at::Tensor(low_rank.b).copy_(b);
    if (magnitude.defined()) at::Tensor(low_rank.magnitude).copy_(magnitude);
  }
  for (const auto& item : model->named_parameters()) {
    const auto found = weights.find(item.key());
    if (found == weights.end()) continue;
    lora.state_->replaced.emplace_back(item.value(), item.value().clone());
    at::Tensor(item.value()).copy_(found->second);
  }
  return lora;
}

namespace {

constexpr size_t kLongestPatterns = 1024;

bool is_word_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '_' || others.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// Whether Python and C++ read a regular expression alike, and its automaton is not larger than its text.
bool is_plain_regex(const std::string& text) {
  if (!is_word_of(text, ".-\\*+?^$|()[]:")) return false;
  for (const auto* odd : {"[]", "[^]", "[[", "++", "*+", "?+", "[:"}) {
    if (text.find(odd) != std::string::npos) return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text.compare(i, 2, "(?") == 0 && text.compare(i, 3, "(?:") != 0) return false;
    if (text[i] != '\\') continue;
    if (std::string_view("dDwWsS.-*+?^$|()[]\\").find(next) == std::string_view::npos) return false;
    ++i;
  }
  return true;
}

LayerPattern layer_pattern(const std::string& key) {
  if (const bool whole = key.starts_with('^'); is_word_of(key.substr(whole), ".-")) {
    return [whole, end = key.substr(whole)](const std::string& name) {
      if (name.size() < end.size() || (whole && name.size() > end.size())) return false;
      const auto begin = name.size() - end.size();
      return (begin == 0 || name[begin - 1] == '.') &&
             std::equal(end.begin(), end.end(), name.begin() + static_cast<std::ptrdiff_t>(begin),
                        [](char want, char got) { return want == '.' || want == got; });
    };
  }
  TORCH_CHECK_VALUE(is_plain_regex(key),
                    "Lora: expected a layer's name or a regular expression without "
                    "counted repetitions and other rare parts, got ",
                    quoted_name(key));
  try {
    // The automaton whose time is polynomial, because the pattern may be a stranger's.
    const std::regex pattern("(?:.*\\.)?(?:" + key + ")",
                             std::regex::ECMAScript | std::regex_constants::__polynomial);
    return [pattern](const std::string& name) { return std::regex_match(name, pattern); };
  } catch (const std::regex_error& error) {
    TORCH_CHECK_VALUE(false, "Lora: expected a regular expression, got ", quoted_name(key), ": ",
                      error.what());
  }
}

}  // namespace

std::vector<LayerPattern> layer_patterns(const std::vector<std::string>& keys) {
  size_t special = 0;
  std::vector<LayerPattern> patterns;
  for (const auto& key : keys) {
    if (!is_word_of(key, "^.-")) special += key.size();
    TORCH_CHECK_VALUE(special <= kLongestPatterns, "Lora: expected at most ", kLongestPatterns,
                      " characters of regular expressions, got more");
    patterns.push_back(layer_pattern(key));
  }
  return patterns;
}

}  // namespace attentive
