#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/compat/transformer.h>
#include <attentive/compat/transformer_layers.h>
#include <attentive/modules/module.h>

#include "compat/inputs.h"
#include "compat/small_layers.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::small;
using attentive::test::type_error;
using attentive::test::value_error;
using compat::Transformer;
using compat::TransformerDecoder;
using compat::TransformerDecoderLayer;
using compat::TransformerDecoderLayerImpl;
using compat::TransformerDecoderOptions;
using compat::TransformerEncoder;
using compat::TransformerEncoderLayer;
using compat::TransformerEncoderLayerImpl;
using compat::TransformerEncoderOptions;
using compat::TransformerImpl;
using compat::TransformerLayerOptions;
using compat::TransformerOptions;

namespace {

TransformerEncoderOptions encoder_of_two() {
  return TransformerEncoderOptions(small(), 2).norm(compat::LayerNormOptions(6));
}

const TransformerEncoderLayerImpl& layer_of(const TransformerEncoder& encoder, size_t n) {
  return encoder->layers->at<TransformerEncoderLayerImpl>(n);
}

}  // namespace

TEST_CASE("TransformerEncoder equals PyTorch on every recorded case", "[compat][transformer]") {
  test::check_cases("stacks#encoder-*", 21);
  test::check_dropout_cases("stacks_dropout#encoder-*");
}

TEST_CASE("TransformerEncoder is a torch::nn citizen", "[compat][transformer]") {
  test::ModuleSuite<TransformerEncoder> suite;
  suite.make = [] { return TransformerEncoder(encoder_of_two()); };
  suite.input_shape = {2, 3, 6};
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const std::string key :
         {"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
          "self_attn.out_proj.bias", "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias",
          "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}) {
      suite.keys.push_back(layer + key);
    }
  }
  suite.keys.insert(suite.keys.end(), {"norm.weight", "norm.bias"});
  suite.meta = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("TransformerEncoder's layers are deep copies of the one that is given", "[compat][transformer]") {
  TransformerEncoderLayer given(small());
  given->to(at::kDouble);
  given->eval();
  given->linear1->weight.set_requires_grad(false);
  compat::LayerNorm norm(6);
  at::manual_seed(9);
  const auto expected = at::randn({3});
  at::manual_seed(9);
  TransformerEncoder encoder(given, 3, norm);
  CHECK(bit_equal(at::randn({3}), expected));  // nothing is drawn
  CHECK(encoder->layers->size() == 3);
  CHECK(encoder->norm.ptr() == norm.ptr());
  CHECK(encoder->options.norm().has_value());
  for (size_t n = 0; n < 3; ++n) {
    const auto& copy = layer_of(encoder, n);
    const auto copied = copy.named_parameters();
    for (const auto& item : given->named_parameters()) {
      INFO(item.key());
      CHECK(bit_equal(copied[item.key()], item.value()));
      CHECK_FALSE(copied[item.key()].is_alias_of(item.value()));
      CHECK(copied[item.key()].requires_grad() == item->requires_grad());
    }
    CHECK_FALSE(copy.is_training());
    CHECK_FALSE(copy.self_attn->is_training());
  }
  CHECK_FALSE(layer_of(encoder, 0).linear2->weight.is_alias_of(layer_of(encoder, 1).linear2->weight));
  CHECK(encoder->is_training());
  CHECK(TransformerEncoder(given, 1)->norm.is_empty());
}

TEST_CASE("TransformerEncoder draws one layer, and none where weights are loaded next",
          "[compat][transformer]") {
  at::manual_seed(4);
  const TransformerEncoderLayer layer(small());
  const auto after = at::randn({3});
  at::manual_seed(4);
  const TransformerEncoder encoder(encoder_of_two());
  CHECK(bit_equal(at::randn({3}), after));
  for (size_t n = 0; n < 2; ++n) {
    CHECK(bit_equal(layer_of(encoder, n).linear1->weight, layer->linear1->weight));
    CHECK(bit_equal(layer_of(encoder, n).self_attn->in_proj_weight, layer->self_attn->in_proj_weight));
  }
  at::manual_seed(4);
  const auto first = at::randn({3});
  at::manual_seed(4);
  {
    const NoFirstWeights guard;
    const TransformerEncoder unset(encoder_of_two());
  }
  CHECK(bit_equal(at::randn({3}), first));
}

TEST_CASE("A causal mask is found by comparing, as Python does", "[compat][transformer]") {
  const auto hidden = at::ones({3, 3}, at::kBool).triu(1);
  const auto added = at::full({3, 3}, -INFINITY).triu(1);
  CHECK(compat::is_causal_mask(hidden, std::nullopt, 3));
  CHECK(compat::is_causal_mask(added, std::nullopt, 3));
  CHECK(compat::is_causal_mask(added.to(at::kBFloat16), std::nullopt, 3));
  CHECK_FALSE(compat::is_causal_mask(hidden.t(), std::nullopt, 3));
  CHECK_FALSE(compat::is_causal_mask(added + 1, std::nullopt, 3));
  CHECK_FALSE(compat::is_causal_mask(hidden.expand({4, 3, 3}), std::nullopt, 3));
  CHECK_FALSE(compat::is_causal_mask({}, std::nullopt, 3));
  CHECK_FALSE(compat::is_causal_mask(hidden, false, 3));
  CHECK(compat::is_causal_mask(hidden.t(), true, 3));
}

TEST_CASE("TransformerEncoder computes padded tokens in evaluation too", "[compat][transformer]") {
  TransformerEncoder encoder(encoder_of_two());
  encoder->eval();
  const auto x = at::randn({2, 3, 6});
  auto padding = at::full({2, 3}, false);
  padding[1][2].fill_(true);
  const at::NoGradGuard no_grad;
  const auto y = encoder->forward(x, {}, padding);
  // Python's nested tensors would return the norm's bias here.
  CHECK_FALSE(bit_equal(y[1][2], encoder->norm->bias));
  CHECK_CLOSE(y[1].slice(0, 0, 2), encoder->forward(x[1].slice(0, 0, 2)));
  CHECK_CLOSE(y[0], encoder->forward(x[0]));
}

TEST_CASE("TransformerEncoder names every mistake", "[compat][transformer]") {
  const std::string caller = "compat::TransformerEncoder: ";
  CHECK(value_error([] { TransformerEncoder(TransformerEncoderOptions(small(), 0)); }) ==
        caller + "expected num_layers in [1, 1048576], got 0");
  CHECK(value_error([] { TransformerEncoder(TransformerEncoderLayer(small()), 2, compat::LayerNorm(5)); }) ==
        caller + "expected a norm of d_model = 6 features, got 5");
  CHECK(value_error([] {
          TransformerEncoder(TransformerEncoderOptions(small().nhead(4), 1));
        }).starts_with("compat::TransformerEncoderLayer: expected nhead to divide"));
  TransformerEncoder encoder(encoder_of_two());
  const auto x = at::randn({2, 3, 6});
  CHECK(value_error([&] { encoder->forward(x[0][0]); }) ==
        caller + "expected src of shape (N, T, 6) or (T, 6), got (6,)");
  CHECK(type_error([&] { encoder->forward(x.to(at::kDouble)); }) ==
        caller + "expected src of dtype Float like the parameters, got Double");
  CHECK(value_error([&] {
          encoder->forward(x, at::full({2, 2}, false));
        }) == caller + "expected mask of shape (3, 3) (L, S) or (4, 3, 3) (N * num_heads, L, S), got (2, 2)");
  CHECK(value_error([&] {
          encoder->forward(x, {}, at::full({3, 2}, false));
        }) == caller + "expected src_key_padding_mask of shape (2, 3) (N, S), got (3, 2)");
  CHECK(value_error([&] { encoder->forward(x, {}, {}, true); }) ==
        caller + "expected a mask with is_causal, which is a hint about it, got none");
}

namespace {

TransformerLayerOptions small_normed_first() {
  return small().norm_first(true);
}

TransformerDecoderOptions decoder_of_two() {
  return TransformerDecoderOptions(small_normed_first(), 2).norm(compat::LayerNormOptions(6));
}

}  // namespace

TEST_CASE("TransformerDecoder equals PyTorch on every recorded case", "[compat][transformer]") {
  test::check_cases("stacks#decoder-*", 11);
  test::check_dropout_cases("stacks_dropout#decoder-*");
}

TEST_CASE("TransformerDecoder is a torch::nn citizen", "[compat][transformer]") {
  test::ModuleSuite<TransformerDecoder> suite;
  suite.make = [] { return TransformerDecoder(decoder_of_two()); };
  suite.input_shape = {2, 3, 6};
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const std::string attention : {"self_attn.", "multihead_attn."}) {
      for (const std::string key : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
        suite.keys.push_back(layer + attention + key);
    }
    for (const std::string key : {"linear1.", "linear2.", "norm1.", "norm2.", "norm3."})
      suite.keys.insert(suite.keys.end(), {layer + key + "weight", layer + key + "bias"});
  }
  suite.keys.insert(suite.keys.end(), {"norm.weight", "norm.bias"});
  suite.call = [](TransformerDecoder& m, const at::Tensor& x) { return m->forward(x, x.slice(1, 0, 2)); };
  suite.meta = false;
  suite.sequential = false;
  suite.run();
}

TEST_CASE("TransformerDecoder's layers are deep copies of the one that is given", "[compat][transformer]") {
  TransformerDecoderLayer given(small_normed_first());
  compat::LayerNorm norm(6);
  TransformerDecoder decoder(given, 2, norm);
  CHECK(decoder->norm.ptr() == norm.ptr());
  CHECK(TransformerDecoder(given, 1)->norm.is_empty());
  for (size_t n = 0; n < 2; ++n) {
    const auto copied = decoder->layers->at<TransformerDecoderLayerImpl>(n).named_parameters();
    for (const auto& item : given->named_parameters()) {
      INFO(item.key());
      CHECK(bit_equal(copied[item.key()], item.value()));
      CHECK_FALSE(copied[item.key()].is_alias_of(item.value()));
    }
  }
}

TEST_CASE("TransformerDecoder: every layer attends to the same memory", "[compat][transformer]") {
  TransformerDecoder decoder(decoder_of_two());
  decoder->eval();
  const auto x = at::randn({1, 3, 6}), memory = at::randn({1, 4, 6});
  auto y = decoder->layers->at<TransformerDecoderLayerImpl>(0).forward(x, memory);
  y = decoder->layers->at<TransformerDecoderLayerImpl>(1).forward(y, memory);
  CHECK(bit_equal(decoder->forward(x, memory), decoder->norm->forward(y)));
}

TEST_CASE("TransformerDecoder names every mistake", "[compat][transformer]") {
  const std::string caller = "compat::TransformerDecoder: ";
  CHECK(value_error([] { TransformerDecoder(TransformerDecoderOptions(small_normed_first(), -1)); }) ==
        caller + "expected num_layers in [1, 1048576], got -1");
  CHECK(value_error([] {
          TransformerDecoder(TransformerDecoderLayer(small_normed_first()), 2, compat::LayerNorm(5));
        }) == caller + "expected a norm of d_model = 6 features, got 5");
  TransformerDecoder decoder(decoder_of_two());
  const auto x = at::randn({2, 3, 6}), memory = at::randn({2, 5, 6});
  CHECK(value_error([&] { decoder->forward(x, memory.slice(0, 0, 1)); }) ==
        caller + "expected memory of batch 2 like tgt, got (1, 5, 6)");
  CHECK(value_error([&] {
          decoder->forward(x, memory, at::full({3, 5}, false));
        }) ==
        caller + "expected tgt_mask of shape (3, 3) (L, S) or (4, 3, 3) (N * num_heads, L, S), got (3, 5)");
  CHECK(value_error([&] {
          decoder->forward(x, memory, {}, at::full({3, 3}, false));
        }) ==
        caller +
            "expected memory_mask of shape (3, 5) (L, S) or (4, 3, 5) (N * num_heads, L, S), got (3, 3)");
  CHECK(value_error([&] {
          decoder->forward(x, memory, {}, {}, at::full({2, 5}, false));
        }) == caller + "expected tgt_key_padding_mask of shape (2, 3) (N, S), got (2, 5)");
  CHECK(value_error([&] {
          decoder->forward(x, memory, {}, {}, {}, at::full({2, 3}, false));
        }) == caller + "expected memory_key_padding_mask of shape (2, 5) (N, S), got (2, 3)");
  CHECK(value_error([&] { decoder->forward(x, memory, {}, {}, {}, {}, true); }) ==
        caller + "expected a tgt_mask with tgt_is_causal, which is a hint about it, got none");
  CHECK(value_error([&] { decoder->forward(x, memory, {}, {}, {}, {}, std::nullopt, true); }) ==
        caller + "expected a memory_mask with memory_is_causal, which is a hint about it, got none");
}

namespace {

TransformerOptions small_transformer() {
  return TransformerOptions(TransformerLayerOptions(6, 2).dim_feedforward(5).dropout(0.25).batch_first(true))
      .num_encoder_layers(2)
      .num_decoder_layers(1);
}

}  // namespace

TEST_CASE("Transformer equals PyTorch on every recorded case", "[compat][transformer]") {
  test::check_cases("stacks#transformer-*", 12);
  test::check_dropout_cases("stacks_dropout#transformer-*");
}

TEST_CASE("Transformer is a torch::nn citizen", "[compat][transformer]") {
  test::ModuleSuite<Transformer> suite;
  suite.make = [] { return Transformer(small_transformer()); };
  suite.input_shape = {2, 3, 6};
  suite.keys = Transformer(small_transformer())->named_parameters().keys();
  CHECK(suite.keys.size() == 2 * 12 + 2 + 18 + 2);
  CHECK(suite.keys[0] == "encoder.layers.0.self_attn.in_proj_weight");
  CHECK(suite.keys[24] == "encoder.norm.weight");
  CHECK(suite.keys.back() == "decoder.norm.bias");
  suite.call = [](Transformer& m, const at::Tensor& x) { return m->forward(x.slice(1, 0, 2), x); };
  suite.meta = false;
  suite.sequential = false;
  suite.run();
}

TEST_CASE("Transformer draws every matrix again, and none where weights are loaded next",
          "[compat][transformer]") {
  const Transformer model(small_transformer());
  const auto parameters = model->named_parameters();
  CHECK_FALSE(bit_equal(parameters["encoder.layers.0.linear1.weight"],
                        parameters["encoder.layers.1.linear1.weight"]));
  CHECK(bit_equal(parameters["encoder.layers.0.linear1.bias"], parameters["encoder.layers.1.linear1.bias"]));
  at::manual_seed(4);
  const auto first = at::randn({3});
  at::manual_seed(4);
  {
    const NoFirstWeights guard;
    const Transformer unset(small_transformer());
  }
  CHECK(bit_equal(at::randn({3}), first));
}

TEST_CASE("Transformer's causal mask is -inf above the diagonal", "[compat][transformer]") {
  const auto mask = TransformerImpl::generate_square_subsequent_mask(3);
  CHECK(mask.scalar_type() == at::kFloat);
  CHECK(mask.equal(at::full({3, 3}, -INFINITY).triu(1)));
  CHECK(mask[2][2].item<float>() == 0);
  CHECK(TransformerImpl::generate_square_subsequent_mask(2, at::kDouble).scalar_type() == at::kDouble);
  CHECK(TransformerImpl::generate_square_subsequent_mask(2, at::kBool)
            .equal(at::ones({2, 2}, at::kBool).triu(1)));
  CHECK(TransformerImpl::generate_square_subsequent_mask(0).sizes() == at::IntArrayRef({0, 0}));
  {
    const test::DefaultDtype wide(at::kDouble);
    CHECK(TransformerImpl::generate_square_subsequent_mask(2).scalar_type() == at::kDouble);
  }
  CHECK(value_error([] { TransformerImpl::generate_square_subsequent_mask(-1); }) ==
        "compat::Transformer: expected a size >= 0, got -1");
}

TEST_CASE("Transformer names every mistake", "[compat][transformer]") {
  const std::string caller = "compat::Transformer: ";
  CHECK(value_error([] { Transformer(small_transformer().num_decoder_layers(0)); }) ==
        "compat::TransformerDecoder: expected num_layers in [1, 1048576], got 0");
  Transformer model(small_transformer());
  const auto src = at::randn({2, 5, 6}), tgt = at::randn({2, 3, 6});
  CHECK(value_error([&] { model->forward(src.slice(0, 0, 1), tgt); }) ==
        caller + "expected src of batch 2 like tgt, got (1, 5, 6)");
  CHECK(value_error([&] { model->forward(src[0], tgt); }) ==
        caller + "expected src of rank 3, got shape (5, 6)");
  CHECK(value_error([&] { model->forward(src, tgt.slice(2, 0, 5)); }) ==
        caller + "expected tgt of 6 features, got shape (2, 3, 5)");
  const auto bad = at::full({3, 4}, false);
  CHECK(
      value_error([&] { model->forward(src, tgt, bad); }).starts_with(caller + "expected src_mask of shape"));
  CHECK(value_error([&] {
          model->forward(src, tgt, {}, bad);
        }).starts_with(caller + "expected tgt_mask of shape"));
  CHECK(value_error([&] {
          model->forward(src, tgt, {}, {}, bad);
        }).starts_with(caller + "expected memory_mask of shape"));
  CHECK(value_error([&] {
          model->forward(src, tgt, {}, {}, {}, bad);
        }).starts_with(caller + "expected src_key_padding_mask of shape"));
  CHECK(value_error([&] {
          model->forward(src, tgt, {}, {}, {}, {}, bad);
        }).starts_with(caller + "expected tgt_key_padding_mask of shape"));
  CHECK(value_error([&] {
          model->forward(src, tgt, {}, {}, {}, {}, {}, bad);
        }).starts_with(caller + "expected memory_key_padding_mask of shape"));
  CHECK(value_error([&] { model->forward(src, tgt, {}, {}, {}, {}, {}, {}, true); }) ==
        caller + "expected a src_mask with src_is_causal, which is a hint about it, got none");
}

using attentive::test::bools;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

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
