// Gradients that the native kernel computes beside those of q, k and v: of biases in every shape that
// broadcasts, of ALiBi slopes, and through the weights that it returns. The backend is forced; the float64
// reference is the standard.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/score/score_mod.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/covering_array.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

// A call whose terms are leaves: q, k, v, then biases, slopes and sinks as far as they are defined.
struct Terms {
  at::Tensor q, k, v;
  std::vector<at::Tensor> biases;
  at::Tensor slopes, sinks;
  Mask mask;
  AttentionOptions options;
  Weights weights = Weights::None;
  bool of_output = true, of_logsumexp = false;
};

struct Gradients {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

at::Tensor leaf(const at::Tensor& x, at::ScalarType type) {
  return x.detach().to(type, false, /*copy=*/true).requires_grad_(true);
}

// Fills memory that the kernel allocates and does not write with NaN, so that reading it is seen.
class FilledMemory {
 public:
  explicit FilledMemory(Backend backend) { fill(backend == Backend::Native); }
  ~FilledMemory() { fill(false); }
  FilledMemory(const FilledMemory&) = delete;
  FilledMemory& operator=(const FilledMemory&) = delete;

 private:
  // PyTorch does so by default while its algorithms are to be deterministic.
  static void fill(bool on) { at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/true); }
};

// The gradients of every leaf along directions that do not depend on the dtype.
Gradients gradients_of(const Terms& terms, Backend backend, at::ScalarType type) {
  const FilledMemory filled(backend);
  Gradients result;
  std::vector<at::Tensor> leaves;
  const auto take = [&](const std::string& name, const at::Tensor& x) {
    if (!x.defined()) return at::Tensor();
    result.names.push_back(name);
    leaves.push_back(leaf(x, type));
    return leaves.back();
  };
  const auto q = take("q", terms.q), k = take("k", terms.k), v = take("v", terms.v);
  AttentionExtras extras{.mask = terms.mask, .weights = terms.weights, .logsumexp = terms.of_logsumexp};
  for (size_t n = 0; n < terms.biases.size(); ++n)
    extras.mask &= Mask::bias(take("bias " + std::to_string(n), terms.biases[n]));
  extras.alibi_slopes = take("slopes", terms.slopes);
  extras.sinks = take("sinks", terms.sinks);
  auto options = terms.options;
  options.backend = backend;
  at::manual_seed(41);
  const auto computed = attention(q, k, v, options, extras);
  std::vector<at::Tensor> outputs, directions;
  const auto along = [&](const at::Tensor& x, uint64_t seed) {
    at::manual_seed(seed);
    outputs.push_back(x);
    directions.push_back(at::randn(x.sizes(), at::kDouble).to(x.scalar_type()));
  };
  if (terms.of_output) along(computed.output, 42);
  if (terms.weights != Weights::None) along(computed.weights, 43);
  if (terms.of_logsumexp) {
    const auto& statistics = computed.logsumexp;
    along(statistics.masked_fill(statistics.isinf(), 0.0), 44);
  }
  result.tensors = grad(outputs, leaves, directions, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
  return result;
}

// The gradients that the kernel should compute, and the size of the terms of the slopes' gradient.
struct Expected {
  Gradients gradients;
  double slope_terms = 0.0;
};

// The reference in float64. A bias of zeros, whose gradient is that of the logits, gives the terms of the
// slopes in the same run.
Expected expected_of(Terms terms) {
  const size_t probe = 3 + terms.biases.size();
  const bool slopes = terms.slopes.defined();
  if (slopes)
    terms.biases.push_back(
        at::zeros({terms.q.size(0), terms.q.size(1), terms.q.size(2), terms.k.size(2)}, at::kDouble));
  Expected expected{gradients_of(terms, Backend::Reference, at::kDouble)};
  if (slopes) {
    auto& [names, tensors] = expected.gradients;
    expected.slope_terms = slope_terms(tensors[probe]);
    names.erase(names.begin() + static_cast<std::ptrdiff_t>(probe));
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(probe));
  }
  return expected;
}

// Compares the native kernel with the reference in float64 on the same rounded numbers. The tolerance is
// relative to the largest number of the gradients of q, k and v, or to that of the gradient itself if that is
// larger: a sum that is exactly zero is only rounding in the reference.
void check_gradients(const Terms& exact, at::ScalarType type) {
  Terms rounded = exact;
  const auto round = [&](at::Tensor& x) {
    if (x.defined()) x = x.to(type).to(at::kDouble);
  };
  for (auto* x : {&rounded.q, &rounded.k, &rounded.v, &rounded.slopes, &rounded.sinks}) round(*x);
  for (auto& bias : rounded.biases) round(bias);
  const auto got = gradients_of(rounded, Backend::Native, type);
  const auto [want, terms_of_slopes] = expected_of(rounded);
  REQUIRE(got.names == want.names);
  const auto tolerance = tolerance_of(type, /*gradient=*/true);
  double least = 0.0;
  for (size_t n = 0; n < 3; ++n) {
    if (want.tensors[n].defined()) least = std::max(least, want.tensors[n].abs().max().item<double>());
  }
  for (size_t n = 0; n < want.names.size(); ++n) {
    INFO("gradient of " << want.names[n]);
    REQUIRE(got.tensors[n].defined());
    if (!want.tensors[n].defined()) {  // the weights do not depend on the values
      CHECK(got.tensors[n].eq(0).all().item<bool>());
      continue;
    }
    CHECK(got.tensors[n].scalar_type() == type);
    double largest = std::max(least, want.tensors[n].abs().max().item<double>());
    if (want.names[n] == "slopes") largest = std::max(largest, terms_of_slopes);
    CHECK(difference(got.tensors[n], want.tensors[n], {0.0, tolerance.atol + tolerance.rtol * largest}) ==
          "");
  }
}

// The order of the sums is that of one code for all dtypes, so half types are asked with one number of
// threads.
void check_threads(const Terms& terms, at::ScalarType type) {
  const auto counts = type == at::kFloat ? std::vector<int>{2, 3, 5} : std::vector<int>{3};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = gradients_of(terms, Backend::Native, type);
  for (const int threads : counts) {
    at::set_num_threads(threads);
    const auto several = gradients_of(terms, Backend::Native, type);
    for (size_t n = 0; n < one.names.size(); ++n) {
      INFO("gradient of " << one.names[n] << ", " << threads << " threads");
      CHECK(bit_equal(several.tensors[n], one.tensors[n]));
    }
  }
  at::set_num_threads(before);
}

struct Sizes {
  int64_t B = 2, H = 4, Hkv = 2, L = 150, S = 300, D = 16, Dv = 8;
};

Terms drawn_terms(const Sizes& sizes, uint64_t seed = 5) {
  at::manual_seed(seed);
  const auto draw = [&](int64_t heads, int64_t rows, int64_t width) {
    return at::randn({sizes.B, heads, rows, width}, at::kDouble);
  };
  Terms terms;
  terms.q = draw(sizes.H, sizes.L, sizes.D);
  terms.k = draw(sizes.Hkv, sizes.S, sizes.D);
  terms.v = draw(sizes.Hkv, sizes.S, sizes.Dv);
  return terms;
}

// Terms and options that are added to a call; where `threads` is set, the bits must not depend on their
// number.
struct Setting {
  std::string name;
  std::function<void(Terms& terms, const Sizes& sizes)> apply;
  bool threads = false;
};

void check_setting(Terms terms, const Sizes& sizes, const Setting& setting, at::ScalarType type) {
  INFO(setting.name << ", dtype " << c10::toString(type) << ", q " << terms.q.sizes() << ", k "
                    << terms.k.sizes());
  setting.apply(terms, sizes);
  check_gradients(terms, type);
  if (setting.threads) check_threads(terms, type);
}

const std::vector<Sizes>& bias_sizes() {
  static const std::vector<Sizes> all = {{},
                                         {.B = 3, .H = 3, .Hkv = 3, .L = 300, .S = 170},
                                         {.H = 2, .Hkv = 1, .L = 40, .S = 700},
                                         {.L = 1, .S = 90},
                                         {.H = 2, .Hkv = 1, .L = 300, .S = 270},
                                         {.H = 2, .Hkv = 1, .L = 260, .S = 140}};
  return all;
}

const std::vector<Setting>& bias_settings() {
  static const std::vector<Setting> all = {
      {"alone", [](Terms&, const Sizes&) {}},
      {"causal, with sinks and a gradient of the logsumexp",
       [](Terms& terms, const Sizes& sizes) {
         terms.options.causal = Causal::BottomRight;
         terms.sinks = at::randn({sizes.H}, at::kDouble);
         terms.of_logsumexp = true;
       },
       /*threads=*/true},
      {"tiles that begin or end inside a panel",
       [](Terms& terms, const Sizes& sizes) {
         terms.options.causal = Causal::BottomRight;
         terms.mask = Mask::key_lengths(at::full({sizes.B}, std::max<int64_t>(sizes.S - 7, 1), at::kLong));
       }},
      {"a mask that hides whole tiles",
       [](Terms& terms, const Sizes& sizes) {
         const auto tile_of = [](int64_t n) { return at::arange(n).div(128, "floor"); };
         terms.mask = tile_of(sizes.L).unsqueeze(1).ne(tile_of(sizes.S));
       }},
      {"window, softcap, dropout, slopes and entries of -inf",
       [](Terms& terms, const Sizes& sizes) {
         terms.options.window = {60, 20};
         terms.options.softcap = 3.0;
         terms.options.dropout_p = 0.3;
         terms.slopes = at::rand({sizes.B, sizes.H}, at::kDouble) * 0.05;
         auto& bias = terms.biases[0];
         bias.masked_fill_(at::rand(bias.sizes()).gt(0.8), -kInfinity);
       },
       /*threads=*/true},
  };
  return all;
}

const std::vector<Setting>& weight_settings() {
  static const std::vector<Setting> all = {
      {"no option", [](Terms&, const Sizes&) {}},
      {"dropout, causal, and the logsumexp",
       [](Terms& terms, const Sizes&) {
         terms.options.dropout_p = 0.4;
         terms.options.causal = Causal::BottomRight;
         terms.of_logsumexp = true;
       },
       /*threads=*/true},
      {"a bias, sinks, slopes, a softcap, a mask and dropout",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({1, sizes.H, sizes.L, sizes.S}, at::kDouble)};
         terms.sinks = at::randn({sizes.H}, at::kDouble);
         terms.slopes = at::rand({sizes.H}, at::kDouble) * 0.05;
         terms.options.softcap = 4.0;
         terms.options.dropout_p = 0.2;
         terms.mask = at::rand({sizes.L, sizes.S}).gt(0.3);
       },
       /*threads=*/true},
      {"a window, sinks, and biases of whole rows and keys",
       [](Terms& terms, const Sizes& sizes) {
         terms.options.window = {60, 20};
         terms.options.causal = Causal::BottomRight;
         terms.sinks = at::randn({sizes.H}, at::kDouble);
         terms.biases = {at::randn({sizes.B, sizes.H, sizes.L, 1}, at::kDouble),
                         at::randn({1, 1, 1, sizes.S}, at::kDouble)};
         terms.of_logsumexp = true;
       },
       /*threads=*/true},
  };
  return all;
}

// Terms whose gradients the pass over the weights adds up itself.
const std::vector<Setting>& stored_weights_settings() {
  static const std::vector<Setting> all = {
      {"pairs, with entries of -inf",
       [](Terms& terms, const Sizes& sizes) {
         auto bias = at::randn({sizes.B, sizes.H, sizes.L, sizes.S}, at::kDouble);
         terms.biases = {bias.masked_fill_(at::rand(bias.sizes()).gt(0.8), -kInfinity)};
       }},
      {"pairs of all heads, causal",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({sizes.B, 1, sizes.L, sizes.S}, at::kDouble)};
         terms.options.causal = Causal::BottomRight;
       }},
      {"pairs of all items, under lengths",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({1, sizes.H, sizes.L, sizes.S}, at::kDouble)};
         terms.mask = Mask::key_lengths(at::full({sizes.B}, std::max<int64_t>(sizes.S - 7, 1), at::kLong));
       }},
      {"pairs of everything, in a window",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({sizes.L, sizes.S}, at::kDouble)};
         terms.options.window = {60, 20};
       }},
      {"keys and slopes, causal, a mask and sinks",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({sizes.B, sizes.H, 1, sizes.S}, at::kDouble)};
         terms.slopes = at::rand({sizes.B, sizes.H}, at::kDouble) * 0.05;
         terms.sinks = at::randn({sizes.H}, at::kDouble);
         terms.mask = at::rand({sizes.L, sizes.S}).gt(0.3);
         terms.options.causal = Causal::BottomRight;
       }},
      {"queries, causal from the first key",
       [](Terms& terms, const Sizes& sizes) {
         terms.biases = {at::randn({1, sizes.H, sizes.L, 1}, at::kDouble)};
         terms.options.causal = Causal::TopLeft;
         terms.of_logsumexp = true;
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("native: gradients of a bias in every shape that broadcasts", "[native][bias_gradient]") {
  // The first factor is the shape: a bit for each of items, heads, queries and keys.
  static const auto rows =
      rows_for_kernels({16, bias_sizes().size(), bias_settings().size(), kNativeTypes.size()});
  const auto row = GENERATE(from_range(rows));
  const auto& sizes = bias_sizes()[row[1]];
  const auto extent = [&](size_t bit, int64_t size) { return row[0] >> bit & 1 ? size : 1; };
  auto terms = drawn_terms(sizes);
  terms.biases = {at::randn({extent(0, sizes.B), extent(1, sizes.H), extent(2, sizes.L), extent(3, sizes.S)},
                            at::kDouble)};
  INFO("bias " << terms.biases[0].sizes());
  check_setting(terms, sizes, bias_settings()[row[2]], kNativeTypes[row[3]]);
}

TEST_CASE("native: every bias of a sum gets its gradient, in its dtype", "[native][bias_gradient]") {
  const Sizes sizes;
  auto terms = drawn_terms(sizes);
  terms.biases = {at::randn({sizes.L, sizes.S}, at::kDouble),
                  at::randn({1, sizes.H, 1, sizes.S}, at::kDouble),
                  at::randn({sizes.B, 1, 1, sizes.S}, at::kDouble)};
  check_gradients(terms, at::kFloat);
  check_gradients(terms, at::kBFloat16);
  // A float32 bias beside bfloat16 tensors, and a bfloat16 bias beside float32 tensors.
  for (const auto type : kNativeTypes) {
    const auto other = type == at::kFloat ? at::kBFloat16 : at::kFloat;
    const auto q = leaf(terms.q, type), k = leaf(terms.k, type), v = leaf(terms.v, type);
    const auto bias = leaf(terms.biases[0], other), exact = leaf(bias, at::kDouble);
    const auto got =
        grad({attention(q, k, v, {.backend = Backend::Native}, Mask::bias(bias)).sum()}, {bias})[0];
    const auto want = grad({attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble),
                                      {.backend = Backend::Reference}, Mask::bias(exact))
                                .sum()},
                           {exact})[0];
    CHECK(got.scalar_type() == other);
    const double largest = want.abs().max().item<double>();
    const auto tolerance = tolerance_of(at::kBFloat16, true);
    CHECK(difference(got, want, {0.0, tolerance.atol + tolerance.rtol * largest}) == "");
  }
}

TEST_CASE("native: biases with strides of their own", "[native][bias_gradient]") {
  const Sizes sizes;
  const auto terms = drawn_terms(sizes);
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto compare = [&](const at::Tensor& given) {
    const auto run = [&](Backend backend, at::ScalarType of) {
      const auto base = leaf(given, of);
      const auto bias = base.dim() == 2 ? base.t() : base.expand({sizes.B, sizes.H, sizes.L, sizes.S});
      const auto y =
          attention(terms.q.to(of), terms.k.to(of), terms.v.to(of), {.backend = backend}, Mask::bias(bias));
      at::manual_seed(3);
      return grad({y}, {base}, {at::randn(y.sizes(), at::kDouble).to(of)})[0];
    };
    const auto got = run(Backend::Native, type), want = run(Backend::Reference, at::kDouble);
    const double largest = want.abs().max().item<double>();
    const auto tolerance = tolerance_of(type, true);
    CHECK(difference(got, want, {0.0, tolerance.atol + tolerance.rtol * largest}) == "");
  };
  compare(at::randn({sizes.S, sizes.L}).to(type));
  // Autograd adds up the gradient of an expanded bias, in the dtype of the bias.
  if (type != at::kFloat) return;
  compare(at::randn({1, 1, sizes.L, 1}).to(type));
  compare(at::randn({1, sizes.H, 1, 1}).to(type));
}

TEST_CASE("native: a gradient of a bias alone", "[native][bias_gradient]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto terms = drawn_terms({});
  const auto q = terms.q.to(type), k = terms.k.to(type), v = terms.v.to(type);
  const auto run = [&](Backend backend) {
    const auto bias = leaf(at::zeros({4, 150, 300}), type);
    const AttentionOptions options{.causal = Causal::BottomRight, .backend = backend};
    return grad({attention(q, k, v, options, Mask::per_head(Mask::bias(bias))).square().sum()}, {bias})[0];
  };
  const auto got = run(Backend::Native), want = run(Backend::Reference);
  CHECK(difference(got, want, tolerance_of(type, true)) == "");
  // The gradient of a hidden pair is zero.
  CHECK(got.triu(300 - 150 + 1).eq(0).all().item<bool>());
}

TEST_CASE("native: a bias's gradient that no cache holds", "[native][bias_gradient]") {
  // Zeros of hidden pairs are written past the caches, by whole lines. With an odd length, rows begin
  // anywhere in a line.
  const Sizes sizes{.B = 1, .H = 3, .Hkv = 3, .L = 1203, .S = 1203};
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto setting = GENERATE(0, 1, 2);
  auto terms = drawn_terms(sizes);
  terms.biases = {at::randn({1, sizes.H, sizes.L, sizes.S}, at::kDouble)};
  auto hidden = at::ones({sizes.L, sizes.S}, at::kBool);
  if (setting == 0) {
    terms.options.causal = Causal::BottomRight;
    hidden = hidden.triu(1);
  } else if (setting == 1) {
    terms.options.window = {150, 40};
    hidden = hidden.triu(41).logical_or(hidden.tril(-151));
  } else {
    terms.mask = Mask::key_lengths(at::full({1}, 500, at::kLong));
    hidden = at::arange(sizes.S).ge(500).expand({sizes.L, sizes.S});
  }
  check_gradients(terms, type);
  const auto got = gradients_of(terms, Backend::Native, type).tensors[3];
  CHECK(got.masked_select(hidden).eq(0).all().item<bool>());
}

TEST_CASE("native: gradients of slopes, of heads and of items", "[native][slopes_gradient]") {
  static const std::vector<Sizes> all = {
      {}, {.B = 3, .H = 3, .Hkv = 3, .L = 520, .S = 520}, {.L = 9, .S = 1500}};
  static const auto rows = rows_for_kernels({all.size(), kNativeTypes.size(), 2, 2});
  const auto row = GENERATE(from_range(rows));
  const auto& sizes = all[row[0]];
  const auto type = kNativeTypes[row[1]];
  const bool per_item = row[2] == 1;
  auto terms = drawn_terms(sizes);
  terms.slopes =
      at::rand(per_item ? at::IntArrayRef{sizes.B, sizes.H} : at::IntArrayRef{sizes.H}, at::kDouble) * 0.05;
  terms.options.causal = std::array{Causal::None, Causal::BottomRight}[row[3]];
  terms.options.dropout_p = 0.1;
  INFO(c10::toString(type) << ", slopes " << terms.slopes.sizes() << ", L " << sizes.L);
  check_gradients(terms, type);
  check_threads(terms, type);
}

TEST_CASE("native: gradients through weights, alone and beside other results", "[native][weights_gradient]") {
  static const std::vector<Sizes> all = {
      {}, {.B = 1, .H = 2, .Hkv = 2, .L = 290, .S = 1100}, {.L = 5, .S = 33}};
  static const auto rows =
      rows_for_kernels({all.size(), kNativeTypes.size(), weight_settings().size(), 2, 2});
  const auto row = GENERATE(from_range(rows));
  const auto& sizes = all[row[0]];
  auto terms = drawn_terms(sizes);
  terms.weights = std::array{Weights::Clean, Weights::Dropped}[row[3]];
  terms.of_output = row[4] == 1;
  INFO((terms.weights == Weights::Clean ? "clean" : "dropped")
       << " weights, " << (terms.of_output ? "with" : "without") << " the output");
  check_setting(terms, sizes, weight_settings()[row[2]], kNativeTypes[row[1]]);
}

TEST_CASE("native: gradients through weights beside those of their terms", "[native][weights_gradient]") {
  // Fewer heads than threads, heads of several parts, and rows of one key or of more than a panel of them
  static const std::vector<Sizes> all = {{.B = 2, .H = 4, .Hkv = 2, .L = 150, .S = 300},
                                         {.B = 1, .H = 2, .Hkv = 1, .L = 1100, .S = 90, .D = 7, .Dv = 5},
                                         {.B = 3, .H = 1, .Hkv = 1, .L = 600, .S = 130},
                                         {.B = 2, .H = 2, .Hkv = 2, .L = 49, .S = 1},
                                         {.B = 1, .H = 3, .Hkv = 3, .L = 33, .S = 70, .D = 24}};
  static const auto rows = rows_for_kernels({all.size(), stored_weights_settings().size(), 2});
  const auto row = GENERATE(from_range(rows));
  const auto& sizes = all[row[0]];
  auto terms = drawn_terms(sizes);
  terms.weights = Weights::Clean;
  if (row[2] == 1) terms.options.dropout_p = 0.3;
  Setting setting = stored_weights_settings()[row[1]];
  setting.threads = true;
  check_setting(terms, sizes, setting, at::kFloat);
}

TEST_CASE("native: NaN behind a mask reaches no gradient through weights", "[native][weights_gradient]") {
  const Sizes sizes{.S = 200};
  const auto terms = drawn_terms(sizes);
  constexpr int64_t kHidden = 70;
  const auto hiding = GENERATE(0, 1, 2, 3);
  CAPTURE(hiding);
  const auto gradients = [&](double number) {
    auto [k, v] = std::pair(terms.k.clone(), terms.v.clone());
    k.select(2, kHidden).fill_(number);
    v.select(2, kHidden).fill_(number);
    AttentionOptions options{.backend = Backend::Native};
    AttentionExtras extras{.weights = Weights::Clean};
    const auto keep = at::ones({sizes.L, sizes.S}, at::kBool);
    keep.select(1, kHidden).fill_(false);
    auto bias = leaf(at::zeros({sizes.L, sizes.S}), at::kFloat);
    if (hiding == 0) extras.mask = keep;
    if (hiding == 1) extras.mask = Mask::key_lengths(at::full({sizes.B}, kHidden, at::kLong));
    if (hiding == 2) bias = leaf(at::zeros({sizes.L, sizes.S}).masked_fill(~keep, -kInfinity), at::kFloat);
    if (hiding == 3) extras.block_mask = mask_mod([=](auto pair) { return pair.key != kHidden; });
    extras.mask &= Mask::bias(bias);
    const std::vector leaves = {leaf(terms.q, at::kFloat), leaf(k, at::kFloat), leaf(v, at::kFloat), bias};
    const auto result = attention(leaves[0], leaves[1], leaves[2], options, extras);
    at::manual_seed(7);
    return grad({result.output, result.weights}, leaves,
                {at::randn_like(result.output), at::randn_like(result.weights)});
  };
  const auto with = gradients(std::numeric_limits<double>::quiet_NaN()), without = gradients(0.0);
  for (size_t n = 0; n < with.size(); ++n) {
    INFO("leaf " << n);
    CHECK(bit_equal(with[n], without[n]));
  }
}

TEST_CASE("native: an incoming gradient of weights may have any stride", "[native][weights_gradient]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto terms = drawn_terms({});
  const auto gradient = [&](const at::Tensor& direction) {
    const auto q = leaf(terms.q, type);
    const auto weights = attention(q, terms.k.to(type), terms.v.to(type), {.backend = Backend::Native},
                                   {.weights = Weights::Clean})
                             .weights;
    return grad({weights}, {q}, {direction})[0];
  };
  at::manual_seed(7);
  const auto swapped = at::randn({2, 4, 300, 150}).to(type).transpose(2, 3);
  CHECK(bit_equal(gradient(swapped), gradient(swapped.contiguous())));
  const auto spread = at::randn({2, 4, 150, 1}).to(type).expand({2, 4, 150, 300});
  CHECK(bit_equal(gradient(spread), gradient(spread.contiguous())));
}

TEST_CASE("native: returned weights may be changed or dropped before the backward pass",
          "[native][weights_gradient]") {
  const auto which = GENERATE(Weights::Clean, Weights::Dropped);
  const auto terms = drawn_terms({});
  const auto direction = at::randn({2, 4, 150, 300}, at::kDouble).to(at::kFloat);
  const auto gradient = [&](const auto& use) {
    const auto q = leaf(terms.q, at::kFloat);
    at::manual_seed(41);
    auto result = attention(q, terms.k.to(at::kFloat), terms.v.to(at::kFloat),
                            {.dropout_p = 0.3, .backend = Backend::Native}, {.weights = which});
    const auto loss = use(result);
    return grad({loss}, {q})[0];
  };
  const auto want =
      gradient([&](const AttentionResult& result) { return (result.weights * direction).sum(); });
  CHECK(difference(gradient([&](AttentionResult& result) {
                     return (result.weights.mul_(3.0) * (direction / 3.0)).sum();
                   }),
                   want, tolerance_of(at::kFloat, true)) == "");
  CHECK(bit_equal(gradient([&](AttentionResult& result) {
                    // The product does not keep the weights, as only their side needs a gradient.
                    const auto loss = (result.weights * direction).sum();
                    result.weights.reset();
                    return loss;
                  }),
                  want));
  CHECK(bit_equal(gradient([&](AttentionResult& result) {
                    const auto loss = (result.weights * direction).sum();
                    result.weights.set_data(at::zeros_like(result.weights));  // raises no version
                    return loss;
                  }),
                  want));
}

TEST_CASE("native: a row without keys takes part in no gradient",
          "[native][weights_gradient][bias_gradient]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  const auto terms = drawn_terms({});
  const auto q = leaf(terms.q, type), sinks = leaf(at::zeros({4}), type),
             bias = leaf(at::zeros({2, 4, 150, 1}), type);
  const auto keep = at::ones({150, 300}, at::kBool);
  keep[7].fill_(false);
  const auto run = [&](const at::Tensor& with_sinks) {
    return attention(
        q, terms.k.to(type), terms.v.to(type), {.backend = Backend::Native},
        {.mask = keep & Mask::bias(bias), .sinks = with_sinks, .weights = Weights::Clean, .logsumexp = true});
  };
  // NaN that arrives at the weights of that row
  const auto weights = run(sinks).weights;
  const auto direction = at::ones_like(weights);
  direction.select(2, 7).fill_(std::numeric_limits<double>::quiet_NaN());
  for (const auto& gradient : grad({weights}, {q, sinks}, {direction}))
    CHECK(gradient.isfinite().all().item<bool>());
  // A gradient that arrives at its logsumexp, which is -inf
  const auto logsumexp = run({}).logsumexp;
  const auto of_bias = grad({logsumexp}, {bias}, {at::ones_like(logsumexp)})[0];
  CHECK(of_bias.select(2, 7).eq(0).all().item<bool>());
  CHECK(of_bias.select(2, 8).sub(1).abs().max().item<double>() < 1e-2);
}

TEST_CASE("native: a bias's gradient needs its own memory and O(T)", "[native][bias_gradient][memory]") {
  const int64_t T = 1024, H = 2, D = 16;
  const auto type = GENERATE(from_range(kNativeTypes));
  const bool summed = GENERATE(false, true);  // over the batch items
  at::manual_seed(8);
  const auto draw = [&](at::IntArrayRef sizes) { return leaf(at::randn(sizes), type); };
  const auto q = draw({2, H, T, D}), k = draw({2, H, T, D}), v = draw({2, H, T, D});
  const auto bias = draw({summed ? 1 : 2, H, T, T});
  const auto peak = [&](bool learned) {
    const MemoryMeter meter;
    const auto mask = Mask::bias(learned ? bias : bias.detach());
    const auto y = attention(q, k, v, {.backend = Backend::Native}, mask);
    const auto leaves = learned ? std::vector<at::Tensor>{q, k, v, bias} : std::vector<at::Tensor>{q, k, v};
    const auto gradients = grad({y.square().sum()}, leaves);
    return meter.peak();
  };
  peak(true);  // the kernel's own buffers are made once
  // Where several items share a bias of a half type, their sum is float32 until it is complete.
  const int64_t size = at::elementSize(type), own = bias.numel() * (summed && size < 4 ? size + 4 : size);
  INFO(c10::toString(type) << (summed ? ", summed" : ""));
  CHECK(peak(true) - peak(false) <= own + 64 * T);
}

TEST_CASE("native: a bias of a half type is read where it lies", "[native][memory]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  at::manual_seed(8);
  const int64_t T = 1024;
  const auto x = at::randn({1, 2, T, 16}).to(type), bias = at::randn({T, T}).to(type);
  const auto peak = [&](const Mask& mask) {
    const MemoryMeter meter;
    attention(x, x, x, {.backend = Backend::Native}, mask);
    return meter.peak();
  };
  peak(Mask::bias(bias));
  CHECK(peak(Mask::bias(bias)) - peak({}) <= 64 * T);
}

TEST_CASE("native: weights with a gradient need their own memory and O(T)",
          "[native][weights_gradient][memory]") {
  const int64_t T = 1024, H = 2, D = 16;
  at::manual_seed(8);
  const auto draw = [&] { return at::randn({1, H, T, D}).requires_grad_(true); };
  const auto q = draw(), k = draw(), v = draw();
  const auto peak = [&](Weights which, bool summed) {
    const MemoryMeter meter;
    const auto result = attention(q, k, v, {.backend = Backend::Native}, {.weights = which});
    auto loss = result.output.sum();
    if (summed) loss = loss + result.weights.sum();
    grad({loss}, {q, k, v}, {}, false, false, /*allow_unused=*/true);
    return meter.peak();
  };
  peak(Weights::Clean, true);
  const int64_t own = H * T * T * 4, without = peak(Weights::None, false);
  CHECK(peak(Weights::Clean, false) - without <= own + 64 * T);  // weights that nothing differentiates
  CHECK(peak(Weights::Clean, true) - without <= own + 64 * T);
}
