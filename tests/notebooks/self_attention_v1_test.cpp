#include <cmath>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/default_dtype.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_self_attention_v1() {
  return {.make = [] { return SelfAttentionV1(3, 2).ptr(); }, .call = bind_one_input<SelfAttentionV1>()};
}

}  // namespace

TEST_CASE("SelfAttentionV1 prints the notebook's table", "[self_attention_v1]") {
  at::manual_seed(123);
  const auto y = SelfAttentionV1(3, 2)->forward(sentence());
  CHECK(as_printed(y, table({{.2996f, .8053f},
                             {.3061f, .8210f},
                             {.3058f, .8203f},
                             {.2948f, .7939f},
                             {.2927f, .7891f},
                             {.2990f, .8040f}})));
}

TEST_CASE("SelfAttentionV1 equals PyTorch", "[self_attention_v1]") {
  check_golden("SelfAttentionV1", notebook_self_attention_v1(), at::kCPU);
}

TEST_CASE("SelfAttentionV1 equals PyTorch on CUDA", "[self_attention_v1][cuda]") {
  check_golden("SelfAttentionV1", notebook_self_attention_v1(), cuda_or_skip());
}

TEST_CASE("SelfAttentionV1 computes the worked numbers of the Q/K/V tutorial", "[self_attention_v1]") {
  // The weights are explicit, there are three tokens, and scores are not scaled.
  const auto x = table({{1, 0, 1, 0}, {0, 2, 0, 2}, {1, 1, 1, 1}});
  const auto attend = [&](std::optional<double> scale) {
    SelfAttentionV1 module(SelfAttentionV1Options(4, 3).attention({.scale = scale}));
    const at::NoGradGuard no_grad;
    module->W_query.copy_(table({{1, 0, 1}, {1, 0, 0}, {0, 0, 1}, {0, 1, 1}}));
    module->W_key.copy_(table({{0, 0, 1}, {1, 1, 0}, {0, 1, 0}, {1, 1, 0}}));
    module->W_value.copy_(table({{0, 2, 0}, {0, 3, 0}, {1, 0, 3}, {1, 1, 0}}));
    return module->forward_with_weights(x);
  };
  const auto [exact, weights] = attend(1.0);
  CHECK(as_printed(
      exact, table({{1.9366f, 6.6831f, 1.5951f}, {2.0f, 7.9640f, .0540f}, {1.9997f, 7.7599f, .3584f}})));
  const auto printed = table({{6.3379e-02f, 4.6831e-01f, 4.6831e-01f},
                              {6.0337e-06f, 9.8201e-01f, 1.7986e-02f},
                              {2.9539e-04f, 8.8054e-01f, 1.1917e-01f}});
  CHECK(((weights - printed).abs() / printed).max().item<double>() < 6e-5);
  const auto [scaled, unused] = attend(std::nullopt);
  CHECK(as_printed(
      scaled, table({{1.8639f, 6.3194f, 1.7042f}, {1.9991f, 7.8141f, .2735f}, {1.9926f, 7.4796f, .7359f}})));
}

TEST_CASE("SelfAttentionV1 draws its weights as asked", "[self_attention_v1]") {
  at::manual_seed(1);
  const auto draw = [](MatrixInit init) {
    return SelfAttentionV1(SelfAttentionV1Options(64, 500).init(init))->W_key.detach();
  };
  const auto uniform = draw(MatrixInit::Uniform), normal = draw(MatrixInit::Normal),
             kaiming = draw(MatrixInit::KaimingUniform);
  CHECK(uniform.min().item<float>() >= 0.0f);
  CHECK(uniform.max().item<float>() < 1.0f);
  CHECK(std::abs(uniform.mean().item<double>() - 0.5) < 0.01);
  CHECK(std::abs(normal.mean().item<double>()) < 0.03);
  CHECK(std::abs(normal.std().item<double>() - 1.0) < 0.03);
  CHECK(kaiming.abs().max().item<float>() <= 0.125f);
  CHECK(std::abs(kaiming.std().item<double>() - 0.125 / std::sqrt(3.0)) < 0.002);
}

TEST_CASE("SelfAttentionV1 is a torch::nn citizen", "[self_attention_v1]") {
  ModuleSuite<SelfAttentionV1> suite;
  suite.make = [] { return SelfAttentionV1(6, 4); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query", "W_key", "W_value"};
  suite.own_parameters = [](SelfAttentionV1& m) {
    return std::vector<at::Tensor*>{&m->W_query, &m->W_key, &m->W_value};
  };
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("SelfAttentionV1 names what is wrong", "[self_attention_v1][errors]") {
  SelfAttentionV1 module(6, 4);
  const auto value = [&](const at::Tensor& x) { return value_error([&] { module->forward(x); }); };
  CHECK(value({}) == "SelfAttentionV1: expected x to be a tensor, got an undefined one");
  CHECK(value(at::randn({2, 5, 4})) ==
        "SelfAttentionV1: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "SelfAttentionV1: expected x of dtype Float like the parameters, got Double");
  CHECK(value_error([] { SelfAttentionV1 bad(0, 4); }) == "SelfAttentionV1: expected d_in > 0, got 0");
  CHECK(value_error([] { SelfAttentionV1 bad(6, 0); }) == "SelfAttentionV1: expected d_out > 0, got 0");
  CHECK(
      value_error([] { SelfAttentionV1 bad(SelfAttentionV1Options(6, 4).attention({.dropout_p = 0.1})); }) ==
      "SelfAttentionV1: expected attention().dropout_p to stay 0 (set dropout; training mode decides), got "
      "0.1");
}

TEST_CASE("SelfAttentionV1 draws what Python draws in another default dtype", "[self_attention_v1]") {
  const auto drawn = [](at::ScalarType type) {
    const DefaultDtype dtype(type);
    at::manual_seed(123);
    return SelfAttentionV1(3, 2)->W_query.detach();
  };
  // torch.set_default_dtype(...); torch.manual_seed(123); torch.rand(3, 2)
  const auto in_double = at::tensor({0.36889587066427298, 0.01336594985529183, 0.59178003830187387,
                                     0.09263931233897627, 0.47245192104288702, 0.52203167916667959},
                                    at::kDouble)
                             .view({3, 2});
  CHECK_WITHIN(drawn(at::kDouble), in_double, {0.0, 1e-17});  // Python printed 17 decimals
  const auto in_bf16 = table({{.9921875f, .42578125f}, {.4921875f, .2578125f}, {.859375f, .3828125f}});
  CHECK(bit_equal(drawn(at::kBFloat16), in_bf16.to(at::kBFloat16)));
}
