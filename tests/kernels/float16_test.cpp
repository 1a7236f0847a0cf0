// Conversions from and to float16 by the vector code of every instruction set that this CPU has, and what
// the native kernel makes of float16: float32's results, rounded once.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Half.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "kernels/simd/elementwise.h"
#include "kernels/simd/selection.h"
#include "kernels/simd/threads.h"
#include "kernels/vector_codes.h"
#include "support/compare.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;
namespace cpu = attentive::kernels::cpu;

namespace {

using cpu::f16_t;

bool is_nan(uint16_t half) {
  return (half & 0x7fff) > 0x7c00;
}

float value_of(int half) {
  return c10::Half(static_cast<uint16_t>(half), c10::Half::from_bits());
}

std::vector<f16_t> every_half() {
  std::vector<f16_t> all(65536);
  for (size_t bits = 0; bits < all.size(); ++bits) all[bits].bits = static_cast<uint16_t>(bits);
  return all;
}

// Every number halfway between two neighbours of float16, 65520 above the largest one included, with its own
// neighbours; numbers around the ends of the formats; NaN with and without the bits that float16 keeps.
std::vector<float> telling_floats() {
  std::vector<float> all;
  const auto add = [&](float x) { all.insert(all.end(), {x, -x}); };
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const float here = value_of(bits), next = bits == 0x7bff ? 65536.0f : value_of(bits + 1);
    const float middle = here / 2 + next / 2;
    for (const float x : {here, middle}) {
      add(x);
      add(std::nextafter(x, 0.0f));
      add(std::nextafter(x, 1e9f));
    }
  }
  using Limits = std::numeric_limits<float>;
  for (const float x : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 1e5f, Limits::max(), Limits::infinity(),
                        Limits::min(), Limits::denorm_min(), 1e-40f, 1e-30f})
    add(x);
  for (const uint32_t bits : {0x7f800001u, 0x7f801fffu, 0x7f802000u, 0x7fbfffffu, 0x7fc00000u, 0x7fc12345u,
                              0x7fffffffu, 0xffc00000u})
    all.push_back(std::bit_cast<float>(bits));
  std::mt19937 random(7);
  for (int n = 0; n < 200000; ++n) all.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return all;
}

std::vector<float> widened(const cpu::VectorCode& code, const std::vector<f16_t>& halves) {
  std::vector<float> result(halves.size());
  code.elementwise->convert(halves.data(), result.data(), static_cast<int64_t>(halves.size()));
  return result;
}

std::vector<f16_t> narrowed(const cpu::VectorCode& code, const std::vector<float>& floats) {
  std::vector<f16_t> result(floats.size());
  code.elementwise->convert(floats.data(), result.data(), static_cast<int64_t>(floats.size()));
  return result;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE("float16: every number is widened as c10 does, by every instruction set", "[float16][short]") {
  const auto halves = every_half();
  const auto portable = widened(*cpu::portable::code(), halves);
  for (const auto* code : vector_codes()) {
    INFO(code->name);
    const auto got = widened(*code, halves);
    size_t different = 0;
    for (size_t n = 0; n < halves.size(); ++n) {
      const float want = value_of(halves[n].bits);
      const bool same = is_nan(halves[n].bits)
                            ? std::isnan(got[n]) && std::isnan(want)
                            : std::bit_cast<uint32_t>(got[n]) == std::bit_cast<uint32_t>(want);
      different += !same;
    }
    CHECK(different == 0);
    CHECK(same_bytes(got, portable));  // NaN included
  }
}

// This test and that of subnormal results are not among the short ones, which run emulated: in the kernel's
// mode, QEMU flushes subnormal results of VCVTPS2PH, for which processors ignore that mode.
TEST_CASE("float16: numbers are rounded as c10 does, by every instruction set", "[float16]") {
  const auto floats = telling_floats();
  const auto portable = narrowed(*cpu::portable::code(), floats);
  const bool flush = GENERATE(false, true);
  for (const auto* code : vector_codes()) {
    INFO(code->name << (flush ? ", as in the kernel" : ""));
    std::vector<f16_t> got;
    if (flush) {
      const cpu::FlushTiny tiny;
      got = narrowed(*code, floats);
    } else {
      got = narrowed(*code, floats);
    }
    size_t different = 0;
    for (size_t n = 0; n < floats.size(); ++n) {
      const bool same = std::isnan(floats[n]) ? is_nan(got[n].bits) : got[n].bits == c10::Half(floats[n]).x;
      different += !same;
    }
    CHECK(different == 0);
    CHECK(same_bytes(got, portable));
  }
}

TEST_CASE("float16: a NaN stays quiet and keeps its upper bits", "[float16][short]") {
  for (const auto* code : vector_codes()) {
    INFO(code->name);
    const auto wide = widened(*code, {{0x7c01}, {0xfd55}, {0x7e00}});
    CHECK(std::bit_cast<uint32_t>(wide[0]) == 0x7fc02000u);
    CHECK(std::bit_cast<uint32_t>(wide[1]) == 0xffeaa000u);
    CHECK(std::bit_cast<uint32_t>(wide[2]) == 0x7fc00000u);
    const auto narrow =
        narrowed(*code, {std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffaaa000u)});
    CHECK(narrow[0].bits == 0x7e00);
    CHECK(narrow[1].bits == 0xff55);
  }
}

TEST_CASE("float16: rows of any length, and nothing beyond them", "[float16][short]") {
  constexpr uint16_t kUntouched = 0x1234;
  std::mt19937 random(3);
  for (const auto* code : vector_codes()) {
    INFO(code->name);
    for (int64_t n = 0; n < 70; ++n) {
      std::vector<f16_t> from(static_cast<size_t>(n)), to(static_cast<size_t>(n + 20), f16_t{kUntouched});
      for (auto& x : from) x.bits = static_cast<uint16_t>(random() % 0x7c00);
      std::vector<float> wide(static_cast<size_t>(n + 20), -1.0f);
      code->elementwise->convert(from.data(), wide.data(), n);
      code->elementwise->convert(wide.data(), to.data(), n);
      CHECK(same_bytes(std::vector<f16_t>(to.begin(), to.begin() + n), from));
      CHECK(wide[static_cast<size_t>(n)] == -1.0f);
      CHECK(to[static_cast<size_t>(n)].bits == kUntouched);
      const auto reached = [&](float factor) {
        code->elementwise->store_scaled(wide.data(), factor, to.data(), n);
        return std::vector<f16_t>(to.begin(), to.begin() + n);
      };
      CHECK(same_bytes(reached(1.0f), from));
      CHECK(to[static_cast<size_t>(n)].bits == kUntouched);
      double sum = 0.0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(wide[i]) * wide[i];
      CHECK(std::abs(code->elementwise->dot(from.data(), from.data(), n) - sum) <= 1e-5 * sum);
      CHECK(code->elementwise->all_finite(cpu::Matrix<const f16_t>{from.data(), 1, n, n}));
      if (n == 0) continue;
      for (const uint16_t other : {0x7c00, 0xfc00, 0x7e01}) {
        auto infinite = from;
        infinite[random() % infinite.size()].bits = other;
        CHECK_FALSE(code->elementwise->all_finite(cpu::Matrix<const f16_t>{infinite.data(), 1, n, n}));
      }
    }
  }
}

namespace {

at::Tensor halves(at::IntArrayRef sizes) {
  return at::randn(sizes).to(at::kHalf);
}

AttentionResult native(const OptionCall& call, at::ScalarType type) {
  auto options = call.options;
  options.backend = Backend::Native;
  at::manual_seed(11);
  return attention(call.q.to(type), call.k.to(type), call.v.to(type), options, call.extras);
}

}  // namespace

TEST_CASE("float16: results are float32's, rounded once", "[float16][native]") {
  const at::NoGradGuard no_grad;
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  const std::set<std::string> elsewhere = {"length", "kv", "weights"};
  if (elsewhere.count(cases[n].group) || cases[n].name == "dropout, Aten stream") return;
  const int64_t L = GENERATE(1, 5, 130), D = GENERATE(17, 64);
  INFO("option: " << cases[n].name << ", L " << L << ", D " << D);
  at::manual_seed(5);
  OptionCall call;
  call.q = halves({2, 4, L, D});
  call.k = halves({2, 2, 1100, D});
  call.v = halves({2, 2, 1100, D + 1}).slice(3, 0, D);
  cases[n].apply(call);
  call.extras.logsumexp = true;
  call.extras.weights = Weights::Dropped;
  for (const auto* code : vector_codes()) {
    INFO(code->name);
    const cpu::SelectionGuard guard({code, cpu::Bf16Product::Widened});
    const auto got = native(call, at::kHalf), want = native(call, at::kFloat);
    CHECK(bit_equal(got.output, want.output.to(at::kHalf)));
    CHECK(bit_equal(got.weights, want.weights.to(at::kHalf)));
    CHECK(bit_equal(got.logsumexp, want.logsumexp));
  }
}

TEST_CASE("float16: results and gradients overflow to Inf, and may be subnormal", "[float16][native]") {
  const int64_t L = GENERATE(3, 40);
  for (const auto* code : vector_codes()) {
    INFO(code->name << ", L " << L);
    const cpu::SelectionGuard guard({code, cpu::Bf16Product::Widened});
    const auto q = at::zeros({1, 1, L, 8}, at::kHalf), k = at::zeros({1, 1, 1, 8}, at::kHalf);
    const auto result = [&](double value, double gradient, double dropout) {
      at::manual_seed(3);
      const auto v = at::full({1, 1, 1, 8}, value, at::kHalf).requires_grad_();
      const auto y = attention(q, k, v, {.dropout_p = dropout, .backend = Backend::Native});
      return std::pair(y.detach(), torch::autograd::grad({y}, {v}, {at::full_like(y, gradient)})[0]);
    };
    // A weight that survives dropout of one half is 2.
    const auto [large, of_large] = result(40000, 30000, 0.5);
    const auto kept = large.ne(0);
    CHECK(kept.any().item<bool>());
    CHECK(large.masked_select(kept).eq(std::numeric_limits<double>::infinity()).all().item<bool>());
    CHECK(of_large.eq(std::numeric_limits<double>::infinity()).all().item<bool>() ==
          (kept.select(3, 0).sum().item<int64_t>() > 1));
    const double smallest = std::ldexp(1.0, -24);
    const auto [small, of_small] = result(3 * smallest, smallest, 0.0);
    CHECK(small.to(at::kDouble).eq(3 * smallest).all().item<bool>());
    CHECK(of_small.to(at::kDouble).eq(static_cast<double>(L) * smallest).all().item<bool>());
    // Scores are float32: 250 * 250 * 8 is beyond float16.
    const auto one = at::full({1, 1, L, 8}, 250.0, at::kHalf),
               keys = at::full({1, 1, 2, 8}, 250.0, at::kHalf);
    const auto got =
        attention(one, keys, keys, {.scale = 1.0, .backend = Backend::Native}, {.logsumexp = true});
    CHECK(got.logsumexp.sub(500000.0 + std::log(2.0)).abs().le(0.05).all().item<bool>());
    CHECK(got.output.eq(250.0).all().item<bool>());
  }
}
