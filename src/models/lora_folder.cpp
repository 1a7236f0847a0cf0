// Adapters in the folders of Python's peft.

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/files/safetensors.h>
#include <attentive/models/lora.h>
#include <attentive/modules/module.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "core/check.h"
#include "core/normal_tensors.h"
#include "files/json_value.h"
#include "models/adapter_sites.h"
#include "models/families.h"
#include "models/folder_writer.h"
#include "models/model_config.h"

namespace attentive {
namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorsFile = "adapter_model.safetensors";
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

[[noreturn]] void fail_lora(const char* caller, const std::filesystem::path& path, std::string_view reason) {
  C10_THROW_ERROR(ValueError, fmt::format("{}: {}: {}", caller, path.string(), reason));
}

bool is_empty_value(const FileValue& value) {
  return (value.is<bool>() && !value.as<bool>()) ||
         (value.is<FileValue::List>() && value.as<FileValue::List>().items.empty()) ||
         (value.is<FileValue::Dict>() && value.as<FileValue::Dict>().items.empty());
}

// Refuses what changes the numbers of a layer and has no counterpart here.
void check_features(const ModelConfig& config) {
  if (config.find("peft_type") == nullptr) config.refuse("peft_type", "\"LORA\"");
  config.must_be("peft_type", "LORA");
  config.must_be("bias", "none");
  for (const auto* field :
       {"use_dora", "use_qalora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save",
        "layers_to_transform", "layers_pattern", "layer_replication", "trainable_token_indices",
        "target_parameters", "alora_invocation_tokens", "use_bdlora", "arrow_config", "kasa_config",
        "velora_config", "monteclora_config"}) {
    const auto* value = config.find(field);
    if (value != nullptr && !is_empty_value(*value)) config.refuse(field, "null, false or an empty value");
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

LoraOptions read_lora_options(const std::string& caller, const FileValue& value) {
  const ModelConfig config(caller, value);
  check_features(config);
  LoraOptions options{.rank = config.size("r", 8),
                      .alpha = config.number("lora_alpha", 8),
                      .dropout = config.number("lora_dropout", 0),
                      .targets = read_targets(config),
                      .rslora = config.flag("use_rslora", false),
                      .base_model = config.word("base_model_name_or_path", "")};
  if (!(options.alpha > 0)) config.refuse("lora_alpha", "a number > 0");
  if (!(options.dropout >= 0 && options.dropout <= 1)) config.refuse("lora_dropout", "a number in [0, 1]");
  return options;
}

FileValue read_config(const char* caller, const std::filesystem::path& path) {
  try {
    auto value = read_json(path, "file");
    if (!value.is<FileValue::Dict>()) refuse("expected an object, got a {}", value.kind());
    return value;
  } catch (const Refusal& refusal) {
    fail_lora(caller, path, refusal.what());
  }
}

struct AdapterTensors {
  at::Tensor a, b;
};

// The tensors of a file by the names of `adapter_sites`.
std::map<std::string, AdapterTensors> tensors_by_site(const std::filesystem::path& path,
                                                      const torch::nn::Module& model,
                                                      const std::vector<AdapterSite>& sites) {
  std::map<std::string, AdapterTensors> found;
  for (const auto& [name, tensor] : load_safetensors(path).tensors) {
    const bool is_a = name.ends_with(kA), is_b = name.ends_with(kB);
    std::string site;
    if ((is_a || is_b) && name.starts_with(kPeftPrefix)) {
      const auto layer = std::string_view(name).substr(kPeftPrefix.size());
      site = site_name(model, layer.substr(0, layer.size() - kA.size()));
    }
    const auto is_site = [&](const AdapterSite& one) { return one.name == site; };
    if (std::none_of(sites.begin(), sites.end(), is_site))
      fail_lora("load_lora", path,
                fmt::format("expected adapters of the model's linear layers, got {}", quoted_name(name)));
    auto& target = is_a ? found[site].a : found[site].b;
    if (target.defined())
      fail_lora("load_lora", path, fmt::format("{} is there twice, under several names", quoted_name(name)));
    target = tensor;
  }
  if (found.empty()) fail_lora("load_lora", path, "expected adapters, got no tensor");
  return found;
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
  return matches_any({"adapter_model.safetensors", "adapter_model.bin"}, name);
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
  set("lora_alpha", options.alpha);
  set("lora_dropout", options.dropout);
  set("peft_type", "LORA");
  set("r", options.rank);
  set("target_modules", std::move(targets));
  set("task_type", language ? FileValue("CAUSAL_LM") : FileValue());
  set("use_rslora", options.rslora);
  return json_text(config);
}

LoraOptions parse_lora_config(const std::string& json) {
  try {
    const auto value = parse_json(json, "text");
    if (!value.is<FileValue::Dict>()) refuse("expected an object, got a {}", value.kind());
    return read_lora_options("parse_lora_config", value);
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
  }
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
  const auto config_path = path / kConfigFile, tensors_path = path / kTensorsFile;
  auto options =
      read_lora_options("load_lora: " + config_path.string(), read_config("load_lora", config_path));
  const auto sites = adapter_sites(model);
  const auto tensors = tensors_by_site(tensors_path, *model, sites);
  options.targets.clear();
  for (const auto& site : sites) {
    const auto found = tensors.find(site.name);
    if (found == tensors.end()) continue;
    check_tensor(tensors_path, site.name + std::string(kA), found->second.a, {options.rank, site.features});
    check_tensor(tensors_path, site.name + std::string(kB), found->second.b, {site.outputs, options.rank});
    options.targets.push_back(site.name);
  }
  const NoFirstWeights no_weights;
  auto lora = Lora(std::move(options)).attach(model);
  const NormalTensorsGuard kept;
  const auto names = lora.layers();
  const auto parameters = lora.parameters();
  for (size_t i = 0; i < names.size(); ++i) {
    at::Tensor(parameters[2 * i]).copy_(tensors.at(names[i]).a);
    at::Tensor(parameters[2 * i + 1]).copy_(tensors.at(names[i]).b);
  }
  return lora;
}

}  // namespace attentive
