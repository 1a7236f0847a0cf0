#include <cmath>
#include <map>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/core/options.h>
#include <attentive/models/any_language_model.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

#include "base/files.h"
#include "models/model_folders.h"
#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;
using attentive::test::kAllBackends;
using attentive::test::kAllTypes;
using attentive::test::peak_memory;
using attentive::test::value_error;
using attentive::test::why_no_peak_memory;
using Catch::Matchers::WithinAbs;

namespace {

constexpr int64_t kWords = 13;

std::vector<AnyLanguageModel> models() {
  at::manual_seed(3);
  const auto rotary = GPTOptions(kWords, 64, 24, 4, 2).positions(GPTPositions::Rotary);
  const auto llama = LlamaOptions(kWords, 24, 4, 3).num_kv_heads(2).context_length(64);
  return {GPT(GPTOptions(kWords, 64, 24, 4, 2).tied(true)), GPT(GPTOptions(rotary).window(6)), Llama(llama),
          Llama(LlamaOptions(llama).logit_softcap(2.0).tied(true).windows({5, 0, 5}))};
}

at::Tensor last_of(const at::Tensor& logits) {
  return logits.narrow(1, logits.size(1) - 1, 1);
}

}  // namespace

TEST_CASE("Logits says its name", "[logits]") {
  CHECK(to_string(Logits::All) == "all");
  CHECK(to_string(Logits::Last) == "last");
}

TEST_CASE("the logits of the last token are those of all tokens", "[logits]") {
  for (const auto& model : models()) {
    for (const int64_t tokens : {1, 2, 16, 17, 40}) {
      CAPTURE(model.name(), tokens);
      const auto ids = at::randint(kWords, {2, tokens}, at::kLong);
      const auto all = last_of(model.forward(ids));
      const auto last = model.forward(ids, Logits::Last);
      CHECK(last.sizes() == at::IntArrayRef({2, 1, kWords}));
      CHECK_WITHIN(last, all, {1e-5, 2e-6});
      if (tokens == 1) CHECK(bit_equal(last, all));
      const at::NoGradGuard no_grad;
      const auto cache = model.make_cache(2, 41), other = model.make_cache(2, 41);
      CHECK_WITHIN(model.forward_cached(ids, *cache, Logits::Last), all, {1e-5, 2e-6});
      model.forward_cached(ids, *other);
      // The cache is not affected: the next token gets the same result.
      const auto next = at::randint(kWords, {2, 1}, at::kLong);
      CHECK(bit_equal(model.forward_cached(next, *cache), model.forward_cached(next, *other)));
    }
  }
}

TEST_CASE("the gradients of the last token's logits are those of the same row", "[logits]") {
  for (const auto& model : models()) {
    CAPTURE(model.name());
    const auto ids = at::randint(kWords, {2, 20}, at::kLong);
    const auto gradients = [&](const at::Tensor& logits) {
      model.module().zero_grad();
      logits.square().sum().backward();
      std::vector<at::Tensor> all;
      for (const auto& parameter : model.module().parameters()) all.push_back(parameter.grad().clone());
      return all;
    };
    const auto want = gradients(last_of(model.forward(ids))),
               got = gradients(model.forward(ids, Logits::Last));
    for (size_t i = 0; i < want.size(); ++i) CHECK_WITHIN(got[i], want[i], {1e-5, 5e-6});
  }
}

TEST_CASE("a language model stands in a Sequential of one argument", "[logits]") {
  const auto ids = at::randint(kWords, {2, 5}, at::kLong);
  for (const auto& model : models()) {
    CAPTURE(model.name());
    model.visit([&](const auto& holder) {
      CHECK(bit_equal(torch::nn::Sequential(holder)->forward(ids), model.forward(ids)));
    });
  }
}

namespace {

// Checks that every function of the holder returns what the model's function returns.
template <class Model>
void check_holds(Model model, std::string_view name) {
  model->eval();
  const AnyLanguageModel any(model);
  CHECK(any.name() == name);
  CHECK(any.vocab_size() == 13);
  CHECK(any.context_length() == 9);
  CHECK(any.ptr() == model.ptr());
  CHECK(&any.module() == model.get());
  const auto ids = at::arange(6).view({1, 6}), targets = (ids + 1).remainder(13);
  CHECK(bit_equal(any.forward(ids), model->forward(ids)));
  CHECK(bit_equal(any.loss(ids, targets), model->loss(ids, targets)));
  const at::NoGradGuard no_grad;  // a cache is not for training
  const auto any_cache = any.make_cache(1, 8), model_cache = model->make_cache(1, 8);
  CHECK(bit_equal(any.forward_cached(ids, *any_cache), model->forward_cached(ids, *model_cache)));
  CHECK(any_cache->position() == 6);
  const GenerateOptions generation{.max_new_tokens = 5, .seed = 3};
  CHECK(generate(any, {1, 2}, generation) == generate(*model, {1, 2}, generation));
  CHECK(any.visit([](const auto& held) { return held->parameters().size(); }) == model->parameters().size());
}

}  // namespace

TEST_CASE("AnyLanguageModel does what its GPT or Llama does", "[any_language_model]") {
  at::manual_seed(1);
  check_holds(GPT(GPTOptions(13, 9, 8, 2, 2)), "GPT");
  check_holds(Llama(LlamaOptions(13, 8, 2, 2).context_length(9)), "Llama");
  CHECK(value_error([] { AnyLanguageModel any(GPT(nullptr)); }).find("GPT") != std::string::npos);
}

TEST_CASE("AnyLanguageModel loads what a folder says, and saves it", "[any_language_model]") {
  for (const auto* name : {"gpt2", "llama"}) {
    INFO(name);
    const auto expected = expected_of(kModelData / name);
    const auto model = AnyLanguageModel::load_pretrained(read_model_folder(kModelData / name));
    CHECK(model.name() == (std::string_view(name) == "gpt2" ? "GPT" : "Llama"));
    const auto logits = model.forward(expected.at("input.ids"));
    CHECK((logits - expected.at("output.logits")).abs().max().item<double>() < 1e-5);
    const TemporaryFolder folder;
    save_model_folder(folder / "saved", model);
    const auto again = AnyLanguageModel::load_pretrained(read_model_folder(folder / "saved"));
    CHECK(bit_equal(again.forward(expected.at("input.ids")), logits));
  }
  const auto dropped =
      AnyLanguageModel::load_pretrained(read_model_folder(kModelData / "gpt2"), {.dropout = 0.3});
  CHECK(dropped.visit([](const auto& holder) { return holder->options.dropout(); }) == 0.3);
  auto folder = read_model_folder(kModelData / "gpt2");
  folder.family = "bert";
  CHECK(value_error([&] { AnyLanguageModel::load_pretrained(std::move(folder)); }) ==
        "AnyLanguageModel: " + (kModelData / "gpt2").string() +
            ": expected a model that continues texts, got a bert");
}

TEST_CASE("The side files of a folder are read, and written with a model", "[any_language_model]") {
  const TemporaryFolder folder;
  const auto model = AnyLanguageModel::load_pretrained(read_model_folder(kModelData / "llama"));
  const std::map<std::string, std::string> files{{"tokenizer.json", "{}"},
                                                 {"merges.txt", std::string("a\0b", 3)}};
  save_model_folder(folder / "saved", model, {.files = files});
  write_file(folder / "saved" / "README.md", "not of the model");
  auto read = read_side_files(folder / "saved");
  CHECK(read.erase("config.json") == 1);
  CHECK(read == files);
  for (const auto* name : {"config.json", "model.safetensors", "pytorch_model.bin", "", "../x", ".hidden"}) {
    INFO(name);
    CHECK(value_error([&] {
            save_model_folder(folder / "other", model, {.files = {{name, "x"}}});
          }) == "save_model_folder: " + (folder / "other").string() +
                    ": files: expected the name of a file beside config and weights, got \"" + name + '"');
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"saved"});
  CHECK(value_error([&] { read_side_files(folder / "none"); }).starts_with("read_side_files: "));

  // Files far larger than a tokenizer's are not read; these are holes, which take no space.
  const auto merges = folder / "saved" / "merges.txt";
  std::filesystem::resize_file(merges, (size_t{1} << 29) + 1);
  const auto too_large = ": cannot read " + merges.string() + ": File too large";
  CHECK(value_error([&] { read_side_files(folder / "saved"); }) == "read_side_files" + too_large);
  CHECK(value_error([&] { save_model_folder(folder / "other", model, {.tokenizer = folder / "saved"}); }) ==
        "save_model_folder: " + (folder / "other").string() + too_large);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"saved"});
}

namespace {

std::map<int64_t, double> frequencies(const at::Tensor& logits, const SamplingOptions& options) {
  const auto generator = at::detail::createCPUGenerator(7);
  constexpr int draws = 4000;
  std::map<int64_t, double> seen;
  for (int i = 0; i < draws; ++i) seen[sample_token(logits, options, generator)] += 1.0;
  for (auto& item : seen) item.second /= draws;
  return seen;
}

GPT small_gpt(GPTOptions options = GPTOptions(13, 16, 24, 4, 2)) {
  at::manual_seed(3);
  GPT model(options);
  return model;
}

// A user-defined model: token i is followed by token i + 1.
class CounterImpl : public torch::nn::Module {
 public:
  explicit CounterImpl(int64_t context_length) : context_length_(context_length) {
    table = register_parameter("table", at::eye(9).roll(1, 1));
  }

  at::Tensor forward(const at::Tensor& ids) { return table.index({ids}); }
  at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache) {
    const auto seen = at::zeros({1, 1, ids.size(1), 1});
    cache.append(0, seen, seen);
    steps.push_back(ids.size(1));
    return forward(ids);
  }
  std::unique_ptr<KVCache> make_cache(int64_t batch, int64_t capacity) {
    capacities.push_back(capacity);
    return std::make_unique<DenseKVCache>(KVCacheOptions{.batch = batch, .head_dim = 1}, capacity);
  }
  int64_t context_length() const { return context_length_; }

  at::Tensor table;
  std::vector<int64_t> steps, capacities;

 private:
  int64_t context_length_;
};

// The most likely continuation, and why it ended.
template <class Model>
std::pair<std::vector<int64_t>, std::string> ended(Model& model, const std::vector<int64_t>& prompt,
                                                   GenerateOptions options) {
  std::string reason;
  options.sampling.temperature = 0;
  options.on_end = [&](GenerationEnd end) { reason += to_string(end); };
  auto ids = generate(model, prompt, options);
  return {ids, reason};
}

}  // namespace

static_assert(CausalLanguageModel<GPTImpl> && CausalLanguageModel<LlamaImpl> &&
              CausalLanguageModel<CounterImpl>);
static_assert(!CausalLanguageModel<ViTImpl> && !CausalLanguageModel<GPT>);

TEST_CASE("generate runs any model with a cached forward pass", "[generate]") {
  CounterImpl model(0);
  using Result = std::pair<std::vector<int64_t>, std::string>;
  CHECK(ended(model, {1, 2}, {.max_new_tokens = 4}) == Result({3, 4, 5, 6}, "length"));
  CHECK(model.steps == std::vector<int64_t>{2, 1, 1, 1});
  CHECK(model.capacities == std::vector<int64_t>{6});
  CHECK(ended(model, {1, 2}, {.max_new_tokens = 4, .use_cache = false}) == Result({3, 4, 5, 6}, "length"));
  CHECK(model.steps.size() == 4);
  CHECK(model.is_training());
  // Passes a prompt in pieces.
  const auto steps = [&](size_t tokens, int64_t chunk) {
    model.steps.clear();
    const std::vector<int64_t> prompt(tokens, 1);
    CHECK(ended(model, prompt, {.max_new_tokens = 2, .prefill_chunk = chunk}) == Result({2, 3}, "length"));
    return model.steps;
  };
  CHECK(steps(5, 2) == std::vector<int64_t>{2, 2, 1, 1});
  CHECK(steps(4, 2) == std::vector<int64_t>{2, 2, 1});
  CHECK(steps(1030, GenerateOptions().prefill_chunk) == std::vector<int64_t>{512, 512, 6, 1});
  CHECK(steps(1030, 0) == std::vector<int64_t>{1030, 1});
  // A cache is no larger than the context.
  CounterImpl small(5);
  CHECK(ended(small, {1, 2, 3}, {.max_new_tokens = 90}) == Result({4, 5, 6}, "context full"));
  CHECK(ended(small, {1, 2, 3}, {.max_new_tokens = 1}) == Result({4}, "length"));
  CHECK(small.capacities == std::vector<int64_t>{5, 4});
  CHECK(ended(small, {1, 2, 3}, {.max_new_tokens = 7, .slide = true}) ==
        Result({4, 5, 6, 7, 8, 0, 1}, "length"));

  struct Wrong : CounterImpl {
    using CounterImpl::CounterImpl;
    at::Tensor forward(const at::Tensor& ids) { return CounterImpl::forward(ids)[0]; }
  };
  Wrong wrong(0);
  CHECK(value_error([&] {
          generate(wrong, {1, 2}, {.use_cache = false});
        }) == "generate: expected logits of shape (1, 2, vocab_size) from the model, got (2, 9)");
  CounterImpl negative(-1);
  CHECK(value_error([&] { generate(negative, {1}); }) ==
        "generate: expected a context_length >= 0 of the model, got -1");
}

TEST_CASE("generate asks a model that can choose for the logits of one token", "[generate]") {
  struct Choosing : CounterImpl {
    using CounterImpl::CounterImpl;
    at::Tensor chosen(const at::Tensor& logits, Logits which) {
      asked.push_back(to_string(which));
      return which == Logits::Last ? logits.narrow(1, logits.size(1) - 1, 1) : logits;
    }
    at::Tensor forward(const at::Tensor& ids, Logits which = Logits::All) {
      return chosen(CounterImpl::forward(ids), which);
    }
    at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache, Logits which = Logits::All) {
      return chosen(CounterImpl::forward_cached(ids, cache), which);
    }
    std::vector<std::string_view> asked;
  };
  for (const bool use_cache : {true, false}) {
    Choosing model(0);
    CHECK(ended(model, {1, 2, 3}, {.max_new_tokens = 2, .use_cache = use_cache}).first ==
          std::vector<int64_t>{4, 5});
    CHECK(model.asked == std::vector<std::string_view>{"last", "last"});
  }
}

TEST_CASE("generate takes the memory of one token's logits", "[generate][memory]") {
  if (const auto why = why_no_peak_memory()) SKIP(*why);
  constexpr int64_t kVocabulary = 50'000, kTokens = 400;
  at::manual_seed(3);
  GPT gpt(GPTOptions(kVocabulary, kTokens, 8, 2, 1));
  Llama llama(LlamaOptions(kVocabulary, 8, 2, 1).context_length(kTokens));
  const std::vector<int64_t> prompt(kTokens, 1);
  for (const bool use_cache : {true, false}) {
    const auto memory_of = [&](auto& model) {
      return peak_memory([&] { generate(*model, prompt, {.max_new_tokens = 1, .use_cache = use_cache}); });
    };
    constexpr size_t all = kTokens * kVocabulary * sizeof(float);
    CHECK(memory_of(gpt) < all / 4);
    CHECK(memory_of(llama) < all / 4);
  }
}

TEST_CASE("generate stops at a stop token and says why it ended", "[generate]") {
  CounterImpl model(6);
  using Result = std::pair<std::vector<int64_t>, std::string>;
  const auto from = [&](GenerateOptions options) { return ended(model, {1}, std::move(options)); };
  CHECK(from({.stop_tokens = {7, 4}}) == Result({2, 3, 4}, "stop token"));
  CHECK(from({.stop_tokens = {2}}) == Result({2}, "stop token"));
  CHECK(from({.stop_tokens = {1, -5, 99}}) == Result({2, 3, 4, 5, 6, 7}, "context full"));
  const auto until = [](int64_t last) { return [=](int64_t id) { return id != last; }; };
  CHECK(from({.on_token = until(3)}) == Result({2, 3}, "on_token"));
  // The first reason in the documented order applies; the stop token is streamed, too.
  CHECK(from({.max_new_tokens = 2, .on_token = until(3), .stop_tokens = {3}}) ==
        Result({2, 3}, "stop token"));
  CHECK(from({.max_new_tokens = 2, .on_token = until(3)}) == Result({2, 3}, "on_token"));
  CHECK(from({.max_new_tokens = 6}) == Result({2, 3, 4, 5, 6, 7}, "length"));
  CHECK(from({.max_new_tokens = 7}) == Result({2, 3, 4, 5, 6, 7}, "context full"));
  CHECK(from({.max_new_tokens = 0}) == Result({}, "length"));
  std::vector<int64_t> streamed;
  from({.on_token = [&](int64_t id) { return streamed.push_back(id), true; }, .stop_tokens = {4}});
  CHECK(streamed == std::vector<int64_t>{2, 3, 4});
}

TEST_CASE("generate gives a Llama's tokens with and without the cache", "[generate][llama]") {
  const auto base = LlamaOptions(13, 24, 4, 3).num_kv_heads(2).qk_norm(true);
  for (const auto& options :
       {LlamaOptions(base).context_length(16), LlamaOptions(base), LlamaOptions(base).windows({5, 6, 5}),
        LlamaOptions(base).context_length(32).windows({5, 0, 5})}) {
    at::manual_seed(3);
    Llama model(options);
    GenerateOptions cached{.max_new_tokens = 40, .sampling = {.top_k = 8}, .seed = 5, .slide = true};
    auto plain = cached;
    plain.use_cache = false;
    const auto ids = generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached);
    CHECK(ids.size() == 40);
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, plain));
    cached.prefill_chunk = 3;
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached));
  }
}

TEST_CASE("generate runs a model of any dtype on any backend, under InferenceMode too",
          "[generate][inference_mode]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(from_range(kAllTypes));
  INFO("backend " << to_string(backend) << ", " << c10::toString(type));
  const BackendGuard guard(backend);
  const auto check = [&](auto& model) {
    model->to(type);
    for (const bool use_cache : {true, false}) {
      const auto run = [&] {
        return generate(*model, {1, 2, 3, 4, 5}, {.max_new_tokens = 6, .seed = 5, .use_cache = use_cache});
      };
      const auto ids = run();
      CHECK(ids.size() == 6);
      const c10::InferenceMode inference;
      CHECK(run() == ids);
    }
  };
  auto gpt = small_gpt();
  check(gpt);
  at::manual_seed(3);
  Llama llama(LlamaOptions(13, 24, 4, 3).num_kv_heads(2).windows({5, 6, 5}));
  check(llama);
}

TEST_CASE("sample_token draws by temperature, top-k and top-p", "[generate]") {
  const auto logits = at::tensor({std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)}, at::kDouble);
  CHECK(frequencies(logits, {.temperature = 0}) == std::map<int64_t, double>{{1, 1.0}});
  const auto plain = frequencies(logits, {});
  for (const auto& [id, p] : std::map<int64_t, double>{{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}}) {
    CHECK_THAT(plain.at(id), WithinAbs(p, 0.03));
  }
  const auto two = frequencies(logits, {.top_k = 2});
  CHECK(two.size() == 2);
  CHECK_THAT(two.at(1), WithinAbs(4.0 / 7, 0.03));
  // 0.4 alone is less than 0.65, but 0.4 and 0.3 together reach it.
  const auto nucleus = frequencies(logits, {.top_p = 0.65});
  CHECK(nucleus.size() == 2);
  CHECK_THAT(nucleus.at(3), WithinAbs(3.0 / 7, 0.03));
  CHECK(frequencies(logits, {.top_p = 0.01}).size() == 1);
  // Probabilities to the power 1 / temperature.
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  CHECK_THAT(frequencies(logits, {.temperature = 0.5}).at(1), WithinAbs(0.16 / sum, 0.03));
  CHECK(frequencies(at::tensor({0.0, -INFINITY}), {}).size() == 1);
  CHECK(frequencies(at::tensor({1.0, 1.0, 1.0}), {.temperature = 0}).at(0) == 1.0);  // ties: the smallest id
}

TEST_CASE("sample_token refuses what has no distribution, by name", "[generate]") {
  const auto refused = [](const at::Tensor& logits, SamplingOptions options = {}) {
    return value_error([&] { return sample_token(logits, options, at::detail::createCPUGenerator(1)); });
  };
  const auto good = at::tensor({1.0, 2.0});
  CHECK(refused(good, {.temperature = -1}) == "sample_token: expected temperature >= 0, got -1");
  CHECK(refused(good, {.temperature = NAN}) == "sample_token: expected temperature >= 0, got nan");
  CHECK(refused(good, {.top_k = -1}) == "sample_token: expected top_k >= 0, got -1");
  CHECK(refused(good, {.top_p = 0}) == "sample_token: expected top_p in (0, 1], got 0");
  CHECK(refused(at::tensor({1.0, NAN})) == "sample_token: expected logits without NaN");
  CHECK(refused(at::full({2}, -INFINITY)) == "sample_token: expected logits with a finite maximum, got -inf");
  CHECK(refused(good.unsqueeze(0)) == "sample_token: expected logits of shape (vocab_size,), got (1, 2)");
  CHECK(value_error([&] { sample_token(good, {}, {}); }) ==
        "sample_token: expected generator to be a CPU generator, got an undefined one");
  CHECK(sample_token(good, {.temperature = 0}, {}) == 1);  // draws nothing
}

TEST_CASE("generate gives the same tokens with and without the cache", "[generate]") {
  const auto turned = GPTOptions(13, 0, 24, 4, 2).positions(GPTPositions::Rotary);
  for (const auto& options : {GPTOptions(13, 16, 24, 4, 2), turned, GPTOptions(turned).window(6)}) {
    auto model = small_gpt(options);
    GenerateOptions cached{
        .max_new_tokens = 40, .sampling = {.temperature = 0.9, .top_k = 8}, .seed = 5, .slide = true};
    auto plain = cached;
    plain.use_cache = false;
    const auto ids = generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached);
    CHECK(ids.size() == 40);
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, plain));
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached));
    cached.seed = 6;
    CHECK(ids != generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached));
    CHECK(model->is_training());
  }
}

TEST_CASE("generate stops at the context, slides if asked to, and streams", "[generate]") {
  auto model = small_gpt();
  const std::vector<int64_t> prompt{1, 2, 3};
  // 16 tokens of context, 3 of them from the prompt: 13 fit, and the model still sees all 16 for one more
  // token.
  CHECK(generate(*model, prompt, {.max_new_tokens = 50}).size() == 14);
  CHECK(generate(*model, prompt, {.max_new_tokens = 50, .slide = true}).size() == 50);
  std::vector<int64_t> streamed;
  const auto ids =
      generate(*model, prompt, {.max_new_tokens = 50, .slide = true, .on_token = [&](int64_t id) {
                                  streamed.push_back(id);
                                  return streamed.size() < 5;
                                }});
  CHECK(ids == streamed);
  CHECK(ids.size() == 5);
  const std::vector<int64_t> longer(20, 1);
  CHECK(generate(*model, longer, {.max_new_tokens = 3, .slide = true}).size() == 3);
  CHECK(value_error([&] { return generate(*model, longer); }) ==
        "generate: expected a prompt of at most context_length = 16 tokens, got 20; slide uses its end");
  CHECK(value_error([&] { return generate(*model, {}); }) ==
        "generate: expected a prompt of at least one token, got an empty one");
  CHECK(value_error([&] { return generate(*model, {13}); }) == "GPT: expected ids in [0, 13), got 13");
  CHECK(value_error([&] { return generate(*model, {1}, {.max_new_tokens = -1}); }) ==
        "generate: expected max_new_tokens >= 0, got -1");
  CHECK(value_error([&] { return generate(*model, {1}, {.prefill_chunk = -1}); }) ==
        "generate: expected prefill_chunk >= 0, got -1");
}
