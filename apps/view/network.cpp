#include "network.h"

#include <c10/util/Exception.h>

#include <attentive/models/model_folder.h>

#include "common/language.h"

namespace {

using namespace attentive;

template <class Model>
void take_model(Network& network, Model model) {
  network.module = model.ptr();
  network.forward = [model](const at::Tensor& input) mutable { model->forward(input); };
}

Network bert_network(ModelFolder&& folder) {
  Network network;
  try {
    network.tokenizer = apps::read_tokenizer_of(folder);
  } catch (const c10::ValueError& error) {
    network.why_no_tokenizer = error.what_without_backtrace();
  }
  const auto model = load_pretrained<Bert>(std::move(folder));
  network.context_length = model->options.context_length();
  take_model(network, model);
  return network;
}

Network vit_network(ModelFolder&& folder) {
  Network network;
  network.why_no_tokenizer = folder.path.string() + " holds a model of images";
  const auto model = load_pretrained<ViT>(std::move(folder));
  network.image = model->options;
  take_model(network, model);
  return network;
}

Network language_network(const std::filesystem::path& path) {
  auto language = apps::load_language(path);
  const auto& model = language.model;
  return {.module = model.ptr(),
          .forward = [model](const at::Tensor& ids) { model.forward(ids); },
          .image = std::nullopt,
          .context_length = model.context_length(),
          .tokenizer = std::move(language.tokenizer),
          .why_no_tokenizer = std::move(language.why_no_tokenizer)};
}

}  // namespace

std::vector<int64_t> Network::encode(std::string_view text, std::string_view option) const {
  TORCH_CHECK_VALUE(tokenizer != nullptr, "no tokenizer for ", option, ": ", why_no_tokenizer,
                    "; --ids takes the text as ids");
  return tokenizer->encode_with_special_tokens(text);
}

Network load_network(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path / "config.json")) return language_network(path);
  const auto model = pretrained_model(read_model_folder(path, {.weights = false}));
  if (model == BertImpl::kName) return bert_network(read_model_folder(path));
  if (model == ViTImpl::kName) return vit_network(read_model_folder(path));
  return language_network(path);
}
