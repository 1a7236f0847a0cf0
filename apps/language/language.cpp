#include "language/language.h"

#include <c10/util/Exception.h>

#include <attentive/models/pretrained.h>
#include <attentive/train/language_model.h>

namespace {

using namespace attentive;

template <class Model>
void take_model(Language& language, Model model, c10::Device device) {
  take_module(language, model, device);
  language.context_length = model->options.context_length();
  language.generate = [model](const std::vector<int64_t>& prompt, const GenerateOptions& options) mutable {
    return generate(*model, prompt, options);
  };
}

bool is_python_folder(const std::filesystem::path& path) {
  return std::filesystem::exists(path / "config.json");
}

Language from_python(ModelFolder&& folder, c10::Device device) {
  Language language;
  language.stop_tokens = folder.stop_tokens;
  take_tokenizer(language, folder);
  const auto model = pretrained_model(folder);
  if (model == GPTImpl::kName) {
    take_model(language, load_pretrained<GPT>(std::move(folder)), device);
  } else {
    TORCH_CHECK_VALUE(model == LlamaImpl::kName, folder.path.string(),
                      ": expected a model that continues texts, got a ", folder.family);
    take_model(language, load_pretrained<Llama>(std::move(folder)), device);
  }
  return language;
}

Network bert_network(ModelFolder&& folder, c10::Device device) {
  Network network;
  take_tokenizer(network, folder);
  const auto model = load_pretrained<Bert>(std::move(folder));
  network.context_length = model->options.context_length();
  take_module(network, model, device);
  return network;
}

Network vit_network(ModelFolder&& folder, c10::Device device) {
  Network network;
  network.why_no_tokenizer = folder.path.string() + " holds a model of images";
  const auto model = load_pretrained<ViT>(std::move(folder));
  network.image = model->options;
  take_module(network, model, device);
  return network;
}

}  // namespace

std::string_view Language::bytes(int64_t id) const {
  return tokenizer->is_special(id) ? std::string_view() : tokenizer->bytes(id);
}

Language load_language(const std::filesystem::path& path, c10::Device device) {
  if (is_python_folder(path)) return from_python(read_model_folder(path), device);
  auto run = load_language_model(path, device);
  Language language;
  language.tokenizer = std::move(run.tokenizer);
  take_model(language, run.model, device);
  return language;
}

Network load_network(const std::filesystem::path& path, c10::Device device) {
  if (!is_python_folder(path)) return load_language(path, device);
  auto folder = read_model_folder(path);
  const auto model = pretrained_model(folder);
  if (model == BertImpl::kName) return bert_network(std::move(folder), device);
  if (model == ViTImpl::kName) return vit_network(std::move(folder), device);
  return from_python(std::move(folder), device);
}
