#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/named_masks.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/option_cases.h"

using namespace attentive;
using attentive::test::error_of;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("explain prints a table", "[backend][explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto text = explain(x, x, x, {.dropout_p = 0.1, .dropout_stream = DropoutStream::Aten}).to_string();
  CHECK_THAT(text, ContainsSubstring("reference  chosen"));
  CHECK_THAT(text, ContainsSubstring("torch      refused   its CPU kernel has no dropout"));
  CHECK_THAT(text, ContainsSubstring("DropoutStream::Any"));
}

TEST_CASE("explain names every backend once, fastest first, and streams its table", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto explanation = explain(x, x, x);
  std::vector<std::string_view> backends;
  for (const auto& candidate : explanation.candidates) {
    backends.push_back(to_string(candidate.backend));
    CHECK_FALSE(candidate.reason.empty());
    if (candidate.backend == explanation.chosen) CHECK(candidate.available);
  }
  CHECK(backends == std::vector<std::string_view>{"native", "torch", "reference"});
  std::ostringstream stream;
  stream << explanation;
  CHECK(stream.str() == explanation.to_string());
}

TEST_CASE("explain runs nothing and draws nothing", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8}).requires_grad_(true);
  at::manual_seed(4);
  const auto want = at::randn({8});
  at::manual_seed(4);
  explain(x, x, x, {.dropout_p = 0.5});
  CHECK(bit_equal(at::randn({8}), want));
}

TEST_CASE("explain refuses what the call would refuse, under its own name", "[explain][errors]") {
  const auto x = at::randn({1, 2, 4, 8});
  CHECK(error_of<c10::ValueError>([&] { explain(x, x, x, {.dropout_p = 2}); }) ==
        "explain: expected dropout_p in [0, 1], got 2");
}

TEST_CASE("explain counts the tiles that a mask function empties and fills", "[explain][block_mask]") {
  const auto x = at::randn({2, 2, 384, 8});
  auto documents = at::zeros({384}, at::kLong);
  documents.slice(0, 256).fill_(1);
  const auto mask = document_mask(documents);
  const std::string note =
      "mask function document_mask: 4 of 9 tiles of 128 x 128 pairs are skipped, and 5 need no test";
  const auto notes = [&](const at::Tensor& q, const BlockMask& given, Backend backend = Backend::Auto) {
    return explain(q, q, q, {.backend = backend}, {.block_mask = given}).notes;
  };
  CHECK(notes(x, mask) == std::vector{note});
  CHECK(notes(x, BlockMask::kept(mask, 2, 2, 384, 384)) == std::vector{note});
  CHECK(notes(x, mask, Backend::Reference) == std::vector<std::string>{"mask function document_mask"});
  CHECK(notes(x.to(at::kMeta), prefix_lm_mask(3)).empty());
  CHECK(notes(x, {}).empty());
  // The call classifies no tiles of so few tokens, unless they are kept.
  const auto few = x.slice(2, 0, 255);
  CHECK(notes(few, prefix_lm_mask(0)) ==
        std::vector<std::string>{
            "mask function prefix_lm_mask(0): every pair is tested, since tiles are skipped from 256 queries "
            "and keys on"});
  CHECK(notes(few, BlockMask::kept(prefix_lm_mask(0), 1, 1, 255, 255)) ==
        std::vector<std::string>{"mask function prefix_lm_mask(0): 1 of 4 tiles of 128 x 128 pairs are "
                                 "skipped, and 1 need no test"});
}

TEST_CASE("explain names a score function", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto score = score_mod([](auto s, auto) { return 2.0f * s; }, "twice");
  for (const auto& q : {x, x.to(at::kMeta)})
    CHECK(explain(q, q, q, {}, {.score = score}).notes == std::vector<std::string>{"score function twice"});
}

TEST_CASE("explain counts the queries that a mask function leaves no key", "[explain]") {
  const auto x = at::randn({1, 2, 40, 8});
  const auto seen = mask_mod([](auto pair) { return pair.query != 7; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = seen}).to_string(),
             ContainsSubstring("1 of 40 queries see no key, the first is query 7"));
  // The first query alone sees a key.
  const auto first = mask_mod([](auto pair) { return pair.query == 0; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = first}).to_string(),
             ContainsSubstring("39 of 40 queries see no key, the first is query 1"));
}

// docs/options.md contains a table of every option on every backend. This test makes the table from the
// verdicts of the backends and compares it; ATTENTIVE_UPDATE_DOCS=1 writes it. The table is equal on every
// processor.

using namespace attentive::test;

namespace {

struct Type {
  at::ScalarType type;
  std::string name;
};
const std::array kNamedTypes = {Type{at::kDouble, "float64"}, Type{at::kFloat, "float32"},
                                Type{at::kBFloat16, "bfloat16"}, Type{at::kHalf, "float16"}};
const std::string kBegin = "<!-- table begin -->\n", kEnd = "<!-- table end -->\n";

// A backend and the dtypes that it accepts without options.
struct Column {
  Backend backend;
  std::vector<Type> taken;
};

std::vector<Column> columns() {
  std::vector<Column> all;
  const auto plain = plain_call();
  for (const auto& candidate : explain(plain.q, plain.k, plain.v).candidates) {
    all.push_back({candidate.backend, {}});
    for (const auto& type : kNamedTypes) {
      if (!run_on(cast(plain, type.type), candidate.backend).refused) all.back().taken.push_back(type);
    }
  }
  return all;
}

// "yes", "float32, bfloat16" or "no: reason" for one option on one backend. The reason is taken at a dtype
// that the backend accepts, so that it concerns the option.
std::string cell(const OptionCall& call, const Column& column) {
  std::vector<std::string> types;
  std::string reason;
  for (const auto& type : column.taken) {
    const auto outcome = run_on(cast(call, type.type), column.backend);
    if (!outcome.refused) {
      types.push_back(type.name);
    } else if (reason.empty()) {
      reason = outcome.reason;
    }
  }
  if (types.size() == kNamedTypes.size()) return "yes";
  return types.empty() ? "no: " + reason : fmt::format("{}", fmt::join(types, ", "));
}

using Row = std::vector<std::string>;  // the option's name, then a cell for every backend

std::vector<Row> rows_of(const std::vector<Column>& all) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const OptionCall& call) {
    rows.push_back({name});
    for (const auto& column : all) rows.back().push_back(cell(call, column));
  };
  add("none", plain_call());
  for (const auto* cases : {&option_cases(), &function_cases()}) {
    for (const auto& option : *cases) {
      auto call = plain_call();
      option.apply(call);
      add(option.name, call);
    }
  }
  return rows;
}

// Writes the rows as a table, with numbered reasons below it.
std::string to_text(const std::vector<Column>& all, const std::vector<Row>& rows) {
  std::string text = "| option |", line = "|---|", notes;
  for (const auto& column : all) {
    text += fmt::format(" {} |", to_string(column.backend));
    line += "---|";
  }
  text += '\n' + line;
  std::map<std::string, size_t> numbers;
  for (const auto& row : rows) {
    text += "\n|";
    for (const auto& content : row) {
      if (!content.starts_with("no: ")) {
        text += fmt::format(" {} |", content);
        continue;
      }
      const auto reason = content.substr(4);
      const auto [number, fresh] = numbers.emplace(reason, numbers.size() + 1);
      if (fresh) notes += fmt::format("({}) {}\n", number->second, reason);
      text += fmt::format(" no ({}) |", number->second);
    }
  }
  return text + "\n\n" + notes;
}

}  // namespace

TEST_CASE("the options table of the docs is what the backends answer", "[options][docs][short]") {
  const std::string path = source_folder() + "/docs/options.md";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string page = content.str();
  const auto begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const auto from = begin + kBegin.size();
  const auto all = columns();
  const auto table = to_text(all, rows_of(all));
  if (std::getenv("ATTENTIVE_UPDATE_DOCS")) {
    page.replace(from, end - from, table);
    std::ofstream(path) << page;
    return;
  }
  CHECK(page.substr(from, end - from) == table);
}

TEST_CASE("a dtype that the native kernel lacks is refused by name", "[options][docs]") {
  const auto refusal = [](at::ScalarType type) {
    const auto outcome = run_on(cast(plain_call(), type), Backend::Native);
    return outcome.refused ? outcome.reason : "";
  };
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) CHECK(refusal(type) == "");
  CHECK(refusal(at::kDouble) == "it accepts only float32, bfloat16 and float16");
}

using attentive::test::kInfinity;
using attentive::test::value_error;
using Catch::Matchers::StartsWith;

namespace {

// The expected grid for weights (L, S) of the reference, in which a visible key has a non-zero weight.
std::string grid_of(const at::Tensor& weights) {
  std::string text;
  for (int64_t i = 0; i < weights.size(0); ++i) {
    for (int64_t j = 0; j < weights.size(1); ++j) {
      text += j > 0 ? " " : "";
      text += weights[i][j].item<float>() > 0 ? "x" : ".";
    }
    text += "\n";
  }
  return text;
}

// The lines of a description that are rows of the grid; a biased pair counts as visible.
std::string grid_in(const std::string& description) {
  std::istringstream in(description);
  std::string text, line;
  std::getline(in, line);
  while (std::getline(in, line) && line.find_first_not_of("x.+ ") == std::string::npos) text += line + "\n";
  for (auto& sign : text) sign = sign == '+' ? 'x' : sign;
  return text;
}

// Masks of every kind for 2 batch items, 3 heads, 4 queries and 6 keys.
std::vector<Mask> masks() {
  at::manual_seed(11);
  const auto pairs = [](at::IntArrayRef sizes) { return at::rand(sizes).gt(0.4); };
  const auto bias = [&](at::IntArrayRef sizes) {
    return at::rand(sizes).masked_fill(pairs(sizes).bitwise_not(), -kInfinity);
  };
  const auto lengths = Mask::key_lengths(at::tensor({6, 2}));
  return {Mask(),
          Mask::keep(pairs({4, 6})),
          Mask::hide(pairs({2, 3, 4, 6})),
          Mask::bias(bias({4, 6})),
          Mask::bias(bias({2, 1, 1, 6})) & Mask::keep(pairs({1, 3, 4, 1})),
          Mask::key_keep(pairs({2, 6})),
          lengths,
          lengths & Mask::per_batch(pairs({2, 4, 6})) & Mask::per_head(Mask::bias(bias({3, 4, 6})))};
}

}  // namespace

TEST_CASE("a mask prints its grid", "[describe_mask]") {
  CHECK(describe_mask({}, {.causal = Causal::BottomRight}, 2, 4) ==
        "2 queries (down), 4 keys (across)\n"
        "x x x .\n"
        "x x x x\n"
        "x may attend, . may not\n");
  CHECK(describe_mask({}, {.causal = Causal::TopLeft}, 2, 4) ==
        "2 queries (down), 4 keys (across)\n"
        "x . . .\n"
        "x x . .\n"
        "x may attend, . may not\n");
  CHECK(describe_mask({}, {.causal = Causal::BottomRight}, 4, 2) ==
        "4 queries (down), 2 keys (across)\n"
        ". .\n"
        ". .\n"
        "x .\n"
        "x x\n"
        "x may attend, . may not\n"
        "2 of 4 queries see no key, the first is query 0; their weights and output are 0\n");
  std::ostringstream out;
  out << Mask(at::ones({2, 3}, at::kBool).triu()).describe(2, 3);
  CHECK(out.str() ==
        "2 queries (down), 3 keys (across)\n"
        "x x x\n"
        ". x x\n"
        "x may attend, . may not\n");
}

TEST_CASE("the grid shows what attention sees", "[describe_mask]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const auto window = GENERATE(Window{}, Window{1, 0}, Window{-1, 1});
  const AttentionOptions options{.causal = causal, .window = window, .backend = Backend::Reference};
  const auto q = at::zeros({2, 3, 4, 8}), k = at::zeros({2, 3, 6, 8});
  int64_t wrong = 0, shown = 0;
  for (const auto& mask : masks()) {
    const auto weights =
        attention(q, k, k, options, AttentionExtras{.mask = mask, .weights = Weights::Clean}).weights;
    // A mask without a batch or head dimension is described for one batch item or head.
    const int64_t items = mask.empty() || mask.describe(4, 6).find("batch item") == std::string::npos ? 1 : 2;
    const int64_t heads = mask.describe(4, 6).find(", head") == std::string::npos ? 1 : 3;
    for (int64_t b = 0; b < items; ++b) {
      for (int64_t h = 0; h < heads; ++h, ++shown)
        wrong +=
            grid_in(describe_mask(mask, options, 4, 6, {.batch = b, .head = h})) != grid_of(weights[b][h]);
    }
  }
  CHECK(wrong == 0);
  CHECK(shown == 1 + 1 + 6 + 1 + 6 + 2 + 2 + 6);
}

TEST_CASE("a bias has a sign of its own, with its range", "[describe_mask]") {
  const auto bias = at::tensor({0.5, 0.0, -kInfinity, 0.0, -2.0, 1.0}, at::kFloat).view({2, 3});
  CHECK(Mask::bias(bias).describe(2, 3) ==
        "2 queries (down), 3 keys (across)\n"
        "+ x .\n"
        "x + +\n"
        "x may attend, . may not, + with a bias from -2 to 1\n");
  CHECK_THAT(Mask::bias(at::tensor({0.25f, 0.0f}).view({1, 2})).describe(1, 2),
             ContainsSubstring("+ with a bias of 0.25\n"));
  // The bias of a hidden pair has no effect and is not shown.
  CHECK_THAT((Mask::bias(bias) & Mask::key_lengths(at::tensor({1}))).describe(2, 3),
             ContainsSubstring("+ . .\nx . .\n"));
}

TEST_CASE("one batch item and head is shown, and it is said whether others differ", "[describe_mask]") {
  auto keep = at::ones({3, 2, 2, 2}, at::kBool);
  keep[2][1][0][0] = false;
  const Mask mask = keep;
  CHECK(mask.describe(2, 2) ==
        "2 queries (down), 2 keys (across), batch item 0 of 3, head 0 of 2\n"
        "x x\n"
        "x x\n"
        "x may attend, . may not\n"
        "1 of the other 5 batch items and heads differ\n");
  CHECK(mask.describe(2, 2, {.batch = 2, .head = 1}) ==
        "2 queries (down), 2 keys (across), batch item 2 of 3, head 1 of 2\n"
        ". x\n"
        "x x\n"
        "x may attend, . may not\n"
        "5 of the other 5 batch items and heads differ\n");
  // Items that are equal, or whose biases differ only at a hidden pair, do not count as different.
  auto bias = at::zeros({2, 1, 1, 3});
  bias[1][0][0][2] = 7.0f;
  CHECK_THAT((Mask::bias(bias) & Mask::key_lengths(at::tensor({2, 2}))).describe(1, 3),
             !ContainsSubstring("differ"));
  CHECK_THAT(Mask::bias(bias).describe(1, 3),
             ContainsSubstring("1 of the other 1 batch items and heads differ"));
}

TEST_CASE("a large mask shows its first and last rows and columns", "[describe_mask]") {
  CHECK(describe_mask({}, {.causal = Causal::BottomRight}, 7, 6, {.most = 5}) ==
        "7 queries (down), 6 keys (across)\n"
        ". . . … . .\n"
        "x . . … . .\n"
        "x x . … . .\n"
        "…\n"
        "x x x … x .\n"
        "x x x … x x\n"
        "not shown: queries 3 to 4\n"
        "not shown: keys 3 to 3\n"
        "x may attend, . may not\n"
        "1 of 7 queries see no key, the first is query 0; their weights and output are 0\n");
  const auto text = describe_mask({}, {.causal = Causal::BottomRight}, 4096, 20);
  CHECK_THAT(text, ContainsSubstring("\n…\n"));
  CHECK_THAT(text, ContainsSubstring("not shown: queries 10 to 4085\nx may attend"));
}

TEST_CASE("masks of other ranks are described as the call takes them", "[describe_mask]") {
  const auto per_item = at::rand({2, 3, 3}).gt(0.5);
  CHECK_THAT(Mask(per_item).describe(3, 3),
             StartsWith("3 queries (down), 3 keys (across), batch item 0 of 2\n"));
  const auto rank_5 = at::ones({2, 1, 2, 3, 3}, at::kBool);
  CHECK_THAT((Mask(rank_5) & Mask::key_lengths(at::tensor({3, 1}))).describe(3, 3, {.batch = 1}),
             StartsWith("3 queries (down), 3 keys (across), batch item 1 of 2, head 0 of 2\nx . .\n"));
  CHECK(Mask().describe(0, 3) == "0 queries (down), 3 keys (across)\n");
  CHECK(Mask().describe(2, 0) ==
        "2 queries (down), 0 keys (across)\n"
        "2 of 2 queries see no key, the first is query 0; their weights and output are 0\n");
}

TEST_CASE("a mask is described whatever mode its caller is in", "[describe_mask]") {
  const auto bias = at::rand({2, 2}).requires_grad_(true);
  const auto expected = Mask::bias(bias).describe(2, 2);
  {
    const c10::InferenceMode guard;
    CHECK(Mask::bias(bias).describe(2, 2) == expected);
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK(Mask::bias(bias).describe(2, 2) == expected);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST_CASE("what cannot be described is named", "[describe_mask][errors]") {
  const Mask mask = at::ones({4, 1, 2, 3}, at::kBool);
  CHECK(value_error([&] { mask.describe(-1, 3); }) ==
        "Mask::describe: expected queries >= 0 and keys >= 0, got -1 and 3");
  CHECK(value_error([&] { mask.describe(2, 4); }) ==
        "Mask::describe: expected mask to broadcast to (4, 1, 2, 4) (B, H, L, S), got (4, 1, 2, 3)");
  CHECK(value_error([&] { mask.describe(2, 3, {.batch = 4}); }) ==
        "Mask::describe: expected a batch item in [0, 4), got 4");
  CHECK(value_error([&] { mask.describe(2, 3, {.batch = -1}); }) ==
        "Mask::describe: expected a batch item in [0, 4), got -1");
  CHECK(value_error([&] { mask.describe(2, 3, {.head = 1}); }) ==
        "Mask::describe: expected a head in [0, 1), got 1");
  CHECK(value_error([&] { mask.describe(2, 3, {.most = 1}); }) ==
        "Mask::describe: expected to print most >= 2 rows and columns, got 1");
  CHECK(value_error([&] {
          (mask & Mask::key_lengths(at::tensor({3, 3}))).describe(2, 3);
        }) == "Mask::describe: expected key_lengths of shape (4,) (B), got (2,)");
  CHECK(value_error([&] { Mask::key_lengths(at::tensor({5})).describe(2, 3); }) ==
        "Mask::describe: expected key_lengths in [0, 3], got 5");
  CHECK(value_error([&] {
          (Mask(at::ones({1, 3, 2, 3}, at::kBool)) & at::ones({4, 2, 3}, at::kBool)).describe(2, 3);
        }) ==
        "Mask::describe: a mask of shape (4, 2, 3) with a 4-D q could be per batch or per head; say "
        "Mask::per_batch or Mask::per_head");
  CHECK(value_error([&] {
          describe_mask({}, {.window = {-2, 0}}, 2, 3);
        }) == "describe_mask: expected window bounds of -1 (none) or more, got left -2, right 0");
  CHECK(value_error([] {
          Mask(at::ones({2, 3}, at::TensorOptions(at::kBool).device(at::kMeta))).describe(2, 3);
        }) == "Mask::describe: expected a mask with numbers, got one on meta");
}
