#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>

#include <attentive/models/any_language_model.h>
#include <attentive/models/generate.h>

#include "core/check.h"
#include "models/decoder_only.h"

namespace attentive {

std::string_view to_string(Logits value) {
  return enum_name(value, {"all", "last"});
}

namespace {

using detail::LanguageModelView;

constexpr const char* kGenerate = "generate";

void check(const SamplingOptions& options) {
  constexpr const char* caller = "sample_token";
  TORCH_CHECK_VALUE(std::isfinite(options.temperature) && options.temperature >= 0, caller,
                    ": expected temperature >= 0, got ", options.temperature);
  TORCH_CHECK_VALUE(options.top_k >= 0, caller, ": expected top_k >= 0, got ", options.top_k);
  TORCH_CHECK_VALUE(options.top_p > 0 && options.top_p <= 1, caller, ": expected top_p in (0, 1], got ",
                    options.top_p);
}

// Computes the logits after the last token. A cache, if there is one, holds the first `fed_` tokens.
class Decoder {
 public:
  Decoder(const LanguageModelView& model, std::unique_ptr<KVCache> cache, int64_t chunk)
      : model_(model),
        cache_(std::move(cache)),
        chunk_(chunk == 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(chunk)) {
    const auto parameters = model.module.parameters();
    if (!parameters.empty()) device_ = parameters[0].device();
  }

  at::Tensor operator()(const std::vector<int64_t>& context) {
    if (!cache_) return last(model_.forward(to_ids(context, 0, context.size())), context.size());
    at::Tensor logits;
    while (fed_ < context.size()) {
      const auto room = cache_->room();
      TORCH_CHECK_VALUE(room > 0, kGenerate, ": expected a cache with room for ", context.size(),
                        " tokens, got one that is full after ", fed_);
      const auto tokens = std::min({context.size() - fed_, static_cast<size_t>(room), chunk_});
      logits = last(model_.forward_cached(to_ids(context, fed_, tokens), *cache_), tokens);
      fed_ += tokens;
    }
    return logits;
  }

  void restart() {
    if (cache_) cache_->reset();
    fed_ = 0;
  }

 private:
  at::Tensor to_ids(const std::vector<int64_t>& context, size_t begin, size_t count) const {
    return at::tensor(at::ArrayRef<int64_t>(context).slice(begin, count), at::kLong).unsqueeze(0).to(device_);
  }
  at::Tensor last(const at::Tensor& logits, size_t passed) const {
    check_defined(kGenerate, "logits", logits);
    const auto tokens = model_.last_logits ? 1 : passed;
    TORCH_CHECK_VALUE(
        logits.dim() == 3 && logits.size(0) == 1 && logits.size(1) == static_cast<int64_t>(tokens), kGenerate,
        ": expected logits of shape (1, ", tokens, ", vocab_size) from the model, got ",
        shape_string(logits.sizes()));
    return logits[0][logits.size(1) - 1];
  }

  const LanguageModelView& model_;
  std::unique_ptr<KVCache> cache_;
  size_t chunk_;
  at::Device device_ = at::kCPU;
  size_t fed_ = 0;
};

// The number of tokens that a generation's cache must hold: the prompt and the new ones, but no more than the
// context.
int64_t capacity_of(size_t prompt, int64_t new_tokens, size_t limit) {
  int64_t capacity = 0;  // on overflow, more than any memory holds
  if (__builtin_add_overflow(prompt, new_tokens, &capacity)) capacity = std::numeric_limits<int64_t>::max();
  return limit == 0 ? capacity : std::min(capacity, static_cast<int64_t>(limit));
}

}  // namespace

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, at::Generator generator) {
  constexpr const char* caller = "sample_token";
  check(options);
  if (options.temperature > 0) check_defined(caller, "generator", generator);
  check_floating(caller, "logits", logits);
  TORCH_CHECK_VALUE(!logits.is_meta(), caller,
                    ": expected logits with data, got a tensor on the meta device");
  TORCH_CHECK_VALUE(logits.dim() == 1 && logits.size(0) > 0, caller,
                    ": expected logits of shape (vocab_size,), got ", shape_string(logits.sizes()));
  const auto values = logits.detach().to(at::kCPU, at::kDouble).resolve_neg().contiguous();
  const auto* score = values.const_data_ptr<double>();
  const auto count = static_cast<size_t>(values.size(0));
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  // Equal logits are ordered by id, so that the order is the same everywhere.
  const auto before = [&](int64_t a, int64_t b) {
    return score[a] != score[b] ? score[a] > score[b] : a < b;
  };
  TORCH_CHECK_VALUE(std::none_of(score, score + count, [](double s) { return std::isnan(s); }), caller,
                    ": expected logits without NaN");
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), before);

  const auto kept = options.top_k > 0 ? std::min(count, static_cast<size_t>(options.top_k)) : count;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), before);
  order.resize(kept);
  const double top = score[order[0]];
  TORCH_CHECK_VALUE(std::isfinite(top), caller, ": expected logits with a finite maximum, got ", top);
  std::vector<double> sums;
  double sum = 0;
  for (const auto id : order) sums.push_back(sum += std::exp((score[id] - top) / options.temperature));
  const auto nucleus = std::lower_bound(sums.begin(), sums.end(), options.top_p * sum);
  const double limit = nucleus == sums.end() ? sum : *nucleus;
  const double draw = at::rand({}, generator, at::TensorOptions(at::kDouble)).item<double>() * limit;
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), draw);
  return order[std::min(static_cast<size_t>(chosen - sums.begin()), kept - 1)];
}

std::string_view to_string(GenerationEnd value) {
  return enum_name(value, {"stop token", "on_token", "length", "context full"});
}

std::vector<int64_t> detail::generate(const LanguageModelView& model, const std::vector<int64_t>& prompt,
                                      const GenerateOptions& options) {
  check(options.sampling);
  TORCH_CHECK_VALUE(!prompt.empty(), kGenerate,
                    ": expected a prompt of at least one token, got an empty one");
  TORCH_CHECK_VALUE(options.max_new_tokens >= 0, kGenerate, ": expected max_new_tokens >= 0, got ",
                    options.max_new_tokens);
  TORCH_CHECK_VALUE(options.prefill_chunk >= 0, kGenerate, ": expected prefill_chunk >= 0, got ",
                    options.prefill_chunk);
  TORCH_CHECK_VALUE(model.context_length >= 0, kGenerate,
                    ": expected a context_length >= 0 of the model, got ", model.context_length);
  const auto limit = static_cast<size_t>(model.context_length);
  TORCH_CHECK_VALUE(limit == 0 || prompt.size() <= limit || options.slide, kGenerate,
                    ": expected a prompt of at most context_length = ", limit, " tokens, got ", prompt.size(),
                    "; slide uses its end");
  const EvaluationMode evaluation(model.module);
  const at::NoGradGuard no_grad;
  const auto capacity = capacity_of(prompt.size(), options.max_new_tokens, limit);
  Decoder decode(model, options.use_cache ? model.make_cache(capacity) : nullptr, options.prefill_chunk);
  auto context = prompt;
  const auto keep_end = [&](size_t tokens) {
    context.erase(context.begin(), context.end() - static_cast<std::ptrdiff_t>(tokens));
    decode.restart();
  };
  if (limit > 0 && context.size() > limit) keep_end(limit);

  const auto& stops = options.stop_tokens;
  auto generator = at::detail::createCPUGenerator(options.seed);
  std::vector<int64_t> out;
  auto end = GenerationEnd::Length;
  while (static_cast<int64_t>(out.size()) < options.max_new_tokens) {
    const auto id = sample_token(decode(context), options.sampling, generator);
    out.push_back(id);
    const bool more = !options.on_token || options.on_token(id);
    const bool stop = std::find(stops.begin(), stops.end(), id) != stops.end();
    if (stop || !more) {
      end = stop ? GenerationEnd::StopToken : GenerationEnd::OnToken;
      break;
    }
    if (limit > 0 && context.size() == limit) {
      if (!options.slide) {
        const bool enough = static_cast<int64_t>(out.size()) == options.max_new_tokens;
        if (!enough) end = GenerationEnd::ContextFull;
        break;
      }
      keep_end(limit / 2);
    }
    context.push_back(id);
  }
  if (options.on_end) options.on_end(end);
  return out;
}

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
