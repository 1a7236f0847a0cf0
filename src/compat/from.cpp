#include <string>
#include <type_traits>
#include <typeinfo>

#include <c10/util/Type.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <attentive/compat/from.h>
#include <attentive/modules/module.h>

#include "core/check.h"

namespace attentive::compat {
namespace {

constexpr const char* kFrom = "compat::from";

// Parts are named as in `named_modules`; the module that the caller gave has the empty name.
std::string inside(const std::string& module, const std::string& part) {
  return module.empty() ? part : module + "." + part;
}

// `Module::name` is not it: PyTorch's attention gives itself another one, to derived classes too.
std::string class_of(const torch::nn::Module& module) {
  return c10::demangle(typeid(module).name());
}

// A part as the class that it must be. A derived class may compute something else, so it is refused.
template <class Theirs>
const Theirs& exactly(const torch::nn::Module& part, const std::string& name) {
  TORCH_CHECK_TYPE(typeid(part) == typeid(Theirs), kFrom, ": expected ", name.empty() ? "the module" : name,
                   " to be a ", c10::demangle_type<Theirs>(), ", got a ", class_of(part));
  return static_cast<const Theirs&>(part);
}

// Reaches the registered parameters of any module. They are protected, for PyTorch's containers of
// parameters.
struct Registered : torch::nn::Module {
  static at::Tensor& parameter(torch::nn::Module& module, const char* name) {
    return (module.*(&Registered::parameters_))[name];
  }
};

// Puts PyTorch's tensor in the place of a parameter, in the module's list and in its member.
// `register_parameter` would set requires_grad.
void put(torch::nn::Module& module, const char* name, at::Tensor& member, const at::Tensor& theirs) {
  if (theirs.defined()) member = Registered::parameter(module, name) = theirs;
}

LayerNorm share(const torch::nn::LayerNormImpl& theirs, const std::string& name) {
  const auto& options = theirs.options;
  TORCH_CHECK_VALUE(options.normalized_shape().size() == 1 && options.elementwise_affine(), kFrom,
                    ": expected ", name,
                    " to normalise one dimension with elementwise_affine = true, got normalized_shape ",
                    shape_string(options.normalized_shape()),
                    ", elementwise_affine = ", options.elementwise_affine() ? "true" : "false");
  LayerNorm ours(LayerNormOptions(options.normalized_shape()[0]).eps(options.eps()));
  ours->train(theirs.is_training());
  put(*ours, "weight", ours->weight, theirs.weight);
  put(*ours, "bias", ours->bias, theirs.bias);
  return ours;
}

// Options say which tensors there are by the tensors themselves: PyTorch's options may have been changed
// since.
MultiheadAttention share(const torch::nn::MultiheadAttentionImpl& theirs, const std::string&) {
  MultiheadAttentionOptions options(theirs.options.embed_dim(), theirs.options.num_heads());
  options.dropout(theirs.options.dropout()).add_zero_attn(theirs.options.add_zero_attn());
  options.bias(theirs.in_proj_bias.defined()).add_bias_kv(theirs.bias_k.defined());
  if (theirs.q_proj_weight.defined()) options.kdim(theirs.options.kdim()).vdim(theirs.options.vdim());
  MultiheadAttention ours(options);
  ours->train(theirs.is_training());
  put(*ours, "in_proj_weight", ours->in_proj_weight, theirs.in_proj_weight);
  put(*ours, "q_proj_weight", ours->q_proj_weight, theirs.q_proj_weight);
  put(*ours, "k_proj_weight", ours->k_proj_weight, theirs.k_proj_weight);
  put(*ours, "v_proj_weight", ours->v_proj_weight, theirs.v_proj_weight);
  put(*ours, "in_proj_bias", ours->in_proj_bias, theirs.in_proj_bias);
  put(*ours, "bias_k", ours->bias_k, theirs.bias_k);
  put(*ours, "bias_v", ours->bias_v, theirs.bias_v);
  *ours->out_proj = *theirs.out_proj;  // a copied module has the same tensors
  return ours;
}

template <class Theirs>
TransformerLayerOptions layer_options(const Theirs& theirs) {
  const auto& attention = theirs.self_attn->options;
  return TransformerLayerOptions(attention.embed_dim(), attention.num_heads())
      .dim_feedforward(theirs.linear1->options.out_features())
      .dropout(theirs.options.dropout())
      .activation(theirs.options.activation())
      .layer_norm_eps(theirs.norm1->options.eps());
}

// Shares the parts that a layer of the encoder has; one of the decoder has three more.
template <class Ours, class Theirs>
void share_parts(Ours& ours, const Theirs& theirs, const std::string& name) {
  const auto replace = [&](const char* part, auto& member, const auto& module) {
    using Part = std::decay_t<decltype(*module)>;
    const auto full_name = inside(name, part);
    member = ours.replace_module(part, share(exactly<Part>(*module, full_name), full_name));
  };
  ours.train(theirs.is_training());
  replace("self_attn", ours.self_attn, theirs.self_attn);
  replace("norm1", ours.norm1, theirs.norm1);
  replace("norm2", ours.norm2, theirs.norm2);
  *ours.linear1 = *theirs.linear1;
  *ours.linear2 = *theirs.linear2;
  *ours.dropout = *theirs.dropout;
  *ours.dropout1 = *theirs.dropout1;
  *ours.dropout2 = *theirs.dropout2;
  if constexpr (requires { ours.multihead_attn; }) {
    replace("multihead_attn", ours.multihead_attn, theirs.multihead_attn);
    replace("norm3", ours.norm3, theirs.norm3);
    *ours.dropout3 = *theirs.dropout3;
  }
}

TransformerEncoderLayer share(const torch::nn::TransformerEncoderLayerImpl& theirs, const std::string& name) {
  TransformerEncoderLayer ours(layer_options(theirs));
  share_parts(*ours, theirs, name);
  return ours;
}

TransformerDecoderLayer share(const torch::nn::TransformerDecoderLayerImpl& theirs, const std::string& name) {
  TransformerDecoderLayer ours(layer_options(theirs));
  share_parts(*ours, theirs, name);
  return ours;
}

// A stack is built around one tiny layer, in whose place PyTorch's layers then come.
TransformerLayerOptions tiny_layer() {
  return TransformerLayerOptions(1, 1).dim_feedforward(1);
}

template <class Layer, class Ours, class Theirs>
void share_stack(Ours& ours, const Theirs& theirs, const std::string& name) {
  TORCH_CHECK_VALUE(!theirs.layers->is_empty(), kFrom, ": expected ", inside(name, "layers"),
                    " to hold at least one layer, got none");
  ours.train(theirs.is_training());
  torch::nn::ModuleList layers;
  layers->train(theirs.layers->is_training());
  for (const auto& layer : *theirs.layers) {
    const auto full_name = inside(name, "layers." + std::to_string(layers->size()));
    const auto shared = share(exactly<Layer>(*layer, full_name), full_name);
    if (layers->is_empty()) ours.options.layer(shared->options);
    layers->push_back(shared);
  }
  ours.options.num_layers(static_cast<int64_t>(layers->size()));
  ours.layers = ours.replace_module("layers", layers);
  if (theirs.norm.is_empty()) return;
  const auto full_name = inside(name, "norm");
  const auto& norm = exactly<torch::nn::LayerNormImpl>(*theirs.norm.ptr(), full_name);
  ours.norm = ours.register_module("norm", share(norm, full_name));
  ours.options.norm(ours.norm->options);
}

TransformerEncoder share(const torch::nn::TransformerEncoderImpl& theirs, const std::string& name) {
  TransformerEncoder ours(TransformerEncoderOptions(tiny_layer(), 1));
  share_stack<torch::nn::TransformerEncoderLayerImpl>(*ours, theirs, name);
  return ours;
}

TransformerDecoder share(const torch::nn::TransformerDecoderImpl& theirs, const std::string& name) {
  TransformerDecoder ours(TransformerDecoderOptions(tiny_layer(), 1));
  share_stack<torch::nn::TransformerDecoderLayerImpl>(*ours, theirs, name);
  return ours;
}

Transformer share(const torch::nn::TransformerImpl& theirs, const std::string&) {
  Transformer ours(TransformerOptions(tiny_layer()).num_encoder_layers(1).num_decoder_layers(1));
  ours->train(theirs.is_training());
  const auto& encoder = exactly<torch::nn::TransformerEncoderImpl>(*theirs.encoder.ptr(), "encoder");
  const auto& decoder = exactly<torch::nn::TransformerDecoderImpl>(*theirs.decoder.ptr(), "decoder");
  ours->encoder = ours->replace_module("encoder", share(encoder, "encoder"));
  ours->decoder = ours->replace_module("decoder", share(decoder, "decoder"));
  ours->options = TransformerOptions(ours->encoder->options.layer())
                      .num_encoder_layers(ours->encoder->options.num_layers())
                      .num_decoder_layers(ours->decoder->options.num_layers());
  return ours;
}

// A parameter that somebody registered besides, or that stands in the list but no longer in its member, has
// no counterpart.
void check_all_shared(const torch::nn::Module& ours, const torch::nn::Module& theirs) {
  const auto shared = ours.named_parameters();
  for (const auto& item : theirs.named_parameters()) {
    const auto* same = shared.find(item.key());
    TORCH_CHECK_VALUE(same && same->is_same(item.value()), kFrom, ": expected only parameters that ",
                      class_of(theirs), " computes with, got ", item.key());
  }
}

template <class Theirs>
auto whole(const Theirs& theirs) {
  const NoFirstWeights no_weights;
  auto ours = share(exactly<Theirs>(theirs, ""), "");
  check_all_shared(*ours, theirs);
  return ours;
}

template <class Theirs>
auto whole_of(const torch::nn::ModuleHolder<Theirs>& theirs) {
  TORCH_CHECK_VALUE(!theirs.is_empty(), kFrom, ": expected a holder with a ", c10::demangle_type<Theirs>(),
                    ", got an empty one");
  return whole(*theirs);
}

}  // namespace

#define ATTENTIVE_FROM(Class)                        \
  Class from(const torch::nn::Class& theirs) {       \
    return whole_of(theirs);                         \
  }                                                  \
  Class from(const torch::nn::Class##Impl& theirs) { \
    return whole(theirs);                            \
  }
ATTENTIVE_FROM(MultiheadAttention)
ATTENTIVE_FROM(TransformerEncoderLayer)
ATTENTIVE_FROM(TransformerDecoderLayer)
ATTENTIVE_FROM(TransformerEncoder)
ATTENTIVE_FROM(TransformerDecoder)
ATTENTIVE_FROM(Transformer)
#undef ATTENTIVE_FROM

}  // namespace attentive::compat
