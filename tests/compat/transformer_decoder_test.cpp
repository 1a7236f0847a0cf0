#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/transformer_decoder.h>

#include "compat/small_layers.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::small;
using attentive::test::value_error;
using compat::TransformerDecoder;
using compat::TransformerDecoderLayer;
using compat::TransformerDecoderLayerImpl;
using compat::TransformerDecoderOptions;
using compat::TransformerLayerOptions;

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
