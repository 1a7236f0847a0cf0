// Whole models, with this package's names and options (as JSON, in the format of option_json.h).

#include <ATen/ops/cat.h>

#include <attentive/models/bert.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

#include "files/option_json.h"
#include "parity/case_modules.h"

namespace attentive {
namespace {

// The names of all options. They are valid until the program ends.
template <ListsOptions Options>
std::vector<std::string_view> option_names(const Options& options) {
  static const auto object = option_object(options);
  std::vector<std::string_view> names;
  for (const auto& item : object.template get_ref<const nlohmann::json::object_t&>())
    names.push_back(item.first);
  return names;
}

// Reads the options of a case; those that are absent or null keep their values. Throws c10::ValueError,
// prefixed with `caller`, that names an option of another type.
template <ListsOptions Options>
Options read_options(const CaseArguments& arguments, Options options, const char* caller) {
  auto object = option_object(options);
  for (const auto& item : arguments.json().items()) {
    if (!item.value().is_null()) object[item.key()] = item.value();
  }
  each_option(options, OptionReader(caller, object));
  return options;
}

// Options without sizes, which a case must give.
LlamaOptions no_llama() {
  return {1, 1, 1, 1};
}

BertOptions no_bert() {
  return {0, 0, 0, 0, 0};
}

ViTOptions no_vit() {
  return {0, 0, 0, 0};
}

Mask padding_mask(const CaseInputs& inputs) {
  const auto mask = inputs.optional("attention_mask");
  return mask.defined() ? Mask::key_keep(mask) : Mask();
}

// Computes logits with a cache: `prefill` tokens at once, then one at a time.
at::Tensor cached_logits(LlamaImpl& model, const at::Tensor& ids, int64_t prefill) {
  const auto cache = model.make_cache(ids.size(0), ids.size(1));
  std::vector<at::Tensor> logits;
  for (int64_t first = 0; first < ids.size(1);) {
    const auto tokens = first == 0 ? prefill : 1;
    logits.push_back(model.forward_cached(ids.narrow(1, first, tokens), *cache));
    first += tokens;
  }
  return at::cat(logits, 1);
}

CaseRunner llama(const CaseArguments& options, Backend backend) {
  Llama model(read_options(options, no_llama(), LlamaImpl::kName));
  return preferring(
      backend, std::move(model), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        const auto& ids = inputs.required("ids");
        const auto prefill = call.optional_integer("prefill");
        if (!prefill) return m->forward(ids, padding_mask(inputs));
        if (*prefill < 1 || *prefill > ids.size(-1))
          fail_case(inputs.case_name(), "expected call argument prefill within the tokens of ids");
        return cached_logits(*m, ids, *prefill);
      });
}

CaseRunner bert(const CaseArguments& options, Backend backend) {
  Bert model(read_options(options, no_bert(), BertImpl::kName));
  return preferring(
      backend, std::move(model), [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
        const auto result = call.choice("result", "hidden", {"hidden", "pooled", "logits", "labels"});
        const auto output =
            m->forward(inputs.required("ids"), inputs.optional("token_types"), padding_mask(inputs));
        if (result == "hidden") return output.hidden;
        if (result == "labels") return m->label_logits(output);
        return result == "pooled" ? output.pooled : m->masked_lm_logits(output.hidden);
      });
}

CaseRunner vit(const CaseArguments& options, Backend backend) {
  ViT model(read_options(options, no_vit(), ViTImpl::kName));
  return preferring(backend, std::move(model),
                    [](auto& m, const CaseInputs& inputs, const CaseArguments& call) {
                      const auto& images = inputs.required("images");
                      const bool hidden = call.choice("result", "logits", {"logits", "hidden"}) == "hidden";
                      return hidden ? m->hidden(images) : m->forward(images);
                    });
}

}  // namespace

std::vector<CaseModule> model_case_modules() {
  return {
      {"attentive.Llama", option_names(no_llama()), {"ids", "attention_mask"}, false, llama, {"prefill"}},
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
