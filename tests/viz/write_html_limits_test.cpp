// The maximum size of a page, and the inputs that are refused.

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <attentive/viz/write_page.h>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "viz/page_checks.h"

using namespace attentive;
using namespace attentive::test;

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
