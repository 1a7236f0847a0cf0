// The notebooks' classes, with their Python names.

#include <cmath>
#include <utility>

#include <attentive/functional/attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/attention_blog.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>

#include "parity/case_modules.h"

namespace attentive {
namespace {

// In the notebook classes, zero hides, whatever the mask's dtype is.
Mask mask_of(const CaseInputs& inputs) {
  const auto mask = inputs.optional("mask");
  return mask.defined() ? Mask::keep(mask.ne(0)) : Mask();
}

// The blog divides by torch.sqrt(torch.tensor(d_k, dtype=torch.float32)), so the root is rounded to float32
// in float64 arithmetic as well.
double blog_scale(int64_t head_dim) {
  return 1.0 / static_cast<double>(std::sqrt(static_cast<float>(head_dim)));
}

template <class Options>
Options forced(Options options, Backend backend) {
  options.attention().backend = backend;
  return options;
}

// Makes a runner for a module whose Python forward returns only the output: `plain` runs that forward,
// `weighted` the variant with weights.
template <class Holder, class Plain, class Weighted>
CaseRunner output_only(Holder module, std::string output_bias, Plain plain, Weighted weighted) {
  const auto forward = [=](const CaseInputs& inputs, const CaseArguments&,
                           Weights which) mutable -> CaseOutput {
    if (which == Weights::None) return {plain(module, inputs)};
    auto [output, weights] = weighted(module, inputs, which);
    return {std::move(output), std::move(weights)};
  };
  return {module.ptr(), forward, std::move(output_bias)};
}

// Makes such a runner for a module with one input, x.
template <class Holder>
CaseRunner one_input(Holder module, std::string output_bias = {}) {
  return output_only(
      std::move(module), std::move(output_bias),
      [](Holder& m, const CaseInputs& inputs) { return m->forward(inputs.required("x")); },
      [](Holder& m, const CaseInputs& inputs, Weights which) {
        return m->forward_with_weights(inputs.required("x"), Mask(), which);
      });
}

CaseRunner self_attention_v1(const CaseArguments& options, Backend backend) {
  return one_input(SelfAttentionV1(
      forced(SelfAttentionV1Options(options.integer("d_in"), options.integer("d_out")), backend)));
}

CaseRunner self_attention_v2(const CaseArguments& options, Backend backend) {
  return one_input(
      SelfAttentionV2(forced(SelfAttentionV2Options(options.integer("d_in"), options.integer("d_out"),
                                                    options.boolean("qkv_bias", false)),
                             backend)));
}

CaseRunner matrix_self_attention(const CaseArguments& options, Backend backend) {
  auto runner = one_input(MatrixSelfAttention(
      forced(MatrixSelfAttentionOptions(options.integer("d_model"), options.integer("d_k")), backend)));
  runner.normal = {"W_Q", "W_K", "W_V"};
  return runner;
}

CaseRunner fused_self_attention(const CaseArguments& options, Backend backend) {
  return one_input(
      FusedSelfAttention(forced(
          FusedSelfAttentionOptions(options.integer("embed_dim"), options.integer("num_heads", 8)), backend)),
      "proj.bias");
}

CaseRunner causal_attention(const CaseArguments& options, Backend backend) {
  return one_input(CausalAttention(
      forced(CausalAttentionOptions(options.integer("d_in"), options.integer("d_out"),
                                    options.integer("context_length"), options.number("dropout"),
                                    options.boolean("qkv_bias", false)),
             backend)));
}

template <class Options>
Options chapter_3_heads(const CaseArguments& options, Backend backend) {
  return forced(
      Options(options.integer("d_in"), options.integer("d_out"), options.integer("context_length"),
              options.number("dropout"), options.integer("num_heads"), options.boolean("qkv_bias", false)),
      backend);
}

CaseRunner multi_head_attention_wrapper(const CaseArguments& options, Backend backend) {
  return one_input(
      MultiHeadAttentionWrapper(chapter_3_heads<MultiHeadAttentionWrapperOptions>(options, backend)));
}

CaseRunner multi_head_attention(const CaseArguments& options, Backend backend) {
  return one_input(MultiHeadAttention(chapter_3_heads<MultiHeadAttentionOptions>(options, backend)),
                   "out_proj.bias");
}

CaseRunner shared_head_attention(const CaseArguments& options, Backend backend) {
  auto settings =
      forced(SharedHeadAttentionOptions(options.integer("embed_size"), options.integer("heads")), backend);
  if (settings.heads() > 0) settings.attention().scale = blog_scale(settings.embed_size() / settings.heads());
  SharedHeadAttention module(settings);
  return output_only(
      std::move(module), "fc_out.bias",
      [](SharedHeadAttention& m, const CaseInputs& inputs) {
        return m->forward(inputs.required("values"), inputs.required("keys"), inputs.required("query"),
                          mask_of(inputs));
      },
      [](SharedHeadAttention& m, const CaseInputs& inputs, Weights which) {
        return m->forward_with_weights(inputs.required("values"), inputs.required("keys"),
                                       inputs.required("query"), mask_of(inputs), which);
      });
}

CaseRunner scaled_dot_product_attention(const CaseArguments& options, Backend backend) {
  ScaledDotProductAttention module(
      forced(ScaledDotProductAttentionOptions(options.number("dropout", 0.0)), backend));
  const auto forward = [module](const CaseInputs& inputs, const CaseArguments&,
                                Weights which) mutable -> CaseOutput {
    const auto [output, weights] = module->forward_with_weights(inputs.required("Q"), inputs.required("K"),
                                                                inputs.required("V"), mask_of(inputs), which);
    return {output, weights};
  };
  return {module.ptr(), forward};
}

CaseRunner multi_head_self_attention(const CaseArguments& options, Backend backend) {
  MultiHeadSelfAttention module(
      forced(MultiHeadSelfAttentionOptions(options.integer("d_model", 128), options.integer("num_heads", 4),
                                           options.number("dropout", 0.0)),
             backend));
  const auto forward = [module](const CaseInputs& inputs, const CaseArguments&,
                                Weights which) mutable -> CaseOutput {
    const auto [output, weights] = module->forward_with_weights(inputs.required("x"), mask_of(inputs), which);
    return {output, weights};
  };
  return {module.ptr(), forward};
}

// The function of the multi-head blog, for Q, K, V with any leading dimensions.
CaseRunner blog_attention(const CaseArguments&, Backend backend) {
  const auto forward = [backend](const CaseInputs& inputs, const CaseArguments&,
                                 Weights which) -> CaseOutput {
    const auto& q = inputs.required("Q");
    AttentionOptions options;
    options.backend = backend;
    if (q.dim() > 0) options.scale = blog_scale(q.size(-1));
    AttentionExtras extras;
    extras.weights = which;
    const auto result = attention(q, inputs.required("K"), inputs.required("V"), options, extras);
    return {result.output, result.weights};
  };
  return {nullptr, forward};
}

}  // namespace

std::vector<CaseModule> notebook_case_modules() {
  return {
      {"SelfAttention_v1", {"d_in", "d_out"}, {"x"}, false, self_attention_v1},
      {"SelfAttention_v2", {"d_in", "d_out", "qkv_bias"}, {"x"}, false, self_attention_v2},
      {"SelfAttention", {"d_model", "d_k"}, {"x"}, false, matrix_self_attention},
      {"SelfAttention", {"embed_dim", "num_heads"}, {"x"}, false, fused_self_attention},
      {"CausalAttention",
       {"d_in", "d_out", "context_length", "dropout", "qkv_bias"},
       {"x"},
       false,
       causal_attention},
      {"MultiHeadAttentionWrapper",
       {"d_in", "d_out", "context_length", "dropout", "num_heads", "qkv_bias"},
       {"x"},
       false,
       multi_head_attention_wrapper},
      {"MultiHeadAttention",
       {"d_in", "d_out", "context_length", "dropout", "num_heads", "qkv_bias"},
       {"x"},
       false,
       multi_head_attention},
      {"MultiHeadAttention",
       {"embed_size", "heads"},
       {"values", "keys", "query", "mask"},
       false,
       shared_head_attention},
      {"ScaledDotProductAttention", {"dropout"}, {"Q", "K", "V", "mask"}, true, scaled_dot_product_attention},
      {"MultiHeadSelfAttention",
       {"d_model", "num_heads", "dropout"},
       {"x", "mask"},
       true,
       multi_head_self_attention},
      {"scaled_dot_product_attention", {}, {"Q", "K", "V"}, true, blog_attention},
  };
}

}  // namespace attentive
