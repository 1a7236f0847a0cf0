#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("a matrix is drawn with the very draws of Python's function", "[matrix_init]") {
  const auto seeded = [](auto draw) {
    at::manual_seed(123);
    return draw();
  };
  const auto drawn = [&](MatrixInit init) { return seeded([=] { return draw_matrix(3, 2, init); }); };
  CHECK(bit_equal(drawn(MatrixInit::Uniform), seeded([] { return at::rand({3, 2}); })));
  CHECK(bit_equal(drawn(MatrixInit::Normal), seeded([] { return at::randn({3, 2}); })));
  const double bound = 1 / std::sqrt(3.0);
  CHECK(bit_equal(drawn(MatrixInit::KaimingUniform), seeded([=] {
                    return at::empty({3, 2}).uniform_(-bound, bound);
                  })));
}

TEST_CASE("the bound of KaimingUniform is that of d_in inputs", "[matrix_init]") {
  at::manual_seed(1);
  const auto matrix = draw_matrix(64, 500, MatrixInit::KaimingUniform);
  CHECK(matrix.sizes() == at::IntArrayRef({64, 500}));
  CHECK(matrix.abs().max().item<float>() <= 0.125f);
  CHECK(matrix.abs().max().item<float>() > 0.12f);
}

TEST_CASE("a matrix is drawn on the CPU without a gradient", "[matrix_init]") {
  const auto matrix = draw_matrix(3, 2, MatrixInit::Normal);
  CHECK(matrix.is_cpu());
  CHECK_FALSE(matrix.requires_grad());
  CHECK(matrix.scalar_type() == at::kFloat);
}

TEST_CASE("every initial value has a name", "[matrix_init]") {
  CHECK(to_string(MatrixInit::Uniform) == "uniform");
  CHECK(to_string(MatrixInit::Normal) == "normal");
  CHECK(to_string(MatrixInit::KaimingUniform) == "kaiming_uniform");
}

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

namespace {

GoldenModule notebook_matrix_self_attention() {
  return {.make = [] { return MatrixSelfAttention(3, 2).ptr(); },
          .call = bind_one_input<MatrixSelfAttention>()};
}

}  // namespace

TEST_CASE("MatrixSelfAttention equals PyTorch", "[matrix_self_attention]") {
  check_golden("MatrixSelfAttention", notebook_matrix_self_attention(), at::kCPU);
}

TEST_CASE("MatrixSelfAttention equals PyTorch on CUDA", "[matrix_self_attention][cuda]") {
  check_golden("MatrixSelfAttention", notebook_matrix_self_attention(), cuda_or_skip());
}

TEST_CASE("MatrixSelfAttention is SelfAttentionV1 with other first numbers", "[matrix_self_attention]") {
  at::manual_seed(4);
  MatrixSelfAttention matrix(3, 2);
  at::manual_seed(4);
  SelfAttentionV1 v1(SelfAttentionV1Options(3, 2).init(MatrixInit::Normal));
  CHECK(bit_equal(matrix->W_V, v1->W_value));
  CHECK(bit_equal(matrix->forward(batch()), v1->forward(batch())));
  at::manual_seed(4);
  MatrixSelfAttention uniform(MatrixSelfAttentionOptions(3, 2).init(MatrixInit::Uniform));
  CHECK(uniform->W_Q.min().item<float>() >= 0.0f);
}

TEST_CASE("MatrixSelfAttention is a torch::nn citizen", "[matrix_self_attention]") {
  ModuleSuite<MatrixSelfAttention> suite;
  suite.make = [] { return MatrixSelfAttention(6, 4); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_Q", "W_K", "W_V"};
  suite.own_parameters = [](MatrixSelfAttention& m) {
    return std::vector<at::Tensor*>{&m->W_Q, &m->W_K, &m->W_V};
  };
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MatrixSelfAttention names what is wrong", "[matrix_self_attention][errors]") {
  MatrixSelfAttention module(6, 4);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "MatrixSelfAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kHalf));
        }) == "MatrixSelfAttention: expected x of dtype Float like the parameters, got Half");
  CHECK(value_error([] { MatrixSelfAttention bad(0, 4); }) ==
        "MatrixSelfAttention: expected d_model > 0, got 0");
  CHECK(value_error([] { MatrixSelfAttention bad(6, 0); }) == "MatrixSelfAttention: expected d_k > 0, got 0");
}

TEST_CASE("MatrixSelfAttention draws what Python draws in another default dtype", "[matrix_self_attention]") {
  const DefaultDtype wide(at::kDouble);
  at::manual_seed(123);
  // torch.set_default_dtype(torch.float64); torch.manual_seed(123); torch.randn(3, 2)
  const auto want = at::tensor({-0.11146711634581082, 0.12036294405744884, -0.36963450886574944,
                                -0.24041797675874255, -1.19692438460773976, 0.20926935685808373},
                               at::kDouble)
                        .view({3, 2});
  CHECK_WITHIN(MatrixSelfAttention(3, 2)->W_Q.detach(), want, {0.0, 1e-14});
}

namespace {

GoldenModule notebook_self_attention_v2(bool bias) {
  return {.make = [=] { return SelfAttentionV2(3, 2, bias).ptr(); },
          .call = bind_one_input<SelfAttentionV2>()};
}

}  // namespace

TEST_CASE("SelfAttentionV2 prints the notebook's tables", "[self_attention_v2]") {
  at::manual_seed(789);
  SelfAttentionV2 module(3, 2);
  const auto [y, weights] = module->forward_with_weights(sentence());
  CHECK(as_printed(y, table({{-.0739f, .0713f},
                             {-.0748f, .0703f},
                             {-.0749f, .0702f},
                             {-.0760f, .0685f},
                             {-.0763f, .0679f},
                             {-.0754f, .0693f}})));
  CHECK(as_printed(weights, table({{.1921f, .1646f, .1652f, .1550f, .1721f, .1510f},
                                   {.2041f, .1659f, .1662f, .1496f, .1665f, .1477f},
                                   {.2036f, .1659f, .1662f, .1498f, .1664f, .1480f},
                                   {.1869f, .1667f, .1668f, .1571f, .1661f, .1564f},
                                   {.1830f, .1669f, .1670f, .1588f, .1658f, .1585f},
                                   {.1935f, .1663f, .1666f, .1542f, .1666f, .1529f}})));
}

TEST_CASE("SelfAttentionV2 masks like the notebook's cells 29 to 33", "[self_attention_v2]") {
  at::manual_seed(789);
  SelfAttentionV2 plain(3, 2);
  SelfAttentionV2 causal(SelfAttentionV2Options(3, 2).attention({.causal = Causal::BottomRight}));
  causal->W_query = plain->W_query;
  causal->W_key = plain->W_key;
  const auto weights = causal->forward_with_weights(sentence()).second;
  const auto printed = table({{1.0000f, 0, 0, 0, 0, 0},
                              {.5517f, .4483f, 0, 0, 0, 0},
                              {.3800f, .3097f, .3103f, 0, 0, 0},
                              {.2758f, .2460f, .2462f, .2319f, 0, 0},
                              {.2175f, .1983f, .1984f, .1888f, .1971f, 0},
                              {.1935f, .1663f, .1666f, .1542f, .1666f, .1529f}});
  CHECK(as_printed(weights, printed));
  // Setting weights to zero after the softmax and dividing by the row's sum is equivalent.
  const auto zeroed = plain->forward_with_weights(sentence()).second.tril();
  CHECK_CLOSE(zeroed / zeroed.sum(-1, /*keepdim=*/true), weights);
}

TEST_CASE("SelfAttentionV2 equals PyTorch", "[self_attention_v2]") {
  check_golden("SelfAttentionV2", notebook_self_attention_v2(false), at::kCPU);
  check_golden("SelfAttentionV2.bias", notebook_self_attention_v2(true), at::kCPU);
}

TEST_CASE("SelfAttentionV2 equals PyTorch on CUDA", "[self_attention_v2][cuda]") {
  check_golden("SelfAttentionV2.bias", notebook_self_attention_v2(true), cuda_or_skip());
}

TEST_CASE("SelfAttentionV2 and SelfAttentionV1 exchange weights", "[self_attention_v2]") {
  SelfAttentionV1 v1(3, 2);
  SelfAttentionV2 v2(3, 2), biased(3, 2, /*qkv_bias=*/true);
  CHECK(difference(v2->forward(batch()), v1->forward(batch())) != "");
  copy_weights(*v2, *v1);
  CHECK_CLOSE(v1->forward(batch()), v2->forward(batch()));
  SelfAttentionV1 other(3, 2);
  copy_weights(*other, *v2);
  copy_weights(*other, *biased);
  CHECK_CLOSE(v2->forward(batch()), other->forward(batch()));
  CHECK_CLOSE(biased->forward(batch()), other->forward(batch()));
  CHECK(v2->W_query->weight.requires_grad());

  CHECK(
      value_error([&] { copy_weights(*biased, *v1); }) ==
      "copy_weights: expected a SelfAttentionV2 without biases, for which SelfAttentionV1 has no place, got "
      "qkv_bias = true");
  SelfAttentionV1 wide(4, 2);
  CHECK(value_error([&] { copy_weights(*wide, *v2); }) ==
        "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (4, 2), SelfAttentionV2 (3, 2)");
  CHECK(value_error([&] { copy_weights(*v2, *wide); }) ==
        "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (4, 2), SelfAttentionV2 (3, 2)");
}

TEST_CASE("SelfAttentionV2 is a torch::nn citizen", "[self_attention_v2]") {
  ModuleSuite<SelfAttentionV2> suite;
  suite.make = [] { return SelfAttentionV2(6, 4, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias",   "W_key.weight",
                "W_key.bias",     "W_value.weight", "W_value.bias"};
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("SelfAttentionV2 names what is wrong", "[self_attention_v2][errors]") {
  SelfAttentionV2 module(6, 4);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "SelfAttentionV2: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "SelfAttentionV2: expected x of dtype Float like the parameters, got Double");
  CHECK(value_error([] { SelfAttentionV2 bad(0, 4); }) == "SelfAttentionV2: expected d_in > 0, got 0");
  CHECK(value_error([] { SelfAttentionV2 bad(6, -1); }) == "SelfAttentionV2: expected d_out > 0, got -1");
}

namespace {

GoldenModule notebook_causal_attention(double dropout) {
  return {.make = [=] { return CausalAttention(3, 2, 6, dropout).ptr(); },
          .call = bind_one_input<CausalAttention>()};
}

}  // namespace

TEST_CASE("CausalAttention prints the notebook's table", "[causal_attention]") {
  at::manual_seed(123);
  const auto y = CausalAttention(3, 2, 6, 0.0)->forward(batch());
  const auto printed = table({{-.4519f, .2216f},
                              {-.5874f, .0058f},
                              {-.6300f, -.0632f},
                              {-.5675f, -.0843f},
                              {-.5526f, -.0981f},
                              {-.5299f, -.1081f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("CausalAttention equals PyTorch", "[causal_attention][short]") {
  check_golden("CausalAttention", notebook_causal_attention(0.0), at::kCPU);
  check_training("CausalAttention.train", notebook_causal_attention(0.5));
}

TEST_CASE("CausalAttention equals PyTorch on CUDA", "[causal_attention][cuda]") {
  check_golden("CausalAttention", notebook_causal_attention(0.0), cuda_or_skip());
}

TEST_CASE("CausalAttention is a torch::nn citizen", "[causal_attention]") {
  ModuleSuite<CausalAttention> suite;
  suite.make = [] { return CausalAttention(6, 4, 5, 0.25, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias",   "W_key.weight",
                "W_key.bias",     "W_value.weight", "W_value.bias"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("CausalAttention takes fewer tokens than its context", "[causal_attention]") {
  CausalAttention module(3, 4, /*context_length=*/6, 0.0), unlimited(3, 4, /*context_length=*/0, 0.0);
  const auto x = at::randn({2, 6, 3});
  CHECK_CLOSE(module->forward(x.slice(1, 0, 4)), module->forward(x).slice(1, 0, 4));
  CHECK(unlimited->forward(at::randn({40, 3})).size(0) == 40);
}

TEST_CASE("CausalAttention names what is wrong", "[causal_attention][errors]") {
  CausalAttention module(6, 4, 5, 0.0);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "CausalAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value_error([&] {
          module->forward(at::randn({2, 7, 6}));
        }) == "CausalAttention: expected at most context_length = 5 tokens, got 7");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "CausalAttention: expected x of dtype Float like the parameters, got Double");
  const auto make = [](CausalAttentionOptions options) {
    return value_error([&] { CausalAttention bad(options); });
  };
  CHECK(make({0, 4, 5, 0.0}) == "CausalAttention: expected d_in > 0, got 0");
  CHECK(make({6, 0, 5, 0.0}) == "CausalAttention: expected d_out > 0, got 0");
  CHECK(make({6, 4, -5, 0.0}) == "CausalAttention: expected context_length >= 0 (0: no limit), got -5");
  CHECK(make({6, 4, 5, -0.1}) == "CausalAttention: expected dropout in [0, 1], got -0.1");
}

namespace {

GoldenModule notebook_multi_head_attention_wrapper(double dropout) {
  return {.make = [=] { return MultiHeadAttentionWrapper(3, 2, 6, dropout, 2).ptr(); },
          .call = bind_one_input<MultiHeadAttentionWrapper>()};
}

}  // namespace

TEST_CASE("MultiHeadAttentionWrapper prints the notebook's table", "[multi_head_attention_wrapper]") {
  at::manual_seed(123);
  const auto y = MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2)->forward(batch());
  const auto printed = table({{-.4519f, .2216f, .4772f, .1063f},
                              {-.5874f, .0058f, .5891f, .3257f},
                              {-.6300f, -.0632f, .6202f, .3860f},
                              {-.5675f, -.0843f, .5478f, .3589f},
                              {-.5526f, -.0981f, .5321f, .3428f},
                              {-.5299f, -.1081f, .5077f, .3493f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("MultiHeadAttentionWrapper equals PyTorch", "[multi_head_attention_wrapper]") {
  check_golden("MultiHeadAttentionWrapper", notebook_multi_head_attention_wrapper(0.0), at::kCPU);
  check_training("MultiHeadAttentionWrapper.train", notebook_multi_head_attention_wrapper(0.5));
}

TEST_CASE("MultiHeadAttentionWrapper equals PyTorch on CUDA", "[multi_head_attention_wrapper][cuda]") {
  check_golden("MultiHeadAttentionWrapper", notebook_multi_head_attention_wrapper(0.0), cuda_or_skip());
}

TEST_CASE("MultiHeadAttentionWrapper is a torch::nn citizen", "[multi_head_attention_wrapper]") {
  ModuleSuite<MultiHeadAttentionWrapper> suite;
  suite.make = [] { return MultiHeadAttentionWrapper(6, 4, 5, 0.25, 2); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"heads.0.W_query.weight", "heads.0.W_key.weight", "heads.0.W_value.weight",
                "heads.1.W_query.weight", "heads.1.W_key.weight", "heads.1.W_value.weight"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MultiHeadAttentionWrapper stacks the weights of its heads", "[multi_head_attention_wrapper]") {
  MultiHeadAttentionWrapper module(3, 2, 6, 0.0, 3);
  const auto weights = module->forward_with_weights(batch()).second;
  CHECK(weights.sizes() == at::IntArrayRef({2, 3, 6, 6}));
  CHECK(module->forward_with_weights(sentence()).second.sizes() == at::IntArrayRef({3, 6, 6}));
  for (size_t n = 0; n < 3; ++n) {
    auto& head = module->heads->at<CausalAttentionImpl>(n);
    CHECK_CLOSE(head.forward_with_weights(batch()).second, weights.select(1, static_cast<int64_t>(n)));
  }
}

TEST_CASE("MultiHeadAttentionWrapper passes its attention options to every head",
          "[multi_head_attention_wrapper]") {
  MultiHeadAttentionWrapper module(
      MultiHeadAttentionWrapperOptions(3, 2, 6, 0.0, 2).attention({.causal = Causal::None}));
  CHECK(module->forward_with_weights(sentence()).second.gt(0).all().item<bool>());
}

TEST_CASE("MultiHeadAttentionWrapper names what is wrong", "[multi_head_attention_wrapper][errors]") {
  MultiHeadAttentionWrapper module(6, 4, 5, 0.0, 2);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "MultiHeadAttentionWrapper: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value_error([&] {
          module->forward(at::randn({2, 7, 6}));
        }) == "MultiHeadAttentionWrapper: expected at most context_length = 5 tokens, got 7");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "MultiHeadAttentionWrapper: expected x of dtype Float like the parameters, got Double");
  const auto make = [](MultiHeadAttentionWrapperOptions options) {
    return value_error([&] { MultiHeadAttentionWrapper bad(options); });
  };
  CHECK(make({0, 4, 5, 0.0, 2}) == "MultiHeadAttentionWrapper: expected d_in > 0, got 0");
  CHECK(make({6, 0, 5, 0.0, 2}) == "MultiHeadAttentionWrapper: expected d_out > 0, got 0");
  CHECK(make({6, 4, 5, 0.0, 0}) == "MultiHeadAttentionWrapper: expected num_heads in [1, 1048576], got 0");
  CHECK(make({6, 4, 5, 2.0, 2}) == "MultiHeadAttentionWrapper: expected dropout in [0, 1], got 2");
  CHECK(make({6, 4, -1, 0.0, 2}) ==
        "MultiHeadAttentionWrapper: expected context_length >= 0 (0: no limit), got -1");
}
