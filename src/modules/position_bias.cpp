#include "modules/position_bias.h"

#include <type_traits>

#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

namespace attentive {
namespace {

template <class Holder, class Options>
std::shared_ptr<torch::nn::Module> built(const char* caller, const Options& options, int64_t num_heads) {
  TORCH_CHECK_VALUE(options.num_heads() == num_heads, caller, ": expected a position_bias of ", num_heads,
                    " heads like the layer, got a ", Options::kModule, " of ", options.num_heads());
  return Holder(options).ptr();
}

}  // namespace

std::shared_ptr<torch::nn::Module> make_position_bias(const char* caller, const PositionBiasOptions& options,
                                                      int64_t num_heads) {
  if (const auto* line = std::get_if<RelativePositionBiasOptions>(&options))
    return built<RelativePositionBias>(caller, *line, num_heads);
  if (const auto* plane = std::get_if<RelativePositionBias2dOptions>(&options))
    return built<RelativePositionBias2d>(caller, *plane, num_heads);
  if (const auto* distance = std::get_if<DistanceBiasOptions>(&options))
    return built<DistanceBias>(caller, *distance, num_heads);
  return nullptr;
}

void check_position_bias_tokens(const char* caller, const PositionBiasOptions& options, int64_t tokens) {
  const auto* plane = std::get_if<RelativePositionBias2dOptions>(&options);
  if (!plane) return;
  TORCH_CHECK_VALUE(tokens == plane->height() * plane->width(), caller, ": expected the ",
                    plane->height() * plane->width(), " tokens of a window of ", plane->height(), " x ",
                    plane->width(), " (position_bias), got ", tokens);
}

void check_position_bias_cache(const char* caller, const PositionBiasOptions& options) {
  TORCH_CHECK_VALUE(!std::holds_alternative<RelativePositionBias2dOptions>(options), caller,
                    ": expected no cache with a RelativePositionBias2d, whose window is one call");
}

at::Tensor by_difference(const at::Tensor& values, int64_t dim, int64_t keys) {
  // Window n holds the values n .. n + keys - 1, and query i reads window queries - 1 - i. Selecting the
  // windows makes one contiguous copy, whereas at::flip would choose its own order of strides.
  const auto queries = values.size(dim) - keys + 1;
  const auto backwards = at::arange(queries - 1, -1, -1, values.options().dtype(at::kLong));
  return values.unfold(dim, keys, 1).index_select(dim, backwards);
}

at::Tensor summed_wide(const at::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? parameter.to(at::kFloat) : parameter;
}

void add_position_bias(torch::nn::Module& bias, int64_t queries, int64_t keys, AttentionExtras& extras) {
  if (const auto* distance = bias.as<DistanceBias>()) {
    extras.alibi_slopes = distance->slopes;
    return;
  }
  auto* line = bias.as<RelativePositionBias>();
  const auto table = line ? line->forward(queries, keys) : bias.as<RelativePositionBias2d>()->forward();
  extras.mask &= Mask::per_head(Mask::bias(table));
}

}  // namespace attentive
