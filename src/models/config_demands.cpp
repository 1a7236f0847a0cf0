#include "models/config_demands.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attentive {
namespace {

constexpr int64_t kLargestNumber = std::numeric_limits<int64_t>::max();

int64_t product(const Demand& demand) {
  int64_t numbers = 1;
  for (const auto& factor : demand.factors) {
    if (__builtin_mul_overflow(numbers, factor.value, &numbers)) return kLargestNumber;
  }
  return numbers;
}

// The number of elements that are really stored; an expanded tensor has more elements than memory.
int64_t numbers_in(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return 0;
  const auto stored = tensor.storage().nbytes() / tensor.element_size();
  return std::min(tensor.numel(), static_cast<int64_t>(stored));
}

int64_t numbers_in(const StateDict& weights) {
  int64_t sum = 0;
  for (const auto& item : weights) {
    if (__builtin_add_overflow(sum, numbers_in(item.second), &sum)) return kLargestNumber;
  }
  return sum;
}

}  // namespace

std::vector<Demand> demands_of(const GPTOptions& options) {
  const Demand::Factor width{"n_embd", options.emb_dim()}, layers{"n_layer", options.num_layers()};
  const auto inner = options.hidden_dim() > 0 ? Demand::Factor{"n_inner", options.hidden_dim()} : width;
  return {{{{"vocab_size", options.vocab_size()}, width}},
          {{{"n_positions", options.context_length()}, width}},
          {{layers, width, width}},
          {{layers, width, inner}}};
}

std::vector<Demand> demands_of(const LlamaOptions& options) {
  const Demand::Factor width{"hidden_size", options.emb_dim()},
      layers{"num_hidden_layers", options.num_layers()};
  std::vector<Demand> demands{{{{"vocab_size", options.vocab_size()}, width}},
                              {{layers, width, {"intermediate_size", options.hidden_dim()}}}};
  if (options.head_dim() == 0) {
    demands.push_back({{layers, width, width}});
    return demands;
  }
  const Demand::Factor head{"head_dim", options.head_dim()};
  demands.push_back({{layers, width, {"num_attention_heads", options.num_heads()}, head}});
  demands.push_back({{layers, width, {"num_key_value_heads", options.num_kv_heads()}, head}});
  return demands;
}

std::vector<Demand> demands_of(const BertOptions& options) {
  const bool factored = options.embedding_dim() > 0;
  const Demand::Factor width{"hidden_size", options.emb_dim()},
      embedded = factored ? Demand::Factor{"embedding_size", options.embedding_dim()} : width,
      layers{"num_hidden_layers", options.shared_layers() ? 1 : options.num_layers()};
  std::vector<Demand> demands;
  demands.push_back({{{"vocab_size", options.vocab_size()}, embedded}});
  demands.push_back({{{"max_position_embeddings", options.context_length()}, embedded}});
  demands.push_back({{{"type_vocab_size", options.token_types()}, embedded}});
  if (factored) demands.push_back({{embedded, width}});
  demands.push_back({{layers, width, width}});
  demands.push_back({{layers, width, {"intermediate_size", options.hidden_dim()}}});
  if (options.head() != BertHead::None) demands.push_back({{{"num_labels", options.num_labels()}, width}});
  return demands;
}

std::vector<Demand> demands_of(const ViTOptions& options) {
  const Demand::Factor width{"hidden_size", options.emb_dim()},
      layers{"num_hidden_layers", options.num_layers()}, patch{"patch_size", options.patch_size()},
      side{"image_size / patch_size", options.image_size() / std::max<int64_t>(options.patch_size(), 1)};
  return {{{side, side, width}},
          {{{"num_channels", options.channels()}, patch, patch, width}},
          {{{"num_labels", options.num_classes()}, width}},
          {{layers, width, width}},
          {{layers, width, {"intermediate_size", options.hidden_dim()}}}};
}

void check_demands(const std::string& caller, const std::vector<Demand>& demands, const StateDict& weights) {
  const auto held = numbers_in(weights);
  for (const auto& demand : demands) {
    if (product(demand) <= held) continue;
    std::vector<std::string_view> fields;
    std::vector<int64_t> values;
    for (const auto& factor : demand.factors) {
      fields.push_back(factor.field);
      values.push_back(factor.value);
    }
    C10_THROW_ERROR(
        ValueError,
        fmt::format("{}: fields {}: expected at most the {} numbers of the folder's {} tensors, "
                    "got {}",
                    caller, fmt::join(fields, " * "), held, weights.size(), fmt::join(values, " * ")));
  }
}

void check_layers(const ModelConfig& config, std::string_view field, const StateDict& weights) {
  const auto tensors = static_cast<int64_t>(weights.size());
  if (tensors == 0 || config.size(field) <= tensors) return;
  config.refuse(field, fmt::format("at most as many layers as the folder has tensors, {}", tensors));
}

}  // namespace attentive
