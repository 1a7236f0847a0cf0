#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/transformer.h>
#include <attentive/modules/first_weights.h>

#include "support/compare.h"
#include "support/default_dtype.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::value_error;
using compat::Transformer;
using compat::TransformerImpl;
using compat::TransformerLayerOptions;
using compat::TransformerOptions;

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
