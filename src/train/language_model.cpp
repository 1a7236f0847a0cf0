#include <system_error>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/modules/module.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>

#include "base/files.h"
#include "base/refusal.h"
#include "files/json_value.h"
#include "files/option_json.h"
#include "train/run_state.h"

namespace attentive {
namespace {

constexpr const char* kLanguageModel = "LanguageModel";
constexpr const char* kModel = "model.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kStopTokens = "stop_tokens.json";
constexpr const char* kAdapters = "lora.json";
// So that Python does not take a checkpoint for a model folder.
constexpr std::string_view kPython = "python-";
constexpr const char* kConfig = "config.json";

using Documents = std::map<std::string, std::string>;

void check_tokenizer(const Tokenizer& tokenizer, const AnyLanguageModel& model) {
  TORCH_CHECK_VALUE(tokenizer.vocab_size() <= model.vocab_size(), kLanguageModel,
                    ": expected a tokenizer of at most ", model.vocab_size(), " tokens, got ",
                    tokenizer.vocab_size());
}

std::vector<int64_t> parse_stop_tokens(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(list.is_array(), kLanguageModel, ": ", kStopTokens, ": expected a list of tokens");
  std::vector<int64_t> tokens;
  for (const auto& token : list) {
    TORCH_CHECK_VALUE(token.is_number_unsigned(), kLanguageModel, ": ", kStopTokens,
                      ": expected tokens, got ", token.dump());
    tokens.push_back(token.get<int64_t>());
  }
  return tokens;
}

// The tokenizer of a Python folder. Throws c10::ValueError with what is wrong with it.
std::unique_ptr<Tokenizer> read_python_tokenizer(const std::filesystem::path& path,
                                                 const std::map<std::string, std::string>& files,
                                                 bool has_vocabulary, const LanguageModelOptions& options) {
  const auto file = files.find(kTokenizer);
  TORCH_CHECK_VALUE(file != files.end() || (has_vocabulary && options.read_folder_tokenizer), path.string(),
                    " has no tokenizer.json");
  if (options.read_folder_tokenizer) return options.read_folder_tokenizer(path);
  try {
    return options.read_tokenizer(file->second);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, (path / kTokenizer).string(), ": ", error.what_without_backtrace());
  }
}

LanguageModel from_python(const std::filesystem::path& path, const LanguageModelOptions& options) {
  auto folder = read_model_folder(path);
  auto stop_tokens = folder.stop_tokens;
  const bool has_vocabulary = !folder.vocabulary.empty();
  LanguageModel language{.model = AnyLanguageModel::load_pretrained(std::move(folder), options.pretrained),
                         .stop_tokens = std::move(stop_tokens),
                         .python_files = read_side_files(path)};
  try {
    language.tokenizer = read_python_tokenizer(path, language.python_files, has_vocabulary, options);
  } catch (const c10::ValueError& error) {
    language.why_no_tokenizer = error.what_without_backtrace();
  }
  return language;
}

LanguageModel from_checkpoint(const std::filesystem::path& path, const LanguageModelOptions& options) {
  const auto checkpoint = load_checkpoint(path);
  auto language = parse_language_documents(checkpoint.documents, options.read_tokenizer);
  load_model_state(kLanguageModel, language.model.module(), checkpoint.model);
  language.step = checkpoint.step;
  return language;
}

// Fields that must be set to null: otherwise Python would use its defaults, which are tokens of other models.
FileValue config_without_tokens() {
  FileValue::Dict config;
  for (const auto* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    config.items.emplace_back(field, FileValue());
  }
  return config;
}

std::string tokenizer_config(const AnyLanguageModel& model) {
  nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false}};
  if (model.context_length() > 0) config["model_max_length"] = model.context_length();
  return config.dump(2) + '\n';
}

}  // namespace

Documents language_model_documents(const AnyLanguageModel& model, const Tokenizer& tokenizer) {
  check_tokenizer(tokenizer, model);
  const auto json = model.visit([](const auto& holder) { return to_json(holder->options); });
  return {{kModel, json}, {kTokenizer, tokenizer.to_json() + '\n'}};
}

Documents language_model_documents(const LanguageModel& language) {
  TORCH_CHECK_VALUE(language.tokenizer, kLanguageModel,
                    ": expected a tokenizer, got none: ", language.why_no_tokenizer);
  auto documents = language_model_documents(language.model, *language.tokenizer);
  if (language.lora) documents[kAdapters] = lora_config(*language.lora);
  if (language.python_files.empty()) return documents;
  documents[kTokenizer] = language.tokenizer->to_json();  // unchanged, byte for byte, after a resume
  if (!language.stop_tokens.empty()) {
    documents[kStopTokens] = nlohmann::json(language.stop_tokens).dump() + '\n';
  }
  for (const auto& [name, bytes] : language.python_files) {
    if (name != kTokenizer) documents[std::string(kPython) + name] = bytes;
  }
  return documents;
}

LanguageModel parse_language_documents(const Documents& documents, const TokenizerReader& read_tokenizer) {
  const auto document = [&](const char* name) -> const std::string& {
    const auto found = documents.find(name);
    TORCH_CHECK_VALUE(found != documents.end(), kLanguageModel,
                      ": expected the checkpoint of a language model, got one without ", name);
    return found->second;
  };
  LanguageModel language{.model = parse_language_model(document(kModel)),
                         .tokenizer = read_tokenizer(document(kTokenizer))};
  check_tokenizer(*language.tokenizer, language.model);
  if (const auto adapters = documents.find(kAdapters); adapters != documents.end()) {
    const NoFirstWeights no_weights;
    language.lora = Lora(parse_lora_config(adapters->second)).attach(language.model);
  }
  language.model.module().eval();
  for (const auto& [name, bytes] : documents) {
    if (name == kStopTokens) language.stop_tokens = parse_stop_tokens(bytes);
    if (name.starts_with(kPython)) language.python_files[name.substr(kPython.size())] = bytes;
  }
  return language;
}

LanguageModel load_language_model(const std::filesystem::path& path, const LanguageModelOptions& options) {
  auto language = is_there(path / kConfig) ? from_python(path, options) : from_checkpoint(path, options);
  language.model.module().to(options.device);
  return language;
}

void save_language_model(const std::filesystem::path& path, const LanguageModel& language,
                         const std::string& family) {
  SaveFolderOptions options{.family = family, .files = language.python_files};
  auto& files = options.files;
  if (language.tokenizer) {
    files[kTokenizer] = language.tokenizer->to_python_json();
    if (language.python_files.empty()) files["tokenizer_config.json"] = tokenizer_config(language.model);
  }
  const auto config = files.extract(kConfig);
  try {
    options.config = config ? parse_json(config.mapped(), kConfig) : config_without_tokens();
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, kLanguageModel, ": ", refusal.what());
  }
  save_model_folder(path, language.model, options);
}

BatchLoss language_model_loss(const AnyLanguageModel& model) {
  return [model](const at::Tensor& x, const at::Tensor& y) { return model.loss(x, y); };
}

TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share) {
  TORCH_CHECK_VALUE(training_share > 0 && training_share <= 1,
                    "tokenize: expected training_share in (0, 1], got ", training_share);
  const auto ids = at::tensor(tokenizer.encode_whole(text), at::kInt);
  const auto training = static_cast<int64_t>(training_share * static_cast<double>(ids.size(0)));
  return {ids.narrow(0, 0, training), ids.narrow(0, training, ids.size(0) - training)};
}

std::string read_text(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "read_text: ", error.what());
  }
  TORCH_CHECK_VALUE(!text.empty(), "read_text: ", path.string(), ": expected a text, got an empty file");
  return text;
}

namespace {

// Converts the options of a language model to "model.json" and back.

// Members that earlier versions do not know. They are written only if they differ from the defaults, and have
// the defaults if they are absent.
constexpr const char* kAddedSinceV1[] = {"rotary_low_freq_factor",
                                         "rotary_high_freq_factor",
                                         "rotary_original_context",
                                         "rotary_beta_fast",
                                         "rotary_beta_slow",
                                         "rotary_truncate",
                                         "rotary_mscale",
                                         "rotary_mscale_all_dim",
                                         "rotary_attention_factor",
                                         "hidden_dim",
                                         "activation",
                                         "eps",
                                         "checkpoint"};
constexpr const char* kLlamaAddedSinceV1[] = {
    "rotary_beta_fast",      "rotary_beta_slow",        "rotary_truncate", "rotary_mscale",
    "rotary_mscale_all_dim", "rotary_attention_factor", "checkpoint"};

template <class Options, size_t kCount>
nlohmann::json without_later_defaults(const Options& options, const Options& defaults,
                                      const char* const (&later)[kCount]) {
  auto object = option_object(options);
  const auto unchanged = option_object(defaults);
  for (const auto* name : later) {
    if (object[name] == unchanged[name]) object.erase(name);
  }
  return object;
}

bool is_llama(const nlohmann::json& object) {
  const auto model = object.find("model");
  return model != object.end() && *model == LlamaImpl::kName;
}

}  // namespace

std::string to_json(const GPTOptions& options) {
  auto object = without_later_defaults(options, GPTOptions(1, 1, 1, 1, 1), kAddedSinceV1);
  object.erase("rotary_head_dim");  // set by the model
  return object.dump(1) + '\n';
}

GPTOptions parse_gpt_options(const std::string& json) {
  auto object = parse_option_object("GPTOptions", json);
  GPTOptions options(1, 1, 1, 1, 1);
  const auto defaults = option_object(options);
  for (const auto* name : kAddedSinceV1) object.emplace(name, defaults[name]);
  object["rotary_head_dim"] = options.rotary().head_dim();
  each_option(options, OptionReader("GPTOptions", object));
  return options;
}

std::string to_json(const LlamaOptions& options) {
  auto object = without_later_defaults(options, LlamaOptions(1, 1, 1, 1), kLlamaAddedSinceV1);
  object["model"] = LlamaImpl::kName;
  return object.dump(1) + '\n';
}

LlamaOptions parse_llama_options(const std::string& json) {
  constexpr const char* caller = "LlamaOptions";
  auto object = parse_option_object(caller, json);
  TORCH_CHECK_VALUE(is_llama(object), caller, ": expected a member \"model\" with the value \"",
                    LlamaImpl::kName, '"');
  LlamaOptions options(1, 1, 1, 1);
  const auto defaults = option_object(options);
  for (const auto* name : kLlamaAddedSinceV1) object.emplace(name, defaults[name]);
  each_option(options, OptionReader(caller, object));
  return options;
}

AnyLanguageModel parse_language_model(const std::string& json) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const NoFirstWeights guard;
  if (object.is_object() && is_llama(object)) return Llama(parse_llama_options(json));
  return GPT(parse_gpt_options(json));
}

}  // namespace attentive
