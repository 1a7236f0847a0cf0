#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/transformer_encoder.h>
#include <attentive/modules/first_weights.h>

#include "compat/inputs.h"
#include "compat/small_layers.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::small;
using attentive::test::type_error;
using attentive::test::value_error;
using compat::TransformerEncoder;
using compat::TransformerEncoderLayer;
using compat::TransformerEncoderLayerImpl;
using compat::TransformerEncoderOptions;
using compat::TransformerLayerOptions;

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
