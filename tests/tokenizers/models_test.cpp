#include "tokenizers/models.h"

#include <limits>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/refusal.h"
#include "support/errors.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using namespace attentive::tokenizers;
using Json = nlohmann::json;

namespace {

std::vector<Token> spelled(const Model& model, std::string_view piece) {
  std::vector<Token> tokens;
  model.encode(piece, tokens);
  return tokens;
}

std::unique_ptr<const Model> model_of(const Json& json) {
  return parse_model(JsonView(json, "model"));
}

std::string model_refused(const Json& json) {
  try {
    (void)model_of(json);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "no error";
}

std::string spelling_refused(const Model& model, std::string_view piece) {
  try {
    (void)spelled(model, piece);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "no error";
}

Json small_unigram() {
  return Json::parse(R"({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
    "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.5], ["ab", -3], ["▁a", -4.0]]})");
}

}  // namespace

TEST_CASE("Models spell pieces as Python's do: ids and bytes, or an error", "[models]") {
  size_t refused = 0, texts = 0;
  for (const auto& one : read_json(tokenizer_data("models.json"))) {
    CAPTURE(one["model"].dump(-1, ' ', true));
    const auto model = model_of(one["model"]);
    for (const auto& text : one["texts"]) {
      CAPTURE(text["text"].dump());
      ++texts;
      const auto piece = text["text"].get<std::string>();
      if (text["tokens"].is_string()) {
        ++refused;
        CHECK(spelling_refused(*model, piece) != "no error");
        continue;
      }
      std::vector<Token> expected;
      for (const auto& token : text["tokens"]) expected.push_back({token[0], token[1], token[2]});
      CHECK((spelled(*model, piece) == expected));
    }
  }
  CHECK(texts == 48 * 14);
  CHECK(refused > 20);
}

TEST_CASE("Of two spellings with equal scores, the one whose last token begins earlier stays", "[models]") {
  auto json = small_unigram();
  json["vocab"] = Json::parse(R"([["<unk>", 0], ["a", -1], ["aa", -2]])");
  CHECK((spelled(*model_of(json), "aaa") == std::vector<Token>{{1, 0, 1}, {2, 1, 3}}));
}

TEST_CASE("An unknown character costs ten more than the least likely piece", "[models]") {
  auto json = small_unigram();
  json["vocab"] = Json::parse(R"([["<unk>", 0], ["xy", -8], ["z", -8], ["yz", -1]])");
  CHECK((spelled(*model_of(json), "xyz") == std::vector<Token>{{1, 0, 2}, {2, 2, 3}}));  // -16, not -18 - 1
  json["vocab"] = Json::parse(R"([["<unk>", 0], ["xy", -8], ["z", -12], ["yz", 3]])");
  CHECK((spelled(*model_of(json), "xyz") == std::vector<Token>{{0, 0, 1}, {3, 1, 3}}));  // -22 + 3, not -20
}

TEST_CASE("An unknown character needs an unknown token", "[models]") {
  auto json = small_unigram();
  json["unk_id"] = nullptr;
  const auto model = model_of(json);
  CHECK(spelled(*model, "ab").size() == 1);
  CHECK(spelling_refused(*model, "az") == "the text needs an unknown token, and the model's unk_id is null");
  json["vocab"] = Json::array();
  CHECK(spelling_refused(*model_of(json), "a") ==
        "the text needs an unknown token, and the model's unk_id is null");
}

TEST_CASE("Unigram models that are none are refused", "[models]") {
  const auto with = [](const char* key, const Json& value) {
    auto json = small_unigram();
    json[key] = value;
    return model_refused(json);
  };
  const auto with_piece = [](const Json& piece) {
    auto json = small_unigram();
    json["vocab"][1] = piece;
    return model_refused(json);
  };
  CHECK(model_refused(small_unigram()) == "no error");
  CHECK(with("vocab", "x") == "model.vocab: expected an array of pieces and their scores, got \"x\"");
  CHECK(with("vocab", Json::array()) == "model.unk_id: expected null, as there is no piece, got 0");
  CHECK(with("unk_id", 5) == "model.unk_id: expected an integer from 0 to 4, got 5");
  CHECK(with("unk_id", -1) == "model.unk_id: expected an integer from 0 to 4, got -1");
  CHECK(with("unk_id", "0") == "model.unk_id: expected an integer from 0 to 4, got \"0\"");
  CHECK(with("byte_fallback", 1) == "model.byte_fallback: expected true or false, got 1");
  CHECK(with("alpha", 0.1) == "model: the field \"alpha\" is not supported");
  const std::string pair = "model.vocab[1]: expected a piece and its score, got ";
  CHECK(with_piece("a") == pair + "\"a\"");
  CHECK(with_piece({"a", 1, 2}) == pair + "an array of 3");
  CHECK(with_piece({1, 1}) == pair + "an array of 2");
  CHECK(with_piece({"a", "1"}) == pair + "an array of 2");
  CHECK(with_piece({"a", nullptr}) == pair + "an array of 2");
  CHECK(with_piece({"a", std::numeric_limits<double>::quiet_NaN()}) == pair + "an array of 2");
  CHECK(with_piece({"a", -std::numeric_limits<double>::infinity()}) == pair + "an array of 2");
  CHECK(with_piece({std::string(1025, 'a'), 1}) ==
        "model.vocab[1]: expected a piece of at most 1024 bytes, got an array of 2");
  CHECK(with_piece({std::string(1024, 'a'), 1}) == "no error");
}

TEST_CASE("Long pieces cost no more than long texts", "[models]") {
  // Each of these takes hours if a step is quadratic.
  const std::string known(1'000'000, 'a'), unknown(1'000'000, 'z');
  auto json = small_unigram();
  json["vocab"].push_back({std::string(16, 'a'), -1.0});
  auto model = model_of(json);
  CHECK(spelled(*model, known).size() == 62'500);
  CHECK((spelled(*model, unknown) == std::vector<Token>{{0, 0, 1'000'000}}));
  json["byte_fallback"] = true;
  json["vocab"].push_back({"<0x7A>", -1.0});
  CHECK(spelled(*model_of(json), unknown).size() == 1'000'000);
  const auto pairs = Json::parse(R"({"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "u",
    "vocab": {"u": 0, "a": 1, "aa": 2, "aaaa": 3, "<0x7A>": 4}, "merges": [["a", "a"], ["aa", "aa"]]})");
  CHECK(spelled(*model_of(pairs), known).size() == 250'000);
  CHECK(spelled(*model_of(pairs), unknown).size() == 1'000'000);
  CHECK((spelled(*model_of(pairs), std::string(1'000'000, 'y')) == std::vector<Token>{{0, 0, 1'000'000}}));
}

TEST_CASE("A vocabulary finds tokens by text and by id, with gaps and without", "[models]") {
  const auto json = Json::parse(R"({"b": 7, "a": 0, "": 3, "ab": 1073741824})");
  const Vocabulary vocabulary{JsonView(json)};
  CHECK(vocabulary.size() == 4);
  CHECK(vocabulary.largest_id() == 1'073'741'824);
  CHECK(vocabulary.longest() == 2);
  for (const auto& [token, id] : json.items()) {
    CHECK(vocabulary.id_of(token) == id.get<int64_t>());
    CHECK(vocabulary.token_of(id) == token);
  }
  for (const int64_t id : {-1, 1, 2, 8, 1'073'741'825}) CHECK(vocabulary.token_of(id) == std::nullopt);
  CHECK(vocabulary.id_of("c") == std::nullopt);

  const Vocabulary list(std::vector<std::string_view>{"x", "y", "x"});
  CHECK(list.size() == 3);
  CHECK(list.largest_id() == 2);
  CHECK(list.id_of("x") == 2);
  CHECK(list.token_of(0) == "x");
  CHECK(list.token_of(3) == std::nullopt);
  CHECK(Vocabulary(std::vector<std::string_view>()).id_of("") == std::nullopt);
  CHECK(Vocabulary(std::vector<std::string_view>()).largest_id() == -1);

  std::vector<std::string> many;
  for (int i = 0; i < 5000; ++i) many.push_back(std::to_string(i * 7));
  const Vocabulary large(std::vector<std::string_view>(many.begin(), many.end()));
  for (size_t i = 0; i < many.size(); ++i) CHECK(large.id_of(many[i]) == static_cast<int64_t>(i));
}

TEST_CASE("A trie finds each piece at the start of a text", "[models]") {
  const PieceTrie trie({{"a", 0}, {"ab", 1}, {"abcd", 2}, {"b", 3}, {"", 4}, {"ab", 5}, {"\xFF\x80", 6}});
  using Found = std::vector<std::pair<size_t, int32_t>>;
  const auto found = [&](std::string_view text) {
    Found all;
    trie.for_each_prefix(text, [&](size_t size, int32_t id) { all.emplace_back(size, id); });
    return all;
  };
  CHECK(found("abcde") == Found{{1, 0}, {2, 5}, {4, 2}});
  CHECK(found("abc") == Found{{1, 0}, {2, 5}});
  CHECK(found("bb") == Found{{1, 3}});
  CHECK(found("\xFF\x80") == Found{{2, 6}});
  CHECK(found("\xFF").empty());
  CHECK(found("c").empty());
  CHECK(found("").empty());
  const PieceTrie empty({});
  empty.for_each_prefix("a", [](size_t, int32_t) { FAIL(); });
}

namespace {

// Has one token for each byte of a word, and counts how often it is asked.
class CountingModel final : public Model {
 public:
  CountingModel() : Model(Vocabulary(std::vector<std::string_view>{})) {}

  void encode(std::string_view word, std::vector<Token>& tokens) const override {
    ++calls;
    if (word == "refused") refuse("no such word");
    for (uint32_t i = 0; i < word.size(); ++i) tokens.push_back({int64_t{word[i]}, i, i + 1});
  }

  mutable int64_t calls = 0;
};

// Whether the cache spells the word as the model does.
bool spells(WordCache& cache, const Model& model, std::string_view word) {
  std::vector<Token> expected;
  model.encode(word, expected);
  const auto tokens = cache.spell(word);
  return std::vector<Token>(tokens.begin(), tokens.end()) == expected;
}

}  // namespace

TEST_CASE("A repeated word costs the model nothing", "[word_cache]") {
  // Whichever of its bytes differ.
  for (const auto* const around : {"", "w", "word", "inter", "eightlet", "a word of words", "\xE6\xBC\xA2"}) {
    for (const bool before : {false, true}) {
      CAPTURE(around, before);
      const CountingModel model;
      WordCache cache(model);
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 20'000; ++i) {
          (void)cache.spell(before ? around + std::to_string(i) : std::to_string(i) + around);
        }
      }
      CHECK(model.calls >= 20'000);
      CHECK(model.calls <= 20'100);  // a word whose slots are taken is asked for again
    }
  }
}

TEST_CASE("Words are spelled as the model does, however many there were", "[word_cache]") {
  const CountingModel model;
  WordCache cache(model);
  std::mt19937 random(3);
  bool right = true;
  // More words than the cache holds, with repetitions near and far.
  for (int i = 0; i < 200'000; ++i) {
    const auto number = i % 3 == 0 ? random() % 100 : i % 3 == 1 ? random() % 60'000 : random();
    right = right && spells(cache, model, std::to_string(number));
  }
  CHECK(right);
  // More bytes than it holds; words of more than 256 bytes are not kept.
  for (size_t size = 0; size < 60'000; ++size) {
    std::string word(1 + size % 300, static_cast<char>('a' + size % 26));
    const auto number = std::to_string(size / 7);
    word.replace(0, std::min(word.size(), number.size()), number, 0, std::min(word.size(), number.size()));
    right = right && spells(cache, model, word);
  }
  CHECK(right);
}

TEST_CASE("Words that differ only in zero bytes or in length are different", "[word_cache]") {
  const CountingModel model;
  WordCache cache(model);
  for (int round = 0; round < 2; ++round) {
    for (size_t size = 1; size < 40; ++size) {
      CHECK(spells(cache, model, std::string(size, '\0')));
      CHECK(spells(cache, model, std::string(size - 1, '\0') + "a"));
      CHECK(spells(cache, model, "a" + std::string(size - 1, '\0')));
    }
  }
}

TEST_CASE("A long word is asked for each time", "[word_cache]") {
  const CountingModel model;
  WordCache cache(model);
  for (int round = 0; round < 3; ++round) {
    (void)cache.spell(std::string(256, 'a'));
    (void)cache.spell(std::string(257, 'a'));
  }
  CHECK(model.calls == 4);
}

TEST_CASE("A word that the model refuses leaves the cache as it was", "[word_cache]") {
  const CountingModel model;
  WordCache cache(model);
  for (int round = 0; round < 2; ++round) {
    CHECK_THROWS_AS(cache.spell("refused"), Refusal);
    CHECK(spells(cache, model, "taken"));
  }
}

using Ids = std::vector<int64_t>;

namespace {

nlohmann::json words() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "the": 1, "cat": 2}, "unk_token": "<unk>"}})");
}

}  // namespace

TEST_CASE("WordLevel has a token a piece, and one for what it lacks", "[word_level]") {
  auto document = words();
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  CHECK(tokenizer.encode("the  cat the dog") == Ids{1, 2, 1, 0});
  CHECK(tokenizer.decode(Ids{1, 2}) == "the cat");
  document["model"]["unk_token"] = "none";
  const auto strict = PretrainedTokenizer::parse(document.dump());
  CHECK(strict.encode("cat") == Ids{2});
  CHECK(value_error([&] { strict.encode("cat dog"); }) ==
        "PretrainedTokenizer: the text needs the unknown token \"none\", which the vocabulary lacks");
  document["model"]["extra"] = 1;
  CHECK(value_error([&] { PretrainedTokenizer::parse(document.dump()); }).find("extra") != std::string::npos);
}

TEST_CASE("A training text is neither cut nor filled", "[pretrained_tokenizer]") {
  auto document = small_document();
  const std::string text(50, 'b');
  const auto limited = PretrainedTokenizer::parse(document.dump());
  CHECK(limited.encode(text).size() == 20);
  document["truncation"] = nullptr;
  document["padding"] = nullptr;
  const auto free = PretrainedTokenizer::parse(document.dump());
  CHECK(limited.encode_whole(text) == free.encode(text));
  CHECK(limited.encode_whole(text).size() == 50);
  document["padding"] = {{"strategy", {{"Fixed", 90}}},
                         {"direction", "Right"},
                         {"pad_to_multiple_of", nullptr},
                         {"pad_id", 0},
                         {"pad_type_id", 0},
                         {"pad_token", "x"}};
  CHECK(PretrainedTokenizer::parse(document.dump()).encode_whole(text) == free.encode(text));
}

TEST_CASE("parse_any_tokenizer tells the formats apart by content", "[pretrained_tokenizer]") {
  CHECK(parse_any_tokenizer(words().dump())->encode("cat") == Ids{2});
  CHECK(parse_any_tokenizer(CharTokenizer::train("cat").to_json())->encode("cat") == Ids{1, 0, 2});
  for (const auto* text : {"[]", "", "3", R"([{"model": 1}])", R"("model")"}) {
    CHECK(value_error([&] { parse_any_tokenizer(text); }) == "parse_tokenizer: expected a JSON object");
  }
  const auto type = [](const char* text) { return value_error([&] { parse_any_tokenizer(text); }); };
  CHECK(type(R"({"a": {"model": 1}, "b": [[0], {}], "type": "model"})") ==
        "parse_tokenizer: expected \"type\" to be \"char\" or \"bpe\", got \"model\"");
  const std::string member = "PretrainedTokenizer: the document: the field \"a\" is not supported";
  CHECK(type(R"({"a": {"b": [1]}, "c": {}, "model": 1})") == member);
  CHECK(type(R"({"a": [{"b": 1}], "model": 1, "type": "bpe"})") == member);
  // The format is known by then, whatever follows.
  CHECK(type(R"({"model": {"vocab")") == "PretrainedTokenizer: expected JSON in UTF-8");
}
