#include <random>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/refusal.h"
#include "support/errors.h"
#include "text/text_support.h"
#include "tokenizers/decoders.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using namespace attentive::tokenizers;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;

namespace {

std::string joined_parts(const Strings& parts) {
  std::string text;
  for (const auto& part : parts) text += part;
  return text;
}

Decoder decoder_of(const Json& json) {
  return parse_decoder(JsonView(json, "decoder"));
}

std::string decoded(const Decoder& decoder, Strings tokens) {
  decoder.apply(tokens);
  return joined_parts(tokens);
}

// Returns what each push, and then finish, returns.
Strings decoded_by_stream(const Decoder& decoder, const Strings& tokens) {
  const auto stream = decoder.stream(/*whole=*/false);
  Strings all;
  for (const auto& token : tokens) {
    Strings parts;
    stream->push(token, parts);
    all.push_back(joined_parts(parts));
  }
  Strings parts;
  stream->finish(parts);
  all.push_back(joined_parts(parts));
  return all;
}

std::string decoder_refused(const Json& json) {
  try {
    (void)decoder_of(json);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "no error";
}

const Json kLlama = Json::parse(R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
  {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");

}  // namespace

TEST_CASE("Decoders make of tokens what Python's make, at once and one at a time", "[decoder]") {
  size_t texts = 0;
  for (const auto& one : read_json(tokenizer_data("decoders.json"))) {
    CAPTURE(one["decoder"].dump());
    const auto decoder = decoder_of(one["decoder"]);
    for (const auto& text : one["texts"]) {
      CAPTURE(text["tokens"].dump());
      ++texts;
      const Strings tokens = text["tokens"];
      CHECK(decoded(decoder, tokens) == text["text"].get<std::string>());
      CHECK(joined_parts(decoded_by_stream(decoder, tokens)) == text["text"].get<std::string>());
    }
  }
  CHECK(texts == 130 * 8);
}

TEST_CASE("Any tokens give the same text at once and one at a time", "[decoder]") {
  const auto all = read_json(tokenizer_data("decoders.json"));
  const Strings pieces = {"▁",      "a",      "aa",     "b",   "H",   " ",    "",
                          "<0xE2>", "<0x96>", "<0x81>", "<0x", "41>", "</w>", "é"};
  std::mt19937 draw(17);
  for (const auto& one : all) {
    CAPTURE(one["decoder"].dump());
    const auto decoder = decoder_of(one["decoder"]);
    for (int i = 0; i < 20; ++i) {
      Strings tokens;
      for (size_t size = draw() % 9; size > 0; --size) tokens.push_back(pieces[draw() % pieces.size()]);
      CAPTURE(Json(tokens).dump());
      CHECK(joined_parts(decoded_by_stream(decoder, tokens)) == decoded(decoder, tokens));
    }
  }
}

TEST_CASE("Llama's decoders give text as soon as it is certain", "[decoder]") {
  const auto llama = decoder_of(kLlama);
  CHECK(decoded_by_stream(llama, {"▁Hi", "▁", "a", "▁▁b"}) == Strings{"Hi", " ", "a", "  b", ""});
  CHECK(decoded_by_stream(llama, {"▁", "▁", "a"}) == Strings{"", " ", "a", ""});
  // Bytes wait for the end of their run; a run that is no text is certain at once, and so is what follows in
  // it.
  CHECK(decoded_by_stream(llama, {"<0xE2>", "<0x96>", "<0x81>", "a"}) == Strings{"", "", "", "▁a", ""});
  CHECK(decoded_by_stream(llama, {"<0x41>", "<0x42>"}) == Strings{"", "", "AB"});
  CHECK(decoded_by_stream(llama, {"<0x41>", "<0xFF>", "<0x42>", "a"}) == Strings{"", "��", "�", "a", ""});
  CHECK(decoded_by_stream(llama, {"a", "<0xE2>", "<0x96>"}) == Strings{"a", "", "", "��"});
  CHECK(decoded_by_stream(llama, {}) == Strings{""});
}

TEST_CASE("Behind Fuse, only what a later decoder may still change is held", "[decoder]") {
  const auto after_fuse = [](const char* decoder) {
    return decoder_of({{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, Json::parse(decoder)}}});
  };
  const auto ends = after_fuse(R"({"type": "Strip", "content": "H", "start": 1, "stop": 2})");
  CHECK(decoded_by_stream(ends, {"H", "Ha", "H", "HH", "b", "H"}) ==
        Strings{"", "Ha", "", "H", "HHb", "", ""});
  const auto replaced = after_fuse(R"({"type": "Replace", "pattern": {"String": "aab"}, "content": "-"})");
  CHECK(decoded_by_stream(replaced, {"a", "a", "a", "b", "a"}) == Strings{"", "", "a", "-", "", "a"});
  const auto spaces = after_fuse(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})");
  CHECK(decoded_by_stream(spaces, {"▁a", "▁"}) == Strings{" a", " ", ""});
  const auto first = after_fuse(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})");
  CHECK(decoded_by_stream(first, {"▁a", "▁b"}) == Strings{"a", "b", ""});  // one token: all its signs go
  const auto byte = after_fuse(R"({"type": "ByteFallback"})");
  CHECK(decoded_by_stream(byte, {"<0x", "41", ">"}) == Strings{"", "", "", "A"});
  CHECK(decoded_by_stream(byte, {"<0x", "41", ">", "b", "c"}) == Strings{"", "", "", "<0x41>b", "c", ""});
  // A regular expression may look at any of it.
  const auto regex = after_fuse(R"({"type": "Replace", "pattern": {"Regex": "a+b"}, "content": "-"})");
  CHECK(decoded_by_stream(regex, {"x", "a", "a", "b"}) == Strings{"", "", "", "", "x-"});
  const auto between = after_fuse(R"({"type": "Replace", "pattern": {"String": ""}, "content": "-"})");
  CHECK(decoded_by_stream(between, {"aé", "b"}) == Strings{"", "", "-a-é-b-"});
}

TEST_CASE("Tokens whose ends meet are stripped to nothing, where Python stops", "[decoder]") {
  const auto strip = decoder_of(Json::parse(R"({"type": "Strip", "content": "H", "start": 1, "stop": 2})"));
  CHECK(decoded(strip, {"H", "", "HH", "HHH", "a"}) == "a");
}

TEST_CASE("A long run costs no more for each token than a short one", "[decoder]") {
  // Hours, if each token looked at all before it.
  const Strings bytes(200'000, "<0x61>"), spaces(200'000, "▁");
  const auto llama = decoder_of(kLlama);
  CHECK(joined_parts(decoded_by_stream(llama, bytes)) == std::string(200'000, 'a'));
  CHECK(joined_parts(decoded_by_stream(llama, spaces)) == std::string(199'999, ' '));
  const std::string half(500, 'a');
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", half + "b" + half}}}, {"content", "x"}};
  const auto fused = decoder_of({{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, replace}}});
  const Strings letters(200'000, "a");
  CHECK(joined_parts(decoded_by_stream(fused, letters)) == std::string(200'000, 'a'));
}

TEST_CASE("Decoders that are none are refused", "[decoder]") {
  const auto strip = [](const Json& content, const Json& start) {
    return decoder_refused({{"type", "Strip"}, {"content", content}, {"start", start}, {"stop", 0}});
  };
  CHECK(strip("ab", 1) == "decoder.content: expected one character, got \"ab\"");
  CHECK(strip("", 1) == "decoder.content: expected one character, got \"\"");
  CHECK(strip(1, 1) == "decoder.content: expected one character, got 1");
  CHECK(strip("é", -1) == "decoder.start: expected an integer from 0 to 2147483647, got -1");
  const auto replace = [](const Json& pattern) {
    return decoder_refused({{"type", "Replace"}, {"pattern", pattern}, {"content", ""}});
  };
  CHECK(replace({{"String", std::string(1025, 'a')}})
            .starts_with("decoder.pattern.String: expected at most 1024 bytes, got \"aaa"));
  CHECK(replace({{"Regex", "(?R)"}}) ==
        "decoder.pattern.Regex: (?R in a regular expression is not supported");
  CHECK(replace("a") == "decoder.pattern: expected an object, got \"a\"");
  const auto metaspace = [](const Json& more) {
    Json json = {{"type", "Metaspace"}, {"replacement", "▁"}};
    json.update(more);
    return decoder_refused(json);
  };
  CHECK(metaspace({{"prepend_scheme", "last"}}) ==
        "decoder.prepend_scheme: the scheme last is not supported");
  CHECK(metaspace({{"add_prefix_space", false}}) ==
        "decoder.add_prefix_space: expected true unless prepend_scheme is \"never\", got false");
  CHECK(metaspace({{"add_prefix_space", false}, {"prepend_scheme", "never"}}) == "no error");
  CHECK(metaspace({{"add_prefix_space", true}, {"str_rep", "▁"}, {"split", nullptr}}) == "no error");
  CHECK(metaspace({{"split", 1}}) == "decoder.split: expected true or false, got 1");
  CHECK(decoder_refused({{"type", "ByteFallback"}, {"x", 1}}) == "decoder: the field \"x\" is not supported");
  CHECK(decoder_refused({{"type", "CTC"}}) == "decoder: the decoder CTC is not supported");
}

using Ids = std::vector<int64_t>;
using Parts = std::vector<std::string>;

namespace {

Ids ids_with_a_token(const PretrainedTokenizer& tokenizer) {
  Ids ids;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    try {
      (void)tokenizer.bytes(id);
      ids.push_back(id);
    } catch (const c10::ValueError&) {  // a gap
    }
  }
  return ids;
}

std::string streaming_difference(const PretrainedTokenizer& tokenizer, const Ids& ids) {
  for (const bool skips : {false, true}) {
    const auto decode = [&](const Ids& all) { return tokenizer.decode(all, skips); };
    const auto what = test::streaming_difference(tokenizer, ids, skips, decode);
    if (!what.empty()) return what;
  }
  return "";
}

// Tokens that mean something to each decoder: bytes of characters of several tokens, marks, spaces, nothing.
nlohmann::json odd_tokens(const nlohmann::json& decoder) {
  auto document = small_document();
  document["normalizer"] = document["truncation"] = document["padding"] = nullptr;
  document["model"]["merges"] = nlohmann::json::array();
  document["model"]["unk_token"] = nullptr;
  document["model"]["vocab"] = {{"ð", 0},
                                {"Ł", 1},
                                {"ĺ", 2},
                                {"Ģ", 3},
                                {"Ã", 4},
                                {"é", 5},
                                {"a", 6},
                                {"</w>", 7},
                                {"b</w>", 8},
                                {"漢", 9},
                                {"##c", 10},
                                {"##", 11},
                                {" '", 12},
                                {"n't", 13},
                                {".", 14},
                                {"Ġ", 15},
                                {"</", 16},
                                {"w>", 17},
                                {"x</w>y</w>z", 18},
                                {"a .", 19},
                                {"#", 20},
                                {" do not", 21}};
  document["added_tokens"][0]["id"] = 22;
  document["added_tokens"][1]["id"] = 23;
  document["post_processor"] = nullptr;
  document["decoder"] = decoder;
  return document;
}

}  // namespace

TEST_CASE("Tokens of each kind of tokenizer.json, one at a time, become the text of decode",
          "[streaming_decoder]") {
  for (const char* kind :
       {"gpt2", "llama3", "qwen", "roberta", "bert_uncased", "bert_cased", "bert_limited", "words",
        "word_level", "llama2", "mistral", "gemma", "t5", "albert", "xlm_roberta"}) {
    CAPTURE(kind);
    const auto tokenizer = PretrainedTokenizer::load(tokenizer_data(std::string(kind) + ".json"));
    for (const auto& record : read_json(tokenizer_data(std::string(kind) + ".expected.json"))) {
      const Ids ids = record["special"];
      // Compared with Python's record, not only with what `decode` says.
      CHECK(joined(streamed(tokenizer, ids, false)) == record["decoded"].get<std::string>());
      CHECK(joined(streamed(tokenizer, ids, true)) == record["skipped"].get<std::string>());
      CHECK(streaming_difference(tokenizer, ids) == "");
    }
    const auto vocabulary = ids_with_a_token(tokenizer);
    std::mt19937 draw(11);
    for (int i = 0; i < 60; ++i)
      CHECK(streaming_difference(tokenizer, drawn(vocabulary, 1 + draw() % 20, draw)) == "");
  }
}

TEST_CASE("Every decoder, and any two and three in a row, decode one token at a time as all at once",
          "[streaming_decoder]") {
  const auto json = nlohmann::json::parse(R"([
    null, {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    {"type": "WordPiece", "prefix": "##", "cleanup": true}, {"type": "WordPiece", "prefix": "##", "cleanup": false},
    {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Fuse"}, {"type": "Sequence", "decoders": []},
    {"type": "ByteFallback"}, {"type": "Strip", "content": "a", "start": 1, "stop": 1},
    {"type": "Metaspace", "replacement": "#", "prepend_scheme": "first"},
    {"type": "Replace", "pattern": {"String": "</"}, "content": "#a"},
    {"type": "Replace", "pattern": {"Regex": "a|w+"}, "content": "Ġ"},
    {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Fuse"}]}])");
  std::vector<nlohmann::json> decoders(json.begin(), json.end());
  const auto row = [](std::initializer_list<nlohmann::json> all) {
    return nlohmann::json{{"type", "Sequence"}, {"decoders", nlohmann::json(all)}};
  };
  for (size_t a = 1; a < json.size(); ++a) {
    for (size_t b = 1; b < json.size(); ++b) {
      decoders.push_back(row({json[a], json[b]}));
      for (size_t c = 1; c < json.size(); ++c) decoders.push_back(row({json[a], json[b], json[c]}));
    }
  }
  REQUIRE(decoders.size() == 13 + 144 + 1728);
  std::mt19937 draw(13);
  for (const auto& decoder : decoders) {
    CAPTURE(decoder.dump());
    const auto tokenizer = PretrainedTokenizer::parse(odd_tokens(decoder).dump());
    const auto vocabulary = ids_with_a_token(tokenizer);
    REQUIRE(vocabulary.size() == 24);
    CHECK(streaming_difference(tokenizer, Ids{}) == "");
    for (int i = 0; i < 4; ++i)
      CHECK(streaming_difference(tokenizer, drawn(vocabulary, 1 + draw() % 12, draw)) == "");
  }
}

TEST_CASE("Text comes as early as the decoder lets it", "[streaming_decoder]") {
  const auto with = [](const char* decoder) {
    return PretrainedTokenizer::parse(odd_tokens(nlohmann::json::parse(decoder)).dump());
  };
  const std::string bad = "\xEF\xBF\xBD";

  const auto bytes = with(R"({"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": true,
    "trim_offsets": true, "use_regex": true}, {"type": "Fuse"}]})");
  CHECK(streamed(bytes, Ids{6, 0, 1, 2, 3, 15}) == Parts{"a", "", "", "", "\xF0\x9F\x98\x80", " ", ""});
  CHECK(streamed(bytes, Ids{0, 1, 6, 4}) == Parts{"", "", bad + "a", "", bad});
  CHECK(streamed(bytes, Ids{4, 22, 5}, true) == Parts{"", "", bad, bad});  // C3, nothing, E9

  const auto suffix = with(R"({"type": "BPEDecoder", "suffix": "</w>"})");
  CHECK(streamed(suffix, Ids{6, 8, 6, 18, 7}) == Parts{"a", "b", " a", "x", " y z", ""});

  const auto pieces = with(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})");
  CHECK(streamed(pieces, Ids{10, 10, 6, 14, 13}) == Parts{"##c", "c", " a", ".", "n't", ""});

  CHECK(streamed(with("null"), Ids{6, 22, 9}, true) == Parts{"a", "", " 漢", ""});
}

TEST_CASE("What continues a prompt is spelled as after it", "[streaming_decoder]") {
  const auto document = odd_tokens({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
  auto decoder =
      PretrainedTokenizer::parse(document.dump()).streaming_decoder(true);  // outlives the tokenizer
  CHECK(value_error([&] {
          decoder->follow(Ids{6, 99});
        }) == "PretrainedTokenizer: expected ids of its vocabulary of 24, got 99");
  decoder->follow(Ids{6});
  CHECK(decoder->push(10) == "c");
  CHECK(decoder->push(6) == " a");
  CHECK(value_error([&] { (void)decoder->push(99); }) ==
        "PretrainedTokenizer: expected ids of its vocabulary of 24, got 99");
  CHECK(decoder->push(10) == "c");

  // The last word of the prompt is followed by no space until a token comes.
  const auto suffix = odd_tokens({{"type", "BPEDecoder"}, {"suffix", "</w>"}});
  decoder = PretrainedTokenizer::parse(suffix.dump()).streaming_decoder(true);
  decoder->follow(Ids{8});
  CHECK(decoder->push(6) == " a");
}

TEST_CASE("A long text costs no more for each token than a short one", "[streaming_decoder]") {
  // Hours, if each token decoded all before it.
  for (const char* kind : {"gpt2", "bert_cased"}) {
    const auto tokenizer = PretrainedTokenizer::load(tokenizer_data(std::string(kind) + ".json"));
    const auto id = tokenizer.encode("a").at(0);
    const Ids ids(200'000, id);
    CHECK(joined(streamed(tokenizer, ids)) == tokenizer.decode(ids));
  }
}
