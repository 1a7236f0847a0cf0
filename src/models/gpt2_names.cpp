#include <array>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <attentive/models/gpt2_names.h>

#include "core/check.h"

namespace attentive {
namespace {

enum class Layout { Same, Transposed, Qkv };

// A tensor of GPT-2 and the tensor of GPT (three for Qkv) that corresponds to it.
struct Entry {
  std::string theirs;
  std::string ours;  // for Qkv: what precedes W_query and, after a space, what follows it
  Layout layout;
  bool optional;  // biases
};

std::vector<Entry> entries(const GPTOptions& options) {
  std::vector<Entry> all{{"wte.weight", "tok_emb.weight", Layout::Same, false},
                         {"wpe.weight", "pos_emb.weight", Layout::Same, false}};
  for (int64_t n = 0; n < options.num_layers(); ++n) {
    const auto h = "h." + std::to_string(n) + '.', block = "trf_blocks." + std::to_string(n) + '.';
    const auto norm = [&](const std::string& theirs, const std::string& ours) {
      all.push_back({h + theirs + ".weight", block + ours + ".scale", Layout::Same, false});
      if (options.bias()) all.push_back({h + theirs + ".bias", block + ours + ".shift", Layout::Same, true});
    };
    const auto linear = [&](const std::string& theirs, const std::string& ours) {
      all.push_back({h + theirs + ".weight", block + ours + ".weight", Layout::Transposed, false});
      if (options.bias()) all.push_back({h + theirs + ".bias", block + ours + ".bias", Layout::Same, true});
    };
    norm("ln_1", "norm1");
    all.push_back({h + "attn.c_attn.weight", block + "att. .weight", Layout::Qkv, false});
    if (options.qkv_bias()) all.push_back({h + "attn.c_attn.bias", block + "att. .bias", Layout::Qkv, true});
    linear("attn.c_proj", "att.out_proj");
    norm("ln_2", "norm2");
    linear("mlp.c_fc", "ff.layers.0");
    linear("mlp.c_proj", "ff.layers.2");
  }
  all.push_back({"ln_f.weight", "final_norm.scale", Layout::Same, false});
  if (options.bias()) all.push_back({"ln_f.bias", "final_norm.shift", Layout::Same, true});
  return all;
}

std::array<std::string, 3> qkv_names(const std::string& pattern) {
  const auto space = pattern.find(' ');
  const auto name = [&](const char* part) {
    return pattern.substr(0, space) + part + pattern.substr(space + 1);
  };
  return {name("W_query"), name("W_key"), name("W_value")};
}

void check_expressible(const char* who, const GPTOptions& options) {
  TORCH_CHECK_VALUE(options.positions() == GPTPositions::Learned, who,
                    ": expected learned positions, got rotary ones, which GPT-2 has not");
  TORCH_CHECK_VALUE(options.num_kv_heads() == 0 || options.num_kv_heads() == options.num_heads(), who,
                    ": expected num_kv_heads = num_heads, got ", options.num_kv_heads());
  TORCH_CHECK_VALUE(options.window() == 0, who, ": expected no window, got ", options.window());
}

bool is_mask_buffer(const std::string& name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace

StateDict from_gpt2(const StateDict& state, const GPTOptions& options) {
  constexpr const char* who = "from_gpt2";
  check_expressible(who, options);
  StateDict given;
  for (const auto& [name, tensor] : state) {
    const auto plain = name.starts_with("transformer.") ? name.substr(12) : name;
    if (!is_mask_buffer(plain)) given[plain] = tensor;
  }
  const auto take = [&](const std::string& name) {
    const auto found = given.find(name);
    TORCH_CHECK_VALUE(found != given.end(), who, ": expected a tensor \"", name, "\", got none");
    const auto tensor = found->second;
    check_defined(who, '"' + name + '"', tensor);
    given.erase(found);
    return tensor;
  };
  StateDict out;
  for (const auto& entry : entries(options)) {
    auto tensor = take(entry.theirs);
    TORCH_CHECK_VALUE(entry.layout == Layout::Same || tensor.dim() == 2 || entry.optional, who,
                      ": expected \"", entry.theirs, "\" of rank 2, got ", describe(tensor));
    if (entry.layout == Layout::Qkv) {
      TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(-1) == 3 * options.emb_dim(), who, ": expected \"",
                        entry.theirs, "\" with a last size of ", 3 * options.emb_dim(), ", got ",
                        describe(tensor));
      const auto parts = tensor.chunk(3, -1);
      const auto names = qkv_names(entry.ours);
      for (size_t i = 0; i < 3; ++i) out[names[i]] = tensor.dim() == 2 ? parts[i].t() : parts[i];
    } else {
      out[entry.ours] = entry.layout == Layout::Transposed ? tensor.t() : tensor;
    }
  }
  const auto& embedding = out.at("tok_emb.weight");
  const auto head = given.contains("lm_head.weight") ? take("lm_head.weight") : embedding;
  if (!options.tied()) {
    out["out_head.weight"] = head;
  } else {
    TORCH_CHECK_VALUE(head.is_same(embedding) || at::equal(head, embedding), who,
                      ": expected lm_head.weight equal to wte.weight for a tied model, got another one");
  }
  for (const auto& item : given) TORCH_CHECK_VALUE(false, who, ": expected no tensor \"", item.first, "\"");
  return out;
}

StateDict to_gpt2(const GPTImpl& model) {
  check_expressible("to_gpt2", model.options);
  StateDict ours;
  for (const auto& item : model.named_parameters()) ours[item.key()] = item->detach();
  StateDict out;
  for (const auto& entry : entries(model.options)) {
    auto& target = out["transformer." + entry.theirs];
    if (entry.layout == Layout::Qkv) {
      const auto [q, k, v] = qkv_names(entry.ours);
      const auto packed = at::cat({ours.at(q), ours.at(k), ours.at(v)});
      target = packed.dim() == 2 ? packed.t().contiguous() : packed;
    } else {
      target =
          entry.layout == Layout::Transposed ? ours.at(entry.ours).t().contiguous() : ours.at(entry.ours);
    }
  }
  out["lm_head.weight"] = ours.at(model.options.tied() ? "tok_emb.weight" : "out_head.weight");
  return out;
}

}  // namespace attentive
