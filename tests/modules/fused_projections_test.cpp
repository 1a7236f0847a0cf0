// Fused projections against an index computed by hand, and against the classes of transformers and
// x-transformers: tests/modules/data/fused.safetensors, which tools/generators/make_fused_cases.py writes.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/functional/attention.h>
#include <attentive/modules/convert.h>
#include <attentive/modules/positions.h>
#include <attentive/parity/case.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;
using convert::FusedOptions;
using convert::FusedOrder;
using convert::join_fused;
using convert::regroup_heads;
using convert::split_fused;

namespace {

constexpr FusedOrder kOrders[] = {FusedOrder::PerHead, FusedOrder::Thirds, FusedOrder::Blocks,
                                  FusedOrder::PerGroup, FusedOrder::Parts};

int64_t drawn(int64_t low, int64_t high) {
  return at::randint(low, high + 1, {1}).item<int64_t>();
}

// Sizes that the order allows.
FusedOptions drawn_options(FusedOrder order) {
  FusedOptions options{.kv_heads = drawn(1, 3), .head_dim = drawn(1, 4), .parts = drawn(1, 3)};
  if (order == FusedOrder::Parts) options.kv_heads *= options.parts;
  const bool alike = order == FusedOrder::PerHead || order == FusedOrder::Thirds;
  options.heads = options.kv_heads * (alike ? 1 : drawn(1, 3));
  if (options.heads == options.kv_heads && drawn(0, 1) == 1) options.kv_heads = 0;
  return options;
}

// The row of a fused projection that holds feature d of a head; `what`: 0, 1, 2 for q, k, v.
int64_t row_of(FusedOrder order, const FusedOptions& o, int64_t what, int64_t head, int64_t d) {
  const int64_t H = o.heads, K = o.kv_heads == 0 ? H : o.kv_heads, G = H / K;
  int64_t before = 0;  // heads of the layer before this one
  switch (order) {
    case FusedOrder::PerHead:
      before = head * 3 + what;
      break;
    case FusedOrder::Thirds:
      before = what * H + head;
      break;
    case FusedOrder::Blocks:
      before = (what > 0 ? H : 0) + (what > 1 ? K : 0) + head;
      break;
    case FusedOrder::PerGroup:
      before = what == 0 ? head / G * (G + 2) + head % G : head * (G + 2) + G + what - 1;
      break;
    case FusedOrder::Parts: {
      const int64_t of_q = H / o.parts, of_k = K / o.parts, own = what == 0 ? of_q : of_k;
      const int64_t offset = what == 0 ? 0 : what == 2 ? of_q : of_q + of_k;
      before = head / own * (of_q + 2 * of_k) + offset + head % own;
      break;
    }
  }
  return before * o.head_dim + d;
}

nlohmann::json options_of(const attentive::Case& file) {
  return nlohmann::json::parse(file.options);
}

std::vector<attentive::Case> fused_cases() {
  std::vector<attentive::Case> cases;
  const auto bundle = source_folder() + "/tests/modules/data/fused.safetensors";
  for (auto& [place, content] : load_cases(bundle)) cases.push_back(make_case(std::move(content), place));
  return cases;
}

at::Tensor in_heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(1, 2);
}

// Rotates the first features of every head as the class does.
at::Tensor rotated(const at::Tensor& x, const nlohmann::json& options) {
  if (!options.contains("rotary")) return x;
  const auto dim = options["rotary_dim"].get<int64_t>();
  RotaryPositions rotary(RotaryPositionsOptions(dim).pairing(
      options["rotary"] == "halves" ? RotaryPairing::Halves : RotaryPairing::Interleaved));
  return at::cat({rotary->forward(x.narrow(3, 0, dim)), x.narrow(3, dim, x.size(3) - dim)}, 3);
}

double largest_difference(const at::Tensor& got, const at::Tensor& want) {
  REQUIRE(got.sizes() == want.sizes());
  return (got - want).abs().max().item<double>();
}

void check_gradients(const attentive::Case& file, const at::Tensor& output,
                     const std::map<std::string, at::Tensor>& leaves) {
  CHECK(largest_difference(output, file.expected_output) <= 1e-5);
  (output * file.grad_output).sum().backward();
  CHECK(file.state_gradients.size() == leaves.size());
  for (const auto& [name, gradient] : file.state_gradients) {
    INFO("gradient of " << name);
    CHECK(largest_difference(leaves.at(name).grad(), gradient) <= 2e-5);
  }
}

std::map<std::string, at::Tensor> leaves_of(const attentive::Case& file) {
  std::map<std::string, at::Tensor> leaves;
  for (const auto& [name, tensor] : file.state) leaves[name] = tensor.detach().clone().requires_grad_();
  return leaves;
}

}  // namespace

TEST_CASE("split_fused takes every row from its place, and join_fused puts it back", "[convert][fused]") {
  for (int n = 0; n < 60; ++n) {
    for (const auto order : kOrders) {
      auto options = drawn_options(order);
      const int64_t H = options.heads, K = options.kv_heads == 0 ? H : options.kv_heads, D = options.head_dim;
      INFO(to_string(order) << ", heads " << H << "/" << options.kv_heads << " of " << D << ", parts "
                            << options.parts);
      const auto weight = at::randn({(H + 2 * K) * D, drawn(0, 3)}), bias = at::randn({(H + 2 * K) * D});
      std::array<std::vector<int64_t>, 3> rows;
      for (int64_t what = 0; what < 3; ++what) {
        for (int64_t head = 0; head < (what == 0 ? H : K); ++head) {
          for (int64_t d = 0; d < D; ++d)
            rows[static_cast<size_t>(what)].push_back(row_of(order, options, what, head, d));
        }
      }
      if (n % 2 == 0) options.head_dim = 0;
      for (const bool transposed : {false, true}) {
        options.transposed = transposed;
        const auto fused = transposed ? weight.t().contiguous() : weight;
        const auto weights = split_fused(fused, order, options), biases = split_fused(bias, order, options);
        for (size_t what = 0; what < 3; ++what) {
          const auto index = at::tensor(rows[what]);
          CHECK(bit_equal(weights[what], weight.index_select(0, index)));
          CHECK(bit_equal(biases[what], bias.index_select(0, index)));
        }
        CHECK(bit_equal(join_fused(weights, order, options), fused));
        CHECK(bit_equal(join_fused(biases, order, options), bias));
      }
    }
  }
}

TEST_CASE("gradients flow through split_fused, join_fused and regroup_heads", "[convert][fused]") {
  for (const auto order : kOrders) {
    INFO(to_string(order));
    const auto options = drawn_options(order);
    const int64_t K = options.kv_heads == 0 ? options.heads : options.kv_heads;
    const auto fused = at::randn({(options.heads + 2 * K) * options.head_dim, 3}).requires_grad_();
    const auto parts = split_fused(fused, order, options);
    std::array<at::Tensor, 3> factors, leaves;
    auto loss = at::zeros({});
    for (size_t n = 0; n < 3; ++n) {
      factors[n] = at::randn(parts[n].sizes());
      leaves[n] = parts[n].detach().clone().requires_grad_();
      loss = loss + (parts[n] * factors[n]).sum();
    }
    loss.backward();
    const auto factor = join_fused(factors, order, options);
    CHECK(bit_equal(fused.grad(), factor));
    (join_fused(leaves, order, options) * factor).sum().backward();
    for (size_t n = 0; n < 3; ++n) CHECK(bit_equal(leaves[n].grad(), factors[n]));
  }
  const auto x = at::randn({12, 3}).requires_grad_();
  const auto factor = at::randn({12, 3});
  (regroup_heads(x, 6, 2) * regroup_heads(factor, 6, 2)).sum().backward();
  CHECK(bit_equal(x.grad(), factor));
}

TEST_CASE("regroup_heads turns heads that alternate into heads that are neighbours", "[convert][fused]") {
  for (const auto& [heads, kv_heads] : {std::pair(6, 2), std::pair(6, 3), std::pair(4, 4), std::pair(4, 1)}) {
    const auto q = at::randn({2, heads, 5, 4}), k = at::randn({2, kv_heads, 7, 4}),
               v = at::randn({2, kv_heads, 7, 4});
    const auto repeats = std::array<int64_t, 4>{1, heads / kv_heads, 1, 1};  // head h reads h % kv_heads
    const auto want = attention(q, k.repeat(repeats), v.repeat(repeats));
    const auto got = attention(regroup_heads(q, heads, kv_heads, 1), k, v);
    CHECK_CLOSE(regroup_heads(got, heads, heads / kv_heads, 1), want);
    const auto bias = at::randn({heads * 4}), out = at::randn({3, heads * 4});
    CHECK(bit_equal(regroup_heads(regroup_heads(bias, heads, kv_heads), heads, heads / kv_heads), bias));
    CHECK_CLOSE(at::linear(got.transpose(1, 2).flatten(2), regroup_heads(out, heads, kv_heads, 1)),
                at::linear(want.transpose(1, 2).flatten(2), out));
  }
}

TEST_CASE("sizes that do not divide are refused with the order and the sizes", "[convert][fused]") {
  const auto split = [](at::IntArrayRef sizes, FusedOrder order, const FusedOptions& options) {
    return error_of<c10::ValueError>([&] { split_fused(at::zeros(sizes), order, options); });
  };
  CHECK(split({25, 4}, FusedOrder::PerHead, {.heads = 2}) ==
        "split_fused: expected 6 * head_dim output features in the order per-head of heads 2, kv_heads 2, "
        "got 25");
  CHECK(split({24, 4}, FusedOrder::Thirds, {.heads = 2, .head_dim = 5}) ==
        "split_fused: expected 6 * 5 output features in the order thirds of heads 2, kv_heads 2, got 24");
  CHECK(
      split({4, 24}, FusedOrder::Thirds, {.heads = 2}) ==
      "split_fused: expected 6 * head_dim output features in the order thirds of heads 2, kv_heads 2, got 4");
  CHECK(
      split({0, 4}, FusedOrder::Blocks, {.heads = 2}) ==
      "split_fused: expected 6 * head_dim output features in the order blocks of heads 2, kv_heads 2, got 0");
  CHECK(split({24, 4}, FusedOrder::PerHead, {.heads = 4, .kv_heads = 2}) ==
        "split_fused: expected heads to be a multiple of kv_heads, as many as these, in the order per-head, "
        "got "
        "heads 4, kv_heads 2, parts 4");
  CHECK(split({24, 4}, FusedOrder::PerGroup, {.heads = 4, .kv_heads = 3}) ==
        "split_fused: expected heads to be a multiple of kv_heads in the order per-group, got heads 4, "
        "kv_heads 3, "
        "parts 4");
  CHECK(
      split({24, 4}, FusedOrder::Parts, {.heads = 6}) ==
      "split_fused: expected heads to be a multiple of kv_heads, and these of parts, in the order parts, got "
      "heads 6, kv_heads 6, parts 4");
  for (const FusedOptions& options :
       {FusedOptions{.heads = 4, .parts = 0}, {.heads = 4, .parts = -2}, {.heads = 4, .kv_heads = -4}})
    CHECK(split({24, 4}, FusedOrder::Parts, options)
              .starts_with("split_fused: expected heads to be a multiple"));
  CHECK(split({24, 4}, FusedOrder::Blocks, {.heads = 0}) == "split_fused: expected heads > 0, got 0");
  CHECK(split({24, 4}, FusedOrder::Blocks, {.heads = int64_t{1} << 60})
            .starts_with("split_fused: expected heads"));
  CHECK(split({24, 4}, FusedOrder::Blocks, {.heads = 2, .head_dim = -4}) ==
        "split_fused: expected 6 * -4 output features in the order blocks of heads 2, kv_heads 2, got 24");
  CHECK(split({6, 2, 2}, FusedOrder::Blocks, {.heads = 2}) ==
        "split_fused: expected fused to be a weight or a bias, got shape (6, 2, 2)");
  CHECK(error_of<c10::ValueError>([] { split_fused({}, FusedOrder::Blocks, {.heads = 2}); }) ==
        "split_fused: expected fused to be a tensor, got an undefined one");

  const auto join = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return error_of<c10::ValueError>([&] {
      join_fused({q, k, v}, FusedOrder::PerGroup, {.heads = 4, .kv_heads = 2});
    });
  };
  const auto q = at::zeros({12, 5}), k = at::zeros({6, 5});
  CHECK(join(q, k, at::zeros({7, 5})) ==
        "join_fused: expected 8 * head_dim output features in the order per-group of heads 4, kv_heads 2, "
        "got 25");
  CHECK(join(k, q, k) ==
        "join_fused: expected q of shape (12, 5), Float on cpu in the order per-group, got (6, 5), Float on "
        "cpu");
  CHECK(join(q, k, at::zeros({6, 4})) ==
        "join_fused: expected v of shape (6, 5), Float on cpu in the order per-group, got (6, 4), Float on "
        "cpu");
  CHECK(
      join(q, k.to(at::kHalf), k) ==
      "join_fused: expected k of shape (6, 5), Float on cpu in the order per-group, got (6, 5), Half on cpu");
  CHECK(
      join(q, at::zeros({6}), k) ==
      "join_fused: expected k of shape (6, 5), Float on cpu in the order per-group, got (6,), Float on cpu");

  const auto regroup = [](int64_t heads, int64_t kv_heads, int64_t dim) {
    return error_of<c10::ValueError>([&] { regroup_heads(at::zeros({12, 5}), heads, kv_heads, dim); });
  };
  CHECK(regroup(6, 4, 0) ==
        "regroup_heads: expected kv_heads to divide heads and these the size of dimension 0, got heads 6, "
        "kv_heads "
        "4, x (12, 5)");
  CHECK(regroup(5, 5, 0) ==
        "regroup_heads: expected kv_heads to divide heads and these the size of dimension 0, got heads 5, "
        "kv_heads "
        "5, x (12, 5)");
  CHECK(regroup(6, 0, 0).ends_with("got heads 6, kv_heads 0, x (12, 5)"));
  CHECK(regroup(-6, 2, 0).ends_with("got heads -6, kv_heads 2, x (12, 5)"));
  CHECK(regroup(6, 2, 2) == "regroup_heads: expected dim in [0, 2), got 2");
}

TEST_CASE("fused projections of transformers have its classes' outputs and gradients", "[convert][fused]") {
  size_t seen = 0;
  for (const auto& file : fused_cases()) {
    const auto options = options_of(file);
    if (!options.contains("order")) continue;
    ++seen;
    const auto* order = std::find_if(std::begin(kOrders), std::end(kOrders),
                                     [&](auto one) { return to_string(one) == options["order"]; });
    REQUIRE(order != std::end(kOrders));
    const FusedOptions sizes{.heads = options["heads"],
                             .kv_heads = options.value("kv_heads", int64_t{0}),
                             .parts = options.value("parts", int64_t{4}),
                             .transposed = options.value("transposed", false)};
    const int64_t kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
    const auto bias_of = [](const std::map<std::string, at::Tensor>& tensors, const char* name) {
      const auto found = tensors.find(name);
      return found == tensors.end() ? std::nullopt : std::optional(found->second);
    };
    for (const auto backend : {Backend::Auto, Backend::Reference}) {
      INFO(file.name << ", backend " << to_string(backend));
      const auto leaves = leaves_of(file);
      const auto [wq, wk, wv] = split_fused(leaves.at("weight"), *order, sizes);
      std::array<std::optional<at::Tensor>, 3> biases;
      if (const auto bias = bias_of(leaves, "bias")) {
        const auto parts = split_fused(*bias, *order, sizes);
        biases = {parts[0], parts[1], parts[2]};
      }
      const auto& x = file.inputs.at("x");
      const auto q = in_heads(at::linear(x, wq, biases[0]), sizes.heads),
                 k = in_heads(at::linear(x, wk, biases[1]), kv_heads),
                 v = in_heads(at::linear(x, wv, biases[2]), kv_heads);
      AttentionExtras extras;
      if (options.value("alibi", false)) extras.alibi_slopes = alibi_slopes(sizes.heads);
      const auto y = attention(rotated(q, options), rotated(k, options), v,
                               {.causal = Causal::BottomRight, .backend = backend}, extras);
      check_gradients(file,
                      at::linear(y.output.transpose(1, 2).flatten(2), file.inputs.at("out.weight"),
                                 bias_of(file.inputs, "out.bias")),
                      leaves);
    }
  }
  CHECK(seen == 11);
}

TEST_CASE("regrouped heads of x-transformers have its outputs and gradients", "[convert][fused]") {
  size_t seen = 0;
  for (const auto& file : fused_cases()) {
    const auto options = options_of(file);
    if (options.contains("order")) continue;
    ++seen;
    INFO(file.name);
    const int64_t heads = options["heads"], kv_heads = options["kv_heads"];
    const auto leaves = leaves_of(file);
    const auto& x = file.inputs.at("x");
    const auto q = regroup_heads(leaves.at("to_q.weight"), heads, kv_heads),
               out = regroup_heads(leaves.at("to_out.weight"), heads, kv_heads, /*dim=*/1);
    const auto y = attention(
        in_heads(at::linear(x, q), heads), in_heads(at::linear(x, leaves.at("to_k.weight")), kv_heads),
        in_heads(at::linear(x, leaves.at("to_v.weight")), kv_heads), {.causal = Causal::BottomRight});
    check_gradients(file, at::linear(y.transpose(1, 2).flatten(2), out), leaves);
  }
  CHECK(seen == 3);
}
