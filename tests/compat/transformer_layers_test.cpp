#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/compat/transformer_layers.h>

#include "compat/small_layers.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::bools;
using attentive::test::small;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using compat::TransformerDecoderLayer;
using compat::TransformerEncoderLayer;
using compat::TransformerLayerOptions;

TEST_CASE("compat::LayerNorm is a torch::nn citizen", "[compat][layer_norm]") {
  test::ModuleSuite<compat::LayerNorm> suite;
  suite.make = [] { return compat::LayerNorm(6); };
  suite.input_shape = {2, 6};
  suite.keys = {"weight", "bias"};
  suite.has_dropout = false;
  suite.meta = false;
  suite.run();
  CHECK(compat::LayerNorm(compat::LayerNormOptions(3).bias(false))->parameters().size() == 1);
}

TEST_CASE("compat::LayerNorm is layer_norm over the last size, with and without bias",
          "[compat][layer_norm]") {
  const auto x = at::randn({2, 3, 6});
  compat::LayerNorm norm(compat::LayerNormOptions(6).eps(0.5));
  const at::NoGradGuard no_grad;
  norm->weight.normal_();
  norm->bias.normal_();
  CHECK(bit_equal(norm->forward(x), at::layer_norm(x, {6}, norm->weight, norm->bias, 0.5)));
  const compat::LayerNorm plain(compat::LayerNormOptions(6).bias(false));
  CHECK_FALSE(plain->bias.defined());
  CHECK(bit_equal(plain.ptr()->forward(x), at::layer_norm(x, {6}, plain->weight, {}, 1e-5)));
}

TEST_CASE("compat::LayerNorm names every mistake", "[compat][layer_norm][errors]") {
  using test::type_error;
  using test::value_error;
  CHECK(value_error([] { compat::LayerNorm(0); }) == "compat::LayerNorm: expected features > 0, got 0");
  compat::LayerNorm norm(6);
  CHECK(value_error([&] {
          norm->forward(at::randn({6, 5}));
        }) == "compat::LayerNorm: expected x of shape (..., 6), got (6, 5)");
  CHECK(type_error([&] { norm->forward(at::randn({6}, at::kDouble)); }) ==
        "compat::LayerNorm: expected x of dtype Float like the parameters, got Double");
}

namespace {

at::Tensor silu(const at::Tensor& x) {
  return at::silu(x);
}

const std::vector<std::string> kAttention = {"in_proj_weight", "in_proj_bias", "out_proj.weight",
                                             "out_proj.bias"};

std::vector<std::string> layer_keys(const std::vector<std::string>& attentions, int norms) {
  std::vector<std::string> keys;
  for (const auto& name : attentions) {
    for (const auto& key : kAttention) keys.push_back(name + "." + key);
  }
  for (const char* linear : {"linear1", "linear2"}) {
    for (const char* key : {".weight", ".bias"}) keys.push_back(std::string(linear) + key);
  }
  for (int n = 1; n <= norms; ++n) {
    for (const char* key : {".weight", ".bias"}) keys.push_back("norm" + std::to_string(n) + key);
  }
  return keys;
}

}  // namespace

TEST_CASE("TransformerEncoderLayer equals PyTorch on every recorded case", "[compat][transformer]") {
  test::check_cases("layers#encoder-*", 20);
  test::check_cases("torch#encoder-*", 10);
  test::check_dropout_cases("layers_dropout#encoder-*");
}

TEST_CASE("TransformerDecoderLayer equals PyTorch on every recorded case", "[compat][transformer]") {
  test::check_cases("layers#decoder-*", 12);
  test::check_cases("torch#decoder-*", 10);
  test::check_dropout_cases("layers_dropout#decoder-*");
}

TEST_CASE("TransformerEncoderLayer is a torch::nn citizen", "[compat][transformer]") {
  test::ModuleSuite<TransformerEncoderLayer> suite;
  suite.make = [] { return TransformerEncoderLayer(small().activation(torch::kGELU)); };
  suite.input_shape = {2, 3, 6};
  suite.keys = layer_keys({"self_attn"}, 2);
  suite.meta = false;
  suite.run();
}

TEST_CASE("TransformerDecoderLayer is a torch::nn citizen", "[compat][transformer]") {
  test::ModuleSuite<TransformerDecoderLayer> suite;
  suite.make = [] { return TransformerDecoderLayer(small().activation(silu).norm_first(true)); };
  suite.input_shape = {2, 3, 6};
  suite.keys = layer_keys({"self_attn", "multihead_attn"}, 3);
  suite.call = [](TransformerDecoderLayer& m, const at::Tensor& x) {
    return m->forward(x, x.slice(1, 0, 2));
  };
  suite.meta = false;
  suite.sequential = false;
  suite.run();
}

TEST_CASE("TransformerEncoderLayer: a fully padded sequence stays finite", "[compat][transformer]") {
  TransformerEncoderLayer layer(small());
  const auto x = at::randn({2, 3, 6}).requires_grad_(true);
  auto padding = bools({2, 3});
  padding[0].fill_(true);
  const auto y = layer->forward(x, {}, padding);
  y.sum().backward();
  CHECK(y.isfinite().all().item<bool>());
  CHECK(x.grad().isfinite().all().item<bool>());
}

TEST_CASE("Transformer layers name every mistake", "[compat][transformer]") {
  const auto throws_value = [](auto&& f, const char* text) {
    CHECK_THROWS_MATCHES(f(), c10::ValueError, MessageMatches(ContainsSubstring(text)));
  };
  const auto throws_type = [](auto&& f, const char* text) {
    CHECK_THROWS_MATCHES(f(), c10::TypeError, MessageMatches(ContainsSubstring(text)));
  };
  throws_value([] { TransformerEncoderLayer(0, 1); },
               "compat::TransformerEncoderLayer: expected d_model > 0");
  throws_value([] { TransformerEncoderLayer(6, 4); }, "expected nhead to divide d_model = 6, got 4");
  throws_value([] { TransformerDecoderLayer(small().dim_feedforward(0)); },
               "compat::TransformerDecoderLayer: expected dim_feedforward > 0, got 0");
  throws_value([] { TransformerEncoderLayer(small().dropout(-0.1)); }, "dropout");
  throws_value([] { TransformerEncoderLayer(small().layer_norm_eps(-1)); }, "eps");
  const compat::Activation nothing = std::function<at::Tensor(const at::Tensor&)>();
  throws_value([&] { TransformerEncoderLayer(small().activation(nothing)); },
               "expected activation to be callable");

  TransformerEncoderLayer encoder(small());
  TransformerDecoderLayer decoder(small());
  const auto x = at::randn({2, 3, 6});
  const auto memory = at::randn({2, 5, 6});
  throws_value([&] { encoder->forward(at::randn({3})); },
               "expected src of shape (N, T, 6) or (T, 6), got (3,)");
  throws_value([&] { encoder->forward(at::randn({2, 3, 5})); }, "expected src of 6 features");
  throws_type([&] { encoder->forward(x.to(at::kDouble)); }, "expected src of dtype Float");
  throws_value(
      [&] {
        encoder->forward(x, bools({2, 2}));
      },
      "compat::TransformerEncoderLayer: expected src_mask");
  throws_value(
      [&] {
        encoder->forward(x, {}, bools({3, 2}));
      },
      "expected src_key_padding_mask of shape (2, 3)");
  throws_value([&] { encoder->forward(x, {}, {}, true); }, "expected a src_mask with is_causal");
  throws_value([&] { decoder->forward(x, memory.slice(0, 0, 1)); }, "expected memory of batch 2");
  throws_value([&] { decoder->forward(x, memory[0]); }, "expected memory of rank 3");
  throws_value([&] { decoder->forward(x, memory, bools({3, 5})); }, "expected tgt_mask of shape (3, 3)");
  throws_value(
      [&] {
        decoder->forward(x, memory, {}, bools({3, 3}));
      },
      "expected memory_mask of shape (3, 5)");
  throws_value([&] { decoder->forward(x, memory, {}, {}, bools({2, 5})); }, "expected tgt_key_padding_mask");
  throws_value(
      [&] {
        decoder->forward(x, memory, {}, {}, {}, bools({2, 3}));
      },
      "expected memory_key_padding_mask");
  throws_value([&] { decoder->forward(x, memory, {}, {}, {}, {}, true); }, "expected a tgt_mask with");
  throws_value([&] { decoder->forward(x, memory, {}, {}, {}, {}, false, true); }, "expected a memory_mask");
}
