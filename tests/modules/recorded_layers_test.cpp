// A layer of transformers' Swin, built from the modules of this package.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/modules/transformer_blocks.h>

#include "modules/bias_cases.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct SwinLayer : torch::nn::Module {
  explicit SwinLayer(const BiasCase& c)
      : height(c.integer("height")),
        width(c.integer("width")),
        window(c.integer("window")),
        shift(c.integer("shift")) {
    const auto dim = c.integer("emb_dim"), heads = c.integer("num_heads");
    att = register_module(
        "att", TransformerAttention(TransformerAttentionOptions(dim, heads)
                                        .qkv_bias(c.flag("qkv_bias"))
                                        .position_bias(RelativePositionBias2dOptions(window, window, heads))
                                        .attention({})));
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions(dim).eps(c.number("eps"))));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions(dim).eps(c.number("eps"))));
    ff = register_module(
        "ff", FeedForward(
                  FeedForwardOptions(dim).hidden_dim(c.integer("hidden_dim")).activation(Activation::Gelu)));
  }

  // x (B, height * width, dim); zeros are appended to rows and columns that fill no window.
  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), rows = rounded_up(height, window), columns = rounded_up(width, window);
    const auto image = at::constant_pad_nd(norm1->forward(x).unflatten(1, {height, width}),
                                           {0, 0, 0, columns - width, 0, rows - height});
    Mask mask;
    if (shift > 0) {
      const auto keep = shifted_window_mask({rows, columns}, {window, window}, {shift, shift});
      mask = Mask::per_batch(Mask::keep(keep.repeat({batch, 1, 1})));
    }
    const auto windows = window_partition(image, {window, window}, {shift, shift});
    const auto attended =
        window_merge(att->forward(windows, mask), {rows, columns}, {window, window}, {shift, shift});
    const auto h = x + attended.narrow(1, 0, height).narrow(2, 0, width).flatten(1, 2);
    return h + ff->forward(norm2->forward(h));
  }

  int64_t height, width, window, shift;
  TransformerAttention att{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  FeedForward ff{nullptr};
};

}  // namespace

TEST_CASE("A layer of Swin equals transformers' in value and gradient, shifted and not",
          "[swin_layer][bias_cases]") {
  int shifted = 0, padded = 0;
  for (const auto& c : bias_cases("swin_layer", 8)) {
    SwinLayer layer(c);
    check_bias_case(c, layer, [&](const CaseTensors& in) { return layer.forward(in.at("hidden_states")); });
    shifted += layer.shift > 0 ? 1 : 0;
    padded += layer.height % layer.window + layer.width % layer.window > 0 ? 1 : 0;
  }
  CHECK(shifted == 4);
  CHECK(padded > 0);
}

namespace {

// A layer of T5's encoder, or of its decoder. The scores are not scaled, the projections have no bias, and
// the norms do not shift.
struct T5Layer : torch::nn::Module {
  T5Layer(const BiasCase& c, bool decoder) {
    const auto width = c.integer("emb_dim"), heads = c.integer("num_heads");
    const AttentionOptions call{.scale = 1.0, .causal = decoder ? Causal::BottomRight : Causal::None};
    att = register_module("att",
                          TransformerAttention(TransformerAttentionOptions(width, heads)
                                                   .head_dim(c.integer("head_dim"))
                                                   .out_bias(false)
                                                   .position_bias(RelativePositionBiasOptions(heads)
                                                                      .num_buckets(c.integer("num_buckets"))
                                                                      .max_distance(c.integer("max_distance"))
                                                                      .bidirectional(!decoder))
                                                   .attention(call)));
    const auto norm = RMSNormOptions(width).eps(c.number("eps"));
    norm1 = register_module("norm1", RMSNorm(norm));
    norm2 = register_module("norm2", RMSNorm(norm));
    if (decoder) {
      cross = register_module(
          "cross",
          CrossAttention(CrossAttentionOptions(width, width, width, 0.0, heads).attention({.scale = 1.0})));
      norm3 = register_module("norm3", RMSNorm(norm));
    }
    const bool gated = c.flag("gated");
    ff = register_module("ff", FeedForward(FeedForwardOptions(width)
                                               .hidden_dim(c.integer("hidden_dim"))
                                               .bias(false)
                                               .activation(gated ? Activation::GeluTanh : Activation::Relu)
                                               .gated(gated)));
  }

  at::Tensor encode(const at::Tensor& x, const Mask& padding) {
    const auto h = x + att->forward(norm1->forward(x), padding);
    return h + ff->forward(norm2->forward(h));
  }

  at::Tensor decode(const at::Tensor& x, const at::Tensor& memory, const Mask& memory_padding,
                    KVCache* cache = nullptr) {
    const auto y = norm1->forward(x);
    const auto h = x + (cache ? att->forward_cached(y, *cache, 0) : att->forward(y));
    const auto informed = h + cross->forward(norm2->forward(h), memory, memory_padding);
    return informed + ff->forward(norm3->forward(informed));
  }

  TransformerAttention att{nullptr};
  CrossAttention cross{nullptr};
  RMSNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  FeedForward ff{nullptr};
};

}  // namespace

TEST_CASE("A layer of T5's encoder equals transformers' in value and gradient", "[t5_layers][bias_cases]") {
  for (const auto& c : bias_cases("t5_encoder", 5)) {
    T5Layer layer(c, /*decoder=*/false);
    check_bias_case(c, layer, [&](const CaseTensors& in) {
      return layer.encode(in.at("hidden_states"), Mask::key_keep(in.at("attention_mask")));
    });
  }
}

TEST_CASE("A layer of T5's decoder equals transformers' in value and gradient, and token by token",
          "[t5_layers][bias_cases]") {
  for (const auto& c : bias_cases("t5_decoder", 5)) {
    T5Layer layer(c, /*decoder=*/true);
    const auto decode = [&](const CaseTensors& in) {
      return layer.decode(in.at("hidden_states"), in.at("encoder_hidden_states"),
                          Mask::key_keep(in.at("encoder_attention_mask")));
    };
    check_bias_case(c, layer, decode, {"cross.out_proj.bias"});

    // The generator has compared transformers' own layer with its cache.
    const at::NoGradGuard no_grad;
    const auto& x = c.file.inputs.at("hidden_states");
    DenseKVCache cache(
        {.batch = x.size(0), .num_kv_heads = c.integer("num_heads"), .head_dim = c.integer("head_dim")},
        x.size(1));
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < x.size(1); ++t) {
      rows.push_back(layer.decode(x.narrow(1, t, 1), c.file.inputs.at("encoder_hidden_states"),
                                  Mask::key_keep(c.file.inputs.at("encoder_attention_mask")), &cache));
    }
    INFO(c.file.name);
    CHECK_CLOSE(at::cat(rows, 1), c.file.expected_output);
  }
}
