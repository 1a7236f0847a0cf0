// Whole models, with this package's names and options (as JSON).

#include <vector>

#include <ATen/ops/cat.h>

#include <attentive/core/options.h>
#include <attentive/models/llama.h>

#include "parity/case_arguments.h"
#include "parity/case_modules.h"
#include "parity/case_options.h"

namespace attentive {
namespace {

LlamaOptions llama_defaults() {
  return {1, 1, 1, 1};
}

Mask padding(const CaseInputs& inputs) {
  const auto mask = inputs.optional("attention_mask");
  return mask.defined() ? Mask::key_keep(mask) : Mask();
}

// Computes logits with a cache: `prefill` tokens at once, then one at a time.
at::Tensor cached_logits(LlamaImpl& model, const at::Tensor& ids, int64_t prefill) {
  const auto cache = model.make_cache(ids.size(0), ids.size(1));
  std::vector<at::Tensor> logits;
  for (int64_t at = 0; at < ids.size(1);) {
    const auto tokens = at == 0 ? prefill : 1;
    logits.push_back(model.forward_cached(ids.narrow(1, at, tokens), *cache));
    at += tokens;
  }
  return at::cat(logits, 1);
}

CaseRunner llama(const CaseArguments& options, Backend backend) {
  Llama model(read_options(options, llama_defaults(), LlamaImpl::kName));
  const auto forward = [model, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);  // only preferred, because the options have no backend
    const auto& ids = inputs.required("ids");
    const auto prefill = call.optional_integer("prefill");
    if (!prefill) return {model->forward(ids, padding(inputs))};
    if (*prefill < 1 || *prefill > ids.size(-1))
      fail_case(inputs.case_name(), "expected call argument prefill within the tokens of ids");
    return {cached_logits(*model, ids, *prefill)};
  };
  return {model.ptr(), forward};
}

}  // namespace

std::vector<CaseModule> model_case_modules() {
  return {{"attentive.Llama",
           option_names(llama_defaults()),
           {"ids", "attention_mask"},
           false,
           llama,
           {"prefill"}}};
}

}  // namespace attentive
