#include "language.h"

#include <c10/util/Exception.h>

#include <attentive/models/pretrained.h>
#include <attentive/train/language_model.h>

#ifdef ATTENTIVE_TOKENIZERS
#include <attentive/tokenizers/pretrained_tokenizer.h>
#endif

namespace {

using namespace attentive;

// The model's part of a Language.
template <class Model>
void take_model(Language& language, Model model, c10::Device device) {
  model->to(device);
  language.context_length = model->options.context_length();
  language.generate = [model](const std::vector<int64_t>& prompt, const GenerateOptions& options) mutable {
    return generate(*model, prompt, options);
  };
}

void take_tokenizer(Language& language, const ModelFolder& folder) {
  if (folder.tokenizer.empty()) {
    language.why_no_tokenizer = folder.path.string() + " has no tokenizer.json";
    return;
  }
#ifdef ATTENTIVE_TOKENIZERS
  try {
    language.tokenizer = load_any_tokenizer(folder.tokenizer);
  } catch (const c10::ValueError& error) {
    language.why_no_tokenizer = error.what_without_backtrace();
  }
#else
  language.why_no_tokenizer = "this program was built without the component tokenizers";
#endif
}

Language from_python(const std::filesystem::path& path, c10::Device device) {
  auto folder = read_model_folder(path);
  Language language;
  language.stop_tokens = folder.stop_tokens;
  take_tokenizer(language, folder);
  const auto model = pretrained_model(folder);
  if (model == GPTImpl::kName) {
    take_model(language, load_pretrained<GPT>(std::move(folder)), device);
  } else {
    TORCH_CHECK_VALUE(model == LlamaImpl::kName, path.string(),
                      ": expected a model that continues texts, got a ", folder.family);
    take_model(language, load_pretrained<Llama>(std::move(folder)), device);
  }
  return language;
}

}  // namespace

std::vector<int64_t> Language::encode(std::string_view text) const {
  TORCH_CHECK_VALUE(tokenizer != nullptr, "no tokenizer for --prompt: ", why_no_tokenizer,
                    "; --ids takes the prompt as ids");
  return tokenizer->encode_with_special_tokens(text);
}

std::string_view Language::bytes(int64_t id) const {
  return tokenizer->is_special(id) ? std::string_view() : tokenizer->bytes(id);
}

Language load_language(const std::filesystem::path& path, c10::Device device) {
  if (std::filesystem::exists(path / "config.json")) return from_python(path, device);
  auto run = load_language_model(path, device);
  Language language;
  language.tokenizer = std::move(run.tokenizer);
  take_model(language, run.model, device);
  return language;
}
