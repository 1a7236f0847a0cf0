#include <fstream>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "support/errors.h"
#include "support/files.h"
#include "train/token_file_header.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::kText;
using attentive::test::value_error;

namespace {

LanguageModel small_language() {
  const auto tokenizer = CharTokenizer::train(kText);
  at::manual_seed(1);
  return {.model = GPT(GPTOptions(tokenizer.vocab_size(), 8, 12, 3, 1).dropout(0.2)),
          .tokenizer = std::make_unique<CharTokenizer>(tokenizer)};
}

// Trains for a few steps and returns the checkpoint; `each` is called after every step.
template <class Each>
Checkpoint trained(Each each) {
  const auto language = small_language();
  const auto tokens = tokenize(kText, *language.tokenizer, 1.0).training;
  auto options = test::small();
  options.steps = 6;
  Trainer trainer(language.model.ptr(), language_model_loss(language.model), tokens, {}, options);
  while (trainer.steps_done() < options.steps) {
    trainer.step();
    each(language);
  }
  CHECK(language.model.module().is_training());
  return trainer.checkpoint();
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A tokenizer of characters, some of which are special tokens without a text.
class Marked final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return letters_.vocab_size(); }
  std::vector<int64_t> encode(std::string_view text) const override { return letters_.encode(text); }
  std::vector<int64_t> encode_with_special_tokens(std::string_view text) const override {
    auto ids = encode(text);
    ids.insert(ids.begin(), 0);
    return ids;
  }
  bool is_special(int64_t id) const override { return id == 0; }
  std::string_view bytes(int64_t id) const override { return letters_.bytes(id); }
  std::string to_json() const override { return letters_.to_json(); }

 private:
  CharTokenizer letters_ = CharTokenizer::train(kText);
};

}  // namespace

TEST_CASE("Texts while training change no bit of it", "[text_samples]") {
  std::vector<std::string> texts;
  const auto alone = trained([](const LanguageModel&) {});
  const auto watched = trained([&](const LanguageModel& language) {
    texts.push_back(sample_text(language, {.prompt = "the ", .tokens = 20, .seed = 5}));
  });
  CHECK(test::equal(alone, watched));
  REQUIRE(texts.size() == 6);
  for (const auto& text : texts) {
    CHECK(text.starts_with("the "));
    CHECK(text.size() == 24);  // more than the context
  }
  CHECK(texts.front() != texts.back());
}

TEST_CASE("A text depends on the model, the prompt and the seed, and shows no special tokens",
          "[text_samples]") {
  auto language = small_language();
  const TextSampleOptions sampling{.prompt = "sat", .tokens = 30, .seed = 7};
  const auto plain = sample_text(language, sampling);
  CHECK(sample_text(language, sampling) == plain);
  CHECK(sample_text(language, {.prompt = "sat", .tokens = 30, .seed = 8}) != plain);
  language.tokenizer = std::make_unique<Marked>();
  CHECK(sample_text(language, sampling).find(std::string(language.tokenizer->bytes(0))) == std::string::npos);
  language = small_language();
  for (int64_t id = 0; id < language.tokenizer->vocab_size(); ++id) language.stop_tokens.push_back(id);
  CHECK(sample_text(language, sampling) ==
        plain.substr(0, sampling.prompt.size() + 1));  // the stop token is the last
}

TEST_CASE("Half a character is shown as U+FFFD", "[text_samples]") {
  auto language = small_language();
  language.model = GPT(GPTOptions(256, 8, 12, 3, 1));
  language.tokenizer = std::make_unique<BpeTokenizer>(std::vector<BpeTokenizer::Merge>{});
  const auto text = sample_text(language, {.prompt = "a", .tokens = 60, .sampling = {.temperature = 5}});
  CHECK(is_utf8(text));
  CHECK(text.find("\uFFFD") != std::string::npos);
}

TEST_CASE("A text is what the tokenizer's decoder makes of its tokens", "[text_samples]") {
  // Words with a space in front of each except the first, as decoders of words write them.
  struct Words final : Tokenizer {
    struct Decoder final : StreamingDecoder {
      std::string next_text(int64_t id) override {
        return (std::exchange(first, false) ? "w" : " w") + std::to_string(id);
      }
      std::string last_text() override { return "."; }
      std::string whole_text(std::span<const int64_t> ids) const override {
        Decoder alone;
        std::string text;
        for (const auto id : ids) text += alone.next_text(id);
        return text + alone.last_text();
      }
      bool first = true;
    };
    int64_t vocab_size() const override { return 7; }
    std::vector<int64_t> encode(std::string_view text) const override {
      return {static_cast<int64_t>(text.size())};
    }
    std::string_view bytes(int64_t) const override { return "?"; }
    std::string to_json() const override { return "{}"; }
    std::unique_ptr<StreamingDecoder> streaming_decoder(bool) const override {
      return std::make_unique<Decoder>();
    }
  };
  auto language = small_language();
  language.model = GPT(GPTOptions(7, 8, 12, 3, 1));
  language.tokenizer = std::make_unique<Words>();
  const auto text = sample_text(language, {.prompt = "one", .tokens = 3});
  CHECK(matches("one w* w* w*.", text));
  CHECK(text.size() == 13);
}

TEST_CASE("A prompt that cannot be used is refused", "[text_samples]") {
  auto language = small_language();
  CHECK(value_error([&] { (void)sample_text(language, {.prompt = "Z", .tokens = 0}); }).find("\"Z\"") !=
        std::string::npos);
  CHECK(value_error([&] { (void)sample_text(language, {.prompt = "", .tokens = 0}); }).find("prompt") !=
        std::string::npos);
  language.tokenizer = nullptr;
  language.why_no_tokenizer = "it has none";
  CHECK(value_error([&] { (void)sample_text(language, {.prompt = "a"}); }) ==
        "sample_text: expected a tokenizer, got none: it has none");
}

TEST_CASE("The file of texts forgets the steps that a resumed run repeats", "[text_samples]") {
  const TemporaryFolder folder;
  const auto path = folder / "samples.txt";
  TextSamples samples(path, 0);
  CHECK_FALSE(is_there(path));
  samples.add(10, "one\nstep 99");
  samples.add(20, "two");
  samples.add(30, "");
  CHECK(text_of(path) == "step 10\n    one\n    step 99\nstep 20\n    two\nstep 30\n    \n");
  TextSamples resumed(path, 20);
  resumed.add(25, "again");
  CHECK(text_of(path) == "step 10\n    one\n    step 99\nstep 20\n    two\nstep 25\n    again\n");
  TextSamples fresh(path, 0);
  fresh.add(5, "new");
  CHECK(text_of(path) == "step 5\n    new\n");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"samples.txt"});
  CHECK(value_error([&] { TextSamples(folder.path(), 0); }).starts_with("TextSamples: "));
  TextSamples lost(folder / "none" / "samples.txt", 0);
  CHECK(value_error([&] { lost.add(1, "x"); }).starts_with("TextSamples: " + (folder / "none").string()));
}

using Pieces = std::vector<std::string>;

namespace {

// The pieces of a text; checks their places.
Pieces pieces_of(const std::string& text, size_t most) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text", std::ios::binary) << text;
  TextPieces reader(folder / "text", most);
  CHECK(reader.size() == text.size());
  Pieces pieces;
  uint64_t begin = 0;
  for (auto piece = reader.next(); !piece.empty(); piece = reader.next()) {
    CHECK(reader.begin() == begin);
    begin += piece.size();
    pieces.emplace_back(piece);
  }
  CHECK(reader.next().empty());
  return pieces;
}

template <class T>
std::vector<int64_t> encode_all(const T& tokenizer, const Pieces& pieces) {
  std::vector<int64_t> ids;
  for (const auto& piece : pieces) {
    const auto more = tokenizer.encode(piece);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// A text of words, signs and line ends, with characters of one to four bytes. `odd`: also with stray bytes.
std::string drawn_text(unsigned seed, size_t count, bool odd) {
  std::mt19937 draw(seed);
  static const Pieces parts{"a",    "word",   "7",      ".",          " ",    " ",  "\n",      "\r\n",
                            "\n\n", "\u00e9", "\u20ac", "\U0001f600", "  in", "\t", "e\u0301", "\u3000"};
  static const Pieces stray{"\xff", "\x80", "\xe2\x82", std::string(1, '\0'), "\xf0\x9f"};
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto& from = odd && draw() % 4 == 0 ? stray : parts;
    text += from[draw() % from.size()];
  }
  return text;
}

}  // namespace

TEST_CASE("A text is cut before a line, else before a word, else between characters", "[text_pieces]") {
  CHECK(pieces_of("one\ntwo\nthree\n", 9) == Pieces{"one\ntwo\n", "three\n"});
  CHECK(pieces_of("one\ntwo\n", 8) == Pieces{"one\ntwo\n"});
  // The last line end may belong to the white space of the next piece.
  CHECK(pieces_of("one\ntwo\n", 7) == Pieces{"one\n", "two\n"});
  CHECK(pieces_of("one\ntwo\n\n x", 10) == Pieces{"one\n", "two\n\n x"});
  CHECK(pieces_of("one\r\ntwo\r\n", 9) == Pieces{"one\r\n", "two\r\n"});
  CHECK(pieces_of("one two three", 9) == Pieces{"one two", " three"});
  CHECK(pieces_of("one two  three", 11) == Pieces{"one", " two  three"});
  CHECK(pieces_of("one\ntwo three", 12) == Pieces{"one\n", "two three"});
  CHECK(pieces_of("abcdefghij", 4) == Pieces{"abcd", "efgh", "ij"});
  CHECK(pieces_of("ab\u20ac\u20ac", 4) == Pieces{"ab", "\u20ac", "\u20ac"});
  CHECK(pieces_of("\U0001f600\U0001f601", 4) == Pieces{"\U0001f600", "\U0001f601"});
  CHECK(pieces_of("      ", 4) == Pieces{"    ", "  "});
  CHECK(pieces_of(" abcd", 4) == Pieces{" abc", "d"});
  CHECK(pieces_of("\x80\x80\x80\x80\x80", 4) == Pieces{"\x80\x80\x80\x80", "\x80"});
  CHECK(pieces_of("x", 4) == Pieces{"x"});
  const TemporaryFolder folder;
  std::ofstream(folder / "empty");
  CHECK_THROWS_AS(TextPieces(folder / "empty", 4), Refusal);
  CHECK_THROWS_AS(TextPieces(folder / "none", 4), Refusal);
}

TEST_CASE("Pieces join to their text and are whole characters", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const bool odd = seed % 2 == 1;
    const auto text = drawn_text(seed, 60, odd);
    for (const size_t most : {4U, 5U, 7U, 16U, 40U, 1000U}) {
      const auto pieces = pieces_of(text, most);
      std::string joined;
      for (const auto& piece : pieces) {
        CHECK(piece.size() <= most);
        if (!odd) CHECK(is_utf8(piece));
        joined += piece;
      }
      CHECK(joined == text);
      CHECK((most < text.size()) == (pieces.size() > 1));
    }
  }
}

TEST_CASE("A CharTokenizer gives pieces the ids of the whole text", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto text = drawn_text(seed, 60, seed % 2 == 1);
    const auto tokenizer = CharTokenizer::train(text);
    for (const size_t most : {4U, 5U, 7U, 16U, 40U}) {
      CHECK(encode_all(tokenizer, pieces_of(text, most)) == tokenizer.encode(text));
    }
  }
}

TEST_CASE("A BpeTokenizer gives pieces that end where words do the ids of the whole text", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::string text;
    for (size_t line = 0; line < 12; ++line)
      text += drawn_text(100 * seed + line, 8, seed % 2 == 1) + "x\nend of it";
    const auto tokenizer = BpeTokenizer::train(text, 300);
    for (const size_t most : {64U, 90U, 200U}) {
      CHECK(encode_all(tokenizer, pieces_of(text, most)) == tokenizer.encode(text));
    }
  }
}
