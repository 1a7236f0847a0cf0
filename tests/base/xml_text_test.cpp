#include <catch2/catch_test_macros.hpp>

#include "base/strings.h"

using namespace attentive;

TEST_CASE("text becomes XML that has no markup of its own", "[xml]") {
  CHECK(xml_text("a<b>&\"c\"'") == "a&lt;b&gt;&amp;&quot;c&quot;'");
  CHECK(xml_text("Grüße, 東京 👍🏽 مرحبا") == "Grüße, 東京 👍🏽 مرحبا");
  CHECK(xml_text("").empty());
}

TEST_CASE("what XML does not have becomes a picture or U+FFFD", "[xml]") {
  for (int code = 0; code < 0x20; ++code) {
    const auto text = xml_text(std::string(1, static_cast<char>(code)));
    CHECK(text == std::string("\xE2\x90") + static_cast<char>(0x80 + code));  // U+2400 + code
  }
  CHECK(xml_text("\x7f") == "␡");
  CHECK(xml_text("a\xff\xc3(\xed\xa0\x80") == "a��(���");
  CHECK(xml_text("\xEF\xBF\xBE\xEF\xBF\xBF") == "��");
}

TEST_CASE("a long text is cut between its characters", "[xml]") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "ab…");
  CHECK(shortened("東京都庁", 3) == "東京…");
  CHECK(shortened("\xff\xff\xff", 2) == "\xff…");
  CHECK(shortened("", 3).empty());
}
