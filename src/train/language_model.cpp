#include <system_error>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>

#include "core/option_json.h"
#include "io/files.h"
#include "train/model_state.h"

namespace attentive {
namespace {

constexpr const char* kWho = "load_language_model";

// Members that earlier versions neither wrote nor know: written where they differ from the defaults, which
// hold where they are absent.
constexpr const char* kLater[] = {"rotary_low_freq_factor", "rotary_high_freq_factor",
                                  "rotary_original_context"};

}  // namespace

std::string to_json(const GPTOptions& options) {
  auto object = option_object(options);
  const auto defaults = option_object(GPTOptions(1, 1, 1, 1, 1));
  for (const auto* name : kLater) {
    if (object[name] == defaults[name]) object.erase(name);
  }
  object.erase("rotary_head_dim");  // the model sets it
  return object.dump(1) + '\n';
}

GPTOptions parse_gpt_options(const std::string& json) {
  auto object = parse_option_object("GPTOptions", json);
  GPTOptions options(1, 1, 1, 1, 1);
  const auto defaults = option_object(options);
  for (const auto* name : kLater) object.emplace(name, defaults[name]);
  object["rotary_head_dim"] = options.rotary().head_dim();
  each_option(options, OptionReader("GPTOptions", object));
  return options;
}

std::string to_json(const LlamaOptions& options) {
  auto object = option_object(options);
  object["model"] = LlamaImpl::kName;
  return object.dump(1) + '\n';
}

LlamaOptions parse_llama_options(const std::string& json) {
  constexpr const char* who = "LlamaOptions";
  const auto object = parse_option_object(who, json);
  const auto model = object.find("model");
  TORCH_CHECK_VALUE(model != object.end() && *model == LlamaImpl::kName, who,
                    ": expected a member \"model\" with the value \"", LlamaImpl::kName, '"');
  LlamaOptions options(1, 1, 1, 1);
  each_option(options, OptionReader(who, object));
  return options;
}

std::map<std::string, std::string> language_model_documents(const GPTOptions& options,
                                                            const Tokenizer& tokenizer) {
  return {{"model.json", to_json(options)}, {"tokenizer.json", tokenizer.to_json() + '\n'}};
}

LanguageModel load_language_model(const std::filesystem::path& path, at::Device device) {
  const auto checkpoint = load_checkpoint(path);
  const auto document = [&](const char* name) -> const std::string& {
    const auto found = checkpoint.documents.find(name);
    TORCH_CHECK_VALUE(found != checkpoint.documents.end(), kWho, ": ", path.string(), ": expected a ", name);
    return found->second;
  };
  LanguageModel result;
  const auto options = parse_gpt_options(document("model.json"));
  result.tokenizer = parse_tokenizer(document("tokenizer.json"));
  TORCH_CHECK_VALUE(result.tokenizer->vocab_size() <= options.vocab_size(), kWho, ": ", path.string(),
                    ": expected a tokenizer of at most ", options.vocab_size(), " tokens, got ",
                    result.tokenizer->vocab_size());
  result.model = GPT(options);
  load_model_state(kWho, *result.model, checkpoint.model);
  result.model->to(device);
  result.model->eval();
  result.step = checkpoint.step;
  return result;
}

BatchLoss gpt_loss(const GPT& model) {
  return [its = model.ptr()](const at::Tensor& x, const at::Tensor& y) { return its->loss(x, y); };
}

TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share) {
  TORCH_CHECK_VALUE(training_share > 0 && training_share <= 1,
                    "tokenize: expected training_share in (0, 1], got ", training_share);
  const auto ids = at::tensor(tokenizer.encode(text), at::kInt);
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

}  // namespace attentive
