#include <random>

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "tokenizers/models.h"

using namespace attentive;
using namespace attentive::tokenizers;

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
