#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <catch2/catch_test_macros.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/refusal.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/python.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using Ids = std::vector<int64_t>;
using Json = nlohmann::json;
using Spans = std::vector<TextSpan>;

// Offsets, masks, truncation, padding and batches, against what Python recorded.

namespace {

Spans spans_of(const Json& places) {
  Spans spans;
  for (size_t i = 0; i < places.size(); i += 2) spans.push_back({places[i], places[i + 1]});
  return spans;
}

// Members that all tokens have in common are not written.
Ids values_of(const Json& record, const char* key, size_t count, int64_t common) {
  if (!record.contains(key)) return Ids(count, common);
  if (record[key].is_array()) return record[key];
  Ids values;
  for (const char digit : record[key].get<std::string>()) values.push_back(digit - '0');
  return values;
}

Encoding encoding_of(const Json& record) {
  Encoding encoding;
  encoding.ids = record["ids"].get<Ids>();
  const auto count = encoding.ids.size();
  encoding.offsets = spans_of(record["offsets"]);
  encoding.type_ids = values_of(record, "types", count, 0);
  encoding.attention_mask = values_of(record, "attention", count, 1);
  encoding.special_tokens_mask = values_of(record, "special", count, 0);
  return encoding;
}

TextSide side_of(const Json& name) {
  return name == "left" ? TextSide::Left : TextSide::Right;
}

PretrainedTokenizer with_limits(const PretrainedTokenizer& tokenizer, const Json& limits) {
  std::optional<TruncationOptions> truncation;
  if (const auto& json = limits["truncation"]; !json.is_null()) {
    truncation.emplace();
    truncation->max_length = json["max_length"];
    truncation->side = side_of(json["direction"]);
    truncation->strategy = json["strategy"] == "only_first"    ? TruncationStrategy::OnlyFirst
                           : json["strategy"] == "only_second" ? TruncationStrategy::OnlySecond
                                                               : TruncationStrategy::LongestFirst;
  }
  std::optional<PaddingOptions> padding;
  if (const auto& json = limits["padding"]; !json.is_null()) {
    padding.emplace();
    padding->side = side_of(json["direction"]);
    padding->id = json["pad_id"];
    padding->type_id = json["pad_type_id"];
    padding->token = json["pad_token"];
    if (!json["length"].is_null()) padding->length = json["length"].get<int64_t>();
    if (!json["pad_to_multiple_of"].is_null()) padding->multiple_of = json["pad_to_multiple_of"];
  }
  return tokenizer.with_truncation(truncation).with_padding(padding);
}

std::vector<Encoding> encoded_batch(const PretrainedTokenizer& tokenizer, const Json& record,
                                    const BatchOptions& options) {
  const auto texts = record["texts"].get<std::vector<std::string>>();
  if (!record.contains("pairs")) return tokenizer.encode_batch(texts, options);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& text : texts) pairs.emplace_back(text, record["pairs"][pairs.size()]);
  return tokenizer.encode_pair_batch(pairs, options);
}

Encoding encoded_text(const PretrainedTokenizer& tokenizer, const Json& record,
                      const EncodeOptions& options) {
  const auto text = record["text"].get<std::string>();
  if (!record.contains("pair")) return tokenizer.encode_text(text, options);
  return tokenizer.encode_pair(text, record["pair"].get<std::string>(), options);
}

// Whether a call does what Python did; without offsets, all but the offsets.
template <class Encode>
bool agrees(const Json& expected, Encode encode) {
  if (expected.is_null()) return value_error([&] { (void)encode(true); }).find("trunca") != std::string::npos;
  std::vector<Encoding> wanted;
  if (expected.is_array()) {
    for (const auto& one : expected) wanted.push_back(encoding_of(one));
  } else {
    wanted.push_back(encoding_of(expected));
  }
  if (encode(true) != wanted) return false;
  for (auto& one : wanted) one.offsets.clear();
  return encode(false) == wanted;
}

size_t count_different_encodings(const PretrainedTokenizer& of_file, const Json& records) {
  size_t count = 0;
  for (const auto& record : records) {
    const auto tokenizer = record.contains("limits") ? with_limits(of_file, record["limits"]) : of_file;
    const bool special = record["special"];
    const bool same = record.contains("texts")
                          ? agrees(record["encodings"],
                                   [&](bool offsets) {
                                     return encoded_batch(
                                         tokenizer, record,
                                         {.add_special_tokens = special, .offsets = offsets, .threads = 2});
                                   })
                          : agrees(record["encoding"], [&](bool offsets) {
                              return std::vector{encoded_text(
                                  tokenizer, record, {.add_special_tokens = special, .offsets = offsets})};
                            });
    if (!same && ++count <= 10) UNSCOPED_INFO(record.dump());
  }
  return count;
}

size_t count_variant_differences(const Json& data) {
  size_t count = 0;
  for (const auto& variant : data["variants"]) {
    auto document = data["base"];
    document["normalizer"] = variant["normalizer"];
    document["pre_tokenizer"] = variant["pre_tokenizer"];
    const auto tokenizer = PretrainedTokenizer::parse(document.dump());
    for (size_t i = 0; i < variant["offsets"].size(); ++i) {
      const auto encoding = tokenizer.encode_text(data["strings"][i].get<std::string>());
      if (encoding.ids == variant["ids"][i].get<Ids>() && encoding.offsets == spans_of(variant["offsets"][i]))
        continue;
      if (++count <= 10)
        UNSCOPED_INFO(variant["normalizer"].dump()
                      << variant["pre_tokenizer"].dump() << " of " << data["strings"][i].dump());
    }
  }
  return count;
}

std::string seed_of_tests() {
  const char* const named = std::getenv("ATTENTIVE_TOKENIZER_SEED");
  return named ? named : "4";
}

}  // namespace

TEST_CASE("Offsets, masks, limits and batches equal what Python recorded", "[encoding]") {
  for (const auto& kind : kKinds) {
    CAPTURE(kind);
    const auto records = read_json(tokenizer_data(kind + ".encodings.json"));
    REQUIRE(records.size() == 50);
    CHECK(count_different_encodings(PretrainedTokenizer::load(tokenizer_data(kind + ".json")), records) == 0);
  }
}

TEST_CASE("Offsets, masks, limits and batches equal Python's on 2,000 fresh strings", "[.python]") {
  NEEDS_PYTHON("tokenizers");
  const auto seed = seed_of_tests();
  const TemporaryFolder folder;
  for (const auto& kind : kKinds) {
    CAPTURE(kind, seed);
    const auto file = tokenizer_data(kind + ".json"), out = (folder / "records.json").string();
    run_python("tools/generators/make_tokenizers.py",
               "--encodings 2000 " + seed + " '" + file + "' '" + out + "'");
    const auto records = read_json(out);
    REQUIRE(records.at(0).size() == 2005);
    CHECK(count_different_encodings(PretrainedTokenizer::load(file), records[0]) == 0);
  }
}

TEST_CASE("Offsets of each normalizer and pre-tokenizer equal what Python recorded", "[encoding]") {
  const auto data = read_json(tokenizer_data("variants.json"));
  CHECK(data["variants"][0]["offsets"].size() == 18);
  CHECK(count_variant_differences(data) == 0);
}

TEST_CASE("Offsets of each normalizer and pre-tokenizer equal Python's on 400 fresh strings", "[.python]") {
  NEEDS_PYTHON("tokenizers");
  const TemporaryFolder folder;
  const auto out = (folder / "variants.json").string();
  run_python("tools/generators/make_tokenizers.py", "--variants 400 " + seed_of_tests() + " '" + out + "'");
  const auto data = read_json(out);
  REQUIRE(data["variants"][0]["offsets"].size() == 400);
  CHECK(count_variant_differences(data) == 0);
}

TEST_CASE("Post-processors trim offsets as Python's do", "[encoding]") {
  const auto data = read_json(tokenizer_data("trimmed.json"));
  REQUIRE(data.size() == 22);
  auto document = read_json(tokenizer_data("gpt2.json"));
  for (const auto& row : data) {
    document["pre_tokenizer"] = row["pre_tokenizer"];
    document["post_processor"] = row["post_processor"];
    CAPTURE(row["pre_tokenizer"].dump(), row["post_processor"].dump());
    CHECK(count_different_encodings(PretrainedTokenizer::parse(document.dump()), row["texts"]) == 0);
  }
}

TEST_CASE("The first token keeps its prefix space, unless a special token stands before it", "[encoding]") {
  const auto data = read_json(tokenizer_data("trimmed.json"));
  auto document = read_json(tokenizer_data("gpt2.json"));
  // Without the x, the first token begins where the text does not.
  document["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Removed"}, {"invert", false}},
        data[0]["pre_tokenizer"]}}};
  const auto offsets = [&](const Json& row) {
    document["post_processor"] = row["post_processor"];
    return PretrainedTokenizer::parse(document.dump()).encode_text("x b").offsets;
  };
  // The words of Python's tokenizers.
  CHECK(offsets(data[0]) == Spans{{1, 1}, {2, 3}});
  REQUIRE(data[12]["post_processor"]["processors"][0]["type"] == "BertProcessing");
  CHECK(offsets(data[12]) == Spans{{0, 0}, {2, 2}, {2, 3}, {0, 0}});
}

TEST_CASE("An added token takes no white space that the one before it has", "[encoding]") {
  const auto words = PretrainedTokenizer::load(tokenizer_data("words.json"));
  const auto encoding = words.encode_text("<r>  <l>  <r>");
  CHECK(encoding.ids.size() == 3);
  CHECK(encoding.offsets == Spans{{0, 5}, {5, 8}, {10, 13}});
}

TEST_CASE("An encoding says where its tokens come from", "[encoding]") {
  const auto gpt2 = PretrainedTokenizer::load(tokenizer_data("gpt2.json"));
  const std::string text = "Über 😀!";
  const auto encoding = gpt2.encode_text(text);
  CHECK(encoding.ids == gpt2.encode(text));
  std::string seen;
  int64_t end = 0;
  for (const auto& [begin, stop] : byte_spans(text, encoding.offsets)) {
    CHECK(begin <= end);  // several tokens may spell one character
    seen += text.substr(static_cast<size_t>(std::max(begin, end)),
                        static_cast<size_t>(std::max(stop - std::max(begin, end), int64_t{0})));
    end = stop;
  }
  CHECK(seen == text);
  CHECK(encoding.attention_mask == Ids(encoding.ids.size(), 1));
  CHECK(encoding.special_tokens_mask == Ids(encoding.ids.size(), 0));
  CHECK(gpt2.encode_text("") == Encoding{});
  CHECK(gpt2.encode_text(text, {.offsets = false}).offsets.empty());
}

TEST_CASE("Limits of the caller take the place of the file's", "[encoding]") {
  const auto document = small_document();
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  const std::string text(30, 'b');
  CHECK(tokenizer.encode(text).size() == 20);
  CHECK(tokenizer.with_truncation(std::nullopt).encode(text).size() == 30);
  const auto shorter = tokenizer.with_truncation(TruncationOptions{.max_length = 4});
  CHECK(shorter.encode(text).size() == 4);
  CHECK(shorter.encode_whole(text).size() == 30);
  CHECK(shorter.encode_with_special_tokens(text) == Ids{6, 2, 2, 2});
  CHECK(tokenizer.encode(text).size() == 20);  // not changed by what was made from it
  const auto longer = shorter.with_padding(PaddingOptions{.length = 5, .multiple_of = 4, .id = 3});
  CHECK(longer.encode("b") == Ids{2, 3, 3, 3, 3, 3, 3, 3});
  CHECK(longer.encode(text) == Ids{2, 2, 2, 2, 3, 3, 3, 3});
  CHECK(longer.with_padding(std::nullopt).encode("b") == Ids{2});
}

TEST_CASE("Limits of the caller are written into the file", "[encoding]") {
  const auto document = small_document();
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  CHECK(tokenizer.to_json() == document.dump());
  const auto limited =
      tokenizer
          .with_truncation(TruncationOptions{
              .max_length = 6, .strategy = TruncationStrategy::OnlyFirst, .side = TextSide::Left})
          .with_padding(PaddingOptions{
              .length = 7, .multiple_of = 2, .side = TextSide::Left, .id = 1, .type_id = 2, .token = "a"});
  auto expected = document;
  expected["truncation"] = {
      {"direction", "Left"}, {"max_length", 6}, {"strategy", "OnlyFirst"}, {"stride", 0}};
  expected["padding"] = {{"strategy", {{"Fixed", 7}}}, {"direction", "Left"},
                         {"pad_to_multiple_of", 2},    {"pad_id", 1},
                         {"pad_type_id", 2},           {"pad_token", "a"}};
  CHECK(Json::parse(limited.to_json()) == expected);
  CHECK(limited.to_python_json() == limited.to_json());
  const auto read = PretrainedTokenizer::parse(limited.to_json());
  for (const auto* text : {"", "bab", "bbbbbbbbbb"})
    CHECK(read.encode_text(text) == limited.encode_text(text));

  const auto free = tokenizer.with_truncation(std::nullopt).with_padding(PaddingOptions{});
  expected["truncation"] = nullptr;
  expected["padding"] = {
      {"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 0},
      {"pad_type_id", 0},           {"pad_token", "[PAD]"}};
  CHECK(Json::parse(free.to_json()) == expected);
  // Limits that are not replaced stay as the file has them.
  expected["truncation"] = document["truncation"];
  CHECK(Json::parse(tokenizer.with_padding(PaddingOptions{}).to_json()) == expected);
}

TEST_CASE("Limits that cannot be are refused by name", "[encoding]") {
  const auto tokenizer = PretrainedTokenizer::parse(small_document().dump());
  const auto truncation = [&](const TruncationOptions& options) {
    return value_error([&] { (void)tokenizer.with_truncation(options); });
  };
  CHECK(truncation({.max_length = -1}) ==
        "PretrainedTokenizer: truncation.max_length: expected an integer from 0 to 2147483647, got -1");
  CHECK(truncation({.max_length = 0}) ==
        "PretrainedTokenizer: truncation.max_length: expected room for the 1 special tokens, got 0");
  CHECK(truncation({.strategy = static_cast<TruncationStrategy>(3)}) ==
        "PretrainedTokenizer: truncation.strategy: expected a strategy, got 3");
  CHECK(truncation({.side = static_cast<TextSide>(2)}) ==
        "PretrainedTokenizer: truncation.side: expected a side, got 2");
  const auto padding = [&](const PaddingOptions& options) {
    return value_error([&] { (void)tokenizer.with_padding(options); });
  };
  CHECK(padding({.length = -1}) ==
        "PretrainedTokenizer: padding.length: expected an integer from 0 to 16777216, got -1");
  CHECK(padding({.length = (1 << 24) + 1}).ends_with("got 16777217"));
  CHECK(padding({.multiple_of = 0}) ==
        "PretrainedTokenizer: padding.multiple_of: expected an integer from 1 to 16777216, got 0");
  CHECK(padding({.side = static_cast<TextSide>(-1)}) ==
        "PretrainedTokenizer: padding.side: expected a side, got -1");
  CHECK(padding({.id = -2}) ==
        "PretrainedTokenizer: padding.id: expected an integer from 0 to 2147483647, got -2");
  CHECK(padding({.type_id = -2}) ==
        "PretrainedTokenizer: padding.type_id: expected an integer from 0 to 2147483647, got -2");
  CHECK(padding({.token = "\xFF"}) == "PretrainedTokenizer: padding.token: expected text in UTF-8");
}

TEST_CASE("Spans of characters become spans of bytes", "[text_span]") {
  const std::string text = "aé漢😀b";  // 1, 2, 3, 4 and 1 bytes
  CHECK(byte_spans(text, {{0, 5}, {4, 5}, {1, 2}, {2, 4}, {3, 3}, {5, 5}, {0, 0}}) ==
        Spans{{0, 11}, {10, 11}, {1, 3}, {3, 10}, {6, 6}, {11, 11}, {0, 0}});
  CHECK(byte_spans("abc", {{1, 2}, {3, 3}}) == Spans{{1, 2}, {3, 3}});
  CHECK(byte_spans("", {{0, 0}}) == Spans{{0, 0}});
  CHECK(byte_spans(text, {}).empty());
}

TEST_CASE("A span that is not in the text is refused with its place", "[text_span]") {
  const auto refused = [](std::string_view text, const TextSpan& span) {
    return value_error([&] { (void)byte_spans(text, {{0, 0}, span}); });
  };
  CHECK(refused("é", {0, 2}) == "byte_spans: expected spans of a text of 1 characters, got [0, 2) at 1");
  CHECK(refused("ab", {-1, 1}) == "byte_spans: expected spans of a text of 2 characters, got [-1, 1) at 1");
  CHECK(refused("ab", {2, 1}) == "byte_spans: expected spans of a text of 2 characters, got [2, 1) at 1");
  CHECK(refused("a\xFF", {0, 1}) == "byte_spans: expected text in UTF-8, got a bad byte at offset 1");
}

namespace {

std::vector<std::string> recorded_texts() {
  std::vector<std::string> texts;
  for (const auto& record : read_json(tokenizer_data("qwen.expected.json"))) texts.push_back(record["text"]);
  return texts;
}

PretrainedTokenizer unlimited(const std::string& kind) {
  return PretrainedTokenizer::load(tokenizer_data(kind + ".json"))
      .with_truncation(std::nullopt)
      .with_padding(std::nullopt);
}

}  // namespace

TEST_CASE("A batch on any number of threads is what its texts are one by one", "[encoding_batch]") {
  const auto texts = recorded_texts();
  for (const auto* kind : {"llama3", "bert_cased", "words", "word_level"}) {
    CAPTURE(kind);
    const auto tokenizer = unlimited(kind);
    std::vector<Encoding> expected;
    for (const auto& text : texts) expected.push_back(tokenizer.encode_text(text));
    for (const int64_t threads : {0, 1, 2, 3, 8, 500}) {
      CAPTURE(threads);
      CHECK(tokenizer.encode_batch(texts, {.threads = threads}) == expected);
    }
  }
  CHECK(unlimited("gpt2").encode_batch({}).empty());
}

TEST_CASE("A batch of pairs is what the pairs are one by one", "[encoding_batch]") {
  const auto texts = recorded_texts();
  const auto tokenizer = unlimited("roberta");
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<Encoding> expected;
  for (size_t i = 0; i + 1 < texts.size(); ++i) {
    pairs.emplace_back(texts[i], texts[i + 1]);
    expected.push_back(tokenizer.encode_pair(texts[i], texts[i + 1]));
  }
  CHECK(tokenizer.encode_pair_batch(pairs, {.threads = 3}) == expected);
}

TEST_CASE("Padding without a length is up to the longest text of the batch", "[encoding_batch]") {
  const auto tokenizer =
      unlimited("word_level").with_padding(PaddingOptions{.multiple_of = 4, .side = TextSide::Left});
  const std::vector<std::string> texts = {"", "a b c d e f", "a"};
  const auto batch = tokenizer.encode_batch(texts, {.threads = 2});
  REQUIRE(batch.size() == 3);
  for (const auto& encoding : batch) {
    CHECK(encoding.ids.size() == 8);
    CHECK(encoding.type_ids.size() == 8);
    CHECK(encoding.offsets.size() == 8);
    CHECK(encoding.special_tokens_mask.size() == 8);
    CHECK(encoding.attention_mask.size() == 8);
  }
  CHECK(batch[0].attention_mask == std::vector<int64_t>(8, 0));
  CHECK(batch[2].attention_mask == std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(tokenizer.encode_text("a").ids.size() == 4);  // by itself it is a batch of one
}

TEST_CASE("A batch has the error of its first bad text", "[encoding_batch]") {
  const auto tokenizer = unlimited("gpt2");
  std::vector<std::string> texts(200, "some words of a text that takes a while");
  for (const size_t bad : {199, 120, 77, 76, 3}) {
    texts[bad] = "a\xFF";
    for (const int64_t threads : {1, 2, 8}) {
      CAPTURE(bad, threads);
      CHECK(value_error([&] { (void)tokenizer.encode_batch(texts, {.threads = threads}); }) ==
            "PretrainedTokenizer: texts[" + std::to_string(bad) +
                "]: expected text in UTF-8, got a bad byte at offset 1");
    }
  }
  CHECK(value_error([&] { (void)tokenizer.encode_batch({"a"}, {.threads = -1}); }) ==
        "PretrainedTokenizer: threads: expected 0 or more, got -1");
}

TEST_CASE("The error of the first text stays, whichever thread comes last", "[encoding_batch]") {
  for (const size_t last : {0, 1}) {
    CAPTURE(last);
    std::atomic<int> started{0};
    std::atomic<bool> other_failed{false};
    try {
      tokenizers::for_each_text(2, 2, [&](size_t, size_t text) {
        ++started;
        while (started < 2) std::this_thread::yield();
        if (text == last) {
          while (!other_failed) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other one is reported by then
        }
        other_failed = true;
        refuse("text {}", text);
      });
      FAIL("no error");
    } catch (const Refusal& refusal) {
      CHECK(std::string(refusal.what()) == "texts[0]: text 0");
    }
  }
}

TEST_CASE("A batch of more words than are remembered is what its texts are one by one", "[encoding_batch]") {
  const auto tokenizer = unlimited("gpt2");
  std::vector<std::string> texts;
  std::vector<Encoding> expected;
  for (int text = 0, word = 100'000; text < 260; ++text) {
    std::string all;
    for (int i = 0; i < 300; ++i) all += " " + std::to_string(word++);
    texts.push_back(all + ' ' + std::string(300, 'a'));  // a word that is not remembered, too
    expected.push_back(tokenizer.encode_text(texts.back()));
  }
  CHECK((tokenizer.encode_batch(texts, {.threads = 1}) == expected));
}
