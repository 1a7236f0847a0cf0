#include "models/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/refusal.h"

namespace attentive {
namespace {

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"gelu", Activation::Gelu},
    {"gelu_python", Activation::Gelu},
    {"gelu_new", Activation::GeluTanh},
    {"gelu_pytorch_tanh", Activation::GeluTanh},
    {"silu", Activation::Silu},
    {"swish", Activation::Silu},
    {"relu", Activation::Relu},
    {"gelu_python_tanh", Activation::GeluTanh},
    {"quick_gelu", Activation::QuickGelu},
    {"relu2", Activation::Relu2},
};

std::string text_of(const FileValue* value) {
  if (value == nullptr) return "none";
  if (value->is<bool>()) return value->as<bool>() ? "true" : "false";
  if (value->is<int64_t>()) return std::to_string(value->as<int64_t>());
  if (value->is<double>()) return fmt::format("{}", value->as<double>());
  if (value->is<std::string>()) return quoted_name(value->as<std::string>());
  return value->is<FileValue::None>() ? "null" : fmt::format("a {}", value->kind());
}

}  // namespace

ModelConfig::ModelConfig(std::string caller, const FileValue& config, std::string path)
    : caller_(std::move(caller)), config_(&config), path_(std::move(path)) {}

const FileValue* ModelConfig::find(std::string_view field) const {
  const auto* value = config_->find(field);
  return value == nullptr || value->is<FileValue::None>() ? nullptr : value;
}

bool ModelConfig::is_null(std::string_view field) const {
  const auto* value = config_->find(field);
  return value != nullptr && value->is<FileValue::None>();
}

void ModelConfig::refuse(std::string_view field, std::string_view expected) const {
  C10_THROW_ERROR(ValueError, fmt::format("{}: field \"{}{}\": expected {}, got {}", caller_, path_, field,
                                          expected, text_of(config_->find(field))));
}

int64_t ModelConfig::size(std::string_view field) const {
  const auto* value = find(field);
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (value == nullptr || !value->is<int64_t>() || value->as<int64_t>() < 1 ||
      value->as<int64_t>() >= kLimit) {
    refuse(field, "a positive integer below 2^31");
  }
  return value->as<int64_t>();
}

int64_t ModelConfig::size(std::string_view field, int64_t fallback) const {
  return find(field) == nullptr ? fallback : size(field);
}

int64_t ModelConfig::layers(std::string_view field) const {
  const auto count = size(field);
  if (count > (int64_t{1} << 20)) refuse(field, "at most 2^20 layers");
  return count;
}

int64_t ModelConfig::integer(std::string_view field, int64_t fallback) const {
  const auto* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is<int64_t>()) refuse(field, "an integer");
  return value->as<int64_t>();
}

std::optional<double> ModelConfig::number(std::string_view field) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is<int64_t>()) return static_cast<double>(value->as<int64_t>());
  if (!value->is<double>()) refuse(field, "a number");
  return value->as<double>();
}

double ModelConfig::number(std::string_view field, double fallback) const {
  return number(field).value_or(fallback);
}

bool ModelConfig::flag(std::string_view field, bool fallback) const {
  const auto* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is<bool>()) refuse(field, "true or false");
  return value->as<bool>();
}

std::string ModelConfig::word(std::string_view field, std::string_view fallback) const {
  const auto* value = find(field);
  if (value == nullptr) return std::string(fallback);
  if (!value->is<std::string>()) refuse(field, "a string");
  return value->as<std::string>();
}

std::vector<std::string> ModelConfig::words(std::string_view field) const {
  const auto* value = find(field);
  if (value == nullptr) return {};
  std::vector<std::string> words;
  if (!value->is<FileValue::List>()) refuse(field, "a list of strings");
  for (const auto& item : value->as<FileValue::List>().items) {
    if (!item.is<std::string>()) refuse(field, "a list of strings");
    words.push_back(item.as<std::string>());
  }
  return words;
}

std::optional<ModelConfig> ModelConfig::object(std::string_view field) const {
  const auto* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is<FileValue::Dict>()) refuse(field, "an object");
  return ModelConfig(caller_, *value, path_ + std::string(field) + '.');
}

Activation ModelConfig::activation(std::string_view field, std::string_view fallback) const {
  const auto name = word(field, fallback);
  std::string known;
  for (const auto& [one, activation] : kActivations) {
    if (one == name) return activation;
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  refuse(field, "one of " + known);
}

double ModelConfig::dropout(std::initializer_list<std::string_view> fields, double fallback,
                            std::optional<double> chosen) const {
  if (chosen) return *chosen;
  const auto first = number(*fields.begin(), fallback);
  for (const auto field : fields) {
    if (number(field, fallback) == first) continue;
    refuse(field, fmt::format("{}, as {} has (this package's model has one dropout: set "
                              "PretrainedOptions::dropout)",
                              first, *fields.begin()));
  }
  return first;
}

void ModelConfig::must_be(std::string_view field, bool value) const {
  if (flag(field, value) != value) refuse(field, value ? "true" : "false");
}

void ModelConfig::must_be(std::string_view field, int64_t value) const {
  if (integer(field, value) != value) refuse(field, std::to_string(value));
}

void ModelConfig::must_be(std::string_view field, const char* value) const {
  if (word(field, value) != value) refuse(field, quoted_name(value));
}

void check_common_fields(const ModelConfig& config) {
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "weights that are not quantized");
  }
  for (const auto* field : {"is_encoder_decoder", "add_cross_attention"}) config.must_be(field, false);
}

std::string_view activation_word(Activation value) {
  switch (value) {
    case Activation::GeluTanh:
      return "gelu_pytorch_tanh";
    case Activation::Gelu:
      return "gelu";
    case Activation::Silu:
      return "silu";
    case Activation::QuickGelu:
      return "quick_gelu";
    case Activation::Relu2:
      return "relu2";
    default:
      return "relu";
  }
}

int64_t read_labels(const ModelConfig& config) {
  const auto* labels = config.find("id2label");
  if (labels == nullptr) return config.size("num_labels", 2);
  if (!labels->is<FileValue::Dict>()) config.refuse("id2label", "an object");
  return static_cast<int64_t>(labels->as<FileValue::Dict>().items.size());
}

void write_labels(FileValue::Dict& config, int64_t count) {
  const FileValue before(config);
  const ModelConfig old("save_model_folder", before);
  if (old.find("id2label") != nullptr && read_labels(old) == count) return;
  FileValue::Dict names, numbers;
  for (int64_t i = 0; i < count; ++i) {
    const auto name = "LABEL_" + std::to_string(i);
    set_field(names, std::to_string(i), name);
    set_field(numbers, name, i);
  }
  set_field(config, "id2label", names);
  set_field(config, "label2id", numbers);
}

void set_field(FileValue::Dict& config, std::string_view field, FileValue value) {
  for (auto& [key, old] : config.items) {
    if (key.is<std::string>() && key.as<std::string>() == field) {
      old = std::move(value);
      return;
    }
  }
  config.items.emplace_back(std::string(field), std::move(value));
}

namespace {

constexpr int64_t kLargestNumber = std::numeric_limits<int64_t>::max();

int64_t product(const MinimumSize& demand) {
  int64_t numbers = 1;
  for (const auto& factor : demand.factors) {
    if (__builtin_mul_overflow(numbers, factor.value, &numbers)) return kLargestNumber;
  }
  return numbers;
}

// The number of elements that are really stored; an expanded tensor has more elements than memory.
int64_t numbers_in(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return 0;
  const auto stored = tensor.storage().nbytes() / tensor.element_size();
  return std::min(tensor.numel(), static_cast<int64_t>(stored));
}

int64_t numbers_in(const StateDict& weights) {
  int64_t sum = 0;
  for (const auto& item : weights) {
    if (__builtin_add_overflow(sum, numbers_in(item.second), &sum)) return kLargestNumber;
  }
  return sum;
}

}  // namespace

std::vector<MinimumSize> minimum_sizes_of(const GPTOptions& options) {
  const MinimumSize::Factor width{"n_embd", options.emb_dim()}, layers{"n_layer", options.num_layers()};
  const auto inner = options.hidden_dim() > 0 ? MinimumSize::Factor{"n_inner", options.hidden_dim()} : width;
  return {{{{"vocab_size", options.vocab_size()}, width}},
          {{{"n_positions", options.context_length()}, width}},
          {{layers, width, width}},
          {{layers, width, inner}}};
}

std::vector<MinimumSize> minimum_sizes_of(const LlamaOptions& options) {
  const MinimumSize::Factor width{"hidden_size", options.emb_dim()},
      layers{"num_hidden_layers", options.num_layers()};
  std::vector<MinimumSize> demands{{{{"vocab_size", options.vocab_size()}, width}},
                                   {{layers, width, {"intermediate_size", options.hidden_dim()}}}};
  if (options.head_dim() == 0) {
    demands.push_back({{layers, width, width}});
    return demands;
  }
  const MinimumSize::Factor head{"head_dim", options.head_dim()};
  demands.push_back({{layers, width, {"num_attention_heads", options.num_heads()}, head}});
  demands.push_back({{layers, width, {"num_key_value_heads", options.num_kv_heads()}, head}});
  return demands;
}

std::vector<MinimumSize> minimum_sizes_of(const BertOptions& options) {
  const bool factored = options.embedding_dim() > 0;
  const MinimumSize::Factor width{"hidden_size", options.emb_dim()},
      embedded = factored ? MinimumSize::Factor{"embedding_size", options.embedding_dim()} : width,
      layers{"num_hidden_layers", options.shared_layers() ? 1 : options.num_layers()};
  std::vector<MinimumSize> demands;
  demands.push_back({{{"vocab_size", options.vocab_size()}, embedded}});
  demands.push_back({{{"max_position_embeddings", options.context_length()}, embedded}});
  demands.push_back({{{"type_vocab_size", options.token_types()}, embedded}});
  if (factored) demands.push_back({{embedded, width}});
  demands.push_back({{layers, width, width}});
  demands.push_back({{layers, width, {"intermediate_size", options.hidden_dim()}}});
  if (options.head() != BertHead::None) demands.push_back({{{"num_labels", options.num_labels()}, width}});
  return demands;
}

std::vector<MinimumSize> minimum_sizes_of(const ViTOptions& options) {
  const MinimumSize::Factor width{"hidden_size", options.emb_dim()},
      layers{"num_hidden_layers", options.num_layers()}, patch{"patch_size", options.patch_size()},
      side{"image_size / patch_size", options.image_size() / std::max<int64_t>(options.patch_size(), 1)};
  return {{{side, side, width}},
          {{{"num_channels", options.channels()}, patch, patch, width}},
          {{{"num_labels", options.num_classes()}, width}},
          {{layers, width, width}},
          {{layers, width, {"intermediate_size", options.hidden_dim()}}}};
}

void check_demands(const std::string& caller, const std::vector<MinimumSize>& demands,
                   const StateDict& weights) {
  const auto held = numbers_in(weights);
  for (const auto& demand : demands) {
    if (product(demand) <= held) continue;
    std::vector<std::string_view> fields;
    std::vector<int64_t> values;
    for (const auto& factor : demand.factors) {
      fields.push_back(factor.field);
      values.push_back(factor.value);
    }
    C10_THROW_ERROR(
        ValueError,
        fmt::format("{}: fields {}: expected at most the {} numbers of the folder's {} tensors, "
                    "got {}",
                    caller, fmt::join(fields, " * "), held, weights.size(), fmt::join(values, " * ")));
  }
}

void check_layers(const ModelConfig& config, std::string_view field, const StateDict& weights) {
  const auto tensors = static_cast<int64_t>(weights.size());
  if (tensors == 0 || config.size(field) <= tensors) return;
  config.refuse(field, fmt::format("at most as many layers as the folder has tensors, {}", tensors));
}

}  // namespace attentive
