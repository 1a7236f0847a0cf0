// The oracle of every batch of uneven rows is each row alone.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/models/any_language_model.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::kAllBackends;
using attentive::test::value_error;

namespace {

constexpr int64_t kIds = 13, kContext = 40;

using Prompts = std::vector<std::vector<int64_t>>;

int64_t below(int64_t n) {
  return at::randint(n, {}, at::kLong).item<int64_t>();
}

LlamaOptions gemma_like() {
  auto options = LlamaOptions(kIds, 16, 4, 3).num_kv_heads(2).head_dim(6).hidden_dim(20);
  options.activation(Activation::GeluTanh).qk_norm(true).unit_offset(true).norm_after(true);
  options.scaled_embedding(true).softcap(5.0).logit_softcap(2.0).tied(true).scale(0.3);
  return options.window_rotary(RotaryPositionsOptions(0).base(100.0)).windows({5, 0, 4});
}

// Learned and rotary positions, dense and ring caches, grouped heads, windows.
std::vector<AnyLanguageModel> padded_models(at::ScalarType type) {
  const auto rotary = GPTOptions(kIds, 0, 24, 4, 2).positions(GPTPositions::Rotary).num_kv_heads(2);
  const auto llama = LlamaOptions(kIds, 24, 4, 3).num_kv_heads(2);
  std::vector<AnyLanguageModel> all{
      GPT(GPTOptions(kIds, kContext, 24, 4, 2).tied(true)), GPT(GPTOptions(rotary).window(6)),
      Llama(LlamaOptions(llama).context_length(kContext)), Llama(LlamaOptions(llama).windows({5, 6, 5})),
      Llama(gemma_like().context_length(kContext))};
  for (auto& model : all) {
    const at::NoGradGuard no_grad;
    model.module().to(type);
    for (auto& parameter : model.module().parameters()) parameter.normal_(0.0, 0.3);  // far from uniform
  }
  return all;
}

// Rows of random length, and padding of ids that no model has.
struct Batch {
  Batch(int64_t rows, int64_t columns, PaddingSide side_) : side(side_) {
    lengths = at::randint(1, columns + 1, {rows}, at::kLong);
    ids = at::full({rows, columns}, int64_t{-7});
    for (int64_t i = 0; i < rows; ++i) real(ids, i).copy_(at::randint(kIds, {length(i)}, at::kLong));
  }
  int64_t length(int64_t row) const { return lengths[row].item<int64_t>(); }
  // The tokens of a row of x (B, T, …).
  at::Tensor real(const at::Tensor& x, int64_t row) const {
    const auto first = side == PaddingSide::Left ? x.size(1) - length(row) : 0;
    return x[row].narrow(0, first, length(row));
  }
  at::Tensor row(int64_t i) const { return real(ids, i).unsqueeze(0); }
  Padding padding() const { return {lengths, side}; }

  PaddingSide side;
  at::Tensor lengths, ids;
};

// Equal within 1e-5 of the largest number in float32, and 1e-12 in float64.
Tolerance near(at::ScalarType type) {
  return {type == at::kDouble ? 1e-12 : 1e-5, 0.0};
}

Prompts random_prompts(int64_t count, int64_t longest) {
  Prompts prompts;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> prompt;
    for (auto left = 1 + below(longest); left > 0; --left) prompt.push_back(below(kIds));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

template <class Model>
Prompts each_alone(Model& model, const Prompts& prompts, const std::vector<GenerateOptions>& options) {
  Prompts all;
  for (size_t i = 0; i < prompts.size(); ++i)
    all.push_back(generate(model, prompts[i], options[options.size() == 1 ? 0 : i]));
  return all;
}

}  // namespace

TEST_CASE("rows with padding have the logits of each row alone", "[padding]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(at::kDouble, at::kFloat);
  const auto side = GENERATE(PaddingSide::Left, PaddingSide::Right);
  at::manual_seed(1);
  const BackendGuard guard(backend);
  const at::NoGradGuard no_grad;
  for (const auto& model : padded_models(type)) {
    for (int draw = 0; draw < 4; ++draw) {
      const Batch batch(1 + below(5), draw == 0 ? 1 : 1 + below(kContext), side);
      CAPTURE(to_string(backend), c10::toString(type), to_string(side), model.name(), batch.lengths);
      const auto padding = Padding{batch.lengths.to(draw % 2 == 0 ? at::kInt : at::kByte), side};
      const auto all = model.forward(batch.ids, Logits::All, padding);
      const auto last = model.forward(batch.ids, Logits::Last, padding);
      REQUIRE(all.sizes() == at::IntArrayRef({batch.ids.size(0), batch.ids.size(1), kIds}));
      REQUIRE(last.sizes() == at::IntArrayRef({batch.ids.size(0), 1, kIds}));
      CHECK(all.isfinite().all().item<bool>());
      for (int64_t i = 0; i < batch.ids.size(0); ++i) {
        const auto alone = model.forward(batch.row(i))[0];
        CHECK_WITHIN(batch.real(all, i), alone, (near(type)));
        CHECK_WITHIN(last[i][0], alone[-1], (near(type)));
      }
    }
  }
}

TEST_CASE("rows with padding have the loss and the gradients of each row alone", "[padding]") {
  const auto side = GENERATE(PaddingSide::Left, PaddingSide::Right);
  const int64_t checkpoint = GENERATE(0, 2);
  at::manual_seed(2);
  for (const auto& model : padded_models(at::kDouble)) {
    model.visit([&](auto holder) { holder->options.checkpoint(checkpoint); });
    const Batch batch(4, 11, side);
    CAPTURE(model.name(), to_string(side), checkpoint, batch.lengths);
    auto targets = at::randint(kIds, batch.ids.sizes(), at::kLong);
    batch.real(targets, 1)[0] = -100;
    const auto parameters = model.module().parameters();
    const auto gradients = [&] {
      std::vector<at::Tensor> all;
      for (const auto& parameter : parameters) all.push_back(parameter.grad().clone());
      model.module().zero_grad();
      return all;
    };
    at::Tensor sum = at::zeros({}, at::kDouble);
    int64_t counted = 0;
    for (int64_t i = 0; i < batch.ids.size(0); ++i) {
      const auto wanted = batch.real(targets, i).unsqueeze(0);
      const auto count = wanted.ne(-100).sum().item<int64_t>();
      if (count > 0) sum = sum + model.loss(batch.row(i), wanted) * static_cast<double>(count);
      counted += count;
    }
    const auto want = sum / static_cast<double>(counted);
    want.backward();
    const auto of_each = gradients();
    const auto check = [&](const at::Tensor& loss) {
      CHECK_WITHIN(loss.detach(), want.detach(), {1e-12, 0});
      loss.backward();
      const auto got = gradients();
      for (size_t i = 0; i < got.size(); ++i) CHECK_WITHIN(got[i], of_each[i], {1e-11, 1e-13});
    };
    check(model.loss(batch.ids, targets, batch.padding()));
    // Padding on the right whose targets are ignored needs no lengths.
    if (side == PaddingSide::Left) continue;
    for (int64_t i = 0; i < batch.ids.size(0); ++i)
      targets[i].narrow(0, batch.length(i), targets.size(1) - batch.length(i)).fill_(-100);
    check(model.loss(batch.ids.clamp_min(0), targets));
  }
}

TEST_CASE("context_length counts real tokens", "[padding]") {
  at::manual_seed(3);
  const auto side = GENERATE(PaddingSide::Left, PaddingSide::Right);
  for (const AnyLanguageModel& model : {AnyLanguageModel(GPT(GPTOptions(kIds, 6, 24, 4, 2))),
                                        AnyLanguageModel(Llama(gemma_like().context_length(6)))}) {
    Batch batch(3, 6, side);
    batch.lengths = at::tensor({4, 6, 1});
    batch.ids = at::randint(kIds, {3, 9}, at::kLong);
    const auto all = model.forward(batch.ids, Logits::All, batch.padding());
    CHECK(all.sizes() == at::IntArrayRef({3, 9, kIds}));
    CHECK(all.isfinite().all().item<bool>());
    for (int64_t i = 0; i < 3; ++i)
      CHECK_WITHIN(batch.real(all, i), model.forward(batch.row(i))[0], {1e-5, 0.0});
    CHECK(model.loss(batch.ids, batch.ids, batch.padding()).isfinite().item<bool>());
    batch.lengths = at::tensor({4, 7, 1});
    CHECK(value_error([&] { model.forward(batch.ids, Logits::All, batch.padding()); }) ==
          std::string(model.name()) + ": expected at most context_length = 6 tokens, got 7");
  }
}

TEST_CASE("a mask of a Llama's pairs and padding both hide keys", "[padding]") {
  const auto side = GENERATE(PaddingSide::Left, PaddingSide::Right);
  at::manual_seed(4);
  Llama model(LlamaOptions(kIds, 24, 4, 3).num_kv_heads(2));
  model->to(at::kDouble);
  const Batch batch(3, 9, side);
  const auto bias = at::randn({3, 1, 9, 9}, at::kDouble);
  const auto all = model->forward(batch.ids, Mask::bias(bias), Logits::All, batch.padding());
  for (int64_t i = 0; i < 3; ++i) {
    const auto first = side == PaddingSide::Left ? 9 - batch.length(i) : 0;
    const auto square =
        bias.narrow(0, i, 1).narrow(2, first, batch.length(i)).narrow(3, first, batch.length(i));
    CHECK_WITHIN(batch.real(all, i), model->forward(batch.row(i), Mask::bias(square))[0], {1e-12, 0.0});
  }
}

TEST_CASE("padding has a name, and is refused by name", "[padding]") {
  CHECK(to_string(PaddingSide::Left) == "left");
  CHECK(to_string(PaddingSide::Right) == "right");
  at::manual_seed(5);
  for (const auto& model : padded_models(at::kFloat)) {
    const auto ids = at::randint(kIds, {2, 7}, at::kLong);
    const auto refused = [&](const at::Tensor& lengths) {
      const auto text = value_error([&] { model.forward(ids, Logits::Last, {lengths}); });
      CHECK(value_error([&] { model.loss(ids, ids, {lengths}); }) == text);
      const auto name = std::string(model.name()) + ": ";
      return text.starts_with(name) ? text.substr(name.size()) : text;
    };
    CHECK(refused(at::tensor({0, 7})) == "expected lengths in [1, 7], got 0");
    CHECK(refused(at::tensor({3, 8})) == "expected lengths in [1, 7], got 8");
    CHECK(refused(at::tensor({-1, 8})) == "expected lengths in [1, 7], got -1");
    CHECK(refused(at::tensor({3})) ==
          "expected lengths as integers of shape (2,), got Int tensor of shape (1,)");
    CHECK(refused(at::ones({2, 1}, at::kInt)) ==
          "expected lengths as integers of shape (2,), got Int tensor of shape (2, 1)");
    CHECK(refused(at::ones({2})) ==
          "expected lengths as integers of shape (2,), got Float tensor of shape (2,)");
    CHECK(value_error([&] {
            model.loss(ids, ids.narrow(1, 0, 6), {at::tensor({3, 6})});
          }) == std::string(model.name()) + ": expected targets of shape (2, 7), got (2, 6)");
    // Lengths of whole rows, and none, change no bit; a batch without rows has no lengths.
    CHECK(bit_equal(model.forward(ids, Logits::All, {at::tensor({7, 7})}), model.forward(ids)));
    CHECK(model.forward(ids.narrow(0, 0, 0), Logits::All, {at::zeros({0}, at::kLong)}).numel() == 0);
    model.visit([&](const auto& holder) {
      CHECK(bit_equal(torch::nn::Sequential(holder)->forward(ids), model.forward(ids)));
    });
  }
}

TEST_CASE("a cache with padding serves uneven rows, in chunks, steps, and other batches",
          "[padding][kv_cache]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(at::kDouble, at::kFloat);
  at::manual_seed(6);
  const BackendGuard guard(backend);
  const at::NoGradGuard no_grad;
  for (const auto& model : padded_models(type)) {
    for (int draw = 0; draw < 4; ++draw) {
      const auto columns = 2 + below(kContext - 9);
      const Batch batch(4, columns, PaddingSide::Left);
      CAPTURE(to_string(backend), c10::toString(type), model.name(), batch.lengths);
      const auto cache = model.make_cache(4, columns + 8);
      cache->set_padding((columns - batch.lengths).to(at::kInt));
      const auto ids = batch.ids.clamp_min(0);
      at::Tensor logits;
      for (int64_t first = 0; first < columns;) {
        const auto tokens = std::min({1 + below(9), cache->room(), columns - first});
        logits = model.forward_cached(ids.narrow(1, first, tokens), *cache);
        CHECK(logits.isfinite().all().item<bool>());
        first += tokens;
      }
      std::vector<at::Tensor> texts;
      for (int64_t i = 0; i < 4; ++i) texts.push_back(batch.row(i));
      const auto check = [&] {
        for (size_t i = 0; i < texts.size(); ++i) {
          const auto alone = model.forward(texts[i], Logits::Last)[0][0];
          CHECK_WITHIN(logits[static_cast<int64_t>(i)][-1], alone, (near(type)));
        }
      };
      check();
      for (const auto& rows :
           {at::tensor({3, 1, 2, 0}), at::tensor({2, 0}), at::tensor({1}), at::tensor({0, 0})}) {
        cache->reorder(rows);
        std::vector<at::Tensor> chosen;
        const auto next = at::randint(kIds, {rows.size(0), 2}, at::kLong);
        for (int64_t i = 0; i < rows.size(0); ++i)
          chosen.push_back(
              at::cat({texts[static_cast<size_t>(rows[i].item<int64_t>())], next.narrow(0, i, 1)}, 1));
        texts = chosen;
        logits = model.forward_cached(next.narrow(1, 0, 1), *cache);
        logits = model.forward_cached(next.narrow(1, 1, 1), *cache);
        check();
      }
    }
  }
}

TEST_CASE("generate continues several prompts as it continues each alone", "[padding][generate]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  at::manual_seed(7);
  const BackendGuard guard(backend);
  const auto all = padded_models(at::kDouble);
  for (size_t m = 0; m < all.size(); ++m) {
    for (int draw = 0; draw < 4; ++draw) {
      const auto prompts = random_prompts(1 + below(6), draw % 2 == 0 ? 4 : kContext);
      const GenerateOptions common{.use_cache = draw % 4 < 3, .prefill_chunk = below(8)};
      std::vector<GenerateOptions> options;
      std::vector<std::vector<int64_t>> told(prompts.size());
      std::vector<std::string> ends(prompts.size());
      for (size_t i = 0; i < prompts.size(); ++i) {
        auto own = common;
        own.max_new_tokens = below(16);
        own.sampling = {.temperature = below(3) == 0 ? 0.0 : 1.0, .top_k = below(6), .top_p = 0.9};
        own.seed = static_cast<uint64_t>(below(1000));
        own.slide = below(2) == 0;
        if (below(2) == 0) own.stop_tokens = {below(kIds)};
        const auto stop = below(3) == 0 ? 1 + below(9) : 1000;
        own.on_token = [&told, i, stop](int64_t id) {
          told[i].push_back(id);
          return static_cast<int64_t>(told[i].size()) < stop;
        };
        own.on_end = [&ends, i](GenerationEnd end) { ends[i] += to_string(end); };
        options.push_back(own);
      }
      CAPTURE(to_string(backend), m, draw, prompts.size(), common.use_cache, common.prefill_chunk);
      const auto want = each_alone(all[m], prompts, options);
      const auto want_ends = std::exchange(ends, std::vector<std::string>(prompts.size()));
      CHECK(std::exchange(told, Prompts(prompts.size())) == want);
      CHECK(generate(all[m], prompts, options) == want);
      CHECK(told == want);
      CHECK(ends == want_ends);
      // One element of options for all.
      CHECK(generate(all[m], prompts, {{.max_new_tokens = 7, .seed = 3, .slide = true}}) ==
            each_alone(all[m], prompts, {{.max_new_tokens = 7, .seed = 3, .slide = true}}));
    }
  }
}

TEST_CASE("prompts that slide go on together, each as alone", "[padding][generate]") {
  at::manual_seed(8);
  GPT model(GPTOptions(kIds, 10, 24, 4, 2));
  model->to(at::kDouble);
  const Prompts prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3}, {2, 2}};
  for (const bool use_cache : {true, false}) {
    std::vector<GenerateOptions> options(4, {.max_new_tokens = 33, .slide = true, .use_cache = use_cache});
    options[1].max_new_tokens = 3;
    options[3].slide = false;
    const auto got = generate(*model, prompts, options);
    CHECK(got == each_alone(*model, prompts, options));
    CHECK(got[2].size() == 33);
    CHECK(got[3].size() == 9);
  }
}

TEST_CASE("a prompt that has ended leaves the batch", "[padding][generate]") {
  struct Watched : GPTImpl {
    using GPTImpl::GPTImpl;
    at::Tensor forward(const at::Tensor& ids, Logits which = Logits::All, const Padding& padding = {}) {
      shapes.push_back(ids.sizes().vec());
      return GPTImpl::forward(ids, which, padding);
    }
    at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache, Logits which = Logits::All) {
      shapes.push_back(ids.sizes().vec());
      stored.push_back(cache.stored());
      return GPTImpl::forward_cached(ids, cache, which);
    }
    Prompts shapes;
    std::vector<int64_t> stored;
  };
  at::manual_seed(9);
  Watched model(GPTOptions(kIds, 16, 24, 4, 2));
  const Prompts prompts{{1}, {2, 3, 4, 5, 6}, {7, 8}, {9}};
  const auto options = [](bool use_cache) {
    std::vector<GenerateOptions> each;
    for (const int64_t tokens : {4, 2, 3, 0})
      each.push_back({.max_new_tokens = tokens, .use_cache = use_cache, .prefill_chunk = 3});
    return each;
  };
  generate(model, prompts, options(true));
  CHECK(model.shapes == Prompts{{3, 3}, {3, 2}, {3, 1}, {2, 1}, {1, 1}});
  // What is padding of every row left is no longer stored: the longer of the two has 3 tokens.
  CHECK(model.stored == std::vector<int64_t>{0, 3, 5, 3, 3});
  model.shapes.clear();
  generate(model, prompts, options(false));
  CHECK(model.shapes == Prompts{{3, 5}, {3, 6}, {2, 4}, {1, 4}});
}

TEST_CASE("generate refuses several prompts by name", "[padding][generate]") {
  GPT model(GPTOptions(kIds, 4, 24, 4, 2));
  const auto refused = [&](const Prompts& prompts, const std::vector<GenerateOptions>& options) {
    return value_error([&] { generate(*model, prompts, options); });
  };
  CHECK(generate(*model, {1}, {}).size() == 4);  // one prompt
  CHECK(generate(*model, Prompts{}, {}).empty());
  CHECK(generate(*model, Prompts{}, {{.seed = 1}}).empty());
  CHECK(refused({{1}, {2}, {3}}, {{}, {}}) ==
        "generate: expected one element of options, or one for each of 3 prompts, got 2");
  CHECK(refused({{1}, {2}}, {{}, {.use_cache = false}}) ==
        "generate: expected the same use_cache for all prompts of a call, got true and false");
  CHECK(refused({{1}, {2}}, {{}, {.prefill_chunk = 3}}) ==
        "generate: expected the same prefill_chunk for all prompts of a call, got 512 and 3");
  CHECK(refused({{1}, {}}, {{.seed = 1}}) ==
        "generate: prompt 1: expected a prompt of at least one token, got an empty one");
  CHECK(refused({{1}, {1, 2, 3, 4, 5}}, {{.seed = 1}}) ==
        "generate: prompt 1: expected a prompt of at most context_length = 4 tokens, got 5; slide uses its "
        "end");
  CHECK(refused({{1}, {2}}, {{}, {.max_new_tokens = -1}}) ==
        "generate: prompt 1: expected max_new_tokens >= 0, got -1");
  CHECK(refused({{1}, {13}}, {{.seed = 1}}) == "GPT: expected ids in [0, 13), got 13");
  static_assert(PaddedLanguageModel<GPTImpl> && PaddedLanguageModel<LlamaImpl>);
}
