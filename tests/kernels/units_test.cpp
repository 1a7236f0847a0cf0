// Attention in units (kernels/attention/units.h), over their operations in plain C++ on every machine, and
// over AMX where there is one.

#include "kernels/attention/units.h"

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "kernels/gemm/products.h"
#include "kernels/simd/selection.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::kernels::cpu;
using namespace attentive::test;

namespace {

Selection with_units(const UnitFunctions* units) {
  Selection chosen = selection();
  chosen.units = units;
  return chosen;
}

bool has_amx_units() {
  return select(this_cpu(), cpu_limit()).units != nullptr;
}

// The units that this machine can run.
std::vector<const UnitFunctions*> all_units() {
  std::vector<const UnitFunctions*> all = {portable_units()};
  if (has_amx_units()) all.push_back(amx_units());
  return all;
}

struct Inputs {
  at::Tensor q, k, v;
};

Inputs draw(int64_t B, int64_t H, int64_t Hkv, int64_t L, int64_t S, int64_t D, uint64_t seed) {
  at::manual_seed(seed);
  const auto one = [&](int64_t heads, int64_t rows) {
    return at::randn({B, rows, heads, D}).to(at::kBFloat16).transpose(1, 2);
  };
  return {one(H, L), one(Hkv, S), one(Hkv, S)};
}

AttentionResult result_of(const UnitFunctions* units, const Inputs& x, AttentionOptions options = {},
                          AttentionExtras extras = {}) {
  const SelectionGuard guard(with_units(units));
  options.backend = Backend::Native;
  extras.logsumexp = true;
  at::manual_seed(5);
  return attention(x.q, x.k, x.v, options, extras);
}

at::Tensor exact(const Inputs& x, AttentionOptions options = {}, const AttentionExtras& extras = {}) {
  options.backend = Backend::Reference;
  at::manual_seed(5);
  return attention(x.q.to(at::kDouble), x.k.to(at::kDouble), x.v.to(at::kDouble), options, extras).output;
}

struct Errors {
  double rms, most;
};
Errors errors(const at::Tensor& x, const at::Tensor& right) {
  const auto difference = x.to(at::kDouble) - right;
  return {difference.square().mean().sqrt().item<double>(), difference.abs().max().item<double>()};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kShort), b.contiguous().view(at::kShort));
}

// Calls that units compute.
struct Call {
  std::string name;
  AttentionOptions options;
  AttentionExtras extras;
};
std::vector<Call> calls(int64_t B, int64_t H, int64_t L, int64_t S) {
  std::vector<Call> all = {
      {"full", {}, {}},
      {"causal", {.causal = Causal::BottomRight}, {}},
      {"causal from the first key", {.causal = Causal::TopLeft}, {}},
      {"window", {.window = {70, 9}}, {}},
      {"causal window", {.causal = Causal::BottomRight, .window = {40, 0}}, {}},
      {"dropout",
       {.causal = Causal::BottomRight, .dropout_p = 0.3, .dropout_stream = DropoutStream::Counter},
       {}},
      {"scale", {.scale = 0.7}, {}},
  };
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < B; ++b) lengths.push_back(b % 2 == 0 ? 33 : 0);
  all.push_back({"lengths", {}, {.mask = Mask::key_lengths(at::tensor(lengths))}});
  const auto keep = at::arange(L * S).mul(7).remainder(11).lt(8).view({L, S});
  all.push_back({"mask", {.causal = Causal::BottomRight}, {.mask = keep}});
  all.push_back(
      {"hidden keys", {}, {.mask = Mask::key_keep(at::arange(B * S).view({B, S}).remainder(S).ge(S / 2))}});
  all.push_back({"sinks", {.causal = Causal::BottomRight}, {.sinks = at::linspace(-1, 2, H)}});
  return all;
}

}  // namespace

TEST_CASE("units: on AMX they compute what plain C++ computes, bit by bit", "[units]") {
  if (!has_amx_units()) SKIP("this processor lacks AMX, AVX512-FP16 or AVX512-VBMI, or does not use them");
  const int64_t D = GENERATE(64, 128);
  for (const auto& [L, S] : {std::pair<int64_t, int64_t>{150, 150}, {40, 203}, {131, 70}}) {
    for (const auto& call : calls(2, 4, L, S)) {
      for (const float size : {1.0f, 9.0f}) {
        INFO(call.name << ", D " << D << ", L " << L << ", S " << S << ", queries times " << size);
        auto x = draw(2, 4, 2, L, S, D, 3);
        x.q = x.q * size;
        const auto amx = result_of(amx_units(), x, call.options, call.extras),
                   plain = result_of(portable_units(), x, call.options, call.extras);
        CHECK(same_bits(amx.output, plain.output));
        CHECK(at::equal(amx.logsumexp, plain.logsumexp));
      }
    }
  }
}

TEST_CASE("units: errors are twice those of the other path at most", "[units]") {
  const int64_t D = GENERATE(64, 128);
  for (const auto& [L, S] : {std::pair<int64_t, int64_t>{140, 140}, {21, 203}}) {
    for (const auto& call : calls(2, 2, L, S)) {
      INFO(call.name << ", D " << D << ", L " << L << ", S " << S);
      const auto x = draw(2, 2, 1, L, S, D, 4);
      const auto right = exact(x, call.options, call.extras);
      const auto before = errors(result_of(nullptr, x, call.options, call.extras).output, right);
      for (const auto* units : all_units()) {
        const auto now = errors(result_of(units, x, call.options, call.extras).output, right);
        CHECK(now.rms <= 2 * before.rms);
        CHECK(now.most <= 2 * before.most + 0x1p-8 * right.abs().max().item<double>());
      }
    }
  }
}

TEST_CASE("units: over causal sequences, errors grow by 6 % at most", "[units]") {
  for (const int64_t L : {64, 200, 256, 300}) {
    const auto x = draw(1, 3, 3, L, L, 64, 12);
    // The weights of a softmax, rounded to bfloat16, and their total before that.
    const auto wide = [](const at::Tensor& y) { return y.to(at::kDouble); };
    const auto scores = (wide(x.q).matmul(wide(x.k).transpose(2, 3)) / 8)
                            .masked_fill(at::ones({L, L}, at::kBool).triu(1), -kInfinity);
    const auto weights = (scores - scores.amax(-1, true)).exp(), total = weights.sum(-1, true);
    const auto right = weights.matmul(wide(x.v)) / total;
    const auto rounded =
        errors((wide(weights.to(at::kBFloat16)).matmul(wide(x.v)) / total).to(at::kBFloat16), right);
    for (const auto* units : all_units()) {
      const auto now = errors(result_of(units, x, {.causal = Causal::BottomRight}).output, right);
      INFO("L " << L);
      CHECK(now.rms <= 1.06 * rounded.rms);
    }
  }
}

TEST_CASE("units: the logsumexp is that of rounded weights", "[units]") {
  const auto x = draw(1, 2, 2, 90, 90, 64, 6);
  const AttentionOptions options = {.causal = Causal::BottomRight};
  const auto before = result_of(nullptr, x, options).logsumexp;
  for (const auto* units : all_units()) {
    const auto now = result_of(units, x, options).logsumexp;
    CHECK((now - before).abs().max().item<float>() <= 0x1p-8f);
  }
}

TEST_CASE("units: a key changes no bit of rows that do not see it", "[units]") {
  const int64_t D = 64, at_key = 100;
  struct Odd {
    const char* name;
    double key, value;
  };
  const auto odd = GENERATE(Odd{"a large key", 1e4, 1}, Odd{"Inf", kInfinity, 1}, Odd{"NaN", kNaN, kNaN},
                            Odd{"a tiny value", 1, 1e-38}, Odd{"a huge value", 1, 3e38});
  struct Case {
    const char* name;
    AttentionOptions options;
    AttentionExtras extras;
    int64_t first, end;  // rows that see the key
  };
  const int64_t L = 150;
  const std::vector<Case> cases = {
      {"causal", {.causal = Causal::BottomRight}, {}, at_key, L},
      {"beyond the length", {}, {.mask = Mask::key_lengths(at::tensor(std::vector<int64_t>{at_key}))}, L, L},
      {"window", {.window = {30, 4}}, {}, at_key - 4, at_key + 31},
      {"masked", {}, {.mask = Mask::key_keep(at::arange(L).ne(at_key).view({1, L}))}, L, L},
  };
  for (const auto* units : all_units()) {
    for (const auto& one : cases) {
      INFO(odd.name << ", " << one.name << (units == portable_units() ? "" : ", AMX"));
      const auto usual = draw(1, 2, 2, L, L, D, 7);
      auto x = usual;
      x.k = x.k.clone();
      x.v = x.v.clone();
      x.k.select(2, at_key).mul_(odd.key);
      x.v.select(2, at_key).fill_(odd.value);
      const auto before = result_of(units, usual, one.options, one.extras),
                 after = result_of(units, x, one.options, one.extras);
      for (const auto& [from, to] : {std::pair{int64_t{0}, one.first}, std::pair{one.end, L}}) {
        CHECK(same_bits(before.output.slice(2, from, to), after.output.slice(2, from, to)));
        CHECK(at::equal(before.logsumexp.slice(2, from, to), after.logsumexp.slice(2, from, to)));
      }
      // Those that see it are right.
      const auto other = result_of(nullptr, x, one.options, one.extras);
      const auto seeing = [&](const AttentionResult& result) {
        return result.output.slice(2, one.first, one.end);
      };
      if (!same_bits(seeing(after), seeing(other)))  // NaN equals itself
        CHECK(difference(seeing(after), seeing(other), tolerance_of(at::kBFloat16)) == "");
    }
  }
}

TEST_CASE("units: rows that they leave have the bits of the other path", "[units]") {
  const int64_t L = 200;
  const AttentionOptions options = {.causal = Causal::BottomRight};
  struct Case {
    const char* name;
    std::function<void(Inputs&)> change;
    std::function<bool(int64_t)> left;  // by the row
  };
  const std::vector<Case> cases = {
      // The reference of the first keys is too small for the last ones.
      {"scores that rise", [](Inputs& x) { x.k.slice(2, 130).copy_(x.q.slice(2, 130) * 8); },
       [](int64_t i) { return i >= 130; }},
      {"a query that is too large", [](Inputs& x) { x.q.select(2, 77).fill_(0x1p60); },
       [](int64_t i) { return i == 77; }},
      {"logits that are too large", [](Inputs& x) { x.q.select(2, 77).copy_(x.k.select(2, 3) * 5000); },
       [](int64_t i) { return i == 77; }},
      {"values that are too small", [](Inputs& x) { x.v.select(2, 90).fill_(0x1p-80); },
       [](int64_t i) { return i >= 90; }},
  };
  for (const auto* units : all_units()) {
    for (const auto& one : cases) {
      INFO(one.name);
      auto x = draw(1, 2, 2, L, L, 64, 8);
      for (auto* tensor : {&x.q, &x.k, &x.v}) *tensor = tensor->clone();
      one.change(x);
      const auto other = result_of(nullptr, x, options), now = result_of(units, x, options);
      for (int64_t i = 0; i < L; ++i) {
        INFO("row " << i);
        const bool same = same_bits(now.output.select(2, i), other.output.select(2, i)) &&
                          at::equal(now.logsumexp.select(2, i), other.logsumexp.select(2, i));
        if (one.left(i)) CHECK(same);
      }
      CHECK(difference(now.output, other.output, tolerance_of(at::kBFloat16)) == "");
    }
  }
}

TEST_CASE("units: scores as large as trained models have them", "[units]") {
  const double size = GENERATE(5.0, 30.0, 300.0);
  for (const auto* units : all_units()) {
    auto x = draw(1, 2, 2, 160, 160, 64, 9);
    x.q = x.q * size;
    const AttentionOptions options = {.causal = Causal::BottomRight};
    const auto right = exact(x, options);
    const auto before = errors(result_of(nullptr, x, options).output, right),
               now = errors(result_of(units, x, options).output, right);
    INFO("queries times " << size);
    CHECK(now.rms <= 1.1 * before.rms);
    CHECK(now.most <= 1.5 * before.most + 0x1p-8);
  }
}

TEST_CASE("units: a head has the same bits alone and on any number of threads", "[units]") {
  const auto x = draw(3, 4, 2, 300, 300, 64, 10);
  const AttentionOptions options = {.causal = Causal::BottomRight};
  const int threads = at::get_num_threads();
  const auto* units = all_units().back();
  const auto all = result_of(units, x, options);
  for (const int several : {1, 3}) {
    at::set_num_threads(several);
    CHECK(same_bits(all.output, result_of(units, x, options).output));
  }
  at::set_num_threads(threads);
  const auto part = [](const at::Tensor& y, int64_t heads) { return y.slice(0, 1, 2).slice(1, heads / 2); };
  const Inputs alone = {part(x.q, 4), part(x.k, 2), part(x.v, 2)};
  CHECK(same_bits(part(all.output, 4), result_of(units, alone, options).output));
}

TEST_CASE("units: with a graph and without, the output has the same bits", "[units]") {
  auto x = draw(1, 2, 2, 100, 100, 64, 11);
  const AttentionOptions options = {.causal = Causal::BottomRight, .backend = Backend::Native};
  for (const auto* units : all_units()) {
    const SelectionGuard guard(with_units(units));
    const auto without = attention(x.q, x.k, x.v, options);
    auto q = x.q.detach().clone().requires_grad_();
    CHECK(same_bits(without, attention(q, x.k, x.v, options).detach()));
  }
}

TEST_CASE("units: gradients of a tile are those of the formula", "[units]") {
  const bool dropout = GENERATE(false, true);
  const int64_t keys = GENERATE(1, 5, 32), columns = GENERATE(16, 48, 128), stride = columns + 16;
  at::manual_seed(13);
  const auto scores = at::randn({keys, stride}) * 8, products = at::randn({keys, stride}),
             maximum = at::randn({columns}), delta = at::randn({columns});
  auto log_total = at::randn({columns}) * 2 + 18;  // weights are below 1
  log_total[3] = kInfinity;                        // a query without keys
  const float scale = 0.25f, unit = scale * 1.442695041f, survivor_scale = dropout ? 1.25f : 1.0f;
  std::vector<UnitGradientRow> rows(static_cast<size_t>(keys));
  std::vector<uint16_t> drop(static_cast<size_t>(columns) + 32);
  for (size_t c = 0; c < drop.size(); ++c) drop[c] = static_cast<uint16_t>(c * 40503u >> 3);
  for (int64_t r = 0; r < keys; ++r) {
    rows[static_cast<size_t>(r)] = {static_cast<int32_t>(r), static_cast<int32_t>(columns - 3 * r),
                                    dropout ? drop.data() : nullptr, static_cast<int>(r % 16)};
  }
  const int64_t pairs_rows = (keys + 1) / 2 * 2;
  const auto matrix = [&](const at::Tensor& x) {
    return Matrix<const float>{x.const_data_ptr<float>(), keys, columns, stride};
  };
  std::vector<std::vector<bf16_t>> first;
  for (const auto* units : all_units()) {
    std::vector<bf16_t> weights(static_cast<size_t>(pairs_rows * stride)), gradients = weights,
                                                                           pairs = weights;
    units->gradients({keys,
                      columns,
                      rows.data(),
                      matrix(scores),
                      matrix(products),
                      maximum.const_data_ptr<float>(),
                      log_total.const_data_ptr<float>(),
                      delta.const_data_ptr<float>(),
                      unit,
                      scale,
                      survivor_scale,
                      {weights.data(), keys, columns, stride},
                      {gradients.data(), keys, columns, stride},
                      {pairs.data(), pairs_rows, columns, stride}});
    const auto wide = [](bf16_t x) { return static_cast<double>(std::bit_cast<float>(uint32_t{x} << 16)); };
    for (int64_t r = 0; r < pairs_rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        INFO("key " << r << ", query " << c << ", dropout " << dropout);
        const auto at = static_cast<size_t>(r * stride + c);
        const auto pair = static_cast<size_t>(r / 2 * 2 * stride + 2 * c + r % 2);
        if (r == keys) {
          CHECK(pairs[pair] == 0);
          continue;
        }
        const auto& row = rows[static_cast<size_t>(r)];
        const auto number = [&](const at::Tensor& x) { return x[r][c].item<double>(); };
        const auto of_query = [&](const at::Tensor& x) { return x[c].item<double>(); };
        double weight = 0, gradient = 0, dropped = 0;
        if (c >= row.lo && c < row.hi) {
          const bool survives = !dropout || (drop[static_cast<size_t>(c)] >> row.drop_bit & 1) != 0;
          weight = std::exp2((number(scores) - of_query(maximum)) * unit - of_query(log_total));
          dropped = survives ? weight * survivor_scale : 0;
          gradient = weight * scale * ((survives ? number(products) * survivor_scale : 0) - of_query(delta));
        }
        CHECK(std::abs(wide(weights[at]) - dropped) <= 0.008 * dropped);
        CHECK(std::abs(wide(gradients[at]) - gradient) <= 0.012 * std::abs(gradient) + 1e-6 * weight);
        CHECK(pairs[pair] == gradients[at]);
      }
    }
    const std::vector<std::vector<bf16_t>> all = {weights, gradients, pairs};
    if (first.empty()) first = all;
    CHECK(all == first);  // the same bits
  }
}

TEST_CASE("units: gradients equal those of the other path", "[units]") {
  if (!has_gemm_bf16()) SKIP("this processor has no products of bfloat16, or does not use them");
  for (const auto& call : calls(2, 4, 150, 170)) {
    INFO(call.name);
    auto x = draw(2, 4, 2, 150, 170, 64, 14);
    const auto grad = at::randn({2, 4, 150, 64}).to(at::kBFloat16);
    for (auto* leaf : {&x.q, &x.k, &x.v}) leaf->requires_grad_();
    const auto gradients = [&](const UnitFunctions* units) {
      const SelectionGuard guard(with_units(units));
      auto options = call.options;
      options.backend = Backend::Native;
      at::manual_seed(5);
      const auto y = attention(x.q, x.k, x.v, options, call.extras).output;
      return torch::autograd::grad({y}, {x.q, x.k, x.v}, {grad});
    };
    const auto other = gradients(nullptr);
    for (const auto* units : all_units()) {
      const auto now = gradients(units);
      for (size_t n = 0; n < 3; ++n) {
        const auto difference = errors(now[n], other[n].to(at::kDouble)).rms;
        CHECK(difference <= 0.006 * other[n].to(at::kDouble).square().mean().sqrt().item<double>());
      }
    }
  }
}
