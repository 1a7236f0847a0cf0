// The messages of the exercises before anybody has solved them.

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "support/exercise.h"
#include "support/files.h"

using Catch::Matchers::StartsWith;

namespace {

const std::map<int, std::string> kFound = {
    {1, "the weight of v2 is not the transpose of v1's matrix (W_query, d_in = 3, d_out = 2): element "},
    {2,
     "the mask does not show each token itself and what came before. It is\n"
     "4 queries (down), 4 keys (across), batch item 0 of 2\n"
     ". x x x\n. . x x\n. . . x\n. . . .\n"},
    {3, "the weights of a query do not add up to 1 (T = 6): element "},
    {4, "the heads of the first token hold features of other tokens (T = 3, heads = 2): element "},
    {5, "W_key.weight is not the mean over the heads of each group (heads = 4, kv_heads = 1): element "},
    {6, "after 2 tokens the cache does not hold as many keys"},
    {7, "a key that lies further back is not further away: element "},
    {8,
     "the window of left = 2, right = 1 lets queries see other keys than it should. It is\n"
     "5 queries (down), 5 keys (across)\n"
     "x . . . .\nx x . . .\n. x x . .\n. . x x .\n. . . x x\n"},
    {9, "weights are dropped outside training"},
    {10, "the output of two halves of 4 keys: element "},
    {11,
     "the score function does not add the number of the head and the distance (6 queries, 6 keys, heads = 1, "
     "D = 6): element "},
    {12, "one token does not write beta times its value (T = 1): element "},
    {13, "the scores of latents are not those of the keys (heads = 1, L = 1): element "},
};

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(attentive::test::source_folder() + "/exercises/" + file).rdbuf();
  return text.str();
}

// The numbers of the hints on the page of an exercise, which is linked from the index.
std::vector<int> hints_of(int number) {
  const auto index = text_of("README.md");
  const std::regex link("\\((" + std::string(number < 10 ? "0" : "") + std::to_string(number) +
                        "_\\w+/README\\.md)\\)");
  std::smatch page;
  if (!std::regex_search(index, page, link)) return {};
  const auto hints = text_of(page[1]);
  const std::regex summary("<summary>Hint (\\d)</summary>");
  std::vector<int> numbers;
  for (std::sregex_iterator hint(hints.begin(), hints.end(), summary), end; hint != end; ++hint)
    numbers.push_back(std::stoi((*hint)[1]));
  return numbers;
}

}  // namespace

TEST_CASE("every gap fails by its own message and leads to the first hint", "[exercises]") {
  CHECK(exercises::all().size() == kFound.size());
  for (const auto& exercise : exercises::all()) {
    INFO("exercise " << exercise.number
                     << "; if it was solved here, `git checkout exercises` brings the gap back");
    const auto not_yet = exercises::run(exercise);
    REQUIRE(not_yet.has_value());
    CHECK_THAT(not_yet->found, StartsWith(kFound.at(exercise.number)));
    CHECK(not_yet->hint == 1);
  }
}

TEST_CASE("every exercise has three hints on its page, and the index leads to it", "[exercises]") {
  for (const auto& exercise : exercises::all()) {
    INFO("exercise " << exercise.number);
    CHECK(hints_of(exercise.number) == std::vector<int>{1, 2, 3});
  }
}

TEST_CASE("an error of an exercise's code is found, not passed on", "[exercises]") {
  const auto of_torch = exercises::run({0, [] { at::Tensor().add(1); }});
  REQUIRE(of_torch.has_value());
  CHECK_THAT(of_torch->found, StartsWith("the code ended in an error: "));
  const auto other = exercises::run({0, [] { throw std::out_of_range("far"); }});
  REQUIRE(other.has_value());
  CHECK(other->found == "the code ended in an error: far");
}
