#include "tokenizers/regex.h"

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "support/errors.h"
#include "support/refusal.h"

using namespace attentive;
using namespace attentive::tokenizers;
using attentive::test::refusal_of;

namespace {

std::string refused_pattern(std::string_view pattern) {
  return refusal_of([&] { return Regex(pattern); });
}

std::vector<std::string> all_matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> all;
  Regex(pattern).find_all(
      text, [&](size_t begin, size_t end) { all.emplace_back(text.substr(begin, end - begin)); });
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("A pattern means in PCRE2 what it means in Oniguruma", "[regex]") {
  CHECK(all_matches(R"(\s)", "a\u180Eb\u0085c\u3000") == Texts{"\u0085", "\u3000"});
  CHECK(all_matches(R"([^\s])", "\u180E ") == Texts{"\u180E"});
  CHECK(all_matches(R"(\w+)", "q\u0301_1\u216B\u00BD\u24B6 \u2074") == Texts{"q\u0301_1\u216B\u00BD\u24B6"});
  CHECK(all_matches(R"([\w]+)", "q\u0301_1\u216B\u00BD\u24B6") ==
        Texts{"q\u0301_1\u216B", "\u24B6"});  // a half is none
  CHECK(all_matches(R"(\W)", "\u00BDa ") == Texts{" "});
  CHECK(all_matches(R"([^\w])", "\u00BDa") == Texts{"\u00BD"});
  CHECK(all_matches(R"(\d+)", "12\u0663\u00B2") == Texts{"12\u0663"});
  CHECK(all_matches(R"(\v)", "\v\n") == Texts{"\v"});
  CHECK(all_matches(R"(.)", "\r\n\u2028") == Texts{"\r", "\u2028"});
  CHECK(all_matches(R"(\p{Han}+)", "\u4E2D\u3001\u6587") ==
        Texts{"\u4E2D", "\u6587"});  // U+3001 is used with Han only
  CHECK(all_matches(R"((?i:'s))", "'S 'ſ") == Texts{"'S", "'ſ"});
  CHECK(all_matches(R"(\u0041|\x42|\x{1F600})", "AB\U0001F600") == Texts{"A", "B", "\U0001F600"});
  CHECK(all_matches("a*", "baac") == Texts{"", "aa", ""});
}

TEST_CASE("Classes hold classes, and what is in two of them", "[regex]") {
  CHECK(all_matches(R"([^(\s|[.,!]]+)", "a[b(c|d.e f]g") == Texts{"a[b", "c", "d", "e", "f]g"});  // BLOOM's
  CHECK(all_matches(R"([a[^\x00-z]]+)", "ab~é") == Texts{"a", "~é"});
  CHECK(all_matches(R"([^a[^a-d]]+)", "abcde") == Texts{"bcd"});
  CHECK(all_matches(R"([\p{L}&&[^\p{Han}]]+)", "a中b文1") == Texts{"a", "b"});  // Kimi K2's
  CHECK(all_matches(R"([^\p{L}&&[^\p{Han}]]+)", "a中b文1") == Texts{"中", "文1"});
  CHECK(all_matches(R"([a-f&&c-z&&[^e]]+)", "abcdefg") == Texts{"cd", "f"});
  CHECK(all_matches("[a[b-d&&c-e]]+", "abcde") == Texts{"a", "cd"});
  CHECK(all_matches(R"([\S]+)", "a b\u3000c") == Texts{"a", "b", "c"});
  CHECK(all_matches(R"([^\W\d]+)", "a1 _é") == Texts{"a", "_é"});
  CHECK(all_matches(R"([\D&&\w]+)", "a1-b") == Texts{"a", "b"});
  CHECK(all_matches(R"((?<=[\p{L}&&[^x]])1)", "x1a1") == Texts{"1"});
  CHECK(all_matches("[a-]+", "a-b") == Texts{"a-"});
  CHECK(all_matches("[[a-]c]+", "a-bc") == Texts{"a-", "c"});  // no range from a to c
  CHECK(all_matches("[^a]", "\n") == Texts{"\n"});
  CHECK(all_matches("[^a[^\\n]]", "\na") == Texts{"\n"});
  CHECK(all_matches("[é-í]+", "èéêí") == Texts{"éêí"});
  CHECK(all_matches("[^:a:]+", ":b:") == Texts{"b"});
  CHECK(all_matches("[:a:]+", "b:a") == Texts{":a"});  // no POSIX bracket
}

TEST_CASE("Syntax of which the two have different ideas is refused", "[regex]") {
  const auto said = [](const std::string& what) {
    return what + " in a regular expression is not supported";
  };
  CHECK(refused_pattern("^a") == said("the anchor ^"));
  CHECK(refused_pattern("a$") == said("the anchor $"));
  CHECK(refused_pattern(R"(\ba)") == said(R"(\b)"));
  CHECK(refused_pattern(R"(\h)") == said(R"(\h)"));
  CHECK(refused_pattern(R"((a)\1)") == said(R"(\1)"));
  CHECK(refused_pattern("[[:alpha:]]") == said("a POSIX bracket"));
  CHECK(refused_pattern("[a&&]") == said("a class with an empty side of &&"));
  CHECK(refused_pattern("[&&a]") == said("a class with an empty side of &&"));
  CHECK(refused_pattern("[[]a]") == said("a class that begins with ]"));
  CHECK(refused_pattern(R"([a-\d])") == said("a range that ends in a class"));
  CHECK(refused_pattern("[a-[b]]") == said("a range that ends in a class"));
  CHECK(refused_pattern("[a-c-e]") == said("a - behind a range or a class"));
  CHECK(refused_pattern(R"([\d-e])") == said("a - behind a range or a class"));
  CHECK(refused_pattern(std::string(100'000, '[')) == said("a class in so many others"));
  CHECK(refused_pattern("[]a]") == said("a class that begins with ]"));
  CHECK(refused_pattern("(?i)a") == said("(?i"));
  CHECK(refused_pattern("(*UTF)a") == said("(*"));
  CHECK(refused_pattern("(?i:ss)") == said("what follows (?i:"));
  CHECK(refused_pattern("(?i:é)") == said("what follows (?i:"));
  CHECK(refused_pattern("a{2}+") == said("a repetition after }"));
  CHECK(refused_pattern("a{,2}") == said("a { that is no repetition"));
  CHECK(refused_pattern(R"(\p{^L})") == said("a property with a sign in it"));
  CHECK(refused_pattern(R"(\pL)") == said("\\p without {}"));
  CHECK(refused_pattern(R"(\xE9)") == said("\\x of a byte"));
  CHECK(refused_pattern(R"(\x{})") == said("\\x without hexadecimal digits"));
  CHECK(refused_pattern("a)") == "the regular expression has a ) too many");
  CHECK(refused_pattern("[a") == "the regular expression ends too early");
  CHECK(refused_pattern("(a").starts_with(
      "the regular expression (a does not compile: missing closing parenthesis"));
  CHECK(refused_pattern(R"(\p{Nonsense})").find("does not compile: ") != std::string::npos);
}

TEST_CASE("A pattern that tries every way to match ends in an error", "[regex]") {
  const std::string text = std::string(60, 'a') + "b";
  try {
    (void)all_matches(R"((?:a|\p{Ll})*[cd])", text);
    FAIL("it ended");
  } catch (const Refusal& refusal) {
    CHECK(std::string(refusal.what()).find("gave up at byte 0: match limit exceeded") != std::string::npos);
  }
}
