// Folders without a tokenizer.json, from text to prediction, against Python. The test of two published models
// is a long check that downloads 100 MB:
// ATTENTIVE_PYTHON=$(tools/checks/python_env) build/release/tests/tokenizers_test "[.published]"

#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/models/model_folder.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/python.h"
#include "support/temporary_folder.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;

namespace {

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

at::Tensor logits_of(Bert& model, const at::Tensor& ids) {
  return model->masked_lm_logits(model->forward(ids).hidden);
}

}  // namespace

TEST_CASE("XLM-RoBERTa and CamemBERT load whole, from their SentencePiece model to logits", "[.python]") {
  NEEDS_PYTHON("transformers, torch, sentencepiece, google.protobuf");
  const TemporaryFolder out;
  run_python("tools/generators/make_model_folders.py", "--whole '" + out.path().string() + "' 2> /dev/null");
  const at::NoGradGuard no_grad;
  for (const auto* family : {"xlm_roberta", "camembert"}) {
    CAPTURE(family);
    const auto folder = read_model_folder(out / family);
    CHECK(folder.tokenizer.empty());
    CHECK(folder.vocabulary.filename() == "sentencepiece.bpe.model");
    const auto tokenizer = load_any_tokenizer(folder.path);
    auto model = load_pretrained<Bert>(folder);
    const auto python = load_safetensors(folder.path / "expected.safetensors");
    const auto texts = nlohmann::json::parse(python.metadata.at("texts"));
    REQUIRE(texts.size() >= 20);
    for (size_t n = 0; n < texts.size(); ++n) {
      const auto key = std::to_string(n);
      const auto ids =
          at::tensor(tokenizer->encode_with_special_tokens(texts[n].get<std::string>())).unsqueeze(0);
      REQUIRE(ids.equal(python.tensors.at(key + ".ids")));
      CHECK_CLOSE(logits_of(model, ids), python.tensors.at(key + ".logits"));
    }
  }
}

TEST_CASE("Published models give Python's predictions without a conversion", "[.published]") {
  NEEDS_PYTHON("transformers, safetensors");
  const TemporaryFolder out;
  run_python("tools/generators/published_models.py", "'" + out.path().string() + "' 2> /dev/null");
  const at::NoGradGuard no_grad;

  const auto python = load_safetensors(out / "antiberty.safetensors");
  const auto tokenizer = PretrainedTokenizer::from_vocab(out / "vocab.txt", {.lower_case = false});
  auto antiberty =
      load_pretrained<Bert>(out / "antiberty", {.ignore = {"cls.species.*", "cls.chain.*", "cls.graft.*"}});
  const auto texts = nlohmann::json::parse(python.metadata.at("texts"));
  REQUIRE(texts.size() == 4);
  double largest = 0;
  for (size_t n = 0; n < texts.size(); ++n) {
    const auto key = std::to_string(n);
    const auto ids =
        at::tensor(tokenizer.encode_with_special_tokens(texts[n].get<std::string>())).unsqueeze(0);
    REQUIRE(ids.equal(python.tensors.at(key + ".ids")));
    const auto logits = logits_of(antiberty, ids);
    CHECK_CLOSE(logits, python.tensors.at(key + ".logits"));
    CHECK(logits.argmax(-1).equal(python.tensors.at(key + ".predicted")));
    largest = std::max(largest, largest_difference(logits, python.tensors.at(key + ".logits")));
  }

  const auto reactions = load_safetensors(out / "rxnmapper.safetensors");
  auto rxnmapper = load_pretrained<Bert>(out / "rxnmapper");
  const auto logits = logits_of(rxnmapper, reactions.tensors.at("ids"));
  CHECK_CLOSE(logits, reactions.tensors.at("logits"));
  CHECK(logits.argmax(-1).equal(reactions.tensors.at("predicted")));
  CHECK(reactions.metadata.at("class") == "AlbertTokenizer");
  CHECK(reactions.metadata.at("tokens") == "5");  // of the 591 in its vocab.txt
  const auto said = value_error([&] { PretrainedTokenizer::load(out / "rxnmapper"); });
  CHECK(said.ends_with(
      "/rxnmapper: expected spiece.model, which AlbertTokenizer reads (model_type \"albert\" of "
      "config.json), or tokenizer.json; got other vocabularies: vocab.txt"));
  WARN("largest difference of a logit: antiberty "
       << largest << ", rxnmapper " << largest_difference(logits, reactions.tensors.at("logits"))
       << "; rxnmapper's tokenizer: " << said);
}
