// Compares the native CPU kernel with the float64 reference: shapes that fill several tiles, odd shapes,
// every option, strides, hidden numbers, threads. The backend is forced, so a fallback would be an error.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "kernels/dropout_counter.h"
#include "kernels/gemm/products.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/simd/selection.h"
#include "kernels/simd/threads.h"
#include "support/cells.h"
#include "support/compare.h"
#include "support/covering_array.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Shapes {
  int64_t B = 1, H = 2, Hkv = 1, L = 150, S = 150, D = 16, Dv = 16;
};

OptionCall random_call(const Shapes& s, uint64_t seed = 3) {
  at::manual_seed(seed);
  OptionCall call;
  call.q = at::randn({s.B, s.H, s.L, s.D}, at::kDouble);
  call.k = at::randn({s.B, s.Hkv, s.S, s.D}, at::kDouble);
  call.v = at::randn({s.B, s.Hkv, s.S, s.Dv}, at::kDouble);
  return call;
}

// Products of bfloat16 round each weight by at most 2^-9 of itself, so an output may be wrong by that share
// of the mean of |v|. That is more than the rounding of the output if values of both signs cancel.
Tolerance output_tolerance(const OptionCall& call, at::ScalarType type) {
  auto tolerance = tolerance_of(type);
  if (type != at::kBFloat16 || !kernels::cpu::has_gemm_bf16()) return tolerance;
  auto magnitudes = call;
  magnitudes.v = magnitudes.v.abs();
  const auto mean = expected_of(magnitudes).result.output;
  tolerance.atol = std::max(tolerance.atol, std::ldexp(largest_magnitude(mean), -9));
  return tolerance;
}

// The size of the terms of the slopes' gradient.
double slope_terms_of(const OptionCall& call) {
  auto probe = call;
  const auto logits =
      at::zeros({call.q.size(0), call.q.size(1), call.q.size(2), call.k.size(2)}, at::kDouble);
  probe.extras.mask = Mask::bias(logits.requires_grad_(true)) & probe.extras.mask;
  probe.bias_gradient = true;
  return slope_terms(expected_of(probe).gradients[3]);
}

// Compares forward and backward in `type` on the native kernel with the float64 reference for the same
// rounded numbers.
void check(const OptionCall& exact, at::ScalarType type) {
  const auto call = cast(exact, type);
  auto options = call.options;
  CHECK(explain(call.q, call.k, call.v, options, call.extras).chosen == Backend::Native);
  const auto got = run_on(call, Backend::Native);
  REQUIRE_FALSE(got.refused);
  const auto want = expected_of(call);
  const auto of_output = output_tolerance(call, type);
  for (const auto* result : {&got.result, &got.inference}) {
    INFO((result == &got.result ? "with" : "without") << " a graph");
    CHECK(difference(result->output, want.result.output, of_output) == "");
    CHECK(difference(result->logsumexp, want.result.logsumexp, tolerance_of(type)) == "");
  }
  double largest = 0.0;
  for (const auto& gradient : want.gradients)
    largest = std::max(largest, gradient.abs().max().item<double>());
  const auto tolerance = tolerance_of(type, true);
  for (size_t n = 0; n < want.gradients.size(); ++n) {
    INFO("gradient " << n << " of q, k, v, bias, slopes");
    const bool of_slopes = call.slopes_gradient && n + 1 == want.gradients.size();
    const double size = of_slopes ? std::max(largest, slope_terms_of(call)) : largest;
    CHECK(difference(got.gradients[n], want.gradients[n], {0.0, tolerance.atol + tolerance.rtol * size}) ==
          "");
  }
}

// A call from which single heads and batch items can be extracted.
struct Company {
  OptionCall call;
  at::Tensor grad_output;
  at::Tensor lengths;  // or undefined
};

Company part_of(const Company& whole, int64_t item, int64_t items, int64_t kv_head, int64_t kv_heads) {
  const auto& from = whole.call;
  const int64_t group = from.q.size(1) / from.k.size(1), head = kv_head * group, heads = kv_heads * group;
  const auto cut = [&](const at::Tensor& x, int64_t first, int64_t count) {
    return x.narrow(0, item, items).narrow(1, first, count);
  };
  Company part = whole;
  part.call.q = cut(from.q, head, heads);
  part.call.k = cut(from.k, kv_head, kv_heads);
  part.call.v = cut(from.v, kv_head, kv_heads);
  part.grad_output = cut(whole.grad_output, head, heads);
  auto& extras = part.call.extras;
  if (extras.alibi_slopes.defined()) extras.alibi_slopes = extras.alibi_slopes.narrow(0, head, heads);
  if (extras.sinks.defined()) extras.sinks = extras.sinks.narrow(0, head, heads);
  if (whole.lengths.defined()) extras.mask = Mask::key_lengths(whole.lengths.narrow(0, item, items));
  return part;
}

// Returns output, logsumexp, weights, the gradients of q, k and v and, last, that of the sinks (or an
// undefined tensor).
std::vector<at::Tensor> results_of(Company company, int threads) {
  at::set_num_threads(threads);
  auto& [call, grad_output, lengths] = company;
  call.options.backend = Backend::Native;
  call.extras.logsumexp = true;
  auto with_weights = call.extras;
  with_weights.weights = Weights::Clean;
  const auto weights = attention(call.q, call.k, call.v, call.options, with_weights).weights;
  std::vector<at::Tensor> leaves;
  for (auto* x : {&call.q, &call.k, &call.v, &call.extras.sinks}) {
    if (x->defined()) leaves.push_back(*x = x->detach().requires_grad_());
  }
  const auto result = attention(call.q, call.k, call.v, call.options, call.extras);
  auto gradients = torch::autograd::grad({result.output}, leaves, {grad_output});
  gradients.resize(4);
  std::vector<at::Tensor> all = {result.output, result.logsumexp, weights};
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

Company random_company(std::mt19937& random, Shapes shapes, at::ScalarType type) {
  const auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
  Company company{random_call(shapes, random()), {}, {}};
  auto& call = company.call;
  for (auto* x : {&call.q, &call.k, &call.v}) *x = x->to(type);
  company.grad_output = at::randn({shapes.B, shapes.H, shapes.L, shapes.Dv}).to(type);
  if (pick(2)) call.options.causal = Causal::BottomRight;
  switch (pick(4)) {
    case 0:  // narrow window: a query's keys lie in neighbouring parts
      call.options.window = {pick(200), pick(100)};
      break;
    case 1:
      call.options.window = {400 + pick(400), 200};
      break;
    default:
      break;
  }
  if (pick(4) > 0) call.extras.sinks = at::randn({shapes.H});
  if (pick(4) == 0) call.extras.alibi_slopes = at::rand({shapes.H}) * 0.1;
  if (pick(3) == 0) company.lengths = at::randint(shapes.S + 1, {shapes.B}, at::kLong);
  if (company.lengths.defined()) call.extras.mask = Mask::key_lengths(company.lengths);
  return company;
}

// Options that are tested here, on their own: all but those that change the shapes or ask for weights. Cases
// whose tensors are for four heads are separate.
std::vector<const OptionCase*> options_alone(bool four_heads) {
  const std::set<std::string> elsewhere = {"length", "kv", "weights"}, of_four = {"bias", "alibi", "sink"};
  std::vector<const OptionCase*> chosen;
  for (const auto& option : option_cases()) {
    if (elsewhere.count(option.group) || option.name == "dropout, Aten stream") continue;
    if ((of_four.count(option.group) > 0) == four_heads) chosen.push_back(&option);
  }
  return chosen;
}

void check_option(const OptionCase& option, const Shapes& shapes, at::ScalarType type) {
  INFO("option: " << option.name << ", dtype " << c10::toString(type) << ", L " << shapes.L);
  auto call = random_call(shapes);
  option.apply(call);
  check(call, type);
}

}  // namespace

TEST_CASE("native: every option over several tiles", "[native]") {
  static const std::vector<Shapes> shapes = {
      {},
      {.B = 2, .H = 2, .Hkv = 2, .L = 290, .S = 331, .D = 72, .Dv = 40},
      {.H = 4, .Hkv = 2, .L = 70, .S = 2100, .D = 8, .Dv = 8}};  // tiles of 1024 keys
  SECTION("of any heads") {
    static const auto options = options_alone(/*four_heads=*/false);
    static const auto rows = rows_for_kernels({options.size(), kNativeTypes.size(), shapes.size()});
    const auto row = GENERATE(from_range(rows));
    check_option(*options[row[0]], shapes[row[2]], kNativeTypes[row[1]]);
  }
  SECTION("of four heads") {
    static const auto options = options_alone(/*four_heads=*/true);
    const auto n = GENERATE_COPY(range(size_t{0}, options.size()));
    check_option(*options[n], shapes.back(), GENERATE(from_range(kNativeTypes)));
  }
}

TEST_CASE("native: weights equal the reference's, beside the output and by a second pass",
          "[native][weights]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto which = GENERATE(Weights::Clean, Weights::Dropped);
  const int64_t S = GENERATE(300, 1100);  // of rows that one tile holds, and longer ones
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  const std::set<std::string> elsewhere = {"length", "kv", "weights"};
  if (elsewhere.count(cases[n].group) || cases[n].name == "dropout, Aten stream") return;
  INFO("option: " << cases[n].name << ", dtype " << c10::toString(type) << ", " << S << " keys");
  auto call = random_call({.H = 4, .Hkv = 2, .L = 70, .S = S});
  cases[n].apply(call);
  const at::NoGradGuard no_grad;
  call = cast(call, type);
  call.extras.weights = which;
  const auto run = [&](const OptionCall& on, Backend backend) {
    auto options = on.options;
    options.backend = backend;
    at::manual_seed(11);
    return attention(on.q, on.k, on.v, options, on.extras);
  };
  const auto got = run(call, Backend::Native);
  const auto want = run(cast(call, at::kDouble), Backend::Reference);
  CHECK(difference(got.weights, want.weights, tolerance_of(type)) == "");
  CHECK(difference(got.output, want.output, tolerance_of(type)) == "");
  // A weight that is exactly zero in the reference is hidden or dropped, and must be zero here.
  CHECK_FALSE(got.weights.ne(0).logical_and(want.weights.eq(0)).any().item<bool>());
}

TEST_CASE("native: weights have the same bits beside the output and by a second pass", "[native][weights]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto which = GENERATE(Weights::Clean, Weights::Dropped);
  const int64_t L = GENERATE(130, 9), S = 1000;  // more keys do not fit a tile
  const at::NoGradGuard no_grad;
  const auto exact = random_call({.H = 4, .Hkv = 2, .L = L + 100, .S = S + 100});
  const auto shown = at::rand({L + 100, S + 100}).lt(0.8), bias = at::randn(shown.sizes());
  shown.slice(0, 0, L / 2).fill_(false);  // whole strips see no key
  const auto lengths = at::full({exact.q.size(0)}, S, at::kLong);
  // With as many more queries as keys, a query keeps its position, and so its dropout.
  const auto run = [&](int64_t more, Weights weights) {
    const auto call = cast(exact, type);
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, 0, L + more).narrow(1, 0, S + more); };
    at::manual_seed(5);
    return attention(call.q.narrow(2, 0, L + more), call.k.narrow(2, 0, S + more),
                     call.v.narrow(2, 0, S + more),
                     {.softcap = 3.0, .dropout_p = 0.3, .backend = Backend::Native},
                     {.mask = part(shown) & Mask::bias(part(bias).to(type)) & Mask::key_lengths(lengths),
                      .weights = weights});
  };
  INFO(c10::toString(type) << ", " << L << " queries");
  const auto beside = run(0, which), second = run(100, which);
  CHECK(bit_equal(beside.weights, second.weights.narrow(2, 0, L).narrow(3, 0, S)));
  CHECK(second.weights.narrow(3, S, 100).eq(0).all().item<bool>());
  CHECK(bit_equal(beside.output, run(0, Weights::None).output));
}

namespace {

// Checks a random call with up to `most` queries, and as many keys or up to eight times as many.
void check_fuzzed(int seed, int64_t most) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + random() % choices.size());
  };
  Shapes s;
  s.B = pick({1, 1, 2});
  s.H = 4;
  s.Hkv = pick({1, 2, 4});
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(1 + random() % static_cast<uint64_t>(n)); };
  s.L = up_to(most);
  s.S = random() % 2 ? s.L : up_to(random() % 4 ? most : 8 * most);
  s.D = pick({1, 3, 16, 59, 64, 111, 128, 256});
  s.Dv = random() % 3 ? s.D : pick({1, 5, 32, 65});
  auto call = random_call(s, static_cast<uint64_t>(seed));
  std::string names;
  std::set<std::string> groups = {"kv", "length", "weights", "value dim"};
  for (int n = 0; n < 4; ++n) {
    const auto& option = option_cases()[random() % option_cases().size()];
    if (option.name == "dropout, Aten stream") continue;
    if (!groups.insert(option.group).second) continue;
    names += option.name + "; ";
    option.apply(call);
  }
  const auto type = std::array{at::kFloat, at::kBFloat16, at::kHalf}[random() % 3];
  INFO("seed " << seed << ": B " << s.B << " Hkv " << s.Hkv << " L " << s.L << " S " << s.S << " D " << s.D
               << " Dv " << s.Dv << " " << c10::toString(type) << ": " << names);
  check(call, type);
}

}  // namespace

TEST_CASE("native: fuzzed shapes and options", "[native][fuzz]") {
  check_fuzzed(GENERATE(range(0, 60)), 300);
}

TEST_CASE("native: fuzzed small shapes and options", "[native][fuzz][short]") {
  check_fuzzed(GENERATE(range(60, 90)), 60);
}

TEST_CASE("native: packed and permuted inputs need no copy and give the same bits",
          "[native][strides][short]") {
  at::manual_seed(1);
  const auto qkv = at::randn({2, 40, 3, 4, 16});
  const auto parts = qkv.permute({2, 0, 3, 1, 4});
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = Backend::Native};
  const auto packed = attention(parts[0], parts[1], parts[2], options);
  CHECK(bit_equal(packed,
                  attention(parts[0].contiguous(), parts[1].contiguous(), parts[2].contiguous(), options)));
  // The memory layout of the output is (B, L, H, D), so that merging the heads is a view.
  CHECK(packed.transpose(1, 2).is_contiguous());
  // The keys are expanded, and their last dimension is strided.
  const auto one = at::randn({1, 1, 40, 16});
  const auto spread = one.expand({2, 4, 40, 16});
  CHECK(bit_equal(attention(parts[0], spread, spread, options),
                  attention(parts[0], spread.contiguous(), spread.contiguous(), options)));
  const auto strided = at::randn({2, 4, 16, 40}).transpose(2, 3);
  CHECK(bit_equal(attention(strided, strided, strided, options),
                  attention(strided.contiguous(), strided.contiguous(), strided.contiguous(), options)));
}

TEST_CASE("native: masks and biases may have any stride", "[native][strides]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int64_t L = GENERATE(5, 70);
  const std::string stride = GENERATE("by columns", "one for all keys");
  INFO(stride << ", dtype " << c10::toString(type) << ", L " << L);
  auto call = random_call({.L = L, .S = 300});
  const auto term = [&] { return stride == "by columns" ? at::rand({300, L}).t() : at::rand({L, 1}); };
  SECTION("mask") {
    call.extras.mask = Mask::keep(term().gt(0.4));
  }
  SECTION("bias") {
    call.extras.mask = Mask::bias(term());
  }
  check(call, type);
}

TEST_CASE("native: incoming gradients may have any stride", "[native][strides][short]") {
  at::manual_seed(2);
  auto x = at::randn({1, 2, 90, 8}).requires_grad_(true);
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = Backend::Native};
  const auto gradient = [&](const at::Tensor& direction) {
    const auto y = attention(x, x, x, options);
    return torch::autograd::grad({y}, {x}, {direction})[0];
  };
  const auto direction = at::randn({1, 2, 8, 90}).transpose(2, 3);
  CHECK(bit_equal(gradient(direction), gradient(direction.contiguous())));
  const auto constant = at::full({1, 1, 1, 1}, 0.5).expand({1, 2, 90, 8});
  CHECK(bit_equal(gradient(constant), gradient(constant.contiguous())));
}

TEST_CASE("native: a gradient lies as its tensor does", "[native][strides]") {
  at::manual_seed(3);
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = Backend::Native};
  const auto x = at::randn({2, 3, 50, 8});
  const auto swapped = at::randn({2, 50, 3, 8}).transpose(1, 2);
  const auto packed = at::randn({2, 50, 3, 24}).slice(3, 8, 16).transpose(1, 2);
  const auto one = at::randn({1, 1, 50, 8}).expand({2, 3, 50, 8});
  const auto narrow = at::randn({2, 3, 1, 50}).transpose(2, 3);
  for (const auto& tensor : {x, swapped, packed, one, narrow}) {
    INFO("strides " << tensor.strides());
    const auto leaf = tensor.detach().requires_grad_(true);
    const auto copy = tensor.contiguous().requires_grad_(true);
    const auto gradient = [&](const at::Tensor& q) {
      return torch::autograd::grad({attention(q, q, q, options).square().sum()}, {q})[0];
    };
    const auto result = gradient(leaf);
    CHECK(bit_equal(result, gradient(copy)));
    CHECK(result.is_non_overlapping_and_dense());
    if (tensor.is_non_overlapping_and_dense()) CHECK(result.strides() == tensor.strides());
  }
}

TEST_CASE("native: NaN around the inputs changes no bit", "[native][nan]") {
  at::manual_seed(4);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto surrounded = [&](const at::Tensor& x) {
    const auto big =
        at::full({x.size(0) + 2, x.size(1) + 2, x.size(2) + 2, x.size(3) + 2}, kNaN, x.options());
    auto inner = big;
    for (int64_t d = 0; d < 4; ++d) inner = inner.slice(d, 1, 1 + x.size(d));
    inner.copy_(x);
    return inner;
  };
  const int64_t length = GENERATE(7, 77, 130), dim = GENERATE(17, 34, 64);
  const auto q = at::randn({1, 2, length, dim}).to(type), k = at::randn({1, 2, 131, dim}).to(type),
             v = at::randn({1, 2, 131, 9}).to(type);
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = Backend::Native};
  const auto run = [&](bool poisoned) {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v})
      leaves.push_back((poisoned ? surrounded(x) : x.clone()).detach().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], options);
    auto results = torch::autograd::grad({y.to(at::kFloat).square().sum()}, leaves);
    results.push_back(y);
    return results;
  };
  const auto plain = run(false), poisoned = run(true);
  for (size_t n = 0; n < plain.size(); ++n) CHECK(bit_equal(plain[n], poisoned[n]));
}

TEST_CASE("native: hidden keys may hold NaN or Inf in every kind of mask", "[native][nan]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const double poison = GENERATE(kNaN, std::numeric_limits<double>::infinity());
  const int64_t L = GENERATE(5, 120), D = GENERATE(24, 64);
  at::manual_seed(6);
  auto q = at::randn({2, 2, L, D}).to(type), k = at::randn({2, 2, 200, D}).to(type);
  auto v = at::randn({2, 2, 200, D + 1}).to(type).slice(3, 0, D);  // rows with gaps, which are copied
  AttentionOptions options{.backend = Backend::Native};
  Mask mask;
  auto hidden = at::rand({200}).gt(0.6);
  SECTION("keep all but one odd key") {
    hidden = at::arange(200).eq(51);
    mask = hidden.bitwise_not().unsqueeze(0).expand({L, 200});
  }
  SECTION("keep (L, S)") {
    mask = hidden.bitwise_not().unsqueeze(0).expand({L, 200});
  }
  SECTION("key_keep") {
    mask = Mask::key_keep(hidden.bitwise_not().unsqueeze(0).expand({2, 200}));
  }
  SECTION("bias of -inf") {
    mask = Mask::bias(
        at::zeros({L, 200}).masked_fill(hidden, -std::numeric_limits<double>::infinity()).to(type));
  }
  SECTION("top-left causal") {
    options.causal = Causal::TopLeft;
  }
  SECTION("window") {
    options.window = {10, 3};
  }
  SECTION("key_lengths") {
    mask = Mask::key_lengths(at::full({2}, 130, at::kLong));
  }
  at::Tensor unseen = hidden;
  if (options.causal == Causal::TopLeft) unseen = at::arange(200).ge(L);
  if (options.window.bounded()) unseen = at::arange(200).lt(200 - L - 10);
  if (!mask.key_length_terms().empty()) unseen = at::arange(200).ge(130);
  const auto run = [&] {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], options, mask);
    auto results = torch::autograd::grad({y.to(at::kFloat).square().sum()}, leaves);
    results.push_back(y.detach());
    results.push_back(attention(q, k, v, options, mask));  // without a graph
    return results;
  };
  const auto clean = run();
  REQUIRE(unseen.any().item<bool>());
  k.index_put_({torch::indexing::Slice(), torch::indexing::Slice(), unseen}, poison);
  v.index_put_({torch::indexing::Slice(), torch::indexing::Slice(), unseen}, poison);
  const auto poisoned = run();
  for (size_t n = 0; n < clean.size(); ++n) CHECK(bit_equal(clean[n], poisoned[n]));
}

TEST_CASE("native: NaN in sight reaches the output", "[native][nan][short]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int64_t L = GENERATE(5, 200);
  const auto make = [&](const char* tensor) {
    at::manual_seed(8);
    auto q = at::randn({1, 2, L, 16}), k = at::randn({1, 2, L, 16}), v = at::randn({1, 2, L, 16});
    if (*tensor == 'q') q.select(2, 3).fill_(kNaN);
    if (*tensor == 'k') k.select(2, 3).fill_(kNaN);
    if (*tensor == 'v') v.select(2, 3).fill_(kNaN);
    return attention(q.to(type), k.to(type), v.to(type),
                     {.causal = Causal::BottomRight, .backend = Backend::Native})
        .isnan();
  };
  const auto from_three = at::arange(L).ge(3).view({1, 1, L, 1}).expand({1, 2, L, 16});
  const auto three = at::arange(L).eq(3).view({1, 1, L, 1}).expand({1, 2, L, 16});
  CHECK(at::equal(make("q"), three));  // a whole row of scores is NaN
  CHECK(at::equal(make("k"), from_three));
  // Rows that do not see the key may be NaN as well: if other rows see it, its value is multiplied by 0, and
  // 0 * NaN is NaN.
  CHECK(make("v").masked_select(from_three).all().item<bool>());
}

TEST_CASE("native: keys of NaN, as many as are computed with at once, reach the output", "[native][nan]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int64_t L = GENERATE(5, 200);
  auto q = at::randn({1, 1, L, 16}), k = at::randn({1, 1, 2100, 16});
  k.slice(2, 0, 1024).fill_(kNaN);
  const auto y = attention(q.to(type), k.to(type), k.to(type).nan_to_num(), {.backend = Backend::Native});
  CHECK(y.isnan().all().item<bool>());
}

TEST_CASE("native: the same bits for any number of threads", "[native][threads]") {
  const auto cell = GENERATE(from_range(cells()));
  const int threads = at::get_num_threads();
  at::manual_seed(8);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes).to(cell.type).requires_grad_(true);
  };
  const auto q = draw({1, 4, 300, 32}), k = draw({1, 2, 1500, 32}), v = draw({1, 2, 1500, 32});
  const AttentionOptions options{.causal = Causal::BottomRight, .dropout_p = 0.2, .backend = cell.backend};
  // Auto may choose the native kernel as well.
  if (!cell.device.is_cpu() || !cell.refusal(q, k, v, options).empty()) return;
  if (explain(q, k, v, options).chosen != Backend::Native) return;
  INFO(cell);
  const auto run = [&](int count, int64_t rows) {
    at::set_num_threads(count);
    at::manual_seed(9);
    const auto y = attention(q.slice(2, 0, rows), k, v, options);
    auto results = torch::autograd::grad({y.square().sum()}, {q, k, v});
    results.push_back(y);
    return results;
  };
  for (const int64_t rows : {int64_t{300}, int64_t{4}}) {
    const auto one = run(1, rows);
    for (const int count : {2, 3, 5}) {
      INFO(rows << " queries, " << count << " threads");
      const auto several = run(count, rows);
      for (size_t n = 0; n < one.size(); ++n) CHECK(bit_equal(several[n], one[n]));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("native: every item runs once, after all steps of its group's preparation", "[native][threads]") {
  const int before = at::get_num_threads();
  const int threads = GENERATE(1, 2, 5);
  using kernels::cpu::PreparedGroups;
  const auto groups =
      GENERATE(PreparedGroups{1, 4, 3, 1}, PreparedGroups{3, 1, 7, 3}, PreparedGroups{12, 2, 1, 12},
               PreparedGroups{12, 2, 1, 5}, PreparedGroups{40, 3, 5, 5});
  at::set_num_threads(threads);
  std::vector<std::atomic<int64_t>> prepared(static_cast<size_t>(groups.count));
  std::vector<std::atomic<int>> runs(static_cast<size_t>(groups.count * groups.items));
  // The group whose preparation is in each place, which is there while its items run.
  std::vector<std::atomic<int64_t>> there(static_cast<size_t>(groups.places));
  std::atomic<int> early = 0, lost = 0;
  kernels::cpu::for_each_prepared_item(
      groups, /*parallel=*/true,
      [&](int64_t group, int64_t step, int64_t place) {
        there[static_cast<size_t>(place)] = group;
        // The first step is the slowest, so that other threads find the rest of the group's done. On a busy
        // machine a turn lasts as long as another program computes. The first group lasts so long that its
        // thread's other groups are prepared by others.
        const int turns = group == 0 ? 30000 : 100;
        for (int turn = 0; step == 0 && threads > 1 && turn < turns; ++turn) std::this_thread::yield();
        ++prepared[static_cast<size_t>(group)];
      },
      [&](int64_t group, int64_t item, int64_t place) {
        if (prepared[static_cast<size_t>(group)] != groups.steps) ++early;
        const int turns = item + 1 == groups.items ? 300 : 20;
        for (int turn = 0; threads > 1 && turn < turns; ++turn) std::this_thread::yield();
        if (there[static_cast<size_t>(place)] != group) ++lost;
        ++runs[static_cast<size_t>(group * groups.items + item)];
      });
  at::set_num_threads(before);
  INFO(groups.count << " groups of " << groups.steps << " steps and " << groups.items << " items, " << threads
                    << " threads");
  CHECK(early == 0);
  CHECK(lost == 0);
  CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; }));
  CHECK(std::all_of(prepared.begin(), prepared.end(),
                    [&](const auto& count) { return count == groups.steps; }));
}

TEST_CASE("native: an item that throws ends the call", "[native][threads]") {
  const int before = at::get_num_threads();
  at::set_num_threads(5);
  for (int64_t item = 0; item < 4; ++item) {
    CHECK_THROWS_AS(kernels::cpu::for_each_prepared_item(
                        {40, 1, 4, 5}, /*parallel=*/true,
                        [](int64_t group, int64_t, int64_t) {
                          for (int turn = 0; turn < (group == 0 ? 30000 : 100); ++turn)
                            std::this_thread::yield();
                        },
                        [&](int64_t group, int64_t taken, int64_t) {
                          for (int turn = 0; turn < (taken == item ? 300 : 20); ++turn)
                            std::this_thread::yield();
                          if (group < 8 && taken == item) throw std::runtime_error("an item");
                        }),
                    std::runtime_error);
  }
  at::set_num_threads(before);
}

TEST_CASE("native: a head has the same bits alone and among others", "[native][threads]") {
  constexpr std::array kNames = {"output",
                                 "logsumexp",
                                 "weights",
                                 "gradient of q",
                                 "gradient of k",
                                 "gradient of v",
                                 "gradient of the sinks"};
  const int before = at::get_num_threads();
  const auto seed = GENERATE(range(0, 18));
  const auto type = GENERATE(from_range(kNativeTypes));
  // Where instructions are limited, calls that are drawn are of one dtype each.
  if (limited_instructions() && seed > 2 &&
      type != kNativeTypes[static_cast<size_t>(seed) % kNativeTypes.size()])
    return;
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  const int64_t kv_heads = up_to(5), heads = kv_heads * up_to(3);
  Shapes shapes{
      .B = up_to(3), .H = heads, .Hkv = kv_heads, .L = up_to(600), .S = up_to(1200), .D = 8, .Dv = 16};
  if (seed == 0) shapes = {.B = 2, .H = 6, .Hkv = 6, .L = 720, .S = 720, .D = 8, .Dv = 8};
  if (seed == 1) shapes = {.B = 1, .H = 5, .Hkv = 5, .L = 150, .S = 4500, .D = 8, .Dv = 8};  // sixteen parts
  if (seed == 2) shapes = {.B = 2, .H = 18, .Hkv = 9, .L = 300, .S = 1100, .D = 24, .Dv = 8};
  // Backward passes of several sweeps, of heads and of panels.
  if (seed == 3) shapes = {.B = 1, .H = 24, .Hkv = 2, .L = 600, .S = 530, .D = 16, .Dv = 8};
  if (seed >= 4 && seed < 7) shapes = {.B = 1, .H = 4, .Hkv = 2, .L = 1400, .S = 700, .D = 64, .Dv = 64};
  const auto whole = random_company(random, shapes, type);
  const auto all = results_of(whole, 1);
  const auto check_equal = [&](int threads, int64_t item, int64_t items, int64_t head, int64_t count) {
    const auto got = results_of(part_of(whole, item, items, head, count), threads);
    const int64_t group = shapes.H / shapes.Hkv;
    for (size_t n = 0; n < got.size(); ++n) {
      const bool of_sinks = n == 6, of_keys = n == 4 || n == 5;
      if (!all[n].defined() || (of_sinks && items < shapes.B)) continue;
      INFO(kNames[n] << ", seed " << seed << ", " << c10::toString(type) << ", B " << shapes.B << ", H "
                     << shapes.H << ", Hkv " << shapes.Hkv << ", L " << shapes.L << ", S " << shapes.S
                     << ", items from " << item << ": " << items << ", key heads from " << head << ": "
                     << count << ", threads " << threads);
      const int64_t first = of_keys ? head : head * group, size = of_keys ? count : count * group;
      const auto want =
          of_sinks ? all[n].narrow(0, first, size) : all[n].narrow(0, item, items).narrow(1, first, size);
      CHECK(bit_equal(got[n], want));
    }
  };
  for (const int threads : {1, 2, 3}) {
    check_equal(threads, 0, shapes.B, 0, shapes.Hkv);
    const int64_t head = up_to(shapes.Hkv) - 1, item = up_to(shapes.B) - 1;
    check_equal(threads, 0, shapes.B, head, up_to(shapes.Hkv - head));
    check_equal(threads, 0, shapes.B, head, 1);
    check_equal(threads, item, 1, 0, shapes.Hkv);
    check_equal(threads, item, 1, head, 1);
  }
  at::set_num_threads(before);
}

TEST_CASE("native: two threads really run", "[native][threads]") {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> arrived{0};
  kernels::cpu::for_each_item(2, true, [&](int64_t) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    ++arrived;
    // Both items must be in flight at once; if they never are, CTest's limit ends this loop.
    while (arrived < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  at::set_num_threads(threads);
  CHECK(ids.size() == 2);
}

TEST_CASE("native: dropout keeps the reference's bits", "[native][dropout][short]") {
  // With values that are unit vectors the output is the matrix of dropped weights.
  const int64_t S = 200;
  const auto q = at::zeros({1, 2, 130, 16}), k = at::zeros({1, 2, S, 16});
  const auto v = at::eye(S).expand({1, 2, S, S});
  at::manual_seed(12);
  const auto y = attention(q, k, v, {.dropout_p = 0.3, .backend = Backend::Native});
  at::manual_seed(12);
  const auto key = kernels::draw_dropout_key(std::nullopt);
  CHECK(y.ne(0).equal(kernels::counter_keep_mask(key, 0.3, 0, 1, 0, 2, S - 130, 130, 0, S)));
  const auto few = attention(q.slice(2, 0, 3), k, v, {.dropout_p = 0.3, .backend = Backend::Native});
  CHECK(few.ne(0).any().item<bool>());
}

TEST_CASE("native: a mask of blocks, of which a tile's first row may see none", "[native]") {
  auto call = random_call({.L = 600, .S = 2300});
  const auto early = at::arange(600).remainder(32).lt(16).unsqueeze(1);
  const auto j = at::arange(2300);
  call.extras.mask = early.logical_and(j.lt(100)).logical_or(early.logical_not().logical_and(j.ge(1300)));
  check(call, at::kFloat);
}

TEST_CASE("native: ALiBi slopes of every batch item", "[native]") {
  const int64_t L = GENERATE(3, 80);
  auto call = random_call({.B = 3, .L = L, .S = 90});
  call.extras.alibi_slopes = at::rand({3, 2}, at::kDouble);
  check(call, at::kFloat);
}

TEST_CASE("native: a bfloat16 result is the nearest number to the exact one", "[native][short]") {
  const int64_t L = GENERATE(2, 40);
  at::manual_seed(22);
  // With two equal keys, the exact result is the mean of two values.
  const auto q = at::zeros({1, 1, L, 16}, at::kBFloat16), k = at::zeros({1, 1, 2, 16}, at::kBFloat16);
  const auto v = at::randn({1, 1, 2, 200}).to(at::kBFloat16);
  const auto got = attention(q, k, v, {.backend = Backend::Native}).to(at::kDouble);
  const auto want = v.to(at::kDouble).mean(2, /*keepdim=*/true);
  const double half_step = std::ldexp(1.0, -8);  // half a unit of an 8-bit significand
  CHECK((got - want).abs().le(want.abs() * (half_step * 1.001)).all().item<bool>());
}

TEST_CASE("native: flushes tiny results, and gives the caller's arithmetic back", "[native]") {
  const auto tiny = std::numeric_limits<float>::min();
  const auto q = at::zeros({1, 2, 40, 16}), v = at::full({1, 2, 40, 16}, tiny / 4);
  const auto y = attention(q, q, v, {.backend = Backend::Native});
  CHECK((y - v).abs().max().item<float>() <= tiny);
  volatile float smallest = tiny;
  CHECK(smallest / 4 > 0.0f);  // gradual underflow, as before the call
}

TEST_CASE("native: the processor's products of bfloat16 count subnormal inputs as 0", "[native]") {
  if (!kernels::cpu::has_gemm_bf16()) SKIP("this processor has no products of bfloat16");
  at::manual_seed(18);
  const auto q = (at::randn({1, 2, 40, 16}).clamp(-3, 3) * 1e38).to(at::kBFloat16),
             k = (at::randn({1, 2, 50, 16}, at::kDouble) * 1e-39).to(at::kBFloat16),
             v = at::randn({1, 2, 50, 16}).to(at::kBFloat16);
  const auto run = [&](Backend backend, const at::Tensor& keys) {
    return attention(q, keys, v, {.scale = 10.0, .backend = backend});
  };
  const auto want = run(Backend::Reference, k), uniform = run(Backend::Native, at::zeros_like(k));
  CHECK(difference(uniform, want, {0.1, 0.1}) != "");
  CHECK(bit_equal(run(Backend::Native, k), uniform));
#if !defined(__aarch64__)  // on ARM, products of float32 flush such inputs too
  // Widened to float32, such inputs keep their values.
  const kernels::cpu::Selection widened{kernels::cpu::selection().code, kernels::cpu::Bf16Product::Widened};
  const kernels::cpu::SelectionGuard guard(widened);
  CHECK(difference(run(Backend::Native, k), want, tolerance_of(at::kBFloat16)) == "");
#endif
}

TEST_CASE("native: few queries over several parts of the keys", "[native][decode]") {
  // The number of keys is not a multiple of any block, and the widths are or are not multiples of a pair of
  // vectors.
  static const std::vector<std::pair<int64_t, int64_t>> widths = {{24, 20}, {64, 64}};
  static const std::vector<std::string> options = {"plain", "window and dropout", "sinks",
                                                   "first part hidden"};
  static const auto rows = rows_for_kernels({options.size(), kNativeTypes.size(), 2, widths.size()});
  const auto row = GENERATE(from_range(rows));
  const auto& option = options[row[0]];
  const auto type = kNativeTypes[row[1]];
  const int64_t L = row[2] == 0 ? 1 : 5;
  const auto [D, Dv] = widths[row[3]];
  INFO(option << ", dtype " << c10::toString(type) << ", L " << L << ", D " << D);
  auto call = random_call({.B = 2, .H = 4, .Hkv = 2, .L = L, .S = 2603, .D = D, .Dv = Dv});
  // Every part has a different maximum, so that combining the parts must rescale them.
  call.k.slice(2, 0, 1024).mul_(0.5);
  call.k.slice(2, 2048).mul_(1.5);
  call.options.causal = Causal::BottomRight;
  if (option == "window and dropout") {
    call.options.window = {700, 0};
    call.options.dropout_p = 0.3;
  }
  if (option == "sinks") call.extras.sinks = at::randn({4}, at::kDouble) + 6;
  if (option == "first part hidden") call.extras.mask = at::arange(2603).ge(1100).expand({L, 2603});
  check(call, type);
}

TEST_CASE("native: gradients of the sinks equal the reference's", "[native][short]") {
  at::manual_seed(21);
  const auto q = at::randn({2, 4, 40, 16}), k = at::randn({2, 2, 30, 16}), v = at::randn({2, 2, 30, 16});
  const auto sinks = at::randn({4}).requires_grad_(true);
  const auto gradient = [&](Backend backend) {
    const auto result = attention(q, k, v, {.causal = Causal::BottomRight, .backend = backend},
                                  {.sinks = sinks, .logsumexp = true});
    // The first ten queries have no key, and their logsumexp of -inf is a constant.
    return torch::autograd::grad({result.output.square().sum() + result.logsumexp.slice(2, 10).sin().sum()},
                                 {sinks})[0];
  };
  CHECK(difference(gradient(Backend::Native), gradient(Backend::Reference), {1e-4, 1e-4}) == "");
}

TEST_CASE("native: causality holds bit for bit", "[native][short]") {
  at::manual_seed(14);
  const auto x = at::randn({1, 2, 200, 16});
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = Backend::Native};
  const auto before = attention(x, x, x, options);
  auto changed = x.clone();
  changed.slice(2, 150).normal_();
  const auto after = attention(changed, changed, changed, options);
  CHECK(bit_equal(before.slice(2, 0, 150), after.slice(2, 0, 150)));
  CHECK_FALSE(bit_equal(before.slice(2, 150), after.slice(2, 150)));
}

namespace {

double error_of(const at::Tensor& got, const at::Tensor& want) {
  return (got.to(at::kDouble) - want).abs().max().item<double>();
}

// The errors of the reference in float32, for the worst of several orders of summation of the features of a
// dot product. A single order may be exact by chance.
struct Float32Errors {
  double output = 0.0;
  std::array<double, 3> gradients{};
};

Float32Errors float32_errors(const OptionCall& call, const OptionResult& want) {
  std::vector<at::Tensor> orders = {at::arange(call.q.size(3))};
  while (orders.size() < 16) orders.push_back(at::randperm(call.q.size(3)));
  Float32Errors worst;
  for (const auto& features : orders) {
    auto reordered = call;
    reordered.q = call.q.detach().index_select(3, features).requires_grad_();
    reordered.k = call.k.detach().index_select(3, features).requires_grad_();
    const auto got = run_on(reordered, Backend::Reference);
    worst.output = std::max(worst.output, error_of(got.result.output, want.result.output));
    for (size_t n = 0; n < 3; ++n) {
      const auto exact = n == 2 ? want.gradients[n] : want.gradients[n].index_select(3, features);
      worst.gradients[n] = std::max(worst.gradients[n], error_of(got.gradients[n], exact));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("native: large and tiny scores are as exact as float32 allows", "[native]") {
  const double size = GENERATE(1e-20, 30.0, 1e3, 1e15);
  at::manual_seed(15);
  auto exact = random_call({});
  exact.q = exact.q * size;
  const auto call = cast(exact, at::kFloat);
  const auto got = run_on(call, Backend::Native);
  const auto want = expected_of(call);
  const auto allowed = float32_errors(call, want);
  const auto largest = [](const at::Tensor& x) { return x.detach().abs().max().item<double>(); };
  CHECK(error_of(got.result.output, want.result.output) <= 2 * allowed.output + 2e-6);
  for (size_t n = 0; n < 3; ++n) {
    CHECK(got.gradients[n].isfinite().all().item<bool>());
    // If one weight is nearly 1, the rounding error of dO · v - dO · O is multiplied by a key or a query. dO
    // has a length of about 4, as 16 normal numbers have, and the scale is 1 / 4.
    const double factor = n == 2 ? 0.0 : 4 * 0.25 * largest(n == 0 ? call.k : call.q);
    CHECK(error_of(got.gradients[n], want.gradients[n]) <=
          3 * allowed.gradients[n] + 2.4e-7 * (largest(want.gradients[n]) + largest(call.v) * factor));
  }
}
