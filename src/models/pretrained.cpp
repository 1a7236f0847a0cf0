#include <algorithm>

#include <fmt/format.h>

#include <attentive/models/pretrained.h>
#include <attentive/modules/first_weights.h>

#include "core/kept_tensors.h"
#include "models/family_options.h"
#include "models/load_weights.h"
#include "models/model_config.h"
#include "models/name_table.h"

namespace attentive {
namespace {

std::string_view model_of(const char* who, const ModelFolder& folder) {
  const auto* family = find_family(folder.family);
  TORCH_CHECK_VALUE(family != nullptr, who, ": ", folder.path.string(), ": expected one of the families ",
                    known_families(), "; got \"", folder.family, '"');
  return family->model;
}

// "<who>: <folder>/config.json", for a folder of a family that the model reads.
std::string prefix_of(const char* who, std::string_view model, const ModelFolder& folder) {
  const auto path = folder.path.string();
  TORCH_CHECK_VALUE(folder.config.is<TorchValue::Dict>(), who, ": ", path, ": expected a config, got a ",
                    folder.config.kind());
  const auto reader = model_of(who, folder);
  TORCH_CHECK_VALUE(reader == model, who, ": ", path, ": expected a folder that attentive::", model,
                    " reads, got a ", folder.family, ", which attentive::", reader, " reads");
  return fmt::format("{}: {}/config.json", who, path);
}

bool has_weight(const NameTable& table, const StateDict& weights, std::string_view ours) {
  return std::any_of(weights.begin(), weights.end(), [&](const auto& item) {
    std::optional<int64_t> layer;
    const auto pairs = table.of_theirs(table.without_prefix(item.first), layer);
    return !pairs.empty() && pairs.front()->ours == ours;
  });
}

BertParts parts_of(const ModelFolder& folder, const std::string& who) {
  if (!folder.weights.empty()) {
    const NameTable table(find_family(folder.family)->rules);
    return {has_weight(table, folder.weights, "pooler.weight"),
            has_weight(table, folder.weights, "mlm_dense.weight")};
  }
  const auto classes = ModelConfig(who, folder.config).words("architectures");
  const bool masked = !classes.empty() && classes[0].ends_with("ForMaskedLM");
  const bool both = !classes.empty() && classes[0].ends_with("ForPreTraining");
  return {!masked, masked || both};
}

// A config.json that speaks of a million layers would have them built before their weights are missed.
void check_layers(const ModelFolder& folder, int64_t layers) {
  const auto count = static_cast<int64_t>(folder.weights.size());
  TORCH_CHECK_VALUE(layers <= count, "load_pretrained: ", folder.path.string(), ": expected the weights of ",
                    layers, " layers, got ", count, " tensors");
}

template <class Model, class Options>
Model load(ModelFolder&& folder, const Options& options, const PretrainedOptions& pretrained) {
  bool shared = false;
  if constexpr (std::is_same_v<Options, BertOptions>) shared = options.shared_layers();
  check_layers(folder, shared ? 1 : options.num_layers());
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
  return read_gpt_options(prefix_of("gpt_options", GPTImpl::kName, folder), folder.config, options);
}

LlamaOptions llama_options(const ModelFolder& folder, const PretrainedOptions& options) {
  return read_llama_options(prefix_of("llama_options", LlamaImpl::kName, folder), folder.family,
                            folder.config, options);
}

BertOptions bert_options(const ModelFolder& folder, const PretrainedOptions& options) {
  const auto who = prefix_of("bert_options", BertImpl::kName, folder);
  return read_bert_options(who, folder.family, folder.config, parts_of(folder, who), options);
}

ViTOptions vit_options(const ModelFolder& folder, const PretrainedOptions& options) {
  return read_vit_options(prefix_of("vit_options", ViTImpl::kName, folder), folder.family, folder.config,
                          options);
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
