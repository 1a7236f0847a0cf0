#include <ATen/ops/equal.h>

#include <attentive/models/gpt2_names.h>
#include <attentive/models/python_names.h>

#include "core/check.h"
#include "models/name_rules.h"

namespace attentive {
namespace {

void check_expressible(const char* caller, const GPTOptions& options) {
  TORCH_CHECK_VALUE(options.positions() == GPTPositions::Learned, caller,
                    ": expected learned positions, got rotary ones, which GPT-2 has not");
  TORCH_CHECK_VALUE(options.num_kv_heads() == 0 || options.num_kv_heads() == options.num_heads(), caller,
                    ": expected num_kv_heads = num_heads, got ", options.num_kv_heads());
  TORCH_CHECK_VALUE(options.window() == 0, caller, ": expected no window, got ", options.window());
}

// Whether a model with these options has the tensor of `pair`.
bool has(const GPTOptions& options, const NamePair& pair) {
  if (!pair.our_name.ends_with(".bias") && !pair.our_name.ends_with(".shift")) return true;
  return pair.parts > 1 ? options.qkv_bias() : options.bias();
}

// Moves a tensor out of `given` and checks its shape.
at::Tensor take(StateDict& given, const std::string& name, const NamePair& pair, const GPTOptions& options) {
  constexpr const char* caller = "from_gpt2";
  const auto found = given.find(name);
  TORCH_CHECK_VALUE(found != given.end(), caller, ": expected a tensor \"", name, "\", got none");
  const auto tensor = found->second;
  check_defined(caller, '"' + name + '"', tensor);
  const bool matrix = (pair.flags & kTransposed) != 0 && name.ends_with(".weight");
  TORCH_CHECK_VALUE(!matrix || tensor.dim() == 2, caller, ": expected \"", name, "\" of rank 2, got ",
                    describe(tensor));
  TORCH_CHECK_VALUE(pair.parts == 1 || (tensor.dim() > 0 && tensor.size(-1) == 3 * options.emb_dim()), caller,
                    ": expected \"", name, "\" with a last size of ", 3 * options.emb_dim(), ", got ",
                    describe(tensor));
  given.erase(found);
  return tensor;
}

}  // namespace

StateDict from_gpt2(const StateDict& state, const GPTOptions& options) {
  constexpr const char* caller = "from_gpt2";
  check_expressible(caller, options);
  const NameTable table(find_family("gpt2")->rules);
  StateDict given, needed;
  for (const auto& [name, tensor] : state) {
    const auto plain = table.without_prefix(name);
    if (!table.is_ignored(plain)) given[plain] = tensor;
  }
  for (const auto& pair : table.pairs()) {
    if (pair.part > 0 || (pair.flags & kHead) != 0 || !has(options, pair)) continue;
    const bool layers = pair.python_name.find('#') != std::string::npos;
    for (int64_t layer = 0; layer < (layers ? options.num_layers() : 1); ++layer) {
      const auto name = with_layer(pair.python_name, layer);
      needed[name] = take(given, name, pair, options);
    }
  }
  const auto& embedding = needed.at("wte.weight");
  const auto head = given.find("lm_head.weight");
  const auto weight = head == given.end() ? embedding : head->second;
  if (head != given.end()) given.erase(head);
  for (const auto& item : given)
    TORCH_CHECK_VALUE(false, caller, ": expected no tensor \"", item.first, "\"");
  if (!options.tied()) {
    needed["lm_head.weight"] = weight;
  } else {
    TORCH_CHECK_VALUE(weight.is_same(embedding) || at::equal(weight, embedding), caller,
                      ": expected lm_head.weight equal to wte.weight for a tied model, got another one");
  }
  return from_python_names("gpt2", needed);
}

StateDict to_gpt2(const GPTImpl& model) {
  check_expressible("to_gpt2", model.options);
  StateDict state;
  for (const auto& item : model.named_parameters()) state[item.key()] = item->detach();
  auto out = to_python_names("gpt2", state);
  out.emplace("lm_head.weight", state.at("tok_emb.weight"));
  return out;
}

}  // namespace attentive
