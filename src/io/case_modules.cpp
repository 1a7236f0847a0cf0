#include "io/case_modules.h"

#include <algorithm>
#include <set>

#include <ATen/ExpandUtils.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/functional/attention.h>
#include <attentive/modules/multi_head_attention.h>

namespace attentive {
namespace {

// Masks of the notebook classes mean, in any dtype: zero hides.
Mask notebook_mask(const at::Tensor& mask) {
  return mask.defined() ? Mask::keep(mask.ne(0)) : Mask();
}

AttentionOptions options_with(Backend backend, Causal causal = Causal::None) {
  AttentionOptions options;
  options.causal = causal;
  options.backend = backend;
  return options;
}

// A module with one tensor argument x, whose forward returns the output alone.
template <class Holder>
CaseRunner one_input(Holder module, std::string output_bias = {}) {
  const auto forward = [module](const CaseInputs& inputs, const CaseArguments&,
                                Weights which) mutable -> CaseOutput {
    const auto& x = inputs.required("x");
    if (which == Weights::None) return {module->forward(x)};
    const auto [output, weights] = module->forward_with_weights(x, Mask(), which);
    return {output, weights};
  };
  return {module.ptr(), forward, std::move(output_bias)};
}

CaseRunner multi_head_attention(const CaseArguments& options, Backend backend) {
  auto settings = MultiHeadAttentionOptions(options.integer("d_in"), options.integer("d_out"),
                                            options.integer("context_length"), options.number("dropout"),
                                            options.integer("num_heads"), options.boolean("qkv_bias", false));
  settings.attention(options_with(backend, Causal::BottomRight));
  return one_input(MultiHeadAttention(settings), "out_proj.bias");
}

// The function of the multi-head blog: Q, K, V with any leading sizes.
CaseRunner blog_attention(const CaseArguments&, Backend backend) {
  const auto forward = [backend](const CaseInputs& inputs, const CaseArguments&,
                                 Weights which) -> CaseOutput {
    AttentionExtras extras;
    extras.weights = which;
    const auto result = attention(inputs.required("Q"), inputs.required("K"), inputs.required("V"),
                                  options_with(backend), extras);
    return {result.output, result.weights};
  };
  return {nullptr, forward};
}

// A mask with fewer dimensions than q stands for the last ones, as everywhere in PyTorch.
Mask torch_mask(at::Tensor mask, int64_t rank) {
  if (!mask.defined()) return {};
  while (mask.dim() < rank) mask = mask.unsqueeze(0);
  return mask.scalar_type() == at::kBool ? Mask::keep(mask) : Mask::bias(mask);
}

// Gives q, k and v the same leading sizes; returns false if they need no change.
void broadcast_leading(at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  const auto leading = [](const at::Tensor& x) {
    return x.sizes().slice(0, static_cast<size_t>(x.dim() - 2));
  };
  const auto common = at::infer_size_dimvector(at::infer_size_dimvector(leading(q), leading(k)), leading(v));
  const auto expand = [&](const at::Tensor& x) {
    at::DimVector sizes(common);
    sizes.append({x.size(-2), x.size(-1)});
    return x.expand(sizes);
  };
  q = expand(q);
  k = expand(k);
  v = expand(v);
}

CaseRunner torch_sdpa(const CaseArguments&, Backend backend) {
  const auto forward = [backend](const CaseInputs& inputs, const CaseArguments& call,
                                 Weights which) -> CaseOutput {
    auto q = inputs.required("query");
    auto k = inputs.required("key");
    auto v = inputs.required("value");
    const auto mask = inputs.optional("attn_mask");
    const bool causal = call.boolean("is_causal", false);
    if (std::min({q.dim(), k.dim(), v.dim()}) < 2) {
      fail_case(inputs.case_name(), "expected query, key and value of rank 2 or more");
    }
    if (causal && mask.defined())
      fail_case(inputs.case_name(), "PyTorch takes either attn_mask or is_causal");
    auto options = options_with(backend, causal ? Causal::TopLeft : Causal::None);
    options.scale = call.optional_number("scale");
    if (options.scale == 0.0) {
      // PyTorch takes a scale of 0 (uniform weights), `attention` refuses it as a likely mistake.
      q = q * 0;
      options.scale = 1.0;
    }
    options.dropout_p = call.number("dropout_p", 0.0);
    // The head dimension is the third last: three dimensions are (H, L, D) there.
    const bool grouped = call.boolean("enable_gqa", false);
    const bool unbatched = grouped && q.dim() == 3;
    if (unbatched) {
      q = q.unsqueeze(0);
      k = k.unsqueeze(0);
      v = v.unsqueeze(0);
    } else if (!grouped) {
      broadcast_leading(q, k, v);
    }
    AttentionExtras extras;
    extras.mask = torch_mask(mask, q.dim());
    extras.weights = which;
    auto result = attention(q, k, v, options, extras);
    if (unbatched) {
      result.output = result.output.squeeze(0);
      if (result.weights.defined()) result.weights = result.weights.squeeze(0);
    }
    return {result.output, result.weights};
  };
  return {nullptr, forward};
}

bool knows(const std::vector<std::string_view>& known, const std::string& name) {
  return std::find(known.begin(), known.end(), name) != known.end();
}

void check_known(const Case& test_case, std::string_view what, const std::string& name,
                 const std::vector<std::string_view>& known) {
  if (knows(known, name)) return;
  fail_case(test_case.name, fmt::format("unknown {} {} of {}; known: {}", what, name, test_case.module,
                                        known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

}  // namespace

const std::vector<CaseModule>& case_registry() {
  static const std::vector<CaseModule> registry = {
      {"MultiHeadAttention",
       {"d_in", "d_out", "context_length", "dropout", "num_heads", "qkv_bias"},
       {"x"},
       false,
       multi_head_attention},
      {"scaled_dot_product_attention", {}, {"Q", "K", "V"}, true, blog_attention},
      {"torch.nn.functional.scaled_dot_product_attention",
       {},
       {"query", "key", "value", "attn_mask"},
       false,
       torch_sdpa,
       {"dropout_p", "is_causal", "scale", "enable_gqa"}},
  };
  return registry;
}

const CaseModule& find_case_module(const Case& test_case, const CaseArguments& options,
                                   const CaseArguments& call) {
  const CaseModule* found = nullptr;
  size_t best = 0;
  const auto given = options.names();
  for (const auto& candidate : case_registry()) {
    if (candidate.name != test_case.module) continue;
    const auto known = static_cast<size_t>(std::count_if(
        given.begin(), given.end(), [&](const auto& name) { return knows(candidate.options, name); }));
    // The class that knows most of the options is meant; its first unknown one is then named below.
    if (!found || known > best) {
      found = &candidate;
      best = known;
    }
  }
  if (!found) {
    fail_case(test_case.name,
              fmt::format("unknown module {}; known: {}", test_case.module, fmt::join(case_modules(), ", ")));
  }
  for (const auto& name : given) check_known(test_case, "option", name, found->options);
  for (const auto& name : call.names()) check_known(test_case, "call argument", name, found->call);
  for (const auto& [name, tensor] : test_case.inputs) check_known(test_case, "input", name, found->inputs);
  return *found;
}

std::vector<std::string> case_modules() {
  std::set<std::string> names;
  for (const auto& entry : case_registry()) names.emplace(entry.name);
  return {names.begin(), names.end()};
}

}  // namespace attentive
