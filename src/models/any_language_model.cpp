#include <attentive/models/any_language_model.h>

namespace attentive {
namespace {

template <class Model>
Model checked(Model model) {
  (void)model.ptr();  // throws for an empty holder
  return model;
}

}  // namespace

AnyLanguageModel::AnyLanguageModel(GPT model) : model_(checked(std::move(model))) {}
AnyLanguageModel::AnyLanguageModel(Llama model) : model_(checked(std::move(model))) {}

AnyLanguageModel AnyLanguageModel::load_pretrained(ModelFolder&& folder, const PretrainedOptions& options) {
  const auto model = pretrained_model(folder);
  if (model == GPTImpl::kName) return attentive::load_pretrained<GPT>(std::move(folder), options);
  TORCH_CHECK_VALUE(model == LlamaImpl::kName, "AnyLanguageModel: ", folder.path.string(),
                    ": expected a model that continues texts, got a ", folder.family);
  return attentive::load_pretrained<Llama>(std::move(folder), options);
}

std::shared_ptr<torch::nn::Module> AnyLanguageModel::ptr() const {
  return visit([](const auto& model) -> std::shared_ptr<torch::nn::Module> { return model.ptr(); });
}

std::string_view AnyLanguageModel::name() const {
  return visit([](const auto& model) -> std::string_view { return model->kName; });
}

int64_t AnyLanguageModel::vocab_size() const {
  return visit([](const auto& model) { return model->options.vocab_size(); });
}

int64_t AnyLanguageModel::context_length() const {
  return visit([](const auto& model) { return model->options.context_length(); });
}

// The functions are const, but operator-> of a holder is not; a copy of the holder shares the model.
at::Tensor AnyLanguageModel::forward(const at::Tensor& ids, Logits which) const {
  return visit([&](auto model) { return detail::forward_with(*model, ids, which); });
}

at::Tensor AnyLanguageModel::forward_cached(const at::Tensor& ids, KVCache& cache, Logits which) const {
  return visit([&](auto model) { return detail::forward_cached_with(*model, ids, cache, which); });
}

at::Tensor AnyLanguageModel::loss(const at::Tensor& ids, const at::Tensor& targets) const {
  return visit([&](auto model) { return model->loss(ids, targets); });
}

std::unique_ptr<KVCache> AnyLanguageModel::make_cache(int64_t batch, int64_t capacity) const {
  return visit([&](const auto& model) { return model->make_cache(batch, capacity); });
}

std::vector<int64_t> generate(const AnyLanguageModel& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options) {
  return model.visit([&](auto holder) { return generate(*holder, prompt, options); });
}

void save_model_folder(const std::filesystem::path& path, const AnyLanguageModel& model,
                       const SaveFolderOptions& options) {
  model.visit([&](const auto& holder) { save_model_folder(path, *holder, options); });
}

}  // namespace attentive
