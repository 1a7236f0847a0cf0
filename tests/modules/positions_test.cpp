#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <attentive/modules/norms.h>
#include <attentive/modules/positions.h>

#include "modules/mixer_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::table;
using attentive::test::type_error;
using attentive::test::value_error;

TEST_CASE("sinusoidal_positions is its formula", "[positions]") {
  // base 10000, d = 4, position 1
  CHECK_WITHIN(sinusoidal_positions(2, 4)[1], table({{0.84147f, 0.54030f, 0.01000f, 0.99995f}})[0],
               {0, 5e-6});
  const auto got = sinusoidal_positions(7, 6, 500.0, 11);
  for (int64_t p = 0; p < 7; ++p) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p + 11) / std::pow(500.0, 2.0 * static_cast<double>(i) / 6);
      CHECK(std::abs(got[p][2 * i].item<double>() - std::sin(angle)) < 1e-7);
      CHECK(std::abs(got[p][2 * i + 1].item<double>() - std::cos(angle)) < 1e-7);
    }
  }
  CHECK(value_error([] { return sinusoidal_positions(2, 5); }) ==
        "sinusoidal_positions: expected an even dim > 0, got 5");
}

TEST_CASE("SinusoidalPositions adds the table", "[positions]") {
  SinusoidalPositions positions(6);
  const auto x = at::randn({2, 5, 6});
  CHECK_CLOSE(positions->forward(x), x + sinusoidal_positions(5, 6));
  CHECK(bit_equal(positions->forward(x.narrow(1, 2, 3), 2), positions->forward(x).narrow(1, 2, 3)));
  CHECK(positions->forward(x.to(at::kBFloat16)).scalar_type() == at::kBFloat16);
  CHECK(value_error([&] {
          return positions->forward(at::randn({2, 5, 4}));
        }) == "SinusoidalPositions: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value_error([&] { return positions->forward(x, -1); }) ==
        "SinusoidalPositions: expected a first position >= 0, got -1");
}

TEST_CASE("LearnedPositions is a torch::nn citizen", "[positions]") {
  test::ModuleSuite<LearnedPositions> suite;
  suite.make = [] { return LearnedPositions(5, 6); };
  suite.input_shape = {2, 4, 6};
  suite.keys = {"weight"};
  suite.own_parameters = [](LearnedPositions& m) { return std::vector<at::Tensor*>{&m->weight}; };
  suite.has_dropout = false;
  suite.run();
  LearnedPositions positions(5, 6);
  const auto x = at::randn({2, 2, 6});
  CHECK(bit_equal(positions->forward(x, 3), x + positions->weight.narrow(0, 3, 2)));
  CHECK(value_error([&] { return positions->forward(x, 4); }) ==
        "LearnedPositions: expected positions below context_length = 5, got 4 .. 5");
}

TEST_CASE("LearnedPositions refuses another dtype than its parameters'", "[positions]") {
  LearnedPositions positions(5, 6);
  const auto x = at::randn({2, 4, 6});
  CHECK(type_error([&] { positions->forward(x.to(at::kDouble)); }) ==
        "LearnedPositions: expected x of dtype Float like the parameters, got Double");
  CHECK(type_error([&] { positions->forward(x.to(at::kBFloat16)); }) ==
        "LearnedPositions: expected x of dtype Float like the parameters, got BFloat16");
  positions->to(at::kBFloat16);
  CHECK(type_error([&] { positions->forward(x); }) ==
        "LearnedPositions: expected x of dtype BFloat16 like the parameters, got Float");
  at::autocast::set_autocast_enabled(at::kCPU, true);  // its own rules then decide the dtype
  const auto y = positions->forward(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(y.sizes() == x.sizes());
}

TEST_CASE("RotaryPositions turns each pair by its angle", "[positions]") {
  using Options = RotaryPositionsOptions;
  const auto x = at::randn({2, 3, 4, 6}, at::kDouble);
  const double factor = 4;
  for (const auto pairing : {RotaryPairing::Interleaved, RotaryPairing::Halves}) {
    for (const auto scaling : {RotaryScaling::None, RotaryScaling::Linear, RotaryScaling::Ntk}) {
      auto options = Options(6).base(50.0).pairing(pairing).scaling(scaling);
      if (scaling != RotaryScaling::None) options.factor(factor);
      RotaryPositions rotary(options);
      const auto y = rotary->forward(x, 9);
      for (int64_t t = 0; t < 4; ++t) {
        for (int64_t i = 0; i < 3; ++i) {
          const double base = scaling == RotaryScaling::Ntk ? 50.0 * std::pow(factor, 6.0 / 4.0) : 50.0;
          const double position =
              static_cast<double>(t + 9) / (scaling == RotaryScaling::Linear ? factor : 1.0);
          const double angle = position * std::pow(base, -2.0 * static_cast<double>(i) / 6);
          const bool halves = pairing == RotaryPairing::Halves;
          const int64_t first = halves ? i : 2 * i, second = halves ? i + 3 : 2 * i + 1;
          const double a = x[1][2][t][first].item<double>(), b = x[1][2][t][second].item<double>();
          CHECK(std::abs(y[1][2][t][first].item<double>() - (a * std::cos(angle) - b * std::sin(angle))) <
                1e-12);
          CHECK(std::abs(y[1][2][t][second].item<double>() - (b * std::cos(angle) + a * std::sin(angle))) <
                1e-12);
        }
      }
    }
  }
  // With Ntk, the slowest pair slows down by exactly the factor, and the fastest does not change.
  RotaryPositions plain(Options(6)), ntk(Options(6).scaling(RotaryScaling::Ntk).factor(factor));
  const auto ratio = plain->angles(2)[1] / ntk->angles(2)[1];
  CHECK(std::abs(ratio[0].item<double>() - 1.0) < 1e-12);
  CHECK(std::abs(ratio[2].item<double>() - factor) < 1e-12);
}

TEST_CASE("RotaryPositions without gradients are rounded once, on any number of threads",
          "[positions][threads][short]") {
  const int64_t tokens = GENERATE(3, 1500);
  RotaryPositions rotary(RotaryPositionsOptions(10).pairing(RotaryPairing::Halves));
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    INFO(type);
    // Heads that lie beside others, as a projection leaves them.
    const auto x = at::randn({2, tokens, 6, 10}).to(type).transpose(1, 2).narrow(1, 2, 3);
    rotary->forward(x, 5);  // makes the table of this dtype
    const auto half = [&](int64_t i) { return x.narrow(-1, 5 * i, 5).to(at::kDouble); };
    const auto angles = at::arange(5, 5 + tokens, at::kDouble).unsqueeze(1) *
                        at::pow(10000.0, at::arange(5, at::kDouble) * (-0.2));
    const auto cos = angles.cos().to(type).to(at::kDouble), sin = angles.sin().to(type).to(at::kDouble);
    const auto want = at::cat({half(0) * cos - half(1) * sin, half(1) * cos + half(0) * sin}, -1);
    const at::NoGradGuard no_grad;
    const auto got = rotary->forward(x, 5);
    CHECK(got.scalar_type() == type);
    CHECK(got.sizes() == x.sizes());
    const auto error = (got.to(at::kDouble) - want).abs();
    CHECK((error <= want.abs() * (0.5 * test::unit_of(type)) + 3e-6).all().item<bool>());
    const auto threads = at::get_num_threads();
    at::set_num_threads(1);
    CHECK(at::equal(rotary->forward(x, 5), got));
    at::set_num_threads(threads);
  }
}

TEST_CASE("Llama3 scaling slows down the pairs that turn seldom within the original context", "[positions]") {
  const auto options = RotaryPositionsOptions(12)
                           .base(20.0)
                           .scaling(RotaryScaling::Llama3)
                           .factor(4)
                           .low_freq_factor(1.5)
                           .high_freq_factor(3.0)
                           .original_context(32);
  RotaryPositions plain(RotaryPositionsOptions(12).base(20.0)), scaled(options);
  const auto ratio = scaled->angles(2)[1] / plain->angles(2)[1];
  int slowed = 0, kept = 0;
  for (int i = 0; i < 6; ++i) {
    const double turns = 32 * std::pow(20.0, -i / 6.0) / (2 * std::acos(-1.0));
    const double smooth = (turns - 1.5) / (3.0 - 1.5);
    const double expected = turns < 1.5 ? 0.25 : turns > 3.0 ? 1.0 : (1 - smooth) / 4 + smooth;
    INFO("pair " << i << ", " << turns << " turns");
    CHECK(std::abs(ratio[i].item<double>() - expected) < 1e-14);
    slowed += turns < 1.5;
    kept += turns > 3.0;
  }
  CHECK((slowed > 0 && kept > 0 && slowed + kept < 6));  // every branch was taken
  CHECK(bit_equal(scaled->angles(3, 7)[2], scaled->angles(10)[9]));
  CHECK(value_error([&] { RotaryPositions(RotaryPositionsOptions(options).high_freq_factor(1.5)); }) ==
        "RotaryPositions: expected 0 < low_freq_factor < high_freq_factor, got 1.5 and 1.5");
  CHECK(value_error([&] { RotaryPositions(RotaryPositionsOptions(options).original_context(0)); }) ==
        "RotaryPositions: expected original_context > 0, got 0");
}

TEST_CASE("Yarn scaling turns queries as transformers does", "[positions][mixers]") {
  const auto cases = test::committed_mixers("rotary");
  REQUIRE(cases.size() == 9);
  for (const auto& one : cases) {
    INFO(one.file.name << " " << one.options.dump());
    const auto q = one.file.inputs.at("q").clone().requires_grad_();
    RotaryPositions rotary(
        test::rotary_options(one.options.at("rope")).head_dim(q.size(-1)).pairing(RotaryPairing::Halves));
    const auto output = rotary->forward(q);
    CHECK(test::mixer_difference(output, one.file.expected_output) <= 2e-6);
    (output * one.file.grad_output).sum().backward();
    CHECK(test::mixer_difference(q.grad(), one.file.input_gradients.at("q")) <= 2e-6);
    const at::NoGradGuard no_grad;  // the fused pass
    CHECK(test::mixer_difference(rotary->forward(q), one.file.expected_output) <= 2e-6);
  }
}

TEST_CASE("Yarn scaling slows down the pairs that turn seldom, and has a magnitude", "[positions]") {
  const auto options = RotaryPositionsOptions(12)
                           .base(20.0)
                           .scaling(RotaryScaling::Yarn)
                           .factor(4)
                           .original_context(64)
                           .beta_fast(6)
                           .beta_slow(2)
                           .truncate(false);
  RotaryPositions plain(RotaryPositionsOptions(12).base(20.0)), scaled(options);
  const auto ratio = scaled->angles(2)[1] / plain->angles(2)[1];
  const auto pair_that_turns = [](double times) {
    return 6 * std::log(64 / (times * 2 * std::acos(-1.0))) / std::log(20.0);
  };
  const auto first = pair_that_turns(6), last = pair_that_turns(2);
  int slowed = 0, kept = 0;
  for (int i = 0; i < 6; ++i) {
    const auto s = std::clamp((i - first) / (last - first), 0.0, 1.0);
    INFO("pair " << i);
    CHECK(std::abs(ratio[i].item<double>() - (1 - s + s / 4)) < 1e-14);
    slowed += s == 1;
    kept += s == 0;
  }
  CHECK((slowed > 0 && kept > 0 && slowed + kept < 6));
  const auto magnitude = [](const RotaryPositionsOptions& one) { return RotaryPositions(one)->magnitude(); };
  const auto usual = 1 + 0.1 * std::log(4.0);
  CHECK(magnitude(options) == usual);
  CHECK(magnitude(RotaryPositionsOptions(options).mscale(0.5)) == usual);
  CHECK(magnitude(RotaryPositionsOptions(options).mscale(0.7).mscale_all_dim(0.7)) == 1);
  CHECK(magnitude(RotaryPositionsOptions(options).attention_factor(1.5).mscale(1)) == 1.5);
  CHECK(magnitude(RotaryPositionsOptions(12).attention_factor(1.5)) == 1);
  const auto refused = [](const RotaryPositionsOptions& one) {
    return value_error([&] { return RotaryPositions(one); });
  };
  using Options = RotaryPositionsOptions;
  CHECK(refused(Options(options).factor(0.5)) == "RotaryPositions: expected factor >= 1, got 0.5");
  CHECK(refused(Options(options).base(1)) == "RotaryPositions: expected base > 1 for Yarn scaling, got 1");
  CHECK(refused(Options(options).beta_fast(2)) ==
        "RotaryPositions: expected 0 < beta_slow < beta_fast, got 2 and 2");
  CHECK(refused(Options(options).beta_slow(0)) ==
        "RotaryPositions: expected 0 < beta_slow < beta_fast, got 0 and 6");
  CHECK(refused(Options(options).original_context(0)) ==
        "RotaryPositions: expected original_context > 0, got 0");
  CHECK(refused(Options(options).mscale(-1)) == "RotaryPositions: expected mscale >= 0, got -1");
  CHECK(refused(Options(options).mscale_all_dim(test::kNaN)) ==
        "RotaryPositions: expected mscale_all_dim >= 0, got nan");
  CHECK(refused(Options(options).attention_factor(0)) ==
        "RotaryPositions: expected attention_factor > 0, got 0");
}

TEST_CASE("Rotated queries and keys know their distance alone", "[positions]") {
  for (const auto pairing : {RotaryPairing::Interleaved, RotaryPairing::Halves}) {
    RotaryPositions rotary(RotaryPositionsOptions(8).pairing(pairing));
    const auto q = at::randn({1, 1, 8}, at::kDouble), k = at::randn({1, 1, 8}, at::kDouble);
    const auto product = [&](int64_t q_position, int64_t k_position) {
      return (rotary->forward(q, q_position) * rotary->forward(k, k_position)).sum().item<double>();
    };
    CHECK(std::abs(product(3, 1) - product(1003, 1001)) < 1e-10);
    CHECK(std::abs(product(3, 1) - product(4, 1)) > 1e-6);
    CHECK(std::abs(product(5, 5) - (q * k).sum().item<double>()) < 1e-12);
  }
}

TEST_CASE("RotaryPositions is a torch::nn citizen and refuses what has no meaning", "[positions]") {
  test::ModuleSuite<RotaryPositions> suite;
  suite.make = [] { return RotaryPositions(6); };
  suite.input_shape = {2, 3, 5, 6};
  suite.keys = {};
  suite.has_dropout = false;
  suite.clone_keeps_random_state();
  suite.dtypes();
  suite.gradient_matches_differences();
  suite.inference_then_training();
  suite.empty_holder();
  suite.in_sequential();
  suite.prints();
  RotaryPositions rotary(6);
  CHECK(bit_equal(rotary->forward(at::zeros({3, 2, 6})), at::zeros({3, 2, 6})));
  CHECK(value_error([&] {
          return rotary->forward(at::zeros({2, 6}));
        }) == "RotaryPositions: expected x of shape (B, H, T, 6) or (H, T, 6), got (2, 6)");
  using Options = RotaryPositionsOptions;
  CHECK(value_error([] { return RotaryPositions(7); }) ==
        "RotaryPositions: expected an even head_dim > 0, got 7");
  CHECK(value_error([] { return RotaryPositions(Options(6).factor(2)); }) ==
        "RotaryPositions: expected factor = 1 without scaling, got 2");
  CHECK(value_error([] { return RotaryPositions(Options(6).scaling(RotaryScaling::Linear).factor(0.5)); }) ==
        "RotaryPositions: expected factor >= 1, got 0.5");
  CHECK(value_error([] { return RotaryPositions(Options(2).scaling(RotaryScaling::Ntk).factor(2)); }) ==
        "RotaryPositions: expected head_dim > 2 for Ntk scaling, got 2");
  CHECK(value_error([] { return RotaryPositions(Options(6).base(-1)); }) ==
        "RotaryPositions: expected base > 0, got -1");
}

TEST_CASE("A sequence of rotary positions goes on without end", "[positions]") {
  RotaryPositions rotary(6);
  const auto x = at::randn({1, 1, 3, 6}, at::kDouble);
  const auto by_hand = [&](int64_t first) {
    const auto angles = rotary->angles(3, first);
    const auto pairs = x.unflatten(-1, {3, 2});
    const auto a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    return at::stack({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, -1)
        .flatten(-2);
  };
  // The positions alternate between near and far and cross the ends of the cached tables.
  constexpr int64_t kFar = (int64_t{1} << 53) - 3;
  for (const int64_t first :
       std::initializer_list<int64_t>{0, 5, 65533, 65534, 65536, 69632, 69633, 69634, 2, 131069,
                                      int64_t{1} << 40, (int64_t{1} << 40) - 1, kFar}) {
    INFO("from " << first);
    CHECK(bit_equal(rotary->forward(x, first), by_hand(first)));
  }
  CHECK(value_error([&] { return rotary->forward(x, kFar + 1); }) ==
        "RotaryPositions: expected positions of at most 2^53, got 3 from 9007199254740990");
}

TEST_CASE("Positions refuse by name what has no angle or no memory", "[positions]") {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  constexpr auto kInf = std::numeric_limits<double>::infinity();
  const auto x = at::zeros({1, 2, 6});
  SinusoidalPositions fixed(6);
  LearnedPositions learned(5, 6);
  RotaryPositions rotary(6);
  for (const int64_t first : {kMost, kMost - 1, int64_t{1} << 53, int64_t{-1}, -kMost - 1}) {
    INFO("first " << first);
    CHECK(
        value_error([&] { return fixed->forward(x, first); }).starts_with("SinusoidalPositions: expected "));
    CHECK(value_error([&] { return learned->forward(x, first); }).starts_with("LearnedPositions: expected "));
    CHECK(value_error([&] { return rotary->forward(x, first); }).starts_with("RotaryPositions: expected "));
    CHECK(value_error([&] { return rotary->angles(2, first); }).starts_with("RotaryPositions: expected "));
    CHECK(value_error([&] {
            return sinusoidal_positions(2, 4, 1e4, first);
          }).starts_with("sinusoidal_positions: expected "));
  }
  for (const int64_t length : {kMost, int64_t{-1}}) {
    CHECK(value_error([&] { return rotary->angles(length); }).starts_with("RotaryPositions: expected "));
    CHECK(value_error([&] {
            return sinusoidal_positions(length, 4);
          }).starts_with("sinusoidal_positions: expected "));
  }
  const auto large = test::error_of<c10::OutOfMemoryError>([] { sinusoidal_positions(int64_t{1} << 50, 4); });
  CHECK(large.starts_with("sinusoidal_positions: cannot reserve angles of 1125899906842624 positions: "));
  for (const double base : {0.0, -1.0, test::kNaN, kInf}) {
    CHECK(value_error([&] {
            return RotaryPositions(RotaryPositionsOptions(6).base(base));
          }).starts_with("RotaryPositions: expected base > 0, got "));
    CHECK(value_error([&] {
            return SinusoidalPositions(SinusoidalPositionsOptions(6).base(base));
          }).starts_with("SinusoidalPositions: expected base > 0, got "));
  }
  // Angles that overflow would become NaN.
  const auto steep = std::numeric_limits<double>::denorm_min();
  CHECK(value_error([&] {
          return sinusoidal_positions(2, 128, steep);
        }).starts_with("sinusoidal_positions: expected a base with finite angles, got "));
  RotaryPositions steeper(RotaryPositionsOptions(128).base(1e-308));
  CHECK(steeper->forward(at::ones({1, 2, 128})).isfinite().all().item<bool>());
  CHECK(value_error([&] {
          return steeper->forward(at::ones({1, 2, 128}), int64_t{1} << 30);
        }).starts_with("RotaryPositions: expected a base with finite angles, got "));
  const auto ntk = RotaryPositionsOptions(4).base(1e300).scaling(RotaryScaling::Ntk).factor(1e10);
  CHECK(value_error([&] {
          return RotaryPositions(ntk);
        }).starts_with("RotaryPositions: expected a finite base * factor^"));
}

TEST_CASE("LayerNorm gives the anchor row and its formula", "[layer_norm]") {
  LayerNorm norm(3);
  CHECK_WITHIN(norm->forward(test::table({{.43f, .15f, .89f}})), test::table({{-0.1967f, -1.1144f, 1.3111f}}),
               {0, 0.5e-4});
  LayerNorm other(LayerNormOptions(5).eps(0.1));
  {
    const at::NoGradGuard no_grad;
    other->scale.normal_();
    other->shift.normal_();
  }
  const auto x = at::randn({2, 4, 5});
  const auto centred = x - x.mean(-1, true);
  const auto expected =
      other->scale * centred / (centred.square().mean(-1, true) + 0.1).sqrt() + other->shift;
  CHECK_WITHIN(other->forward(x), expected, {1e-5, 1e-5});
  CHECK_FALSE(LayerNorm(LayerNormOptions(5).bias(false))->shift.defined());
  CHECK(value_error([&] {
          return other->forward(at::randn({5, 4}));
        }) == "LayerNorm: expected x of shape (..., 5), got (5, 4)");
  CHECK(value_error([] { return LayerNorm(0); }) == "LayerNorm: expected emb_dim > 0, got 0");
}

TEST_CASE("LayerNorm is a torch::nn citizen", "[layer_norm]") {
  for (const bool bias : {true, false}) {
    test::ModuleSuite<LayerNorm> suite;
    suite.make = [bias] { return LayerNorm(LayerNormOptions(6).bias(bias)); };
    suite.input_shape = {2, 5, 6};
    suite.keys = bias ? std::vector<std::string>{"scale", "shift"} : std::vector<std::string>{"scale"};
    suite.has_dropout = false;
    suite.meta = false;  // LibTorch has no layer norm for meta tensors
    suite.run();
  }
}

TEST_CASE("RMSNorm gives Python's row and its formula", "[rms_norm]") {
  // torch.nn.RMSNorm(3, eps=1e-6)(torch.tensor([0.43, 0.15, 0.89])) with torch 2.11 in Python
  CHECK_WITHIN(RMSNorm(3)->forward(test::table({{.43f, .15f, .89f}})),
               test::table({{0.7449670f, 0.2598722f, 1.5419085f}}), {1e-6, 0});
  RMSNorm norm(RMSNormOptions(5).eps(0.1));
  {
    const at::NoGradGuard no_grad;
    norm->weight.normal_();
  }
  const auto x = at::randn({2, 4, 5});
  CHECK_WITHIN(norm->forward(x), norm->weight * x / (x.square().mean(-1, true) + 0.1).sqrt(), {1e-5, 1e-5});
  CHECK(value_error([&] {
          return norm->forward(at::randn({5, 4}));
        }) == "RMSNorm: expected x of shape (..., 5), got (5, 4)");
  CHECK(value_error([] { return RMSNorm(0); }) == "RMSNorm: expected features > 0, got 0");
  CHECK(value_error([] { return RMSNorm(RMSNormOptions(2).eps(-1)); }) ==
        "RMSNorm: expected eps to be finite and not negative, got -1");
}

TEST_CASE("RMSNorm without gradients is rounded once, on any number of threads",
          "[rms_norm][threads][short]") {
  const bool unit_offset = GENERATE(false, true);
  const int64_t features = GENERATE(1, 7, 64, 130), tokens = GENERATE(3, 700);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    INFO(type << ", " << tokens << " tokens, " << features << " features, unit_offset " << unit_offset);
    RMSNorm norm(RMSNormOptions(features).unit_offset(unit_offset).eps(1e-3));
    {
      const at::NoGradGuard no_grad;
      norm->weight.copy_(at::randn({features}));
    }
    norm->to(type);
    const auto x = at::randn({2, tokens, features}).to(type);
    const auto wide = x.to(at::kDouble),
               weight = norm->weight.detach().to(at::kDouble) + (unit_offset ? 1 : 0);
    const auto want = wide / (wide.square().mean(-1, true) + 1e-3).sqrt() * weight;
    const at::NoGradGuard no_grad;
    const auto got = norm->forward(x);
    CHECK(got.scalar_type() == type);
    const auto error = (got.to(at::kDouble) - want).abs();
    // Half the distance between two subnormal numbers, which a relative bound does not cover.
    const double subnormal = type == at::kHalf ? 0x1p-25 : 0;
    CHECK((error <= want.abs() * (0.5 * test::unit_of(type) + 1e-6) + subnormal).all().item<bool>());
    const auto threads = at::get_num_threads();
    at::set_num_threads(1);
    CHECK(at::equal(norm->forward(x), got));
    at::set_num_threads(threads);
  }
}

TEST_CASE("RMSNorm is a torch::nn citizen", "[rms_norm]") {
  test::ModuleSuite<RMSNorm> suite;
  suite.make = [] { return RMSNorm(6); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"weight"};
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch has no RMS norm for meta tensors
  suite.run();
}

TEST_CASE("RMSNorm refuses another dtype than its parameters'", "[rms_norm]") {
  RMSNorm norm(6);
  const auto x = at::randn({2, 4, 6});
  CHECK(type_error([&] { norm->forward(x.to(at::kDouble)); }) ==
        "RMSNorm: expected x of dtype Float like the parameters, got Double");
  CHECK(type_error([&] { norm->forward(x.to(at::kBFloat16)); }) ==
        "RMSNorm: expected x of dtype Float like the parameters, got BFloat16");
  norm->to(at::kBFloat16);
  CHECK(type_error([&] { norm->forward(x); }) ==
        "RMSNorm: expected x of dtype BFloat16 like the parameters, got Float");
  at::autocast::set_autocast_enabled(at::kCPU, true);  // its own rules then decide the dtype
  const auto y = norm->forward(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(y.sizes() == x.sizes());
}
