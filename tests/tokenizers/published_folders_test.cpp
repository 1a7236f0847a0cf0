#include <cstdlib>
#include <optional>
#include <random>
#include <sstream>

#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/files.h"
#include "base/refusal.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/python.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/convert/vocabulary_files.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::tokenizers;
using namespace attentive::test;
using Ids = std::vector<int64_t>;
using Json = nlohmann::json;

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

TEST_CASE("Every family of text models that loads has its class of tokenizers", "[tokenizer_class]") {
  std::istringstream names(known_families({GPTImpl::kName, LlamaImpl::kName, BertImpl::kName}));
  size_t count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ','); ++count) {
    CAPTURE(name);
    CHECK(of_type(name).ends_with(", model_type \"" + name + "\" of config.json"));
  }
  CHECK(count == 12);
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
  const auto generic = [](const std::string& type) {
    return chosen(R"({"tokenizer_class": "PreTrainedTokenizerFast"})", R"({"model_type": ")" + type + "\"}");
  };
  CHECK(generic("falcon") == "TokenizersBackend, tokenizer_class of tokenizer_config.json");
  CHECK(generic("qwen3_5") == "the tokenizer of model_type \"qwen3_5\" of config.json is not read here");
  CHECK(chosen(R"({"auto_map": ["tokenization.Own", null]})", "{}") ==
        "auto_map of tokenizer_config.json names Python code of the folder's own, \"tokenization.Own\", "
        "which is "
        "not run here");
  CHECK(chosen(R"({"tokenizer_class": 1})", "{}") == "tokenizer_class: expected a string, got 1");
}

// Folders as models are published, without a tokenizer.json, against what AutoTokenizer made of them.

namespace {

const std::vector<std::string> kWordsAndBytes = {"bert",       "bert_lines",     "bert_settings",
                                                 "bert_names", "gpt2",           "gpt2_settings",
                                                 "roberta",    "roberta_prefix", "qwen2"};
const std::vector<std::string> kSentencePieces = {"llama",
                                                  "llama_legacy",
                                                  "llama_plain",
                                                  "llama_spaces",
                                                  "llama_unigram",
                                                  "mistral",
                                                  "gemma",
                                                  "t5",
                                                  "t5_extra",
                                                  "albert",
                                                  "albert_cased",
                                                  "xlm_roberta",
                                                  "xlm_roberta_settings",
                                                  "camembert"};

std::filesystem::path folder_of(const std::string& kind) {
  return tokenizer_data("folders/" + kind);
}

// The first part in which two documents differ.
std::string difference_of_documents(const Json& ours, const Json& theirs) {
  if (ours == theirs) return "";
  for (const auto& [part, value] : theirs.items()) {
    if (ours.contains(part) && ours[part] == value) continue;
    const auto changes = Json::diff(value, ours.value(part, Json()));
    return part + ": " + changes.dump().substr(0, 500);
  }
  return "another part";
}

// Returns a document in one spelling. A file's scores are float32; Python's copy of a tokenizer reads them
// from JSON, off by the last bit of a double. A merge may be one string, and no post-processor is a template
// of the text alone.
Json rounded(Json document) {
  auto& model = document["model"];
  if (model["type"] == "Unigram") {
    for (auto& entry : model["vocab"]) entry[1] = entry[1].get<float>();
  }
  for (auto& merge : model["merges"]) {
    if (!merge.is_string()) continue;
    const auto text = merge.get<std::string>();
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  if (document["post_processor"].is_null()) {
    const auto sequence = [](const char* id, int type) {
      return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
    };
    document["post_processor"] = {{"type", "TemplateProcessing"},
                                  {"single", Json::array({sequence("A", 0)})},
                                  {"pair", Json::array({sequence("A", 0), sequence("B", 1)})},
                                  {"special_tokens", Json::object()}};
  }
  return document;
}

void check_documents(const std::vector<std::string>& kinds) {
  for (const auto& kind : kinds) {
    CAPTURE(kind);
    const auto document = Json::parse(tokenizers::convert_folder(folder_of(kind)));
    const auto expected = read_json(folder_of(kind) / "expected.json")["document"];
    CHECK(difference_of_documents(rounded(document), rounded(expected)) == "");
  }
}

size_t count_wrong(const PretrainedTokenizer& tokenizer, const Json& records) {
  size_t wrong = 0;
  for (const auto& record : records) {
    const auto text = record["text"].get<std::string>();
    const bool same = Ids(record["ids"]) == tokenizer.encode(text) &&
                      Ids(record["special"]) == tokenizer.encode_with_special_tokens(text) &&
                      record["decoded"] == tokenizer.decode(Ids(record["special"]));
    if (!same && ++wrong <= 5) UNSCOPED_INFO(record["text"].dump());
  }
  return wrong;
}

void check_ids(const std::vector<std::string>& kinds) {
  for (const auto& kind : kinds) {
    CAPTURE(kind);
    const auto records = read_json(folder_of(kind) / "expected.json")["strings"];
    REQUIRE(records.size() == 40);
    CHECK(count_wrong(PretrainedTokenizer::load(folder_of(kind)), records) == 0);
  }
}

// A folder with these files.
void fill(const TemporaryFolder& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) write_file(folder / name, text);
}

std::string refused_folder(const std::map<std::string, std::string>& files) {
  const TemporaryFolder folder;
  fill(folder, files);
  const auto said = value_error([&] { PretrainedTokenizer::load(folder.path()); });
  const auto who = "PretrainedTokenizer::load: " + folder.path().string() + ": ";
  return said.starts_with(who) ? said.substr(who.size()) : said;
}

const std::string kPythonLine =
    "; in Python, transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes a "
    "tokenizer.json";
const std::string kWords = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nA\n\u4e2d\n";
const std::string kBert = R"({"model_type": "bert"})";
const std::string kGpt2 = R"({"model_type": "gpt2"})";

}  // namespace

TEST_CASE("vocab.txt, and vocab.json with merges.txt, become the document that Python makes",
          "[published_folders]") {
  check_documents(kWordsAndBytes);
}

TEST_CASE("SentencePiece models become the document that Python makes", "[published_folders]") {
  check_documents(kSentencePieces);
}

TEST_CASE("Folders without a tokenizer.json give Python's ids", "[published_folders]") {
  check_ids(kWordsAndBytes);
  check_ids(kSentencePieces);
}

TEST_CASE("A converted tokenizer is what its document says", "[published_folders]") {
  const auto tokenizer = PretrainedTokenizer::load(folder_of("bert_settings"));
  const auto any = load_any_tokenizer(folder_of("bert_settings"));
  CHECK(Json::parse(tokenizer.to_json()) ==
        read_json(folder_of("bert_settings") / "expected.json")["document"]);
  CHECK(any->to_python_json() == tokenizer.to_json());
  const auto again = PretrainedTokenizer::parse(tokenizer.to_json());
  CHECK(again.encode("\u00dcbung <r>") == tokenizer.encode("\u00dcbung <r>"));
}

TEST_CASE("AutoTokenizer gives equal ids with the tokenizer.json that a folder gets", "[.python]") {
  NEEDS_PYTHON("tokenizers, transformers, sentencepiece, google.protobuf");
  const TemporaryFolder out;
  for (const auto& kinds : {kWordsAndBytes, kSentencePieces}) {
    for (const auto& kind : kinds) {
      // Python adds an extra token of special_tokens_map.json where there is a tokenizer.json, and only
      // there.
      if (kind == "xlm_roberta_settings") continue;
      make_folder(out / kind);
      for (const auto& name : names_in(folder_of(kind))) {
        write_file(out / kind / name, read_file(folder_of(kind) / name));
      }
      write_file(out / kind / "tokenizer.json", PretrainedTokenizer::load(folder_of(kind)).to_json());
    }
  }
  CHECK(run_python("tools/generators/make_tokenizer_folders.py",
                   "--reload '" + out.path().string() + "' 2> /dev/null") == "compared\n");
}

TEST_CASE("Folders with drawn settings become the documents that Python makes", "[.python]") {
  NEEDS_PYTHON("tokenizers, transformers, sentencepiece, google.protobuf");
  const char* const stated = std::getenv("ATTENTIVE_TOKENIZER_SEED");
  const TemporaryFolder out;
  run_python(
      "tools/generators/make_tokenizer_folders.py",
      std::string("--draw 400 ") + (stated ? stated : "5") + " '" + out.path().string() + "' 2> /dev/null");
  size_t equal = 0, refused_by_both = 0;
  for (int n = 0; n < 400; ++n) {
    const auto folder = out / std::to_string(n);
    const auto expected = read_json(folder / "expected.json");
    CAPTURE(n, expected["kind"], read_file(folder / "tokenizer_config.json"));
    try {
      const auto document = Json::parse(tokenizers::convert_folder(folder));
      CAPTURE(expected.value("error", ""));
      CHECK(difference_of_documents(rounded(document),
                                    rounded(expected.value("document", Json{{"model", {{"type", ""}}}}))) ==
            "");
      ++equal;
    } catch (const Refusal& refusal) {
      CAPTURE(refusal.what());
      CHECK(expected.contains("error"));
      ++refused_by_both;
    }
  }
  WARN(equal << " equal documents, " << refused_by_both << " refused by both");
}

TEST_CASE("A tokenizer.json counts more than a vocabulary", "[published_folders]") {
  const TemporaryFolder folder;
  auto document = small_document();
  document["padding"]["pad_token"] = "<s>";
  fill(folder, {{"config.json", R"({"model_type": "llama"})"},
                {"vocab.txt", kWords},
                {"tokenizer.json", document.dump(1)}});
  const auto read = Json::parse(PretrainedTokenizer::load(folder.path()).to_json());
  document["truncation"] = document["padding"] = nullptr;
  CHECK(read == document);
  write_file(folder / "tokenizer.json", document.dump(1));
  CHECK(PretrainedTokenizer::load(folder.path()).to_json() == document.dump(1));
}

// Folders whose tokenizer.json says something else than their class makes, and what AutoTokenizer gave:
// tools/generators/make_tokenizer_folders.py --classes.
TEST_CASE("A folder gives the ids of its class, its tokenizer.json alone those of the file",
          "[published_folders]") {
  const auto data = read_json(tokenizer_data("class_folders.json"));
  size_t equal = 0, refused = 0, refused_by_both = 0;
  for (const auto& folder_case : data["cases"]) {
    CAPTURE(folder_case["family"], folder_case["name"], folder_case.value("error", ""));
    const auto family = folder_case["family"].get<std::string>();
    auto document = read_json(folder_of(family) / "expected.json")["document"];
    for (const auto& [part, value] : folder_case["change"].items()) {
      if (part == "model") {
        document[part].update(value);
      } else {
        document[part] = value;
      }
    }
    const TemporaryFolder folder;
    fill(folder, {{"tokenizer.json", document.dump()}});
    for (const auto& [name, content] : folder_case["files"].items()) {
      write_file(folder / name, content.dump());
    }
    std::optional<PretrainedTokenizer> tokenizer;
    const auto said = value_error([&] { tokenizer = PretrainedTokenizer::load(folder.path()); });
    if (!tokenizer) {
      CHECK(said.ends_with("; name tokenizer.json itself to read it as it is"));
      CHECK(said.find("Tokenizer (") != said.npos);
      ++(folder_case.contains("error") ? refused_by_both : refused);
      continue;
    }
    REQUIRE(!folder_case.contains("error"));
    for (size_t n = 0; n < data["texts"].size(); ++n) {
      const auto ids = tokenizer->encode_with_special_tokens(data["texts"][n].get<std::string>());
      CHECK(Ids(folder_case["ids"][n]) == ids);
      CHECK(folder_case["decoded"][n].get<std::string>() == tokenizer->decode(ids));
    }
    ++equal;
  }
  CHECK(equal == 312);
  CHECK(refused == 6);  // a model of another kind
  CHECK(refused_by_both == 2);
}

TEST_CASE("A damaged tokenizer.json of a folder is read or refused", "[published_folders]") {
  std::mt19937 draw(1);
  size_t refusals = 0;
  for (const auto* family : {"bert", "llama", "t5"}) {
    const auto whole = read_json(folder_of(family) / "expected.json")["document"].dump();
    const TemporaryFolder folder;
    fill(folder, {{"config.json", Json{{"model_type", family}}.dump()}});
    for (int n = 0; n < 100; ++n) {
      auto text = whole;
      for (int i = 0; i < 1 + n % 4; ++i) text[draw() % text.size()] = "0[]{},:\"nx"[draw() % 10];
      write_file(folder / "tokenizer.json", text);
      refusals += value_error([&] { PretrainedTokenizer::load(folder.path()); }) != "no error";
    }
  }
  CHECK(refusals > 100);
}

TEST_CASE("AutoTokenizer gives the ids that are recorded for folders with a tokenizer.json", "[.python]") {
  NEEDS_PYTHON("tokenizers, transformers, sentencepiece, google.protobuf");
  const TemporaryFolder folder;
  const auto out = folder / "class_folders.json";
  run_python("tools/generators/make_tokenizer_folders.py", "--classes '" + out.string() + "' 2> /dev/null");
  CHECK(read_file(out) == read_file(tokenizer_data("class_folders.json")));
}

TEST_CASE("A named token is what added_tokens_decoder says of its text", "[published_folders]") {
  for (const Json& mask :
       {Json("[MASK]"), Json{{"content", "[MASK]"}, {"rstrip", true}, {"__type", "AddedToken"}}}) {
    CAPTURE(mask.dump());
    const TemporaryFolder folder;
    const Json config = {
        {"tokenizer_class", "BertTokenizer"},
        {"mask_token", mask},
        {"added_tokens_decoder", {{"4", {{"content", "[MASK]"}, {"lstrip", true}, {"special", true}}}}}};
    fill(folder, {{"vocab.txt", kWords}, {"tokenizer_config.json", config.dump()}});
    const auto document = Json::parse(PretrainedTokenizer::load(folder.path()).to_json());
    for (const auto& token : document["added_tokens"]) {
      if (token["content"] != "[MASK]") continue;
      CHECK(token["lstrip"] == true);
      CHECK(token["rstrip"] == false);
    }
  }
}

TEST_CASE("A vocabulary alone is read as BERT's, with what the caller says", "[published_folders]") {
  const TemporaryFolder folder;
  fill(folder, {{"vocab.txt", kWords}, {"other.txt", "<p>\n<u>\n<c>\n<s>\n<m>\na\n"}});
  const auto ids = [&](const VocabOptions& options, const char* text, const char* file = "vocab.txt") {
    return PretrainedTokenizer::from_vocab(folder / file, options).encode_with_special_tokens(text);
  };
  CHECK(ids({}, "AB [MASK]") == Ids{2, 5, 6, 4, 3});
  CHECK(ids({.lower_case = false}, "A ab \u00e1") == Ids{2, 7, 5, 6, 1, 3});
  CHECK(ids({.lower_case = false, .strip_accents = true}, "\u00e1") == Ids{2, 5, 3});
  CHECK(ids({.strip_accents = false}, "\u00c1") == Ids{2, 1, 3});
  CHECK(ids({}, "\u4e2d\u4e2d") == Ids{2, 8, 8, 3});
  CHECK(ids({.chinese_characters = false}, "\u4e2d\u4e2d") == Ids{2, 1, 3});
  const VocabOptions named{
      .unknown = "<u>", .separator = "<s>", .padding = "<p>", .classifier = "<c>", .mask = "<m>"};
  CHECK(ids(named, "a <m>x", "other.txt") == Ids{2, 5, 4, 1, 3});
  CHECK(value_error([&] {
          PretrainedTokenizer::from_vocab(folder / "none.txt");
        }).starts_with("PretrainedTokenizer::from_vocab: "));
  CHECK(value_error([&] {
          ids({.mask = "\xff"}, "a");
        }).ends_with("vocab.txt: expected mask_token in UTF-8, got other bytes"));
  CHECK(value_error([&] {
          ids({.separator = ""}, "a");
        }).ends_with("vocab.txt: expected the token \"\", which the vocabulary lacks"));
}

TEST_CASE("A folder that does not say how its vocabulary is read is refused in one line",
          "[published_folders]") {
  CHECK(refused_folder({{"config.json", kBert}}) ==
        "expected tokenizer.json, vocab.txt, vocab.json and merges.txt, or a SentencePiece model; got none");
  CHECK(refused_folder({{"vocab.txt", kWords}}) ==
        "expected tokenizer.model, which TokenizersBackend reads (neither tokenizer_config.json nor "
        "config.json "
        "names a class or a model), or tokenizer.json; got other vocabularies: vocab.txt");
  CHECK(refused_folder({{"vocab.txt", kWords}, {"config.json", R"({"model_type": "albert"})"}}) ==
        "expected spiece.model, which AlbertTokenizer reads (model_type \"albert\" of config.json), or "
        "tokenizer.json; got other vocabularies: vocab.txt");
  CHECK(refused_folder({{"vocab.json", "{}"}, {"config.json", kGpt2}}) ==
        "vocab.json: the document: expected an object of tokens and ids, got an object");
  CHECK(refused_folder({{"vocab.json", R"({"a": 0})"}, {"config.json", kGpt2}}) ==
        "expected merges.txt beside vocab.json, got no such file");
  CHECK(refused_folder({{"vocab.txt", kWords}, {"tokenizer.model", "x"}, {"config.json", kBert}}) ==
        "expected one vocabulary, got both tokenizer.model and what BertTokenizer reads, vocab.txt" +
            kPythonLine);
  CHECK(refused_folder({{"vocab.txt", kWords}, {"config.json", R"({"model_type": "distilbert"})"}}) ==
        "the tokenizer of model_type \"distilbert\" of config.json is not read here" + kPythonLine);
  CHECK(refused_folder({{"tekken.json", "{}"}, {"config.json", R"({"model_type": "mistral"})"}}) ==
        "the vocabulary tekken.json is not read here" + kPythonLine);
}

TEST_CASE("Settings that a document cannot hold are refused", "[published_folders]") {
  const auto with = [](const std::string& settings) {
    return refused_folder(
        {{"vocab.txt", kWords}, {"config.json", kBert}, {"tokenizer_config.json", settings}});
  };
  CHECK(with("{}") == "no error");
  CHECK(with(R"({"split_special_tokens": true})") ==
        "tokenizer_config.json: split_special_tokens is not supported");
  CHECK(with(R"({"fix_mistral_regex": true})") ==
        "tokenizer_config.json: fix_mistral_regex is not supported");
  CHECK(with(R"({"vocab": {}})") == "tokenizer_config.json: vocab is not supported");
  CHECK(with(R"({"init_inputs": [1]})") ==
        "tokenizer_config.json: init_inputs: an argument without a name is not supported");
  CHECK(with(R"({"cls_token": null})") == "expected a token as cls_token, got none");
  CHECK(with(R"({"cls_token": "a b"})") ==
        "expected a token without spaces, colons and a dollar sign around a text, got \"a b\"");
  CHECK(with(R"({"cls_token": {"content": "a"}})") ==
        "tokenizer_config.json: cls_token: expected a token: a string, or an object with \"__type\": "
        "\"AddedToken\", got an object");
  CHECK(with(R"({"do_lower_case": 1})") ==
        "tokenizer_config.json.do_lower_case: expected true or false, got 1");
  CHECK(with("") == "tokenizer_config.json: expected an object, got an empty file");
  CHECK(refused_folder({{"spiece.model", read_file(folder_of("albert") / "spiece.model")},
                        {"config.json", R"({"model_type": "albert"})"},
                        {"tokenizer_config.json", R"({"cls_token": "<c>"})"}}) ==
        "expected \"<c>\" in the vocabulary as cls_token");
  CHECK(with("[]") == "tokenizer_config.json: the document: expected an object, got an array of 0");
  CHECK(with(R"({"added_tokens_decoder": {"1": {"content": "a"}, "01": {"content": "b"}}})") ==
        "tokenizer_config.json: added_tokens_decoder: expected each id once, got an object");
  CHECK(with(R"({"added_tokens_decoder": {"1": {"content": "a"}, "2": {"content": "a"}}})") ==
        "tokenizer_config.json: added_tokens_decoder.2.content: expected a token that has no other id, got "
        "\"a\"");
  CHECK(with(R"({"added_tokens_decoder": {"x": {"content": "a"}}})") ==
        "tokenizer_config.json: added_tokens_decoder: expected ids as members, got an object");
  std::string many;
  for (int n = 0; n < 20'000; ++n) many += (n ? ",\"" : "\"") + std::to_string(n) + "_token\": \"a\"";
  CHECK(with("{" + many + "}") == "tokenizer_config.json: expected at most 16384 named tokens");
}

// Folders without a tokenizer.json, from text to prediction, against Python. The test of two published models
// is a long check that downloads 100 MB:
// ATTENTIVE_PYTHON=$(tools/checks/python_env) build/release/tests/tokenizers_test "[.published]"

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

using attentive::test::refusal_of;
using Json = nlohmann::json;

namespace {

std::string refused_lines(const std::string& text) {
  return refusal_of([&] { parse_vocab_txt(text); });
}
std::string refused_merges(const std::string& text) {
  return refusal_of([&] { parse_merges_txt(text, Json{{"a", 0}, {"b", 1}, {"ab", 2}}); });
}

}  // namespace

TEST_CASE("A line of vocab.txt is a token", "[vocabulary_files]") {
  CHECK(parse_vocab_txt("a\nb\n") == Json{{"a", 0}, {"b", 1}});
  CHECK(parse_vocab_txt("a\r\nb") == Json{{"a", 0}, {"b", 1}});
  CHECK(parse_vocab_txt(" a \u00a0\n\u3000\nb\t") == Json{{" a", 0}, {"", 1}, {"b", 2}});
  CHECK(parse_vocab_txt("a\nb\na\n\n\n") == Json{{"a", 2}, {"b", 1}, {"", 4}});
  CHECK(refused_lines("") == "expected a token a line, got no line");
  CHECK(refused_lines("a\n\xc3") == "expected UTF-8, got a bad byte at offset 2");
  CHECK(refused_lines(std::string(10'000'000, '\n')) == "expected at most 4194304 lines");
}

TEST_CASE("vocab.json gives each token an id of its own", "[vocabulary_files]") {
  const auto refused = [](const char* text) { return refusal_of([&] { parse_vocab_json(text); }); };
  CHECK(parse_vocab_json(R"({"a": 3, "b": 1})") == Json{{"a", 3}, {"b", 1}});
  CHECK(refused("{}") == "the document: expected an object of tokens and ids, got an object");
  CHECK(refused("[1]") == "the document: expected an object of tokens and ids, got an array of 1");
  CHECK(refused(R"({"a": 1, "b": 1})") == "b: expected an id that no other token has, got 1");
  CHECK(refused(R"({"a": -1})") == "a: expected an integer from 0 to 2147483647, got -1");
  CHECK(refused(R"({"a": "x"})") == "a: expected an integer from 0 to 2147483647, got \"x\"");
  CHECK(refused("{\"a\": ") == "expected JSON in UTF-8");
}

TEST_CASE("A line of merges.txt is two tokens of the vocabulary", "[vocabulary_files]") {
  CHECK(parse_merges_txt("#version: 0.2\na b\n", Json{{"a", 0}, {"b", 1}, {"ab", 2}}) ==
        Json::parse(R"([["a", "b"]])"));
  CHECK(refused_merges("a b\n\n") == "line 2: expected two tokens with a space between them, got \"\"");
  CHECK(refused_merges("a  b") == "line 1: expected two tokens with a space between them, got \"a  b\"");
  CHECK(refused_merges("a") == "line 1: expected two tokens with a space between them, got \"a\"");
  CHECK(refused_merges("b a") == "line 1: expected tokens of the vocabulary, which lacks \"ba\"");
  CHECK(refused_merges("a c") == "line 1: expected tokens of the vocabulary, which lacks \"c\"");
  CHECK(refused_merges("a\xff") == "expected UTF-8, got a bad byte at offset 1");
}
