#include <catch2/catch_test_macros.hpp>

#include <attentive/viz/write_page.h>

using namespace attentive;

TEST_CASE("a title is the model's name and the text's first words", "[viz]") {
  CHECK(page_title("gpt2", "To be or not to be") == "gpt2: To be or not to be");
  CHECK(page_title("gpt2", "") == "gpt2");
  CHECK(page_title("", " To\n\tbe ") == "To be");
  CHECK(page_title("", " \n") == "Attention");
  // 48 characters fit; a 49th cuts before the word that it ends.
  const std::string words = "The animal did not cross the street because it w";
  REQUIRE(words.size() == 48);
  CHECK(page_title("", words) == words);
  CHECK(page_title("", words + "as too tired") == "The animal did not cross the street because it …");
  CHECK(page_title("", "Two animals did not cross the street because of it") ==
        "Two animals did not cross the street because …");
  const std::string umlaut = "ä";
  std::string longest, cut;
  for (int i = 0; i < 60; ++i) longest += umlaut;
  for (int i = 0; i < 47; ++i) cut += umlaut;
  CHECK(page_title("", longest) == cut + "…");
}
