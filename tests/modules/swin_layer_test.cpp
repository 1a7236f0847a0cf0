// A layer of transformers' Swin, built from the modules of this package.

#include <ATen/ops/constant_pad_nd.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/feed_forward.h>
#include <attentive/modules/layer_norm.h>
#include <attentive/modules/transformer_attention.h>

#include "modules/bias_cases.h"

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
