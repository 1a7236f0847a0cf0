#include "pictures.h"

#include <algorithm>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/viz/head_statistics.h>

#include "progress.h"

namespace {

using namespace attentive;

constexpr double kMostGiB = 4;

void check_size(const Source& source, const Selection& selection) {
  double bytes = 0;
  for (const auto& call : source.calls) {
    if (!source.chosen.contains(call.path)) continue;
    const auto heads = selection.heads.empty() ? call.heads() : std::ssize(selection.heads);
    bytes += 4.0 * static_cast<double>(heads) * static_cast<double>(call.q.size(2)) *
             static_cast<double>(call.k.size(2));
  }
  const double gib = bytes / (1 << 30);
  TORCH_CHECK_VALUE(gib <= kMostGiB, "expected at most ", kMostGiB, " GiB of weights, got ",
                    fmt::format("{:.1f}", gib), " GiB; --layers, --heads and --tokens choose fewer");
}

// The heads of this call whose queries and keys are kept.
std::vector<int64_t> neurons_of(const RecordedAttention& call, const Selection& selection) {
  std::vector<int64_t> heads;
  for (const auto& one : selection.neurons) {
    if (one.layer == call.path) heads.push_back(one.head);
  }
  return heads;
}

void check_neurons(const Source& source, const Selection& selection) {
  for (const auto& one : selection.neurons) {
    if (source.chosen.contains(one.layer)) continue;
    std::vector<std::string> known;  // in the order of the calls
    for (const auto& call : source.calls) {
      if (source.chosen.contains(call.path) &&
          std::find(known.begin(), known.end(), call.path) == known.end())
        known.push_back(call.path);
    }
    TORCH_CHECK_VALUE(false, "--neurons: expected one of the layers ",
                      fmt::format("{}", fmt::join(known, ", ")), ", got ", one.layer);
  }
}

}  // namespace

std::vector<AttentionView> views_of(const Source& source, const Selection& selection) {
  TORCH_CHECK_VALUE(!source.chosen.empty(), "expected a model with attention, but it made no attention call");
  check_size(source, selection);
  check_neurons(source, selection);
  std::vector<at::Tensor> rollouts(source.calls.size());
  if (source.image) rollouts = attention_rollout(source.calls, selection.batch);
  const auto headings = attention_headings(source.calls);
  std::vector<AttentionView> views;
  const auto total = std::count_if(source.calls.begin(), source.calls.end(),
                                   [&](const auto& call) { return source.chosen.contains(call.path); });
  const Progress progress;
  for (size_t i = 0; i < source.calls.size(); ++i) {
    const auto& call = source.calls[i];
    if (!source.chosen.contains(call.path)) continue;
    progress.say(fmt::format("weights of layer {} of {}", views.size() + 1, total));
    views.push_back(attention_view(call, {.tokens = source.tokens,
                                          .heads = selection.heads,
                                          .neurons = neurons_of(call, selection),
                                          .batch = selection.batch,
                                          .image = source.image}));
    views.back().path = headings[i];
    views.back().rollout = rollouts[i];
  }
  return views;
}
