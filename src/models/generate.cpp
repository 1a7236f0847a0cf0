#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

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

std::string_view to_string(PaddingSide value) {
  return enum_name(value, {"left", "right"});
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

// A prompt and its continuation.
class Row {
 public:
  enum class Next { Token, Slide, Nothing };

  // `caller` begins the errors.
  Row(const std::string& caller, const LanguageModelView& model, const std::vector<int64_t>& prompt,
      const GenerateOptions& options_)
      : options(options_), context(prompt), limit_(static_cast<size_t>(model.context_length)) {
    check(options.sampling);
    TORCH_CHECK_VALUE(!prompt.empty(), caller, ": expected a prompt of at least one token, got an empty one");
    TORCH_CHECK_VALUE(options.max_new_tokens >= 0, caller, ": expected max_new_tokens >= 0, got ",
                      options.max_new_tokens);
    TORCH_CHECK_VALUE(options.prefill_chunk >= 0, caller, ": expected prefill_chunk >= 0, got ",
                      options.prefill_chunk);
    TORCH_CHECK_VALUE(limit_ == 0 || prompt.size() <= limit_ || options.slide, caller,
                      ": expected a prompt of at most context_length = ", limit_, " tokens, got ",
                      prompt.size(), "; slide uses its end");
    if (limit_ > 0 && context.size() > limit_) keep_end(limit_);
  }

  // Takes the next token from the logits that follow the context.
  Next take(const at::Tensor& logits) {
    const auto& stops = options.stop_tokens;
    const auto id = sample_token(logits, options.sampling, generator_);
    out.push_back(id);
    const bool more = !options.on_token || options.on_token(id);
    const bool stop = std::find(stops.begin(), stops.end(), id) != stops.end();
    const bool enough = left() == 0, full = limit_ > 0 && context.size() == limit_;
    if (stop) return finish(GenerationEnd::StopToken);
    if (!more) return finish(GenerationEnd::OnToken);
    if (enough) return finish(GenerationEnd::Length);
    if (full && !options.slide) return finish(GenerationEnd::ContextFull);
    if (full) keep_end(limit_ / 2);
    context.push_back(id);
    return full ? Next::Slide : Next::Token;
  }

  Next finish(GenerationEnd end) {
    if (options.on_end) options.on_end(end);
    return Next::Nothing;
  }

  int64_t left() const { return options.max_new_tokens - static_cast<int64_t>(out.size()); }
  // How many tokens the context can still grow by, without a slide.
  int64_t growth() const {
    return limit_ == 0 ? left() : std::min(left(), static_cast<int64_t>(limit_ - context.size()));
  }

  const GenerateOptions& options;
  std::vector<int64_t> context, out;

 private:
  void keep_end(size_t tokens) {
    context.erase(context.begin(), context.end() - static_cast<std::ptrdiff_t>(tokens));
  }

  size_t limit_;
  at::Generator generator_ = at::detail::createCPUGenerator(options.seed);
};

// Computes the logits after the last token of each row. Contexts end in the same column: shorter ones begin
// with padding. A cache, if there is one, holds the first `fed_` columns.
class Decoder {
 public:
  Decoder(const LanguageModelView& model, const std::vector<Row*>& rows) : model_(model) {
    const auto& options = rows[0]->options;
    if (options.prefill_chunk > 0) chunk_ = options.prefill_chunk;
    const auto parameters = model.module.parameters();
    if (!parameters.empty()) device_ = parameters[0].device();
    const auto lengths = lengths_of(rows);
    columns_ = lengths.max().item<int64_t>();
    if (!options.use_cache) return;
    int64_t capacity = 0;  // on overflow, more than any memory holds
    for (const auto* row : rows) capacity = std::max(capacity, row->growth());
    if (__builtin_add_overflow(capacity, columns_, &capacity)) capacity = std::numeric_limits<int64_t>::max();
    cache_ = model.make_cache(static_cast<int64_t>(rows.size()), capacity);
    cache_->set_padding(columns_ - lengths);
  }

  // The logits (rows, vocab_size) on the CPU. Between two calls, every row has got one more token.
  at::Tensor operator()(const std::vector<Row*>& rows) {
    if (!cache_) {
      const auto lengths = lengths_of(rows);
      columns_ = lengths.max().item<int64_t>();
      const auto ids = ids_of(rows, 0, columns_);
      return last(model_.forward(ids, {lengths, PaddingSide::Left}), rows, columns_);
    }
    at::Tensor logits;
    while (fed_ < columns_) {
      const auto room = cache_->room();
      TORCH_CHECK_VALUE(room > 0, kGenerate, ": expected a cache with room for ", columns_,
                        " tokens, got one that is full after ", fed_);
      const auto tokens = std::min({columns_ - fed_, room, chunk_});
      logits = last(model_.forward_cached(ids_of(rows, fed_, tokens), *cache_), rows, tokens);
      fed_ += tokens;
    }
    ++columns_;
    return logits;
  }

  // Drops all rows but these, given by their numbers.
  void keep(const std::vector<int64_t>& rows) {
    if (cache_) cache_->reorder(at::tensor(rows, at::kLong));
  }

 private:
  static at::Tensor lengths_of(const std::vector<Row*>& rows) {
    std::vector<int64_t> lengths;
    for (const auto* row : rows) lengths.push_back(static_cast<int64_t>(row->context.size()));
    return at::tensor(lengths, at::kLong);
  }

  // The ids of `count` columns; 0 is padding.
  at::Tensor ids_of(const std::vector<Row*>& rows, int64_t begin, int64_t count) const {
    std::vector<int64_t> ids;
    for (const auto* row : rows) {
      const auto padding = columns_ - static_cast<int64_t>(row->context.size());
      for (auto column = begin; column < begin + count; ++column)
        ids.push_back(column < padding ? 0 : row->context[static_cast<size_t>(column - padding)]);
    }
    return at::tensor(ids, at::kLong).view({-1, count}).to(device_);
  }
  at::Tensor last(const at::Tensor& logits, const std::vector<Row*>& rows, int64_t passed) const {
    check_defined(kGenerate, "logits", logits);
    const auto tokens = model_.last_logits ? 1 : passed;
    const auto batch = static_cast<int64_t>(rows.size());
    TORCH_CHECK_VALUE(logits.dim() == 3 && logits.size(0) == batch && logits.size(1) == tokens, kGenerate,
                      ": expected logits of shape (", batch, ", ", tokens,
                      ", vocab_size) from the model, got ", shape_string(logits.sizes()));
    return logits.select(1, tokens - 1).to(at::kCPU);
  }

  const LanguageModelView& model_;
  std::unique_ptr<KVCache> cache_;
  int64_t chunk_ = std::numeric_limits<int64_t>::max();
  at::Device device_ = at::kCPU;
  int64_t fed_ = 0, columns_ = 0;
};

// Continues rows that want a token, until each has ended or slid. Returns those that slid.
std::vector<Row*> continue_rows(const LanguageModelView& model, std::vector<Row*> rows) {
  Decoder decode(model, rows);
  std::vector<Row*> slid;
  while (!rows.empty()) {
    const auto logits = decode(rows);
    std::vector<Row*> kept;
    std::vector<int64_t> places;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto next = rows[i]->take(logits[static_cast<int64_t>(i)]);
      if (next == Row::Next::Slide) slid.push_back(rows[i]);
      if (next != Row::Next::Token) continue;
      kept.push_back(rows[i]);
      places.push_back(static_cast<int64_t>(i));
    }
    if (!kept.empty() && kept.size() < rows.size()) decode.keep(places);
    rows = std::move(kept);
  }
  return slid;
}

void run_rows(const LanguageModelView& model, std::vector<Row>& rows) {
  TORCH_CHECK_VALUE(model.context_length >= 0, kGenerate,
                    ": expected a context_length >= 0 of the model, got ", model.context_length);
  const EvaluationMode evaluation(model.module);
  const at::NoGradGuard no_grad;
  std::vector<Row*> waiting;
  for (auto& row : rows) {
    if (row.left() > 0) {
      waiting.push_back(&row);
    } else {
      row.finish(GenerationEnd::Length);
    }
  }
  while (!waiting.empty()) waiting = continue_rows(model, std::move(waiting));
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
  std::vector<Row> rows;
  rows.emplace_back(kGenerate, model, prompt, options);
  run_rows(model, rows);
  return std::move(rows[0].out);
}

std::vector<std::vector<int64_t>> detail::generate(const LanguageModelView& model,
                                                   const std::vector<std::vector<int64_t>>& prompts,
                                                   const std::vector<GenerateOptions>& options) {
  TORCH_CHECK_VALUE(options.size() == 1 || options.size() == prompts.size(), kGenerate,
                    ": expected one element of options, or one for each of ", prompts.size(),
                    " prompts, got ", options.size());
  for (const auto& other : options) {
    TORCH_CHECK_VALUE(other.use_cache == options[0].use_cache, kGenerate,
                      ": expected the same use_cache for all prompts of a call, got true and false");
    TORCH_CHECK_VALUE(other.prefill_chunk == options[0].prefill_chunk, kGenerate,
                      ": expected the same prefill_chunk for all prompts of a call, got ",
                      options[0].prefill_chunk, " and ", other.prefill_chunk);
  }
  std::vector<Row> rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto caller = std::string(kGenerate) + ": prompt " + std::to_string(i);
    rows.emplace_back(caller, model, prompts[i], options[options.size() == 1 ? 0 : i]);
  }
  run_rows(model, rows);
  std::vector<std::vector<int64_t>> out;
  for (auto& row : rows) out.push_back(std::move(row.out));
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
at::Tensor AnyLanguageModel::forward(const at::Tensor& ids, Logits which, const Padding& padding) const {
  return visit([&](auto model) { return detail::forward_with(*model, ids, which, padding); });
}

at::Tensor AnyLanguageModel::forward_cached(const at::Tensor& ids, KVCache& cache, Logits which) const {
  return visit([&](auto model) { return detail::forward_cached_with(*model, ids, cache, which); });
}

at::Tensor AnyLanguageModel::loss(const at::Tensor& ids, const at::Tensor& targets,
                                  const Padding& padding) const {
  return visit([&](auto model) { return model->loss(ids, targets, padding); });
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
