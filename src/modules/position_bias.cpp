#include "modules/position_bias.h"

#include <type_traits>

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
