#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/compat/transformer_decoder_layer.h>
#include <attentive/compat/transformer_encoder_layer.h>

#include "compat/recorded_case.h"
#include "support/compare.h"
#include "support/module_suite.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using compat::TransformerDecoderLayer;
using compat::TransformerEncoderLayer;
using compat::TransformerLayerOptions;
using test::RecordedCase;
using test::value_or;

namespace {

at::Tensor silu(const at::Tensor& x) {
  return at::silu(x);
}

TransformerLayerOptions layer_options(const nlohmann::json& o) {
  TransformerLayerOptions options(o.at("d_model"), o.at("nhead"));
  options.dim_feedforward(o.at("dim_feedforward"))
      .dropout(o.at("dropout"))
      .layer_norm_eps(value_or(o, "layer_norm_eps", 1e-5))
      .batch_first(value_or(o, "batch_first", false))
      .norm_first(value_or(o, "norm_first", false))
      .bias(value_or(o, "bias", true));
  const auto activation = value_or<std::string>(o, "activation", "relu");
  if (activation == "gelu") options.activation(torch::kGELU);
  if (activation == "silu") options.activation(silu);
  return options;
}

at::Tensor call(TransformerEncoderLayer& layer, const RecordedCase& c, test::Leaves& leaf) {
  const auto src = leaf("src"), mask = leaf("src_mask"), padding = leaf("src_key_padding_mask");
  return layer->forward(src, mask, padding, value_or(c.call, "is_causal", false));
}

at::Tensor call(TransformerDecoderLayer& layer, const RecordedCase& c, test::Leaves& leaf) {
  const auto tgt = leaf("tgt"), memory = leaf("memory");
  const auto mask = leaf("tgt_mask"), memory_mask = leaf("memory_mask");
  const auto padding = leaf("tgt_key_padding_mask"), memory_padding = leaf("memory_key_padding_mask");
  return layer->forward(tgt, memory, mask, memory_mask, padding, memory_padding,
                        value_or(c.call, "tgt_is_causal", false),
                        value_or(c.call, "memory_is_causal", false));
}

template <class Layer>
std::string run(const RecordedCase& c) {
  at::manual_seed(7);
  Layer layer(layer_options(c.options));
  if (const auto why = test::compare_initial(c, *layer); !why.empty()) return why;
  layer->to(c.type());
  load_state_dict(*layer, c.state);
  layer->train(c.train());
  test::Leaves leaf(c);
  const DropoutStreamGuard stream(DropoutStream::Aten);
  at::manual_seed(static_cast<uint64_t>(c.seed("forward_seed")));
  return test::compare(c, *layer, leaf, call(layer, c, leaf));
}

template <class Layer>
void run_all(const std::string& kind, size_t least) {
  size_t compared = 0, dropouts = 0, dropouts_met = 0;
  for (const auto& path : test::case_files("compat/data/" + kind + "-*.safetensors")) {
    const RecordedCase c(path);
    const auto why = run<Layer>(c);
    if (c.seed("forward_seed") < 0) {
      INFO(path);
      CHECK(why == "");
      ++compared;
    } else {
      ++dropouts;
      if (why.empty()) ++dropouts_met;
    }
  }
  CHECK(compared >= least);
  // PyTorch has two CPU dropout streams, by vendor and build: this machine draws one of each pair.
  CHECK(2 * dropouts_met == dropouts);
  CHECK(dropouts > 0);
}

at::Tensor bools(at::IntArrayRef sizes, bool value = false) {
  return at::full(sizes, value, at::kBool);
}

TransformerLayerOptions small() {
  return TransformerLayerOptions(6, 2).dim_feedforward(5).dropout(0.25).batch_first(true);
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
  run_all<TransformerEncoderLayer>("encoder", 20);
}

TEST_CASE("TransformerDecoderLayer equals PyTorch on every recorded case", "[compat][transformer]") {
  run_all<TransformerDecoderLayer>("decoder", 12);
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
  throws_value([&] { encoder->forward(x, {}, {}, true); }, "expected a src_mask beside is_causal");
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
  throws_value([&] { decoder->forward(x, memory, {}, {}, {}, {}, true); }, "expected a tgt_mask beside");
  throws_value([&] { decoder->forward(x, memory, {}, {}, {}, {}, false, true); }, "expected a memory_mask");
}
