#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

struct Packed {
  at::Tensor q = at::randn({11, 4, 8}, at::kDouble);
  at::Tensor k = at::randn({14, 2, 8}, at::kDouble);
  at::Tensor v = at::randn({14, 2, 5}, at::kDouble);
  at::Tensor ends_q = at::tensor({0, 4, 4, 5, 11}, at::kInt);
  at::Tensor ends_k = at::tensor({0, 6, 8, 8, 14}, at::kInt);
};

// Sets the number of threads until the end of the scope.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace

TEST_CASE("packed sequences equal one call per sequence", "[varlen]") {
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  INFO(c10::toString(type));
  Packed p;
  for (auto* x : {&p.q, &p.k, &p.v}) *x = x->to(type);
  AttentionOptions options;
  AttentionExtras extras;
  extras.logsumexp = true;
  SECTION("plain") {}
  SECTION("causal") {
    options.causal = Causal::BottomRight;
  }
  SECTION("window") {
    options.window = {2, 1};
  }
  SECTION("softcap, alibi and sinks") {
    options.softcap = 1.5;
    extras.alibi_slopes = at::rand({4}, at::kDouble);
    extras.sinks = at::randn({4}, at::kDouble);
  }
  const auto got = attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k, options, extras);
  const auto ends_q = p.ends_q.accessor<int, 1>(), ends_k = p.ends_k.accessor<int, 1>();
  std::vector<at::Tensor> outputs, logsumexps;
  for (int n = 0; n < 4; ++n) {
    const auto part = [](const at::Tensor& x, int from, int to) {
      return x.slice(0, from, to).transpose(0, 1).unsqueeze(0);
    };
    const auto one = attention(part(p.q, ends_q[n], ends_q[n + 1]), part(p.k, ends_k[n], ends_k[n + 1]),
                               part(p.v, ends_k[n], ends_k[n + 1]), options, extras);
    outputs.push_back(one.output[0].transpose(0, 1));
    logsumexps.push_back(one.logsumexp[0]);
  }
  CHECK(got.output.scalar_type() == type);
  CHECK_CLOSE(got.output, at::cat(outputs));
  CHECK_CLOSE(got.logsumexp, at::cat(logsumexps, 1));
}

TEST_CASE("score and mask functions count within a packed sequence, whose number is pair.batch",
          "[varlen][score]") {
  const auto backend =
      GENERATE(Backend::Auto, Backend::Reference);  // an empty sequence alone is none of Native's calls
  INFO(to_string(backend));
  at::manual_seed(8);
  Packed p;
  for (auto* x : {&p.q, &p.k, &p.v}) *x = x->to(at::kFloat).requires_grad_(true);
  auto table = at::randn({4, 4, 8}).requires_grad_(true);
  const auto far = at::tensor({2, 3, 9, 1}, at::kLong);
  // In a call of one sequence alone, both tensors are cut to it.
  const auto extras_of = [&](const at::Tensor& numbers, const at::Tensor& distances) {
    const auto bias = captured(numbers);
    const auto most = captured_indices(distances);
    return AttentionExtras{
        .score =
            score_mod([=](auto s, auto pair) { return s * 0.5f + bias(pair.batch, pair.head, pair.key); }),
        .block_mask = mask_mod([=](auto pair) {
          return (abs(pair.query - pair.key) <= most(pair.batch)) & (pair.key != pair.keys - 2);
        }),
        .logsumexp = true};
  };
  const AttentionOptions options{.backend = backend};
  const auto got = attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k, options, extras_of(table, far));
  const auto ends_q = p.ends_q.accessor<int, 1>(), ends_k = p.ends_k.accessor<int, 1>();
  std::vector<at::Tensor> outputs, logsumexps;
  for (int n = 0; n < 4; ++n) {
    const auto part = [](const at::Tensor& x, int from, int to) {
      return x.slice(0, from, to).transpose(0, 1).unsqueeze(0);
    };
    const auto one = attention(part(p.q, ends_q[n], ends_q[n + 1]), part(p.k, ends_k[n], ends_k[n + 1]),
                               part(p.v, ends_k[n], ends_k[n + 1]), options,
                               extras_of(table.slice(0, n, n + 1), far.slice(0, n, n + 1)));
    outputs.push_back(one.output[0].transpose(0, 1));
    logsumexps.push_back(one.logsumexp[0]);
  }
  CHECK_CLOSE(got.output, at::cat(outputs));
  CHECK_CLOSE(got.logsumexp, at::cat(logsumexps, 1));
  const std::vector<at::Tensor> leaves = {p.q, p.k, p.v, table};
  const auto found = torch::autograd::grad({got.output.square().sum()}, leaves),
             want = torch::autograd::grad({at::cat(outputs).square().sum()}, leaves);
  for (size_t n = 0; n < leaves.size(); ++n) CHECK_WITHIN(found[n], want[n], {1e-5, 5e-6});
}

TEST_CASE("the native kernel computes each packed sequence with the bits of a call of its own", "[varlen]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto threads = GENERATE(1, 3);
  INFO(c10::toString(type) << ", threads " << threads);
  const ThreadCount count(threads);
  at::manual_seed(11);
  // Among short sequences, one that is worth all threads, empty ones, and one with tiles of a mask function.
  const std::vector<int64_t> lengths_q = {3, 0, 40, 1, 700, 5, 17, 300, 2, 64},
                             lengths_k = {5, 4, 40, 1200, 700, 0, 9, 300, 2, 64};
  const auto ends_of = [](const std::vector<int64_t>& lengths) {
    std::vector<int64_t> ends{0};
    for (const int64_t length : lengths) ends.push_back(ends.back() + length);
    return ends;
  };
  const auto ends_q = ends_of(lengths_q), ends_k = ends_of(lengths_k);
  const auto numbers = [&](int64_t tokens, int64_t heads, int64_t dim) {
    return at::randn({tokens, heads, dim}).to(type).requires_grad_(true);
  };
  const auto q = numbers(ends_q.back(), 4, 24), k = numbers(ends_k.back(), 2, 24),
             v = numbers(ends_k.back(), 2, 16);
  AttentionOptions options{.backend = Backend::Native};
  AttentionExtras extras{.logsumexp = true};
  const auto table = at::randn({4}).requires_grad_(true);
  std::vector<at::Tensor> shared;  // tensors to whose gradients every sequence adds
  SECTION("plain") {}
  SECTION("causal, softcap and sinks") {
    options.causal = Causal::BottomRight;
    options.softcap = 3.0;
    extras.sinks = at::randn({4}).requires_grad_(true);
    shared = {extras.sinks};
  }
  SECTION("window and slopes") {
    options.window = {30, 5};
    extras.alibi_slopes = at::rand({4}).requires_grad_(true);
    shared = {extras.alibi_slopes};
  }
  SECTION("functions of pairs") {
    const auto slope = captured(table);
    extras.score =
        score_mod([=](auto s, auto pair) { return s - slope(pair.head) * abs(pair.query - pair.key); });
    extras.block_mask = mask_mod([](auto pair) { return (pair.query >= pair.key) | (pair.key < 3); });
    shared = {table};
  }
  const auto got = attention_varlen(q, k, v, at::tensor(ends_q), at::tensor(ends_k), options, extras);
  const auto finite = [](const at::Tensor& x) { return x.masked_fill(x.isinf(), 0.0); };
  const auto grad_output = at::randn(got.output.sizes()).to(type);
  auto leaves = shared;
  leaves.insert(leaves.begin(), {q, k, v});
  const auto found =
      torch::autograd::grad({got.output, finite(got.logsumexp).sum()}, leaves, {grad_output, at::ones({})});
  std::vector<at::Tensor> sums(shared.size());
  for (size_t n = 0; n < lengths_q.size(); ++n) {
    INFO("sequence " << n);
    const auto part = [](const at::Tensor& x, const std::vector<int64_t>& ends, size_t sequence) {
      return x.slice(0, ends[sequence], ends[sequence + 1]);
    };
    const auto alone = [&](const at::Tensor& x, const std::vector<int64_t>& ends) {
      return part(x.detach(), ends, n).transpose(0, 1).unsqueeze(0).requires_grad_(true);
    };
    const auto one_q = alone(q, ends_q), one_k = alone(k, ends_k), one_v = alone(v, ends_k);
    if (lengths_q[n] == 0 || lengths_k[n] == 0) {  // which attention() leaves to the definition
      CHECK(part(got.output, ends_q, n).eq(0).all().item<bool>());
      CHECK(got.logsumexp.slice(1, ends_q[n], ends_q[n + 1]).isneginf().all().item<bool>());
      CHECK(part(found[0], ends_q, n).eq(0).all().item<bool>());
      CHECK(part(found[1], ends_k, n).eq(0).all().item<bool>());
      CHECK(part(found[2], ends_k, n).eq(0).all().item<bool>());
      continue;
    }
    const auto one = attention(one_q, one_k, one_v, options, extras);
    CHECK(bit_equal(part(got.output, ends_q, n), one.output[0].transpose(0, 1)));
    CHECK(bit_equal(got.logsumexp.slice(1, ends_q[n], ends_q[n + 1]), one.logsumexp[0]));
    auto one_leaves = shared;
    one_leaves.insert(one_leaves.begin(), {one_q, one_k, one_v});
    const auto want =
        torch::autograd::grad({one.output, finite(one.logsumexp).sum()}, one_leaves,
                              {part(grad_output, ends_q, n).transpose(0, 1).unsqueeze(0), at::ones({})});
    CHECK(bit_equal(part(found[0], ends_q, n), want[0][0].transpose(0, 1)));
    CHECK(bit_equal(part(found[1], ends_k, n), want[1][0].transpose(0, 1)));
    CHECK(bit_equal(part(found[2], ends_k, n), want[2][0].transpose(0, 1)));
    for (size_t i = 0; i < shared.size(); ++i)
      sums[i] = sums[i].defined() ? sums[i] + want[3 + i].to(at::kDouble) : want[3 + i].to(at::kDouble);
  }
  for (size_t i = 0; i < shared.size(); ++i) CHECK_WITHIN(found[3 + i], sums[i], {1e-4, 1e-4});
}

TEST_CASE("packed sequences do not see each other", "[varlen]") {
  Packed p;
  const auto before = attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k).output;
  p.k.slice(0, 6).normal_();
  p.v.slice(0, 6).normal_();
  const auto after = attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k).output;
  CHECK(bit_equal(before.slice(0, 0, 4), after.slice(0, 0, 4)));
  CHECK_FALSE(bit_equal(before, after));
}

TEST_CASE("every packed sequence has dropout bits of its own and gradients flow", "[varlen][dropout]") {
  const auto x = at::randn({12, 1, 4}).requires_grad_(true);
  const auto twice = at::cat({x.slice(0, 0, 6), x.slice(0, 0, 6)});
  const auto ends = at::tensor({0, 6, 12}, at::kLong);
  at::manual_seed(4);
  const auto y = attention_varlen(twice, twice, twice, ends, ends, {.dropout_p = 0.5}).output;
  CHECK_FALSE(bit_equal(y.slice(0, 0, 6), y.slice(0, 6)));
  at::manual_seed(4);
  CHECK(bit_equal(attention_varlen(twice, twice, twice, ends, ends, {.dropout_p = 0.5}).output, y));
  y.sum().backward();
  CHECK(x.grad().isfinite().all().item<bool>());
}

TEST_CASE("packed sequences: bad ends are refused by name", "[varlen][errors]") {
  Packed p;
  const auto refuses = [&](const at::Tensor& ends_q, const char* text) {
    CHECK_THROWS_MATCHES(attention_varlen(p.q, p.k, p.v, ends_q, p.ends_k), c10::Error,
                         MessageMatches(ContainsSubstring("attention_varlen") && ContainsSubstring(text)));
  };
  refuses(at::tensor({0, 4, 3, 5, 11}, at::kInt), "never to decrease");
  refuses(at::tensor({1, 4, 4, 5, 11}, at::kInt), "start at 0");
  refuses(at::tensor({0, 4, 4, 5, 10}, at::kInt), "end at 11");
  refuses(at::tensor({0, 4, 11}, at::kInt), "as many sequences");
  refuses(at::tensor({0., 11.}), "dtype Int or Long");
  AttentionExtras extras;
  extras.mask = at::rand({11, 14}).gt(0.5);
  CHECK_THROWS_AS(attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k, {}, extras), c10::ValueError);
}

TEST_CASE("a packed sequence without keys has a logsumexp of -inf, also with a sink", "[varlen][empty]") {
  Packed p;  // the third sequence has a query and no key
  const bool plus_one = GENERATE(false, true);
  AttentionExtras extras;
  extras.logsumexp = true;
  if (!plus_one) extras.sinks = at::randn({4}, at::kDouble).requires_grad_(true);
  const auto got =
      attention_varlen(p.q, p.k, p.v, p.ends_q, p.ends_k, {.softmax_plus_one = plus_one}, extras);
  CHECK(got.output[4].eq(0).all().item<bool>());
  CHECK(got.logsumexp.select(1, 4).eq(-std::numeric_limits<double>::infinity()).all().item<bool>());
  CHECK(got.logsumexp.isfinite().sum().item<int64_t>() == 4 * 10);
  if (plus_one) return;
  const auto of_row = torch::autograd::grad({got.logsumexp.select(1, 4)}, {extras.sinks},
                                            {at::zeros({4}, at::kDouble).fill_(1)});
  CHECK(of_row[0].eq(0).all().item<bool>());
}

TEST_CASE("no packed sequence at all gives empty results with gradients", "[varlen]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Native, Backend::Torch, Backend::Reference);
  const auto none = at::zeros({1}, at::kLong);
  const auto q = at::randn({0, 4, 8}).requires_grad_(true), k = at::randn({0, 2, 8}).requires_grad_(true),
             v = at::randn({0, 2, 3}).requires_grad_(true);
  AttentionExtras extras;
  extras.sinks = at::randn({4}).requires_grad_(true);
  extras.logsumexp = true;
  const auto result = attention_varlen(q, k, v, none, none, {.backend = backend}, extras);
  CHECK(result.output.sizes() == at::IntArrayRef({0, 4, 3}));
  CHECK(result.logsumexp.sizes() == at::IntArrayRef({4, 0}));
  REQUIRE(result.output.requires_grad());
  const auto gradients =
      torch::autograd::grad({result.output.sum() + result.logsumexp.sum()}, {q, k, v, extras.sinks});
  CHECK(gradients[0].sizes() == q.sizes());
  CHECK(gradients[1].sizes() == k.sizes());
  CHECK(gradients[2].sizes() == v.sizes());
  CHECK(gradients[3].equal(at::zeros({4})));
}
