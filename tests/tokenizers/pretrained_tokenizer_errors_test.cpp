// Faults of a tokenizer.json: every error names the place.

#include <random>

#include <catch2/catch_test_macros.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/errors.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using Json = nlohmann::json;
using Pointer = Json::json_pointer;

namespace {

std::string refused(const std::string& text) {
  const auto said = value_error([&] { PretrainedTokenizer::parse(text); });
  const std::string who = "PretrainedTokenizer: ";
  return said.starts_with(who) ? said.substr(who.size()) : said;
}

// The error after one value is replaced.
std::string refused_with(const std::string& place, const Json& value, Json document = small_document()) {
  document[Pointer(place)] = value;
  return refused(document.dump());
}

std::string refused_without(const std::string& place, Json document = small_document()) {
  const Pointer pointer(place);
  document[pointer.parent_pointer()].erase(pointer.back());
  return refused(document.dump());
}

}  // namespace

TEST_CASE("The documents of these tests are right", "[pretrained_tokenizer]") {
  CHECK(refused(small_document().dump()) == "no error");
  CHECK(refused(small_word_piece().dump()) == "no error");
}

TEST_CASE("What is no document is refused", "[pretrained_tokenizer]") {
  CHECK(refused("") == "expected JSON in UTF-8");
  CHECK(refused("{\"model\": \"\xFF\"}") == "expected JSON in UTF-8");
  CHECK(refused("[]") == "the document: expected an object, got an array of 0");
  CHECK(refused("{}") == "the document: expected a field \"model\", got an object");
  CHECK(refused(std::string(1'000'000, '[')) == "expected JSON nested at most 64 deep");
  CHECK(refused_with("/version", "2.0") == "version: expected \"1.0\", got \"2.0\"");
  CHECK(refused_with("/extra", 1) == "the document: the field \"extra\" is not supported");
  CHECK(refused_with("/model", nullptr) == "model: expected a field \"type\", got null");
}

TEST_CASE("Charsmaps, signs and lengths that are none are refused", "[pretrained_tokenizer]") {
  const auto precompiled = [](const Json& charsmap) {
    return refused_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", charsmap}});
  };
  const std::string charsmap = "normalizer.precompiled_charsmap: expected ";
  CHECK(precompiled(nullptr) == charsmap + "a string, got null");
  CHECK(precompiled("") == charsmap + "a charsmap of 4 to 16777216 bytes, got 0");
  CHECK(precompiled("AAA") == charsmap + "base64 of a multiple of four characters, got 3");
  CHECK(precompiled("AAAA/w==") ==
        charsmap + "a charsmap whose array has 4 to 0 bytes in units of four, got 4278190080");
  CHECK(refused_with("/normalizer", {{"type", "Prepend"}, {"prepend", ""}}) ==
        "normalizer.prepend: an empty text is not supported");
  const auto metaspace = [](const Json& sign) {
    return refused_with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", sign}});
  };
  CHECK(metaspace("▁▁") == "pre_tokenizer.replacement: expected one character, got \"\\u2581\\u2581\"");
  CHECK(metaspace("") == "pre_tokenizer.replacement: expected one character, got \"\"");
  CHECK(metaspace("▁") == "no error");
  CHECK(refused_with("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}) ==
        "pre_tokenizer.length: expected an integer from 1 to 2147483647, got 0");
  CHECK(refused_with("/pre_tokenizer", {{"type", "FixedLength"}}) == "no error");
  CHECK(refused_with("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}) ==
        "pre_tokenizer.delimiter: expected one character, got \"ab\"");
}

TEST_CASE("Kinds and values that are not supported are refused by name", "[pretrained_tokenizer]") {
  const auto kind = [](const std::string& place, const std::string& type) {
    return refused_with(place, {{"type", type}});
  };
  CHECK(kind("/normalizer/normalizers/1", "Other") ==
        "normalizer.normalizers[1]: the normalizer Other is not supported");
  CHECK(kind("/pre_tokenizer", "UnicodeScripts") ==
        "pre_tokenizer: the pre-tokenizer UnicodeScripts is not supported");
  CHECK(kind("/post_processor/processors/1", "Other") ==
        "post_processor.processors[1]: the post-processor Other is not supported");
  CHECK(kind("/decoder/decoders/1", "CTC") == "decoder.decoders[1]: the decoder CTC is not supported");
  CHECK(kind("/model", "Unigrams") == "model: the model Unigrams is not supported");
  CHECK(refused_with("/normalizer/normalizers/0/x", 1) ==
        "normalizer.normalizers[0]: the field \"x\" is not supported");
  CHECK(refused_with("/pre_tokenizer/pretokenizers/0/behavior", "Merged") ==
        "pre_tokenizer.pretokenizers[0].behavior: the behavior Merged is not supported");
  CHECK(refused_with("/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "\\bx"}}) ==
        "pre_tokenizer.pretokenizers[0].pattern.Regex: \\b in a regular expression is not supported");
  CHECK(refused_with("/post_processor/processors/0", small_document()["post_processor"]["processors"][1]) ==
        "post_processor.processors[1]: a second processor that adds tokens is not supported");
  CHECK(refused_with("/model/dropout", 0.1) == "model.dropout: a random choice of merges is not supported");
  CHECK(refused_with("/truncation/strategy", "Longest") ==
        "truncation.strategy: the strategy Longest is not supported");
}

TEST_CASE("Fields of another type, or missing, are refused", "[pretrained_tokenizer]") {
  CHECK(refused_with("/normalizer", 3) == "normalizer: expected an object, got 3");
  CHECK(refused_with("/normalizer/normalizers/0", nullptr) ==
        "normalizer.normalizers[0]: expected a normalizer, got null");
  CHECK(refused_with("/normalizer/normalizers/2/strip_left", 1) ==
        "normalizer.normalizers[2].strip_left: expected true or false, got 1");
  CHECK(refused_without("/normalizer/normalizers/3/lowercase") ==
        "normalizer.normalizers[3]: expected a field \"lowercase\", got an object");
  CHECK(refused_with("/pre_tokenizer/pretokenizers", "x") ==
        "pre_tokenizer.pretokenizers: expected an array, got \"x\"");
  CHECK(refused_with("/model/vocab", Json::array()) ==
        "model.vocab: expected an object of tokens and ids, got an array of 0");
  CHECK(refused_with("/model/vocab", "x") == "model.vocab: expected an object of tokens and ids, got \"x\"");
  CHECK(refused_with("/model/merges", 1) == "model.merges: expected an array, got 1");
  CHECK(refused_without("/model/merges") == "model: expected a field \"merges\", got an object");
  CHECK(refused_with("/model/unk_token", 1) == "model.unk_token: expected a string, got 1");
  CHECK(refused_with("/added_tokens", nullptr) == "added_tokens: expected an array, got null");
}

TEST_CASE("Ids that are none, or that two tokens share, are refused", "[pretrained_tokenizer]") {
  const auto range = [](const char* got) {
    return std::string("model.vocab.a: expected an integer from 0 to 2147483647, got ") + got;
  };
  CHECK(refused_with("/model/vocab/a", -1) == range("-1"));
  CHECK(refused_with("/model/vocab/a", 1e18) == range("1e+18"));
  CHECK(refused_with("/model/vocab/a", 18446744073709551615U) == range("18446744073709551615"));
  CHECK(refused_with("/model/vocab/a", 2147483648U) == range("2147483648"));
  CHECK(refused_with("/model/vocab/a", "1") == range("\"1\""));
  CHECK(refused_with("/model/vocab/b", 1) == "model.vocab: expected an id a token, got 1 for two: a and b");
  CHECK(refused_with("/added_tokens/0/id", 7) ==
        "added_tokens[0].id: expected the id that follows from the vocabulary, 6, got 7");
  CHECK(refused_with("/added_tokens/0/content", "ab") ==
        "added_tokens[0].id: expected the id that follows from the vocabulary, 3, got 6");
  CHECK(refused_with("/added_tokens/1/content", "<s>")
            .starts_with("added_tokens[1].content: expected another text"));
  CHECK(refused_with("/added_tokens/1/content", "") ==
        "added_tokens[1].content: expected 1 to 1024 bytes, got \"\"");
  CHECK(refused_with("/added_tokens/1/content", " ")
            .starts_with("added_tokens[1].content: expected a text of which"));
  CHECK(refused_with("/model/vocab/gap", 7) ==
        "added_tokens[0].id: expected the id that follows from the vocabulary, 7, got 6");
}

TEST_CASE("Merges that are none are refused", "[pretrained_tokenizer]") {
  CHECK(refused_with("/model/merges/1", Json::array({"ab"})) ==
        "model.merges[1]: expected two tokens, got an array of 1");
  CHECK(refused_with("/model/merges/1", "ab a") == "model.merges[1]: expected two tokens, got \"ab a\"");
  CHECK(refused_with("/model/merges", {"a b", "ab"}) ==
        "model.merges[1]: expected two tokens with a space between them, got \"ab\"");
  CHECK(refused_with("/model/merges", {"a b", "a b c"}) ==
        "model.merges[1]: expected two tokens with a space between them, got \"a b c\"");
  CHECK(refused_with("/model/merges/1", Json::array({"ab", "z"})) ==
        "model.merges[1]: expected tokens of the vocabulary, which lacks \"z\", got an array of 2");
  CHECK(refused_with("/model/merges/1", Json::array({"b", "a"})) ==
        "model.merges[1]: expected tokens of the vocabulary, which lacks \"ba\", got an array of 2");
  auto document = small_document();
  document["model"]["continuing_subword_prefix"] = "##";
  CHECK(refused(document.dump()) ==
        "model.merges[0]: expected a second token that begins with the prefix, got an array of 2");
}

TEST_CASE("Templates, lengths and paddings that cannot be are refused", "[pretrained_tokenizer]") {
  const std::string single = "/post_processor/processors/1/single/";
  CHECK(refused_with(single + "0/SpecialToken/id", "x") ==
        "post_processor.processors[1].single[0].SpecialToken.id: expected one of the special_tokens, got "
        "\"x\"");
  CHECK(refused_with(single + "1/Sequence/id", "B") ==
        "post_processor.processors[1].single[1]: expected sequence A, got an object");
  CHECK(refused_with(single + "1/Sequence/id", "C") ==
        "post_processor.processors[1].single[1].Sequence.id: expected A or B, got \"C\"");
  CHECK(refused_with("/truncation/max_length", 0) ==
        "truncation.max_length: expected room for the 1 special tokens, got 0");
  CHECK(refused_with("/truncation/direction", "Up") ==
        "truncation.direction: expected Left or Right, got \"Up\"");
  CHECK(refused_with("/padding/strategy", {{"Fixed", 1e18}}) ==
        "padding.strategy.Fixed: expected an integer from 0 to 16777216, got 1e+18");
}

TEST_CASE("Templates that a small file makes endless are refused", "[pretrained_tokenizer]") {
  const Json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const std::string processor = "/post_processor/processors/1", path = "post_processor.processors[1].single";
  const auto single = [&](size_t count, size_t ids) {
    auto document = small_document();
    document.erase("truncation");
    document[Pointer(processor + "/special_tokens/<s>/ids")] = std::vector<int64_t>(ids, 6);
    return refused_with(processor + "/single", std::vector<Json>(count, special), document);
  };
  CHECK(single(1024, 64) == "no error");
  CHECK(single(1025, 1) == path + ": expected at most 1024 pieces, got an array of 1025");
  CHECK(single(1024, 65) == path + ": expected at most 65536 added tokens, got an array of 1024");
}

TEST_CASE("Steps that multiply a text without end are refused", "[pretrained_tokenizer]") {
  const auto with = [](const char* part, const char* list, const Json& step, size_t count) {
    auto document = small_document();
    document[part] = {{"type", "Sequence"}, {list, std::vector<Json>(count, step)}};
    return document;
  };
  const auto said = [](const Json& document, const std::string& text) {
    const auto tokenizer = PretrainedTokenizer::parse(document.dump());
    return value_error([&] { (void)tokenizer.encode_text(text, {.offsets = false}); });
  };
  const auto replace = [](const Json& pattern, size_t count) {
    return Json{{"type", "Replace"}, {"pattern", pattern}, {"content", std::string(count, 'b')}};
  };
  const auto tenfold = replace({{"String", "b"}}, 10);
  const Json byte_level = {{"type", "ByteLevel"}};
  // A megabyte, and 256 bytes for each byte of the text.
  const std::string most = "PretrainedTokenizer: expected a text of which the tokenizer makes at most ";
  const auto normalizers = [&](const Json& step, size_t count, const std::string& text) {
    return said(with("normalizer", "normalizers", step, count), text);
  };
  CHECK(normalizers(tenfold, 5, "b") == "no error");
  CHECK(normalizers(tenfold, 7, "b") == most + "1048832 bytes, got more");
  CHECK(normalizers(byte_level, 21, "\u00e9") == most + "1049088 bytes, got more");
  // These texts are refused while they are made: whole, they would have two gigabytes.
  const std::string many(2000, 'b');
  CHECK(normalizers(replace({{"String", "b"}}, 1'000'000), 1, many) == most + "1560576 bytes, got more");
  // The text stays as it is, but each step copies it.
  CHECK(normalizers(replace({{"String", "b"}}, 1), 700, many) == "no error");
  CHECK(normalizers(replace({{"String", "b"}}, 1), 800, many) == most + "1560576 bytes, got more");
  auto shown = byte_level;
  shown.update({{"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}});
  CHECK(said(with("pre_tokenizer", "pretokenizers", shown, 2), "\u0436") == "no error");
  CHECK(said(with("pre_tokenizer", "pretokenizers", shown, 21), "\u0436") ==
        most + "1049088 bytes, got more");

  const std::string decoder = "decoder: expected decoders that make at most 4096 bytes of one, got an object";
  CHECK(refused(with("decoder", "decoders", tenfold, 3).dump()) == "no error");
  CHECK(refused(with("decoder", "decoders", tenfold, 4).dump()) == decoder);
  CHECK(refused_with("/decoder", replace({{"Regex", "b*"}}, 4095)) == "no error");
  CHECK(refused_with("/decoder", replace({{"Regex", "b*"}}, 4096)) == decoder);
  // A step that makes a text shorter leaves no more room for those that follow.
  auto document = with("decoder", "decoders", tenfold, 4);
  document["decoder"]["decoders"].insert(document["decoder"]["decoders"].begin(),
                                         replace({{"String", std::string(10, 'b')}}, 1));
  CHECK(refused(document.dump()) == decoder);
}

TEST_CASE("Text that the model cannot spell is refused", "[pretrained_tokenizer]") {
  auto document = small_word_piece();
  document["model"]["unk_token"] = "[UNK]";
  const auto words = PretrainedTokenizer::parse(document.dump());
  CHECK(value_error([&] { (void)words.encode("a z"); }) ==
        "PretrainedTokenizer: the text needs the unknown token \"[UNK]\", which the vocabulary lacks");
  document = small_document();
  document["model"]["unk_token"] = "[UNK]";
  const auto pairs = PretrainedTokenizer::parse(document.dump());
  CHECK(value_error([&] { (void)pairs.encode("z"); }) ==
        "PretrainedTokenizer: the text needs the unknown token \"[UNK]\", which the vocabulary lacks");
}

TEST_CASE("Truncation of the second text is refused where it cannot be", "[pretrained_tokenizer]") {
  auto document = small_document();
  document["truncation"]["strategy"] = "OnlySecond";
  document["truncation"]["max_length"] = 3;
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  CHECK(value_error([&] { (void)tokenizer.encode("bbbb"); }) ==
        "PretrainedTokenizer: the truncation is of the second text only, and there is one");
  CHECK(value_error([&] { (void)tokenizer.encode_pair("bbbb", "b"); }) ==
        "PretrainedTokenizer: the text that is to be truncated has 1 tokens, of which 2 are to go");
  CHECK(tokenizer.encode_pair("b", "bbbb").ids == std::vector<int64_t>{2, 2, 2});
}

TEST_CASE("A damaged document is refused or read, and nothing else", "[pretrained_tokenizer]") {
  std::mt19937 random(7);
  const auto draw = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  const std::vector<std::string> documents = {small_document().dump(), small_word_piece().dump()};
  const std::vector<std::string> parts = {
      "null", "1e18", "-1",      "[]",   "{}", "\"\"", "true", "\"a\"", "999999999999",
      "[",    "}",    "\\u0000", "\xFF", "\"", ",",    ":",    "(",     "\\\\"};
  size_t read = 0;
  for (int i = 0; i < 2000; ++i) {
    auto text = documents[draw(2)];
    for (size_t changes = 1 + draw(3); changes > 0; --changes) {
      const auto offset = draw(text.size()), size = draw(2) ? 1 : draw(20);
      const auto part = draw(parts.size()), from = draw(text.size()), length = draw(12);
      text.replace(offset, std::min(size, text.size() - offset),
                   draw(3) ? parts[part] : text.substr(from, length));
    }
    try {
      const auto tokenizer = PretrainedTokenizer::parse(text);
      ++read;
      (void)tokenizer.decode(tokenizer.encode_with_special_tokens("ab TAG 12, <s> \u00e9z"));
      (void)tokenizer.encode_pair("ab", "\u4e2d a");
    } catch (const c10::ValueError&) {
    }
  }
  CHECK(read > 0);
}
