#pragma once

#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer.h>
#include <attentive/compat/transformer_layers.h>

namespace torch::nn {
class MultiheadAttention;
class MultiheadAttentionImpl;
class Transformer;
class TransformerDecoder;
class TransformerDecoderImpl;
class TransformerDecoderLayer;
class TransformerDecoderLayerImpl;
class TransformerEncoder;
class TransformerEncoderImpl;
class TransformerEncoderLayer;
class TransformerEncoderLayerImpl;
class TransformerImpl;
}  // namespace torch::nn

namespace attentive::compat {

/// Makes the module of this package that computes what a module of C++ PyTorch computes, over the **same
/// parameters**. PyTorch's C++ modules multiply, normalise and drop by themselves and never call
/// scaled_dot_product_attention, so `accelerate_sdpa` does not reach them; the modules made here run
/// `attention`.
///
/// Each parameter of the result is PyTorch's tensor itself, under PyTorch's name and in its order: an
/// optimizer of either module steps both, gradients arrive in the one `.grad`, and `to`, `zero_grad` and
/// loading weights change both. Nothing is copied, and no random number is drawn. The training mode and the
/// dropout of every part, requires_grad, dtype and device are those of PyTorch's module; `train` and `eval`
/// of one module leave the other alone. The result may outlive PyTorch's module. Do not register both in one
/// parent: its `parameters()` would hold every tensor twice.
///
/// In evaluation, and in training without dropout, the numbers are those of PyTorch's module within rounding.
/// Differences: a bool attn_mask **hides** where it is true (C++ PyTorch adds it as 0 and 1), a query without
/// keys gives the bias of the output projection (there: NaN), and dropout draws other random numbers, except
/// under `DropoutStreamGuard(DropoutStream::Aten)`.
///
/// A norm must be a torch::nn::LayerNorm of one dimension with elementwise_affine; the encoder and the
/// decoder of a Transformer, custom ones too, must be a torch::nn::TransformerEncoder and a
/// torch::nn::TransformerDecoder. The `options.layer()` of a stack are those of its first layer.
///
/// Throws c10::TypeError that names a part whose class has no counterpart here, a class derived from
/// PyTorch's included, and c10::ValueError for an empty holder, a stack without layers, another norm, a bad
/// option, or a parameter that PyTorch's class does not compute with. Memory: none for weights. Source:
/// PyTorch 2.11, torch/csrc/api/src/nn/modules/activation.cpp and transformer.cpp.
///
///   torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(768, 12).dropout(0.1));
///   auto ours = attentive::compat::from(theirs);
///   auto y = std::get<0>(ours->forward(x, x, x, {}, /*need_weights=*/false));
MultiheadAttention from(const torch::nn::MultiheadAttention& theirs);
TransformerEncoderLayer from(const torch::nn::TransformerEncoderLayer& theirs);
TransformerDecoderLayer from(const torch::nn::TransformerDecoderLayer& theirs);
TransformerEncoder from(const torch::nn::TransformerEncoder& theirs);
TransformerDecoder from(const torch::nn::TransformerDecoder& theirs);
Transformer from(const torch::nn::Transformer& theirs);

/// Takes a module without its holder, such as one found among `modules()`.
MultiheadAttention from(const torch::nn::MultiheadAttentionImpl& theirs);
TransformerEncoderLayer from(const torch::nn::TransformerEncoderLayerImpl& theirs);
TransformerDecoderLayer from(const torch::nn::TransformerDecoderLayerImpl& theirs);
TransformerEncoder from(const torch::nn::TransformerEncoderImpl& theirs);
TransformerDecoder from(const torch::nn::TransformerDecoderImpl& theirs);
Transformer from(const torch::nn::TransformerImpl& theirs);

}  // namespace attentive::compat
