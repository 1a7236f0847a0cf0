#include <atomic>
#include <chrono>
#include <thread>

#include <catch2/catch_test_macros.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/refusal.h"
#include "support/errors.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;

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
