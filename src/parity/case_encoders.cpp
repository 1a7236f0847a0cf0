// Encoder models, with this package's names and options.

#include <attentive/core/options.h>
#include <attentive/models/bert.h>
#include <attentive/models/vit.h>

#include "parity/case_modules.h"
#include "parity/case_options.h"

namespace attentive {
namespace {

BertOptions no_bert() {
  return {0, 0, 0, 0, 0};
}

ViTOptions no_vit() {
  return {0, 0, 0, 0};
}

CaseRunner bert(const CaseArguments& options, Backend backend) {
  Bert model(read_options(options, no_bert(), BertImpl::kName));
  const auto forward = [model, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);  // only preferred, because the options have no backend
    const auto result = call.choice("result", "hidden", {"hidden", "pooled", "logits", "labels"});
    const auto padding = inputs.optional("attention_mask");
    const auto output = model->forward(inputs.required("ids"), inputs.optional("token_types"),
                                       padding.defined() ? Mask::key_keep(padding) : Mask());
    if (result == "hidden") return {output.hidden};
    if (result == "labels") return {model->label_logits(output)};
    return {result == "pooled" ? output.pooled : model->masked_lm_logits(output.hidden)};
  };
  return {model.ptr(), forward};
}

CaseRunner vit(const CaseArguments& options, Backend backend) {
  ViT model(read_options(options, no_vit(), ViTImpl::kName));
  const auto forward = [model, backend](const CaseInputs& inputs, const CaseArguments& call,
                                        Weights) mutable -> CaseOutput {
    const BackendGuard guard(backend);
    const auto& images = inputs.required("images");
    const bool hidden = call.choice("result", "logits", {"logits", "hidden"}) == "hidden";
    return {hidden ? model->hidden(images) : model->forward(images)};
  };
  return {model.ptr(), forward};
}

}  // namespace

std::vector<CaseModule> encoder_case_modules() {
  return {
      {"attentive.Bert",
       option_names(no_bert()),
       {"ids", "token_types", "attention_mask"},
       false,
       bert,
       {"result"}},
      {"attentive.ViT", option_names(no_vit()), {"images"}, false, vit, {"result"}},
  };
}

}  // namespace attentive
