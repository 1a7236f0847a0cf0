#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/write_page.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/shell.h"
#include "viz/page_reader.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Two batch items; four heads, of which pairs share a key head; three queries at the end of five keys.
RecordedAttention grouped(at::ScalarType type = at::kFloat) {
  at::manual_seed(1);
  const auto q = at::randn({2, 4, 3, 8}).to(type), k = at::randn({2, 2, 5, 8}).to(type);
  return recorded(q, k, {.causal = Causal::BottomRight}, Mask::key_lengths(at::tensor({5, 4})));
}

}  // namespace

TEST_CASE("a view holds the weights, hidden keys and logsumexp of its batch item", "[viz]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto call = grouped(type);
    for (const int64_t batch : {0, 1}) {
      const auto view = attention_view(call, {.batch = batch});
      INFO(c10::toString(type) << ", item " << batch);
      CHECK(view.path == "call 0");
      CHECK(view.batch == batch);
      CHECK(view.heads == std::vector<int64_t>{0, 1, 2, 3});
      CHECK(view.weights.scalar_type() == at::kFloat);
      CHECK_CLOSE(view.weights, call.weights()[batch].to(at::kFloat));
      CHECK_CLOSE(view.logsumexp, call.logsumexp()[batch].to(at::kFloat));
      CHECK(view.visible.expand({4, 3, 5}).equal(call.visible()[batch]));
      CHECK(view.visible.size(0) == 1);  // stored once for all heads
      CHECK(view.key_origin == 2);
    }
  }
}

TEST_CASE("a view shows the chosen heads in their order, each with its own hidden keys", "[viz]") {
  const auto keep = at::rand({1, 4, 3, 5}).gt(0.4);
  const auto call = recorded({1, 4, 3, 8}, {1, 4, 5, 8}, {}, Mask::keep(keep));
  const auto view = attention_view(call, {.heads = {3, 1}});
  CHECK(view.heads == std::vector<int64_t>{3, 1});
  for (const int64_t place : {0, 1}) {
    const auto head = view.heads[static_cast<size_t>(place)];
    CHECK_CLOSE(view.weights[place], call.weights(head)[0]);
    CHECK_CLOSE(view.logsumexp[place], call.logsumexp(head)[0]);
    CHECK(view.visible[place].equal(keep[0][head]));
  }
}

TEST_CASE("the keys' axis begins where the call's alignment says", "[viz]") {
  const auto q = at::randn({1, 1, 2, 4}), k = at::randn({1, 1, 5, 4});
  CHECK(attention_view(recorded(q, k, {.causal = Causal::BottomRight})).key_origin == 3);
  CHECK(attention_view(recorded(q, k, {.window = {1, 1}})).key_origin == 3);
  CHECK(attention_view(recorded(q, k, {.causal = Causal::TopLeft})).key_origin == 0);
  CHECK(attention_view(recorded(q, k)).key_origin == 0);  // cross-attention
}

TEST_CASE("the texts of a view are those of queries and keys", "[viz]") {
  const auto call = grouped();
  const auto cached = attention_view(call, {.tokens = {"a", "b", "c", "d", "e"}});
  CHECK(cached.key_tokens == std::vector<std::string>{"a", "b", "c", "d", "e"});
  CHECK(cached.query_tokens == std::vector<std::string>{"c", "d", "e"});
  const auto crossed =
      attention_view(call, {.tokens = {"x", "y", "z"}, .key_tokens = {"a", "b", "c", "d", "e"}});
  CHECK(crossed.query_tokens == std::vector<std::string>{"x", "y", "z"});
  CHECK(crossed.key_tokens == cached.key_tokens);
  CHECK(attention_view(call).key_tokens.empty());
  CHECK(value_error([&] {
          attention_view(call, {.tokens = {"a", "b"}});
        }) == "attention_view: call 0: expected tokens for 5 keys, got 2");
  CHECK(value_error([&] {
          attention_view(call, {.tokens = {"a", "b"}, .key_tokens = cached.key_tokens});
        }) == "attention_view: call 0: expected tokens for 3 queries, got 2");
  CHECK(value_error([&] { attention_view(call, {.key_tokens = {"a"}}); }) ==
        "attention_view: call 0: expected key_tokens for 5 keys, got 1");
  const auto longer = recorded({1, 1, 3, 4}, {1, 1, 2, 4});
  CHECK(value_error([&] {
          attention_view(longer, {.tokens = {"a", "b"}});
        }) == "attention_view: call 0: expected key_tokens beside tokens for 3 queries and 2 keys");
}

TEST_CASE("neurons are the numbers that the scores are made of", "[viz]") {
  at::manual_seed(2);
  const auto call = recorded({2, 4, 3, 8}, {2, 2, 5, 8}, {.scale = 0.7});
  const auto view = attention_view(call, {.neurons = {1, 2}, .batch = 1});
  REQUIRE(view.neurons.size() == 2);
  for (const auto& neurons : view.neurons) {
    CHECK(neurons.scale == 0.7);
    CHECK(neurons.q.sizes() == at::IntArrayRef{3, 8});
    const auto scores = neurons.scale * neurons.q.mm(neurons.k.t());
    CHECK_CLOSE(at::softmax(scores, 1), view.weights[neurons.head]);
  }
}

TEST_CASE("linear attention has no logsumexp", "[viz]") {
  AttentionRecorder recorder;
  const auto q = at::randn({1, 2, 4, 8}), k = at::randn({1, 2, 4, 8}), v = at::randn({1, 2, 4, 8});
  linear_attention(q, k, v, {.causal = Causal::BottomRight});
  const auto view = attention_view(recorder.calls().at(0));
  CHECK(view.linear);
  CHECK_FALSE(view.logsumexp.defined());
  CHECK_CLOSE(view.weights, recorder.calls().at(0).weights()[0]);
}

TEST_CASE("views are normal tensors without a history, in any mode of the caller", "[viz]") {
  const c10::InferenceMode mode;
  const auto view = attention_view(recorded({1, 1, 2, 4}, {1, 1, 2, 4}));
  CHECK_FALSE(view.weights.is_inference());
  CHECK_FALSE(view.weights.requires_grad());
}

TEST_CASE("a view that cannot be made is refused by name", "[viz]") {
  const auto call = grouped();
  CHECK(value_error([&] { attention_view(call, {.heads = {4}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got 4");
  CHECK(value_error([&] { attention_view(call, {.heads = {-1}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got -1");
  CHECK(value_error([&] {
          attention_view(call, {.heads = {1, 1}});
        }) == "attention_view: call 0: expected heads that are named once, got [1, 1]");
  CHECK(value_error([&] { attention_view(call, {.heads = {0}, .neurons = {1}}); }) ==
        "attention_view: call 0: expected neurons of a head that is shown, got those of head 1");
  CHECK(value_error([&] { attention_view(call, {.neurons = {7}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got 7");
  CHECK(value_error([&] { attention_view(call, {.batch = 2}); }) ==
        "attention_view: call 0: expected a batch item in [0, 2), got 2");
  CHECK(value_error([&] { attention_view(call, {.image = PatchImage{.rows = 2, .columns = 3}}); }) ==
        "attention_view: call 0: expected 5 tokens, got an image of 2 x 3 patches and 1 before them");
  CHECK(value_error([&] { attention_views(std::vector<RecordedAttention>{}); }) ==
        "attention_views: expected at least one recorded call, got none");
  CHECK(value_error([&] { attention_view(RecordedAttention{}); }).starts_with("attention_view: expected q"));
}

TEST_CASE("weights that no picture shows are refused with their head and query", "[viz]") {
  auto q = at::randn({1, 3, 4, 8});
  q[0][1][2].fill_(NAN);
  const auto call = recorded(q, at::randn({1, 3, 4, 8}));
  CHECK(value_error([&] { attention_view(call); }) ==
        "attention_view: call 0, head 1: expected finite weights that are not negative, got nan of query 2 "
        "for key 0");
  CHECK(attention_view(call, {.heads = {2, 0}}).weights.size(0) == 2);
}

TEST_CASE("the views of a model are named by its modules, of several calls by their numbers", "[viz]") {
  MultiHeadAttention mha(8, 8, 6, 0.0, 2);
  AttentionRecorder recorder(*mha);
  mha->forward(at::rand({1, 4, 8}));
  CHECK(attention_views(recorder).at(0).path == "(root)");
  mha->forward(at::rand({1, 4, 8}));
  const auto views = attention_views(recorder, {.heads = {1}});
  REQUIRE(views.size() == 2);
  CHECK(views[0].path == "(root), call 0");
  CHECK(views[1].path == "(root), call 1");
  CHECK(views[1].heads == std::vector<int64_t>{1});

  AttentionRecorder all;
  const auto ends = at::tensor({0, 2, 5}, at::kInt);
  const auto packed = at::randn({5, 1, 4});
  attention_varlen(packed, packed, packed, ends, ends);
  CHECK(attention_views(all).at(1).path == all.calls().at(1).path + ", sequence 1");
}

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
  return attention_view(recorded({1, 3, tokens, 4}, {1, 3, tokens, 4}, {.causal = Causal::BottomRight}));
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
  const auto call = recorded({1, 3, 5, 4}, {1, 3, 5, 4});
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
    return attention_view(recorded({1, 1, queries, 4}, {1, 1, keys, 4}));
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
