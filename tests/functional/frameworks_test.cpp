// The calls of the page "From another framework": what other libraries' attention computes, as recorded by
// tools/generators/make_framework_cases.py, which describes the cases.

#include <map>
#include <set>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/files/safetensors.h>
#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct RecordedCall {
  std::string name;
  nlohmann::json said;
  std::map<std::string, at::Tensor> tensors;

  bool has(const std::string& tensor) const { return tensors.count(tensor) != 0; }
  std::string text(const char* key) const { return said.value(key, ""); }
};

std::vector<RecordedCall> recorded_calls() {
  const auto file = load_safetensors(source_folder() + "/tests/functional/data/frameworks.safetensors");
  std::vector<RecordedCall> calls;
  for (const auto& [name, said] : file.metadata) {
    RecordedCall call{name, nlohmann::json::parse(said), {}};
    for (auto it = file.tensors.lower_bound(name + "/");
         it != file.tensors.end() && it->first.starts_with(name + "/"); ++it)
      call.tensors[it->first.substr(name.size() + 1)] = it->second;
    calls.push_back(std::move(call));
  }
  return calls;
}

AttentionOptions options_of(const nlohmann::json& said) {
  static const std::map<std::string, Causal> kCausal = {{"BottomRight", Causal::BottomRight},
                                                        {"TopLeft", Causal::TopLeft}};
  static const std::map<std::string, Align> kAlign = {{"TopLeft", Align::TopLeft},
                                                      {"Lengths", Align::Lengths}};
  AttentionOptions options;
  for (const auto& [key, value] : said.items()) {
    if (key == "causal") options.causal = kCausal.at(value);
    if (key == "align") options.align = kAlign.at(value);
    if (key == "window") options.window = {value.at(0), value.at(1)};
    if (key == "scale") options.scale = value.get<double>();
    if (key == "softcap") options.softcap = value.get<double>();
    if (key == "softmax_plus_one") options.softmax_plus_one = value.get<bool>();
  }
  return options;
}

/// A tensor in the library's layout, such as "BL(HD)", as (B, H, L, D).
at::Tensor heads_first(at::Tensor x, const std::string& layout, int64_t heads) {
  if (layout.front() != 'B') x = x.unsqueeze(0);
  if (layout.ends_with("(HD)")) x = x.unflatten(-1, {heads, -1});
  return layout.starts_with("BH") ? x : x.transpose(1, 2);
}

Mask mask_of(const RecordedCall& call) {
  static const std::map<std::string, Mask (*)(const at::Tensor&)> kTerms = {
      {"keep", Mask::keep},
      {"hide", Mask::hide},
      {"nonzero", [](const at::Tensor& x) { return Mask::keep(x != 0); }},
      {"bias", [](const at::Tensor& x) { return Mask::bias(x.to(at::kFloat)); }},
      {"key_keep", Mask::key_keep},
      {"key_hide", [](const at::Tensor& x) { return Mask::key_keep(x == 0); }},
      {"key_lengths", Mask::key_lengths},
      {"query_lengths", Mask::query_lengths}};
  Mask mask;
  for (const auto& [name, make] : kTerms)
    if (call.has(name)) mask &= make(call.tensors.at(name));
  return mask;
}

/// The recipes of the page.
void add_recipe(const RecordedCall& call, AttentionExtras& extras) {
  const auto recipe = call.text("score");
  if (recipe == "bias_in_cap") {
    const auto bias = captured(call.tensors.at("bias_in_cap")[0]);
    extras.score = score_mod([=, cap = call.said.at("number").get<float>()](auto s, auto pair) {
      const auto row = pair.query - (pair.keys - pair.queries);
      return cap * tanh((s + bias(pair.head, row, pair.key)) / cap);
    });
  } else if (recipe == "chunks") {
    const auto padding =
        call.has("key_keep") ? call.tensors.at("key_keep").logical_not().sum(1) : at::zeros({1}, at::kLong);
    const auto first = captured_indices(padding);
    extras.block_mask = mask_mod([=, chunk = call.said.at("number").get<int>()](auto pair) {
      return (pair.query - first(pair.batch)) / chunk == (pair.key - first(pair.batch)) / chunk;
    });
  } else if (recipe == "key_table") {
    const auto table = captured(call.tensors.at("key_table"));
    extras.score = score_mod([=](auto s, auto pair) { return s + table(pair.head, pair.key); });
  } else if (recipe == "cosine") {  // of q and k of length 1
    const auto scale = captured(call.tensors.at("head_scale"));
    extras.score = score_mod([=](auto s, auto pair) { return s * scale(pair.head); });
  } else {
    REQUIRE(recipe.empty());
  }
}

/// Compares which pairs a library's mask shows: with v of unit vectors, the output is the weights.
void check_visible(const RecordedCall& call) {
  const auto& visible = call.tensors.at("visible");
  const auto queries = visible.size(0), keys = visible.size(1);
  const auto options = options_of(call.said.at("options"));
  const auto q = at::ones({queries, 1, 1}), k = at::ones({keys, 1, 1}), v = at::eye(keys).unsqueeze(1);
  const auto output =
      call.has("ends_q")
          ? attention_varlen(q, k, v, call.tensors.at("ends_q"), call.tensors.at("ends_k"), options).output
          : attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), options).transpose(0, 1);
  CHECK(output.squeeze(1).gt(0).equal(visible));
}

void check_call(const RecordedCall& call, Backend backend) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}};
  const auto type = kTypes.at(call.text("dtype"));
  const auto layout = call.text("layout");
  const auto heads = call.said.value("heads", std::vector<int64_t>{0, 0});
  const auto input = [&](const char* name, int64_t its_heads) {
    const auto& x = call.tensors.at(name);
    const auto numbers = x.scalar_type() == at::kChar ? x.to(at::kFloat) / 16 : x;
    return heads_first(numbers.to(type), layout, its_heads);
  };
  auto q = input("q", heads[0]), k = input("k", heads[1]);
  const auto v = input("v", heads[1]);
  if (call.text("score") == "cosine")
    for (auto* x : {&q, &k}) *x = *x / x->norm(2, -1, /*keepdim=*/true);
  const bool modulo = call.text("groups") == "modulo";
  const auto key_heads = k.size(1), share = q.size(1) / key_heads;
  // Query heads g, g + Hkv, g + 2 Hkv, … come to stand side by side, and back.
  const auto regrouped = [](const at::Tensor& x, int64_t first, int64_t second) {
    return x.unflatten(1, {first, second}).transpose(1, 2).flatten(1, 2);
  };
  if (modulo) q = regrouped(q, share, key_heads);

  AttentionExtras extras{.mask = mask_of(call), .logsumexp = true};
  if (call.has("alibi_slopes")) {
    extras.alibi_slopes = call.tensors.at("alibi_slopes");
    CHECK_CLOSE(alibi_slopes(q.size(1)), extras.alibi_slopes);
  }
  if (call.has("sinks")) extras.sinks = call.tensors.at("sinks");
  add_recipe(call, extras);
  auto options = options_of(call.said.at("options"));
  options.backend = backend;
  auto [output, weights, logsumexp] = attention(q, k, v, options, extras);
  if (modulo) {
    output = regrouped(output, key_heads, share);
    logsumexp = regrouped(logsumexp.unsqueeze(-1), key_heads, share).squeeze(-1);
  }

  const auto want = heads_first(call.tensors.at("output"), layout, heads[0]);
  const auto empty = logsumexp == -kInfinity;  // with sinks, too
  CHECK(empty.any().item<bool>() == !call.text("empty").empty());
  if (empty.any().item<bool>()) {
    CHECK(output.index({empty}).eq(0).all().item<bool>());
    const auto theirs = want.index({empty});
    if (call.text("empty") == "zero") CHECK(theirs.eq(0).all().item<bool>());
    if (call.text("empty") == "nan") CHECK(theirs.isnan().all().item<bool>());
    if (call.text("empty") == "mean") {
      const auto mean = v.to(at::kFloat).mean(2, /*keepdim=*/true).repeat_interleave(share, 1);
      CHECK_CLOSE(mean.expand_as(want).index({empty}), theirs);
    }
  }
  const auto got = output.index({~empty}).to(at::kFloat), theirs = want.index({~empty});
  const auto difference = attentive::difference(got, theirs, tolerance_of(type));
  if (call.said.contains("differs"))
    CHECK(difference != "");
  else
    CHECK(difference == "");
  if (call.has("logsumexp")) {
    const auto want_lse = heads_first(call.tensors.at("logsumexp").unsqueeze(-1), layout, heads[0]);
    CHECK_CLOSE(logsumexp, want_lse.squeeze(-1));
  }
}

}  // namespace

TEST_CASE("Calls of other libraries have the numbers that the page says", "[frameworks]") {
  for (const auto& call : recorded_calls()) {
    INFO(call.name << ": " << call.text("library") << ": " << call.text("call"));
    if (call.has("visible")) {
      check_visible(call);
      continue;
    }
    for (const auto backend : {Backend::Auto, Backend::Reference}) {
      INFO("backend " << to_string(backend));
      check_call(call, backend);
    }
  }
}

TEST_CASE("Every row of the page has cases of that library and version", "[frameworks]") {
  const auto page = read_bytes(source_folder() + "/docs/guide/from_another_framework.md");
  std::map<std::string, int> cases;
  for (const auto& call : recorded_calls()) ++cases[call.text("library")];
  int all = 0;
  for (const auto& [library, count] : cases) {
    INFO(library);
    CHECK(page.find("| " + library + " |") != std::string::npos);
    all += count;
  }
  CHECK(cases.size() >= 14);
  CHECK(all >= 90);
  // As many rows as libraries.
  size_t rows = 0;
  const auto table = page.substr(page.find("| library |"));
  for (size_t at = table.find("\n| "); at != std::string::npos && at < table.find("\n\n");
       at = table.find("\n| ", at + 1))
    ++rows;
  CHECK(rows == cases.size());
}
