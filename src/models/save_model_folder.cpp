#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/models/model_folder.h>
#include <attentive/modules/module.h>
#include <attentive/modules/print_options.h>
#include <attentive/modules/transformer_attention.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "files/dtypes.h"
#include "files/json_value.h"
#include "models/folder_writer.h"
#include "models/model_config.h"
#include "models/python_names.h"

namespace attentive {
namespace {

[[noreturn]] void fail_to_save_folder(const std::filesystem::path& path, std::string_view reason) {
  C10_THROW_ERROR(ValueError, fmt::format("save_model_folder: {}: {}", path.string(), reason));
}

bool is_old_weights(std::string_view name) {
  return matches_any({"model*.safetensors", "model.safetensors.index.json", "pytorch_model*.bin",
                      "pytorch_model.bin.index.json"},
                     name);
}

void check_files(const std::filesystem::path& path, const SaveFolderOptions& options) {
  for (const auto& [name, bytes] : options.files) {
    const bool plain = !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
    if (plain && name != "config.json" && !is_old_weights(name)) continue;
    fail_to_save_folder(
        path, fmt::format("files: expected the name of a file beside config and weights, got \"{}\"", name));
  }
}

void write_side_files(const SaveFolderOptions& options, const FolderWriter& folder) {
  const auto& from = options.tokenizer;
  if (!from.empty() && is_folder(from)) {
    for (const auto& [name, bytes] : side_files_of(from)) write_file(folder / name, bytes);
  } else if (!from.empty()) {
    write_file(folder / "tokenizer.json", read_file(from));
  }
  for (const auto& [name, bytes] : options.files) write_file(folder / name, bytes);
}

const Family& chosen_family(const std::filesystem::path& path, const SaveFolderOptions& options,
                            const Family& natural) {
  auto family = options.family;
  if (family.empty() && options.config.is<FileValue::Dict>()) {
    family = ModelConfig("save_model_folder: " + path.string(), options.config).word("model_type", "");
  }
  if (family.empty()) return natural;
  const auto possible = families_of_model(natural.model);
  if (std::find(possible.begin(), possible.end(), family) == possible.end()) {
    fail_to_save_folder(path, fmt::format("expected one of the families {} for this model, got \"{}\"",
                                          fmt::join(possible, ", "), family));
  }
  return *find_family(family);
}

FileValue::Dict base_config(const SaveFolderOptions& options, const Family& family,
                            const torch::nn::Module& model) {
  auto config =
      options.config.is<FileValue::Dict>() ? options.config.as<FileValue::Dict>() : FileValue::Dict();
  set_field(config, "model_type", std::string(family.name));
  const std::string name(find_torch_dtype(model.parameters().at(0).scalar_type())->name);
  set_field(config, "dtype", name);
  set_field(config, "torch_dtype", name);
  return config;
}

// Checks that no layer has a function, which config.json cannot describe, or an adapter.
void check_layers(const std::filesystem::path& path, const torch::nn::Module& model) {
  detail::refuse_adapters("save_model_folder", model);
  for (const auto& layer : model.named_modules("", /*include_self=*/false)) {
    const auto check = [&](const char* option, const auto& function) {
      if (!function) return;
      fail_to_save_folder(path,
                          fmt::format("expected no {} in {}, got \"{}\": a function cannot be written to a "
                                      "file",
                                      option, layer.key(), function.name()));
    };
    const auto* attention = dynamic_cast<const TransformerAttentionImpl*>(layer.value().get());
    if (!attention) continue;
    check("score", attention->options.score());
    check("block_mask", attention->options.block_mask().mask());
  }
}

// Checks that config.json, read as Python reads it, describes this very model.
template <class Options>
void check_same(const std::filesystem::path& path, const Family& family, const Options& model,
                const Options& read) {
  const auto wanted = detail::option_texts(model), saved = detail::option_texts(read);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].text == saved[i].text) continue;
    fail_to_save_folder(path, fmt::format("a {} cannot have {}={}; config.json would say {}", family.name,
                                          wanted[i].name, wanted[i].text, saved[i].text));
  }
}

void write(const std::filesystem::path& path, const FileValue::Dict& config, const StateDict& weights,
           const SaveFolderOptions& options) {
  check_files(path, options);
  try {
    FolderWriter folder(path);
    write_file(folder / "config.json", json_text(config));
    save_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
    write_side_files(options, folder);
    folder.commit(&is_old_weights);
  } catch (const std::system_error& error) {
    fail_to_save_folder(path, error.what());
  } catch (const Refusal& refusal) {
    fail_to_save_folder(path, refusal.what());
  }
}

const std::string kReader = "save_model_folder: config.json";

// The plain() functions bring options into one form: implied defaults are filled in, and options that
// config.json does not record are reset.
GPTOptions plain(GPTOptions options) {
  if (options.num_kv_heads() == 0) options.num_kv_heads(options.num_heads());
  options.hidden_dim(hidden_dim_of(options));
  return options.qkv_bias(true).bias(true).init(GPTInit::Book).rotary(RotaryPositionsOptions(0));
}

RotaryPositionsOptions plain(RotaryPositionsOptions rotary) {
  auto plain =
      RotaryPositionsOptions(0).base(rotary.base()).pairing(rotary.pairing()).scaling(rotary.scaling());
  if (rotary.scaling() == RotaryScaling::None) return plain;
  plain.factor(rotary.factor());
  if (rotary.scaling() == RotaryScaling::Llama3) {
    plain.low_freq_factor(rotary.low_freq_factor())
        .high_freq_factor(rotary.high_freq_factor())
        .original_context(rotary.original_context());
  } else if (rotary.scaling() == RotaryScaling::Yarn) {
    plain.original_context(rotary.original_context())
        .beta_fast(rotary.beta_fast())
        .beta_slow(rotary.beta_slow())
        .truncate(rotary.truncate())
        .mscale(rotary.mscale())
        .mscale_all_dim(rotary.mscale_all_dim())
        .attention_factor(rotary.attention_factor());
  }
  return plain;
}

LlamaOptions plain(LlamaOptions options) {
  const auto heads = std::max<int64_t>(options.num_heads(), 1);
  if (options.num_kv_heads() == 0) options.num_kv_heads(heads);
  if (options.head_dim() == 0) options.head_dim(options.emb_dim() / heads);
  options.hidden_dim(hidden_dim_of(options));
  if (!options.scale()) options.scale(std::pow(static_cast<double>(options.head_dim()), -0.5));
  auto windows = options.windows();
  windows.resize(static_cast<size_t>(options.num_layers()));
  options.windows(windows).context_length(0).rotary(plain(options.rotary()));
  const bool own_rotary = options.window_rotary() && has_windows(options);
  const auto local = own_rotary ? plain(*options.window_rotary()) : options.rotary();
  return options.window_rotary(local);
}

BertOptions plain(BertOptions options) {
  options.hidden_dim(hidden_dim_of(options));
  if (options.padding_id()) options.frozen_id(std::nullopt);  // implied by padding_id
  if (options.head() == BertHead::None) options.num_labels(0).head_dropout(0);
  return options;
}

ViTOptions plain(ViTOptions options) {
  options.hidden_dim(hidden_dim_of(options));
  return options;
}

// Adds zero biases, because GPT-2 has a bias for every matrix and norm.
void add_zero_biases(StateDict& weights) {
  StateDict zeros;
  for (const auto& [name, tensor] : weights) {
    if (!name.ends_with(".weight") ||
        (name.find(".h.") == std::string::npos && !name.ends_with("ln_f.weight"))) {
      continue;
    }
    const auto bias = name.substr(0, name.size() - 6) + "bias";
    if (!weights.contains(bias)) zeros.emplace(bias, at::zeros({tensor.size(-1)}, tensor.options()));
  }
  weights.merge(zeros);
}

// Saves a model whose options `read(family, config)` reads back.
template <class Model, class Read>
void save(const std::filesystem::path& path, const Model& model, const SaveFolderOptions& options,
          const Read& read, const PythonNamesOptions& names = {}) {
  check_layers(path, model);
  const auto& family = chosen_family(path, options, natural_family(model.options));
  auto config = base_config(options, family, model);
  write_options(family, model.options, config);
  check_same(path, family, plain(model.options), plain(read(family, FileValue(config))));
  auto weights = to_python_names(family.name, state_dict(model), names);
  if constexpr (std::is_same_v<Model, GPTImpl>) add_zero_biases(weights);
  write(path, config, weights, options);
}

}  // namespace

void save_model_folder(const std::filesystem::path& path, const GPTImpl& model,
                       const SaveFolderOptions& options) {
  save(path, model, options,
       [](const Family&, const FileValue& config) { return read_gpt_options(kReader, config, {}); });
}

void save_model_folder(const std::filesystem::path& path, const LlamaImpl& model,
                       const SaveFolderOptions& options) {
  save(path, model, options, [](const Family& family, const FileValue& config) {
    return read_llama_options(kReader, family, config, {});
  });
}

void save_model_folder(const std::filesystem::path& path, const BertImpl& model,
                       const SaveFolderOptions& options) {
  const BertParts parts{model.options.pooler(), model.options.masked_lm(), model.options.head()};
  const auto read = [&](const Family& family, const FileValue& config) {
    return read_bert_options(kReader, family, config, parts, {});
  };
  save(path, model, options, read, {.prefix = parts.masked_lm || parts.head != BertHead::None});
}

void save_model_folder(const std::filesystem::path& path, const ViTImpl& model,
                       const SaveFolderOptions& options) {
  const bool classifier = model.options.num_classes() > 0;
  const auto read = [&](const Family& family, const FileValue& config) {
    return read_vit_options(kReader, family, config, classifier, {});
  };
  save(path, model, options, read, {.prefix = classifier, .channels = model.options.channels()});
}

}  // namespace attentive
