// PyTorch's own attention, with its Python names. Masks, alignment and shapes follow PyTorch's conventions
// here.

#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>

#include <attentive/compat/multihead_attention.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>

#include "parity/case_arguments.h"
#include "parity/case_modules.h"

namespace attentive {
at::Tensor torch_mask(const CaseInputs& inputs, const std::string& name) {
  const auto mask = inputs.optional(name);
  if (!mask.defined() || !mask.is_floating_point()) return mask;
  const auto device = mask.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return mask;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), mask, device);
}

namespace {

// A mask with fewer dimensions than q covers the last ones, as everywhere in PyTorch.
Mask mask_like(at::Tensor mask, int64_t rank) {
  if (!mask.defined()) return {};
  while (mask.dim() < rank) mask = mask.unsqueeze(0);
  return mask.scalar_type() == at::kBool ? Mask::keep(mask) : Mask::bias(mask);
}

// Broadcasts the leading dimensions of q, k and v, as PyTorch's matmul does.
void broadcast_leading(at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  const auto leading = [](const at::Tensor& x) {
    return x.sizes().slice(0, static_cast<size_t>(x.dim() - 2));
  };
  const auto common = at::infer_size_dimvector(at::infer_size_dimvector(leading(q), leading(k)), leading(v));
  for (auto* x : {&q, &k, &v}) {
    at::DimVector sizes(common);
    sizes.append({x->size(-2), x->size(-1)});
    *x = x->expand(sizes);
  }
}

CaseOutput run_sdpa(const CaseInputs& inputs, const CaseArguments& call, Weights which, Backend backend) {
  auto q = inputs.required("query");
  auto k = inputs.required("key");
  auto v = inputs.required("value");
  const auto mask = torch_mask(inputs, "attn_mask");
  const bool causal = call.boolean("is_causal", false);
  if (std::min({q.dim(), k.dim(), v.dim()}) < 2) {
    fail_case(inputs.case_name(), "expected query, key and value of rank 2 or more");
  }
  if (causal && mask.defined()) fail_case(inputs.case_name(), "PyTorch takes either attn_mask or is_causal");
  AttentionOptions options;
  options.backend = backend;
  options.causal = causal ? Causal::TopLeft : Causal::None;
  options.dropout_p = call.number("dropout_p", 0.0);
  options.scale = call.optional_number("scale");
  if (options.scale == 0.0) {
    // PyTorch accepts a scale of 0 (uniform weights), but `attention` refuses it as a likely mistake.
    q = q * 0;
    options.scale = 1.0;
  }
  // With grouped heads, the third dimension from the end is the head: rank 3 means (H, L, D), not (B, L, D).
  const bool grouped = call.boolean("enable_gqa", false);
  const bool unbatched = grouped && q.dim() == 3;
  if (unbatched) {
    for (auto* x : {&q, &k, &v}) *x = x->unsqueeze(0);
  } else if (!grouped) {
    broadcast_leading(q, k, v);
  }
  AttentionExtras extras;
  extras.mask = mask_like(mask, q.dim());
  extras.weights = which;
  const auto result = attention(q, k, v, options, extras);
  if (!unbatched) return {result.output, result.weights};
  return {result.output.squeeze(0), result.weights.defined() ? result.weights.squeeze(0) : result.weights};
}

CaseRunner sdpa(const CaseArguments&, Backend backend) {
  const auto forward = [backend](const CaseInputs& inputs, const CaseArguments& call, Weights which) {
    return run_sdpa(inputs, call, which, backend);
  };
  return {nullptr, forward};
}

CaseRunner multihead_attention(const CaseArguments& options, Backend backend) {
  auto settings =
      compat::MultiheadAttentionOptions(options.integer("embed_dim"), options.integer("num_heads"))
          .dropout(options.number("dropout", 0.0))
          .bias(options.boolean("bias", true))
          .add_bias_kv(options.boolean("add_bias_kv", false))
          .add_zero_attn(options.boolean("add_zero_attn", false))
          .kdim(options.optional_integer("kdim"))
          .vdim(options.optional_integer("vdim"))
          .batch_first(options.boolean("batch_first", false));
  compat::MultiheadAttention module(settings);
  const auto forward = [module, backend](const CaseInputs& inputs, const CaseArguments& call,
                                         Weights which) mutable -> CaseOutput {
    // The module has PyTorch's options only, so a backend can be preferred, but not forced.
    const BackendGuard guard(backend);
    const auto& query = inputs.required("query");
    const auto or_query = [&](const char* name) {
      const auto tensor = inputs.optional(name);
      return tensor.defined() ? tensor : query;
    };
    const bool clean = which == Weights::Clean;  // by head, to see which queries have keys
    const auto [output, weights] = module->forward(
        query, or_query("key"), or_query("value"), torch_mask(inputs, "key_padding_mask"),
        clean || call.boolean("need_weights", true), torch_mask(inputs, "attn_mask"),
        !clean && call.boolean("average_attn_weights", true), call.boolean("is_causal", false));
    return {output, weights};
  };
  CaseRunner runner{module.ptr(), forward, settings.bias() ? "out_proj.bias" : ""};
  runner.sequence_first = !settings.batch_first();
  runner.normal = {"bias_k", "bias_v"};
  return runner;
}

}  // namespace

std::vector<CaseModule> torch_case_modules() {
  return {
      {"torch.nn.MultiheadAttention",
       {"embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim",
        "batch_first"},
       {"query", "key", "value", "key_padding_mask", "attn_mask"},
       true,
       multihead_attention,
       {"need_weights", "average_attn_weights", "is_causal"}},
      {"torch.nn.functional.scaled_dot_product_attention",
       {},
       {"query", "key", "value", "attn_mask"},
       true,  // an eager function in its place may return weights
       sdpa,
       {"dropout_p", "is_causal", "scale", "enable_gqa"}},
  };
}

}  // namespace attentive
