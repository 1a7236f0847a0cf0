#include <fstream>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/viz/write_page.h>

#include "support/errors.h"
#include "support/shell.h"
#include "support/temporary_folder.h"
#include "viz/recorded.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Parses a picture with Python's XML parser (expat) and returns the texts of its labels, one per line. Throws
// unless it is well-formed.
std::string parsed(const std::string& svg) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.svg", std::ios::binary) << svg;
  std::ofstream(folder / "read.py")
      << "import sys, xml.etree.ElementTree as tree\n"
         "for text in tree.parse(sys.argv[1]).iter('{http://www.w3.org/2000/svg}text'):\n"
         "    sys.stdout.buffer.write(((text.text or '') + '\\n').encode())\n";
  return run_in_shell("'" ATTENTIVE_PYTHON "' '" + (folder / "read.py").string() + "' '" +
                      (folder / "a.svg").string() + "'");
}

AttentionView causal(int64_t tokens) {
  return attention_view(
      recorded(at::randn({1, 3, tokens, 4}), at::randn({1, 3, tokens, 4}), {.causal = Causal::BottomRight}));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto place = text.find(part); place != std::string::npos; place = text.find(part, place + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a picture is well-formed XML, whatever the texts are", "[viz]") {
  auto view = causal(8);
  view.key_tokens = {"</text>", "a&b\"'", "\x01\x1f\t", "\xff\xc3", "مرحبا", "👍🏽", "\xEF\xBF\xBF", ""};
  view.query_tokens = view.key_tokens;
  view.query_tokens[7] = "a long text of more than sixteen characters";
  const auto texts = parsed(to_svg(view, {.title = "<t> & \"u\""}));
  for (const auto* text : {"<t> & \"u\"", "</text>", "a&b\"'", "␁␟␉", "‹FF›‹C3›", "مرحبا", "👍🏽", "�",
                           "a long text of …", "hidden"}) {
    INFO(text);
    CHECK(texts.find(std::string(text) + "\n") != std::string::npos);
  }
}

TEST_CASE("hidden keys are hatched, and visible ones of weight 0 are not", "[viz]") {
  AttentionView view{
      .path = "by hand", .weights = at::tensor({1.0F, 0.0F, 0.5F, 0.5F}).view({1, 2, 2}), .heads = {4}};
  const auto all = to_svg(view);
  CHECK(count(all, "class=\"hidden\"") == 0);
  CHECK(count(all, ">hidden<") == 0);  // the legend lists only what occurs
  view.visible = at::tensor({1, 0, 1, 1}).view({1, 2, 2}).to(at::kBool);
  const auto masked = to_svg(view);
  // One cell, of column 1 and row 0; cells are 24 wide.
  CHECK(
      masked.find("<path class=\"hidden\" fill=\"url(#hidden)\" d=\"M49.80 53.80h24.00v24.00h-24.00z\"/>") !=
      std::string::npos);
  CHECK(count(masked, ">hidden<") == 1);
  CHECK(parsed(masked).starts_with("by hand, head 4\n"));
}

TEST_CASE("the largest weight is the darkest, and the scale names it", "[viz]") {
  AttentionView view{
      .path = "p", .weights = at::tensor({0.25F, 0.0F, 0.125F, 0.25F}).view({1, 2, 2}), .heads = {0}};
  const auto svg = to_svg(view);
  CHECK(svg.find("<path fill=\"#08306b\" d=\"M0 0h1v1h-1zM1 1h1v1h-1z\"/>") != std::string::npos);
  CHECK(svg.find("<path fill=\"#f7fbff\" d=\"M1 0h1v1h-1z\"/>") != std::string::npos);
  CHECK(parsed(svg).find("\n0.25\n") != std::string::npos);
}

TEST_CASE("a picture is of the head that is asked for", "[viz]") {
  const auto call = recorded(at::randn({1, 3, 5, 4}), at::randn({1, 3, 5, 4}));
  const auto view = attention_view(call, {.heads = {2, 0}});
  CHECK(to_svg(view) == to_svg(view, {.head = 2}));
  CHECK(to_svg(view, {.head = 0, .title = "t"}) == to_svg(attention_view(call), {.head = 0, .title = "t"}));
  CHECK(to_svg(view, {.head = 0, .title = "t"}) != to_svg(view, {.head = 2, .title = "t"}));
  CHECK(value_error([&] { to_svg(view, {.head = 1}); }) ==
        "write_svg: call 0: expected one of the heads [2, 0], got 1");
}

TEST_CASE("a picture of 256 tokens is drawn, and of more refused", "[viz]") {
  parsed(to_svg(causal(256)));
  CHECK(value_error([] { to_svg(causal(257)); }) ==
        "write_svg: call 0: expected at most 256 queries and keys, got 257 and 257; take fewer tokens, or "
        "write_html");
  const auto view = [](int64_t queries, int64_t keys) {
    return attention_view(recorded(at::randn({1, 1, queries, 4}), at::randn({1, 1, keys, 4})));
  };
  CHECK(value_error([&] { to_svg(view(3, 257)); }).find("got 3 and 257") != std::string::npos);
  CHECK(value_error([&] { to_svg(view(257, 3)); }).find("got 257 and 3") != std::string::npos);
}

TEST_CASE("one token, and queries that see nothing, are drawn", "[viz]") {
  parsed(to_svg(causal(1)));
  AttentionView view{.path = "p",
                     .weights = at::full({1, 2, 2}, 0.0F),
                     .visible = at::full({1, 1, 1}, false, at::kBool),
                     .heads = {0}};
  CHECK(count(parsed(to_svg(view)), "nan") == 0);
}

TEST_CASE("write_svg writes what to_svg returns, or says why not", "[viz]") {
  const TemporaryFolder folder;
  const auto view = causal(3);
  write_svg(folder / "a.svg", view);
  std::ifstream file(folder / "a.svg");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == to_svg(view));
  const auto path = folder / "none/a.svg";
  CHECK(value_error([&] {
          write_svg(path, view);
        }).starts_with("write_svg: " + path.string() + ": cannot create a temporary file"));
}
