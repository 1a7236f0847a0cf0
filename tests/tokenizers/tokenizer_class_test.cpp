#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "tokenizers/convert/documents.h"

using namespace attentive;
using namespace attentive::tokenizers;

namespace {

// The class that reads a folder with these two files, or why none does.
std::string chosen(const std::string& tokenizer_config, const std::string& config) {
  const auto first = nlohmann::json::parse(tokenizer_config), second = nlohmann::json::parse(config);
  try {
    const auto choice = choose_tokenizer_class(JsonView(first), JsonView(second));
    return name_of(choice.kind) + std::string(", ") + choice.why;
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
}

std::string of_type(const std::string& type) {
  return chosen("{}", R"({"model_type": ")" + type + "\"}");
}

}  // namespace

TEST_CASE("The stated class reads a folder, else that of its model type", "[tokenizer_class]") {
  CHECK(of_type("bert") == "BertTokenizer, model_type \"bert\" of config.json");
  CHECK(of_type("albert") == "AlbertTokenizer, model_type \"albert\" of config.json");
  CHECK(of_type("camembert") == "CamembertTokenizer, model_type \"camembert\" of config.json");
  CHECK(of_type("gemma2") == "GemmaTokenizer, model_type \"gemma2\" of config.json");
  CHECK(of_type("gpt2") == "GPT2Tokenizer, model_type \"gpt2\" of config.json");
  CHECK(of_type("llama") == "TokenizersBackend, model_type \"llama\" of config.json");
  CHECK(of_type("mistral") == "TokenizersBackend, model_type \"mistral\" of config.json");
  CHECK(of_type("qwen3") == "Qwen2Tokenizer, model_type \"qwen3\" of config.json");
  CHECK(of_type("roberta") == "RobertaTokenizer, model_type \"roberta\" of config.json");
  CHECK(of_type("t5") == "T5Tokenizer, model_type \"t5\" of config.json");
  CHECK(of_type("xlm-roberta") == "XLMRobertaTokenizer, model_type \"xlm-roberta\" of config.json");
  CHECK(of_type("gemma3_text") == "GemmaTokenizer, model_type \"gemma3_text\" of config.json");
  CHECK(chosen("{}", "{}") ==
        "TokenizersBackend, neither tokenizer_config.json nor config.json names a class or a model");
  CHECK(chosen(R"({"tokenizer_class": "BertTokenizerFast"})", "{}") ==
        "BertTokenizer, tokenizer_class of tokenizer_config.json");
  CHECK(chosen(R"({"tokenizer_class": "BertTokenizerFast"})", R"({"model_type": "albert"})") ==
        "BertTokenizer, tokenizer_class of tokenizer_config.json");
  CHECK(chosen("{}", R"({"model_type": "albert", "tokenizer_class": "BertTokenizer"})") ==
        "BertTokenizer, tokenizer_class of config.json");
  CHECK(chosen(R"({"tokenizer_class": "LlamaTokenizer"})", "{}") ==
        "LlamaTokenizer, tokenizer_class of tokenizer_config.json");
  CHECK(chosen(R"({"tokenizer_class": "PreTrainedTokenizerFast"})", R"({"model_type": "gpt2"})") ==
        "TokenizersBackend, tokenizer_class of tokenizer_config.json");
}

TEST_CASE("Some model types have their class whatever is stated", "[tokenizer_class]") {
  CHECK(chosen(R"({"tokenizer_class": "LlamaTokenizer"})", R"({"model_type": "mistral"})") ==
        "TokenizersBackend, model_type \"mistral\" of config.json");
  CHECK(chosen(R"({"tokenizer_class": "X", "auto_map": {"AutoTokenizer": ["a.B", null]}})",
               R"({"model_type": "qwen2"})") == "Qwen2Tokenizer, model_type \"qwen2\" of config.json");
}

TEST_CASE("What no class here reads is refused by name", "[tokenizer_class]") {
  for (const auto* type : {"clip", "distilbert", "phi3", "qwen3_5", "bert blip", "a", "zz"}) {
    CHECK(of_type(type) ==
          "the tokenizer of model_type \"" + std::string(type) + "\" of config.json is not read here");
  }
  CHECK(chosen(R"({"tokenizer_class": "LlamaTokenizer"})", R"({"model_type": "phi3"})") ==
        "the tokenizer of model_type \"phi3\" of config.json is not read here");
  CHECK(chosen(R"({"tokenizer_class": "ElectraTokenizer"})", "{}") ==
        "tokenizer_class \"ElectraTokenizer\" of tokenizer_config.json is not read here");
  CHECK(chosen(R"({"tokenizer_class": "SmilesTokenizer"})", R"({"model_type": "albert"})") ==
        "tokenizer_class \"SmilesTokenizer\" of tokenizer_config.json is not read here");
  CHECK(
      chosen(R"({"auto_map": {"AutoTokenizer": ["tokenization.Own", null]}})", R"({"model_type": "bert"})") ==
      "auto_map of tokenizer_config.json names Python code of the folder's own, \"tokenization.Own\", which "
      "is "
      "not run here");
  CHECK(chosen(R"({"auto_map": ["tokenization.Own", null]})", "{}") ==
        "auto_map of tokenizer_config.json names Python code of the folder's own, \"tokenization.Own\", "
        "which is "
        "not run here");
  CHECK(chosen(R"({"tokenizer_class": 1})", "{}") == "tokenizer_class: expected a string, got 1");
}
