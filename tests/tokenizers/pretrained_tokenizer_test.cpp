#include <cstdlib>
#include <filesystem>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/errors.h"
#include "support/files.h"
#include "support/python.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using Ids = std::vector<int64_t>;

namespace {

// Returns the differences from Python's record of one text; empty if there is none.
std::string difference(const PretrainedTokenizer& tokenizer, const nlohmann::json& record,
                       std::string_view before) {
  const auto text = record["text"].get<std::string>();
  if (Ids(record["ids"]) != tokenizer.encode(text)) return "ids of " + record["text"].dump();
  const Ids special = tokenizer.encode_with_special_tokens(text);
  if (Ids(record["special"]) != special) return "ids with special tokens of " + record["text"].dump();
  const auto pair = tokenizer.encode_pair(before, text);
  if (Ids(record["pair"]) != pair.ids || Ids(record["types"]) != pair.type_ids)
    return "pair with " + record["text"].dump();
  if (record["decoded"] != tokenizer.decode(special)) return "text of the ids of " + record["text"].dump();
  if (record["skipped"] != tokenizer.decode(special, true))
    return "skipping text of " + record["text"].dump();
  return "";
}

// The first characters of a text, as Python's text[:count].
std::string beginning(const std::string& text, size_t count) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && count-- == 0) break;
  }
  return text.substr(0, end);
}

size_t count_differences(const PretrainedTokenizer& tokenizer, const nlohmann::json& records) {
  size_t count = 0;
  std::string before = "b [SEP] c";
  for (const auto& record : records) {
    const auto what = difference(tokenizer, record, before);
    if (!what.empty() && ++count <= 20) UNSCOPED_INFO(what);
    before = beginning(record["text"], 20);
  }
  return count;
}

}  // namespace

TEST_CASE("Added tokens take the white space that they strip", "[pretrained_tokenizer]") {
  const auto ids = [](bool left, bool right) {
    auto document = small_document();
    document["added_tokens"][1]["lstrip"] = left;
    document["added_tokens"][1]["rstrip"] = right;
    return PretrainedTokenizer::parse(document.dump()).encode("ab Tag  ab");
  };
  const int64_t ab = 3, space = 4, tag = 7;
  CHECK(ids(true, true) == Ids{ab, tag, ab});
  CHECK(ids(false, true) == Ids{ab, space, tag, ab});
  CHECK(ids(true, false) == Ids{ab, tag, space, space, ab});
}

// Python's tokenizers 0.23.3 takes another of them from one process to the next.
TEST_CASE("No added tokens, and several that normalize to one text", "[pretrained_tokenizer]") {
  auto document = nlohmann::json::parse(R"({"normalizer": {"type": "Lowercase"},
    "model": {"type": "WordLevel", "vocab": {"u": 0, "a": 1}, "unk_token": "u"}})");
  CHECK(PretrainedTokenizer::parse(document.dump()).encode("A") == Ids{1});
  const nlohmann::json token = {{"single_word", false}, {"lstrip", false},    {"rstrip", false},
                                {"special", false},     {"normalized", true}, {"id", 2},
                                {"content", "TAG"}};
  document["added_tokens"] = {token, token, token};
  document["added_tokens"][1].update({{"id", 3}, {"content", "Tag"}, {"special", true}});
  document["added_tokens"][2].update({{"id", 4}, {"content", "taga"}});
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  CHECK(tokenizer.encode("tagTAGTagA") == Ids{2, 2, 4});
  CHECK(tokenizer.decode(Ids{2, 3}) == "tag tag");
  CHECK(tokenizer.token_to_id("Tag") == 3);
}

TEST_CASE("Ids, pairs and text equal what Python recorded", "[pretrained_tokenizer]") {
  for (const auto& kind : kKinds) {
    CAPTURE(kind);
    const auto records = read_json(tokenizer_data(kind + ".expected.json"));
    REQUIRE(records.size() == 90);
    CHECK(count_differences(PretrainedTokenizer::load(tokenizer_data(kind + ".json")), records) == 0);
  }
}

// 2,000 strings, or as many as ATTENTIVE_TOKENIZER_STRINGS says: 10,000 in tools/checks/long_checks.
TEST_CASE("Ids, pairs and text equal Python's on thousands of fresh strings", "[.python]") {
  NEEDS_PYTHON("tokenizers");
  const char* const more = std::getenv("ATTENTIVE_TOKENIZER_STRINGS");
  const std::string count = more ? more : "2000";
  const char* const named = std::getenv("ATTENTIVE_TOKENIZER_SEED");
  const std::string seed = named ? named : "4";
  const TemporaryFolder folder;
  for (const auto& kind : kKinds) {
    CAPTURE(kind, seed);
    const auto file = tokenizer_data(kind + ".json"), out = (folder / "records.json").string();
    run_python("tools/generators/make_tokenizers.py",
               "--record " + count + " " + seed + " '" + file + "' '" + out + "'");
    const auto records = read_json(out);
    REQUIRE(records.at(0).size() == std::stoul(count));
    CHECK(count_differences(PretrainedTokenizer::load(file), records[0]) == 0);
  }
}

TEST_CASE("Each normalizer and pre-tokenizer does what Python's does", "[pretrained_tokenizer]") {
  const auto data = read_json(tokenizer_data(GENERATE("variants.json", "sentence_variants.json")));
  REQUIRE((data["variants"].size() == 58 || data["variants"].size() == 25));
  for (const auto& variant : data["variants"]) {
    auto document = data["base"];
    document["normalizer"] = variant["normalizer"];
    document["pre_tokenizer"] = variant["pre_tokenizer"];
    CAPTURE(variant["normalizer"].dump(), variant["pre_tokenizer"].dump());
    const auto tokenizer = PretrainedTokenizer::parse(document.dump());
    for (size_t i = 0; i < data["strings"].size(); ++i) {
      CAPTURE(data["strings"][i].dump());
      CHECK(Ids(variant["ids"][i]) == tokenizer.encode(data["strings"][i].get<std::string>()));
    }
  }
}

TEST_CASE("The first word of a text is what begins where the text does, with and without offsets",
          "[pretrained_tokenizer]") {
  const auto tokenizer = PretrainedTokenizer::parse(R"({
    "added_tokens": [], "post_processor": null, "decoder": null,
    "normalizer": {"type": "Replace", "pattern": {"String": "x"}, "content": ""},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "▁ab": 1, "ab": 2}, "unk_token": "<unk>"}})");
  // The words of Python's tokenizers.
  for (const auto& [text, id] : {std::pair{"ab", 1}, std::pair{"abxx", 1}, std::pair{"xxab", 2}}) {
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == std::vector<int64_t>{id});
    CHECK(tokenizer.encode_text(text).ids == std::vector<int64_t>{id});
  }
}

TEST_CASE("Byte-level BPE gives any text back", "[pretrained_tokenizer]") {
  for (const auto* kind : {"gpt2", "llama3"}) {
    const auto tokenizer = PretrainedTokenizer::load(tokenizer_data(std::string(kind) + ".json"));
    for (const auto& record : read_json(tokenizer_data("qwen.expected.json"))) {
      const auto text = record["text"].get<std::string>();
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
      std::string bytes;
      for (const auto id : tokenizer.encode(text)) bytes += tokenizer.bytes(id);
      CHECK(bytes == text);
    }
  }
}

TEST_CASE("A token's bytes, id and mark; the size of the vocabulary", "[pretrained_tokenizer]") {
  const auto tokenizer = PretrainedTokenizer::parse(small_document().dump());
  CHECK(tokenizer.vocab_size() == 8);
  CHECK(tokenizer.bytes(4) == " ");
  CHECK(tokenizer.bytes(6) == "<s>");
  CHECK(tokenizer.token_to_id("Ġ") == 4);
  CHECK(tokenizer.token_to_id("Tag") == 7);
  CHECK(tokenizer.token_to_id("none") == std::nullopt);
  CHECK(tokenizer.is_special(6));
  CHECK_FALSE(tokenizer.is_special(7));
  CHECK_FALSE(tokenizer.is_special(99));
  CHECK(tokenizer.encode("<s>ab TAG") == Ids{6, 3, 7});
  CHECK(tokenizer.to_json() == small_document().dump());
  for (const int64_t id : {int64_t{-1}, int64_t{8}, int64_t{1} << 40}) {
    const auto said = "PretrainedTokenizer: expected ids of its vocabulary of 8, got " + std::to_string(id);
    CHECK(value_error([&] { (void)tokenizer.bytes(id); }) == said);
    CHECK(value_error([&] { (void)tokenizer.decode(Ids{1, id}); }) == said);
  }
}

TEST_CASE("Bytes that are no text decode as Python decodes them", "[pretrained_tokenizer]") {
  auto document = small_document();
  // F0 9F 98 (a start of four), 80 (a tail), C3 (a start of two), E9 41
  document["model"]["vocab"] = {{"ð", 0}, {"Ł", 1}, {"ĺ", 2}, {"Ģ", 3}, {"Ã", 4}, {"é", 5}};
  document["model"]["merges"] = nlohmann::json::array();
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(tokenizer.decode(Ids{0, 1, 2, 3}) == "\xF0\x9F\x98\x80");
  CHECK(tokenizer.decode(Ids{0, 1, 2}) == bad);
  CHECK(tokenizer.decode(Ids{0, 1, 2, 6}) == bad + "<s>");
  CHECK(tokenizer.decode(Ids{3, 3}) == bad + bad);
  CHECK(tokenizer.decode(Ids{4, 5}) == bad + bad);
  CHECK(tokenizer.decode(Ids{0, 3}) == bad + bad);  // F0 80 would be overlong
}

TEST_CASE("Text that is not UTF-8 is refused with the place", "[pretrained_tokenizer]") {
  const auto tokenizer = PretrainedTokenizer::parse(small_document().dump());
  const auto refused = [&](std::string_view text) {
    return value_error([&] { (void)tokenizer.encode(text); });
  };
  const std::string said = "PretrainedTokenizer: expected text in UTF-8, got a bad byte at offset ";
  CHECK(refused("ab\xFF") == said + "2");
  CHECK(refused("\xC3") == said + "0");
  CHECK(refused("a\xED\xA0\x80") == said + "1");
  CHECK(value_error([&] { (void)tokenizer.encode_pair("a", "\x80"); }) == said + "0");
}

TEST_CASE("Both formats are read by one call, from a file or its folder", "[pretrained_tokenizer]") {
  const TemporaryFolder folder;
  const auto path = folder / "tokenizer.json";
  save_tokenizer(path, BpeTokenizer::train("ab ab ab", 258));
  CHECK(load_any_tokenizer(path)->vocab_size() == 258);
  std::filesystem::copy_file(tokenizer_data("gpt2.json"), path,
                             std::filesystem::copy_options::overwrite_existing);
  const auto gpt2 = load_any_tokenizer(folder.path());
  CHECK(dynamic_cast<const PretrainedTokenizer*>(gpt2.get()) != nullptr);
  CHECK(gpt2->encode("a") == PretrainedTokenizer::load(folder.path()).encode("a"));
  save_tokenizer(folder / "copy.json", *gpt2);
  CHECK(load_any_tokenizer(folder / "copy.json")->vocab_size() == gpt2->vocab_size());

  CHECK(value_error([&] { load_tokenizer(path); }) ==
        "load_tokenizer: " + path.string() +
            ": parse_tokenizer: expected a tokenizer of this package, got Hugging Face's tokenizer.json; "
            "load_any_tokenizer of the component attentive::tokenizers reads both");
  std::ofstream(path) << R"({"model": 1})";
  CHECK(value_error([&] { load_any_tokenizer(path); }) ==
        "load_any_tokenizer: " + path.string() +
            ": PretrainedTokenizer: model: expected a field \"type\", got 1");
  std::ofstream(path) << "{";
  CHECK(value_error([&] { PretrainedTokenizer::load(path); }) ==
        "PretrainedTokenizer::load: " + path.string() + ": PretrainedTokenizer: expected JSON in UTF-8");
  CHECK(value_error([&] { load_any_tokenizer(folder / "none"); }) ==
        "load_any_tokenizer: cannot open " + (folder / "none").string() + ": No such file or directory");
}

TEST_CASE("Long pieces and long runs cost no more than long texts", "[pretrained_tokenizer]") {
  // Each of these takes hours if a step is quadratic.
  const auto gpt2 = PretrainedTokenizer::load(tokenizer_data("gpt2.json"));
  const std::string letters(200'000, 'a'), spaces(200'000, ' ');
  CHECK(gpt2.decode(gpt2.encode(letters)) == letters);
  CHECK(gpt2.decode(gpt2.encode(spaces + "x")) == spaces + "x");

  std::string marks = "a";
  for (int i = 0; i < 50'000; ++i) marks += "\u0301\u0316";
  const auto qwen = PretrainedTokenizer::load(tokenizer_data("qwen.json"));
  CHECK(qwen.encode(marks).size() > 50'000);

  auto document = small_word_piece();
  document["model"]["max_input_chars_per_word"] = 10'000'000;
  document["truncation"] = nullptr;
  document["pre_tokenizer"] = nullptr;
  const auto words = PretrainedTokenizer::parse(document.dump());
  CHECK(words.encode(letters).size() == 200'000);
  CHECK(words.encode(letters + "z") == Ids{0});
}
