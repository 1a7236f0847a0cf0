#include <fstream>
#include <sstream>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "base/files.h"
#include "base/strings.h"
#include "support/errors.h"
#include "support/temporary_folder.h"
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
