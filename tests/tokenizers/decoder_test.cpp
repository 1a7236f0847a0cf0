#include <random>

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
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
