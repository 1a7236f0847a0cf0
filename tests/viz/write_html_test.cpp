#include <cmath>
#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <attentive/functional/linear_attention.h>
#include <attentive/viz/head_statistics.h>
#include <attentive/viz/write_page.h>

#include "support/errors.h"
#include "support/files.h"
#include "viz/page_reader.h"

using namespace attentive;
using namespace attentive::test;

namespace {

void check_page(const std::vector<AttentionView>& views) {
  const auto page = page_of(views);
  CHECK(page.data.at("version") == 2);
  for (size_t number = 0; number < views.size(); ++number) {
    const auto& view = views[number];
    const auto& json = page.data.at("views").at(number);
    CHECK(json.at("path") == view.path);
    CHECK(json.at("linear") == view.linear);
    CHECK(json.at("batch") == view.batch);
    CHECK(json.at("queries") == view.weights.size(1));
    CHECK(json.at("keys") == view.weights.size(2));
    CHECK(json.at("key_origin") == view.key_origin);
    for (size_t place = 0; place < view.heads.size(); ++place) {
      INFO(view.path << ", head " << view.heads[place]);
      CHECK(json.at("heads").at(place).at("head") == view.heads[place]);
      check_head(page, view, number, place);
    }
  }
}

}  // namespace

TEST_CASE("a page's weights are within half a step of the tensor's, for every kind of mask", "[viz]") {
  at::manual_seed(6);
  const auto q = at::randn({2, 3, 9, 8}), k = at::randn({2, 3, 13, 8});
  const auto ragged = at::rand({2, 3, 9, 13}).gt(0.5);
  std::vector<AttentionView> views;
  const auto add = [&](const RecordedAttention& call) {
    for (const int64_t batch : {0, 1}) views.push_back(attention_view(call, {.batch = batch}));
  };
  add(recorded(q, k));
  add(recorded(q, k, {.causal = Causal::BottomRight}));
  add(recorded(q, k, {.causal = Causal::TopLeft}));
  add(recorded(q, k, {.causal = Causal::BottomRight, .window = {3, 0}}));
  add(recorded(q, k, {}, Mask::key_lengths(at::tensor({13, 4}))));
  add(recorded(q, k, {.causal = Causal::BottomRight}, Mask::keep(ragged)));
  add(recorded(3 * q, 3 * k, {}, Mask::keep(ragged)));
  check_page(views);
}

TEST_CASE("a causal half is not stored", "[viz]") {
  const auto view = attention_view(recorded({1, 2, 40, 4}, {1, 2, 40, 4}, {.causal = Causal::BottomRight}));
  const auto page = page_of({view, view});
  CHECK(page.bytes(0, 1).size() == 40 * 41 / 2);
  CHECK(page.data.at("hidden").size() == 1);  // shared by heads and views
  CHECK(page.data.at("hidden").at(0).at("holes").is_null());
}

TEST_CASE(
    "queries and heads that see nothing, one token, linear attention and weights of 0 are shown as they are",
    "[viz]") {
  at::manual_seed(7);
  auto visible = at::rand({2, 4, 5}).gt(0.5);
  visible[0][1] = false;
  visible[1] = false;
  AttentionView hidden{.path = "hidden",
                       .weights = at::rand({2, 4, 5}).masked_fill(visible.bitwise_not(), 0.0),
                       .visible = visible,
                       .heads = {0, 1}};
  AttentionView zero{.path = "zero", .weights = at::zeros({1, 2, 3}), .heads = {5}};
  AttentionRecorder recorder;
  const auto q = at::randn({1, 2, 4, 8}), k = at::randn({1, 2, 4, 8}), v = at::randn({1, 2, 4, 8});
  linear_attention(q, k, v);
  check_page({hidden, zero, attention_view(recorder.calls().at(0)),
              attention_view(recorded({1, 1, 1, 4}, {1, 1, 1, 4}))});
}

TEST_CASE("what is hidden in every head may be said once", "[viz]") {
  const auto hidden = at::ones({4, 4}, at::kBool).tril();
  const auto weights = at::rand({3, 4, 4}).masked_fill(hidden.bitwise_not(), 0.0);
  for (const auto& visible : {hidden, hidden.unsqueeze(0), hidden.expand({3, 4, 4})}) {
    const AttentionView view{.path = "p", .weights = weights, .visible = visible, .heads = {0, 1, 2}};
    const auto page = page_of({view});
    for (size_t place = 0; place < 3; ++place) CHECK(page.visible(0, place).equal(hidden));
  }
}

TEST_CASE("a row without keys has the span 0 to 0", "[viz]") {
  const auto visible = at::tensor({0, 1, 1, 0, 0, 0}).view({1, 2, 3}).to(at::kBool);
  const auto page = page_of(
      {AttentionView{.path = "p", .weights = at::zeros({1, 2, 3}), .visible = visible, .heads = {0}}});
  CHECK(numbers_of<int32_t>(page.data.at("hidden").at(0).at("spans")) == std::vector<int32_t>{1, 3, 0, 0});
}

TEST_CASE("the largest weights are named in their exact order", "[viz]") {
  // The last two weights of the first row are equal; one byte cannot distinguish the first two.
  const auto weights =
      at::tensor({0.4F, 0.4001F, 0.0F, 0.1F, 0.1F, 0.9F, 0.0F, 0.0F, 0.0F, 0.1F}).view({1, 2, 5});
  const auto visible = at::tensor({1, 1, 1, 1, 1, 1, 0, 0, 1, 1}).view({1, 2, 5}).to(at::kBool);
  const auto page =
      page_of({AttentionView{.path = "p", .weights = weights, .visible = visible, .heads = {0}}});
  CHECK(page.head(0, 0).at("top_count") == 5);
  CHECK(page.top(0, 0) == std::vector<std::vector<int32_t>>{{1, 0, 3, 4, 2}, {0, 4, 3}});

  const auto wide =
      page_of({AttentionView{.path = "p", .weights = at::full({1, 1, 66000}, 0.5F), .heads = {0}}});
  CHECK(wide.top(0, 0) == std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 4, 5, 6, 7}});
  // Places among equal steps that take two bytes and three.
  auto near = at::full({1, 1, 66000}, 0.5F);
  near[0][0][300] += 1e-5F;
  near[0][0][40000] += 2e-5F;
  const auto far = page_of({AttentionView{.path = "p", .weights = near, .heads = {0}}});
  CHECK(far.top(0, 0) == std::vector<std::vector<int32_t>>{{40000, 300, 0, 1, 2, 3, 4, 5}});
}

TEST_CASE("the largest weights are named beyond their steps, whatever the mask and the steps", "[viz]") {
  at::manual_seed(11);
  // With steps of 1/7, most weights become equal. Those of the second head are equal with any steps, and
  // their places need two bytes.
  const auto visible = at::rand({2, 20, 300}).gt(0.3);
  AttentionView view{.path = "p", .weights = at::rand({2, 20, 300}), .visible = visible, .heads = {0, 1}};
  view.weights[1].mul_(1e-4).add_(0.5);
  view.weights.masked_fill_(visible.bitwise_not(), 0.0);
  const auto whole = page_of({view});
  auto coarse = whole;
  for (auto most = std::ssize(whole.text); coarse.data.at("levels") != 7; most -= 300)
    coarse = page_of({view}, {.max_bytes = most});
  for (const size_t place : {0, 1}) {
    const auto head = static_cast<int64_t>(place);
    const auto order = std::get<1>(
        view.weights[head].masked_fill(visible[head].bitwise_not(), -1.0).sort(/*stable=*/true, 1, true));
    for (const auto* page : std::vector<const Page*>{&whole, &coarse}) {
      const auto top = page->top(0, place);
      for (int64_t i = 0; i < 20; ++i) {
        for (size_t n = 0; n < 8; ++n)
          CHECK(top[static_cast<size_t>(i)][n] == order[i][static_cast<int64_t>(n)].item<int64_t>());
      }
    }
  }
}

TEST_CASE("a page holds the statistics of its heads, null where there are none", "[viz]") {
  auto view = attention_view(recorded({1, 2, 6, 4}, {1, 2, 6, 4}, {.causal = Causal::BottomRight}));
  view.weights[1] = 0;
  view.visible = at::ones({2, 6, 6}, at::kBool).tril();
  view.visible[1] = false;
  const auto page = page_of({view});
  const auto want = head_statistics(view, 0);
  const auto& head = page.head(0, 0);
  CHECK(head.at("entropy") == want.entropy.value());
  CHECK(head.at("entropy_share") == want.entropy_share.value());
  CHECK(head.at("distance") == want.distance.value());
  CHECK(head.at("previous") == want.previous.value());
  CHECK(head.at("first") == want.first.value());
  CHECK(head.at("sink") == want.sink.value());
  for (const auto* name : {"entropy", "entropy_share", "distance", "previous", "first", "sink"})
    CHECK(page.head(0, 1).at(name).is_null());
}

TEST_CASE("a thumbnail is the largest weight of each of its cells", "[viz]") {
  at::manual_seed(8);
  const auto weights = at::rand({1, 70, 33});
  const auto page = page_of({AttentionView{.path = "p", .weights = weights, .heads = {0}}});
  const auto& head = page.head(0, 0);
  CHECK(head.at("thumb_size") == 32);
  CHECK(head.at("thumb_columns") == 32);
  const auto cells = decoded_base64(head.at("thumb").get<std::string>());
  REQUIRE(cells.size() == 32 * 32);
  const auto shares = weights[0] / std::get<0>(weights[0].max(1, true));
  for (const int64_t y : {0, 1, 17, 31}) {
    for (const int64_t x : {0, 16, 31}) {
      const auto cell =
          shares.slice(0, y * 70 / 32, (y + 1) * 70 / 32).slice(1, x * 33 / 32, (x + 1) * 33 / 32).max();
      CHECK(cells[static_cast<size_t>(32 * y + x)] == std::lround(255 * cell.item<double>()));
    }
  }
  const auto small = page_of({AttentionView{.path = "p", .weights = at::rand({1, 2, 3}), .heads = {0}}});
  CHECK(small.head(0, 0).at("thumb_size") == 2);
  CHECK(small.head(0, 0).at("thumb_columns") == 3);
}

TEST_CASE("a thumbnail leaves out what no query's span reaches", "[viz]") {
  const auto visible = at::ones({70, 33}, at::kBool).tril();
  const auto weights = at::rand({1, 70, 33}).masked_fill(visible.bitwise_not(), 0.0);
  const auto page = page_of(
      {AttentionView{.path = "p", .weights = weights, .visible = visible.unsqueeze(0), .heads = {0}}});
  const auto cells = decoded_base64(page.head(0, 0).at("thumb").get<std::string>());
  const auto shares = weights[0] / std::get<0>(weights[0].max(1, true));
  size_t next = 0;
  for (int64_t y = 0; y < 32; ++y) {
    for (int64_t x = 0; x < 32; ++x) {
      const auto part = [&](const at::Tensor& map) {
        return map.slice(0, y * 70 / 32, (y + 1) * 70 / 32).slice(1, x * 33 / 32, (x + 1) * 33 / 32);
      };
      if (!part(visible).any().item<bool>()) continue;
      REQUIRE(next < cells.size());
      CHECK(cells[next++] == std::lround(255 * part(shares).max().item<double>()));
    }
  }
  CHECK(next == cells.size());
}

TEST_CASE("any text can be a token, and none ends the page's data", "[viz]") {
  std::vector<std::string> tokens = {"</script><script>alert(1)</script>",
                                     "<!--",
                                     "\"quoted\" 'text' \\",
                                     "👍🏽",
                                     "مرحبا",
                                     "a\xff"
                                     "b\xc3",
                                     "\xED\xA0\x80",
                                     ""};
  for (int code = 0; code < 0x20; ++code) tokens.emplace_back(1, static_cast<char>(code));
  const auto count = std::ssize(tokens);
  AttentionView view{.path = "</script>",
                     .weights = at::full({1, count, count}, 0.1F),
                     .heads = {0},
                     .query_tokens = tokens,
                     .key_tokens = tokens};
  const auto page = page_of({view, view}, {.title = "<b>&", .note = "</script>"});
  CHECK(page.data.at("title") == "<b>&");
  CHECK(page.data.at("note") == "</script>");
  CHECK(page.data.at("views").at(0).at("path") == "</script>");
  CHECK(page.element("attentive-data").find('<') == std::string::npos);
  REQUIRE(page.data.at("tokens").size() == 1);  // one list for the queries and keys of both views
  CHECK(page.data.at("views").at(1).at("key_tokens") == 0);
  tokens[5] = "a‹FF›b‹C3›";  // bytes that are not part of a character
  tokens[6] = "‹ED›‹A0›‹80›";
  CHECK(page.data.at("tokens").at(0).get<std::vector<std::string>>() == tokens);

  const auto none = page_of({AttentionView{.path = "p", .weights = at::full({1, 1, 1}, 1.0F), .heads = {0}}});
  CHECK(none.data.at("views").at(0).at("query_tokens") == -1);
  CHECK_FALSE(none.data.contains("note"));
}

TEST_CASE("a page without a title has its text's first words", "[viz]") {
  const auto title = [](const std::vector<std::string>& tokens, const HtmlOptions& options = {}) {
    const AttentionView view{
        .path = "p", .weights = at::full({1, 2, 2}, 0.5F), .heads = {0}, .key_tokens = tokens};
    return page_of({view}, options).data.at("title").get<std::string>();
  };
  CHECK(title({"The", " cat"}) == "The cat");
  CHECK(title({"[CLS]", "cat"}) == "[CLS] cat");
  CHECK(title({}) == "Attention");
  CHECK(title({"The", " cat"}, {.title = "Own"}) == "Own");
}

TEST_CASE("an image is embedded once, as a picture that a browser shows", "[viz]") {
  const auto pixels = at::tensor({1.0F, 0.5F, 0.0F, 0.0F, 0.25F, 1.0F}).view({1, 2, 3});
  AttentionView view{.path = "p",
                     .weights = at::full({1, 3, 3}, 0.3F),
                     .heads = {0},
                     .image = PatchImage{.rows = 1, .columns = 2, .pixels = pixels},
                     .rollout = at::tensor({0.5F, 0.2F, 0.3F})};
  auto plain = view;
  plain.image->pixels = at::Tensor();
  plain.rollout = at::Tensor();
  const auto page = page_of({plain, view, view});
  const auto& views = page.data.at("views");
  CHECK(views.at(0).at("image") ==
        nlohmann::json{{"rows", 1}, {"columns", 2}, {"first", 1}, {"pixels", nullptr}});
  CHECK(views.at(0).at("rollout").is_null());
  CHECK(views.at(2).at("image").at("pixels") == 1);
  CHECK(numbers_of<float>(views.at(1).at("rollout")) == std::vector<float>{0.5F, 0.2F, 0.3F});
  const auto uri = views.at(1).at("image").at("pixels").get<std::string>();
  const std::string kind = "data:image/bmp;base64,";
  REQUIRE(uri.starts_with(kind));
  const auto bytes = decoded_base64(uri.substr(kind.size()));
  REQUIRE(bytes.size() == 54 + 2 * 12);
  CHECK(bytes[0] == 'B');
  CHECK(bytes[2] == bytes.size());
  CHECK(bytes[18] == 3);  // width
  CHECK(bytes[22] == 2);  // height
  // The lower row comes first, three bytes per pixel, each row padded to twelve.
  const std::vector<uint8_t> rows(bytes.begin() + 54, bytes.end());
  CHECK(rows == std::vector<uint8_t>{0,   0,   0,   64,  64,  64,  255, 255, 255, 0, 0, 0,
                                     255, 255, 255, 128, 128, 128, 0,   0,   0,   0, 0, 0});
}

TEST_CASE("a page holds the neurons that a view has", "[viz]") {
  const auto view = attention_view(recorded({1, 2, 3, 4}, {1, 2, 5, 4}), {.neurons = {1}});
  const auto page = page_of({view, attention_view(recorded({1, 1, 2, 4}, {1, 1, 2, 4}))});
  const auto& neurons = page.data.at("views").at(0).at("neurons");
  REQUIRE(neurons.size() == 1);
  CHECK(neurons.at(0).at("head") == 1);
  CHECK(neurons.at(0).at("scale") == 0.5);
  CHECK(at::tensor(numbers_of<float>(neurons.at(0).at("q"))).view({3, 4}).equal(view.neurons[0].q));
  CHECK(at::tensor(numbers_of<float>(neurons.at(0).at("k"))).view({5, 4}).equal(view.neurons[0].k));
  CHECK(page.data.at("views").at(1).at("neurons").is_null());
}

TEST_CASE("the page needs nothing beside it", "[viz]") {
  const auto page = page_of({AttentionView{.path = "p", .weights = at::full({1, 1, 1}, 1.0F), .heads = {0}}});
  for (const auto* marker :
       {"<!-- attentive:style -->", "<!-- attentive:data -->", "<!-- attentive:script -->"})
    CHECK(page.text.find(marker) == std::string::npos);
  for (const auto* outside : {"<script src", "<link rel=\"stylesheet", "@import", "https://"}) {
    INFO(outside);
    CHECK(page.text.find(outside) == std::string::npos);
  }
}

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

// The maximum size of a page, and the inputs that are refused.

namespace {

// Peaked or flat causal weights of 12 layers of 12 heads over 512 tokens.
std::vector<AttentionView> large_views(double sharpness) {
  at::manual_seed(5);
  const auto visible = at::ones({1, 512, 512}, at::kBool).tril();
  std::vector<AttentionView> views;
  for (int layer = 0; layer < 12; ++layer) {
    AttentionView view{.path = "blocks." + std::to_string(layer),
                       .visible = visible,
                       .heads = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
    const auto scores = (sharpness * at::randn({12, 512, 512})).masked_fill(visible.bitwise_not(), -INFINITY);
    view.weights = at::softmax(scores, 2);
    view.logsumexp = scores.logsumexp(2);
    view.query_tokens.assign(512, "token");
    view.key_tokens = view.query_tokens;
    views.push_back(view);
  }
  return views;
}

// The size of a page without data.
int64_t bytes_around() {
  const AttentionView view{.path = "p", .weights = at::full({1, 1, 1}, 1.0F), .heads = {0}};
  const auto message = value_error([&] { page_of({view}, {.max_bytes = 1}); });
  const std::string words = "write_html: expected max_bytes above ";
  REQUIRE(message.starts_with(words));
  return std::stol(message.substr(words.size()));
}

}  // namespace

TEST_CASE("a page of 12 x 12 heads over 512 tokens stays below 15 MB", "[viz]") {
  for (const double sharpness : {0.0, 0.5, 1.0, 10.0}) {
    INFO("sharpness " << sharpness);
    const auto views = large_views(sharpness);
    const auto page = page_of(views);
    for (const size_t number : {0, 11}) check_head(page, views[number], number, 7);
    if (sharpness == 10.0) CHECK(page.data.at("levels") == 255);
  }
}

TEST_CASE("steps become larger before a page is refused, and the refusal says what would fit", "[viz]") {
  at::manual_seed(9);
  AttentionView view{.path = "p", .weights = at::rand({4, 100, 100}), .heads = {0, 1, 2, 3}};
  const auto bytes = std::ssize(page_of({view}).text);
  const auto smaller = page_of({view}, {.max_bytes = bytes - 4000});
  CHECK(smaller.data.at("levels") == 127);
  check_head(smaller, view, 0, 2);
  const auto smallest = page_of({view}, {.max_bytes = bytes - 15000});
  CHECK(smallest.data.at("levels") == 31);
  const auto message = error_of<PageTooLarge>([&] { page_of({view}, {.max_bytes = bytes - 40000}); });
  INFO(message);
  CHECK(message.starts_with("write_html: expected a page of at most "));
  CHECK(message.find("but 4 heads need about ") != std::string::npos);
  CHECK(message.find(" even in steps of 1/7; about ") != std::string::npos);
  CHECK(value_error([&] {
          page_of({view}, {.max_bytes = 100});
        }).starts_with("write_html: expected max_bytes above "));
}

TEST_CASE("on_head is told every head that is compressed, and of larger steps when it begins again",
          "[viz]") {
  at::manual_seed(9);
  const AttentionView view{.path = "p", .weights = at::rand({4, 100, 100}), .heads = {0, 1, 2, 3}};
  std::vector<std::string> told;
  HtmlOptions options{.on_head = [&](int levels, int64_t head, int64_t heads) {
    told.push_back(fmt::format("{}: {}/{}", levels, head, heads));
  }};
  const auto bytes = std::ssize(page_of({view}, options).text);
  CHECK(told == std::vector<std::string>{"255: 1/4", "255: 2/4", "255: 3/4", "255: 4/4"});
  told.clear();
  options.max_bytes = bytes - 4000;
  page_of({view}, options);
  CHECK(told.front() == "255: 1/4");
  CHECK(told.back() == "127: 4/4");
}

TEST_CASE("a page of as many heads as a refusal names fits", "[viz]") {
  at::manual_seed(10);
  std::vector<int64_t> heads;
  for (int64_t head = 0; head < 40; ++head) heads.push_back(head);
  AttentionView view{.path = "p", .weights = at::rand({40, 64, 64}), .heads = heads};
  const HtmlOptions options{.max_bytes = bytes_around() + 140'000};
  const auto message = value_error([&] { page_of({view}, options); });
  const auto place = message.find("; about ");
  REQUIRE(place != std::string::npos);
  const auto fit = std::stol(message.substr(place + 8));
  INFO(message);
  REQUIRE(fit > 10);
  CHECK(fit < 40);
  view.weights = view.weights.slice(0, 0, fit);
  view.heads.resize(static_cast<size_t>(fit));
  CHECK(page_of({view}, options).data.at("levels") == 7);
}

TEST_CASE("write_html refuses what it cannot show or write, by name", "[viz]") {
  const TemporaryFolder folder;
  const AttentionView good{.path = "p", .weights = at::full({1, 2, 2}, 0.5F), .heads = {3}};
  const auto refused = [&](const std::function<void(AttentionView&)>& change) {
    auto view = good;
    change(view);
    return value_error([&] { write_html(folder / "page.html", {good, view}); });
  };
  CHECK(value_error([&] { write_html(folder / "page.html", {}); }) ==
        "write_html: expected at least one view, got none");
  CHECK(refused([](auto& view) {
          view.weights = at::full({1, 2, 2}, NAN);
        }) ==
        "write_html: p, head 3: expected finite weights that are not negative, got nan of query 0 for key 0");
  CHECK(refused([](auto& view) {
          view.weights = at::tensor({0.0F, 1.0F, 1.0F, -1.0F}).view({1, 2, 2});
        }) ==
        "write_html: p, head 3: expected finite weights that are not negative, got -1 of query 1 for key 1");
  CHECK(refused([](auto& view) {
          view.weights = at::full({1, 2, 2}, 0.5, at::kDouble);
        }).starts_with("write_html: p: expected weights as float32"));
  CHECK(refused([](auto& view) {
          view.weights = at::full({1, 2, 0}, 0.5F);
        }).starts_with("write_html: p: expected weights of shape"));
  CHECK(refused([](auto& view) {
          view.heads = {0, 1};
        }) == "write_html: p: expected the numbers of 1 heads, got 2");
  CHECK(refused([](auto& view) {
          view.visible = at::ones({1, 3, 2}, at::kBool);
        }).starts_with("write_html: p: expected a bool visible"));
  CHECK(refused([](auto& view) { view.key_tokens = {"a"}; }) ==
        "write_html: p: expected key_tokens for 2 keys, got 1");
  CHECK(refused([](auto& view) { view.query_tokens = {"a"}; }) ==
        "write_html: p: expected query_tokens for 2 queries, got 1");
  CHECK(refused([](auto& view) {
          view.logsumexp = at::zeros({2});
        }).starts_with("write_html: p: expected logsumexp as float32"));
  CHECK(refused([](auto& view) {
          view.rollout = at::zeros({3});
        }).starts_with("write_html: p: expected rollout as float32"));
  CHECK(refused([](auto& view) {
          view.neurons.push_back({.head = 3, .q = at::zeros({2, 4}), .k = at::zeros({2, 5})});
        }).starts_with("write_html: p: expected neurons.k as float32"));
  CHECK(refused([](auto& view) {
          view.image = PatchImage{.rows = 1, .columns = 1, .pixels = at::full({1, 2, 2}, 1.5F)};
        }) == "write_html: p: expected pixels from 0 to 1");
  CHECK(
      refused([](auto& view) {
        view.image = PatchImage{.rows = 1, .columns = 1, .pixels = at::full({2, 2, 2}, 0.5F)};
      }).starts_with("write_html: p: expected pixels as floating numbers of shape (1 or 3, height, width)"));
  CHECK_FALSE(std::filesystem::exists(folder / "page.html"));
  const auto path = folder / "none/page.html";
  CHECK(value_error([&] {
          write_html(path, {good});
        }).starts_with("write_html: " + path.string() + ": cannot create a temporary file"));
}
