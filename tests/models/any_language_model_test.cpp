#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/any_language_model.h>

#include "base/files.h"
#include "models/model_folders.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

using namespace attentive;
using namespace attentive::test;

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
