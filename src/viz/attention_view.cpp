#include <map>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <attentive/viz/attention_rollout.h>
#include <attentive/viz/attention_view.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "viz/checked_view.h"

namespace attentive {
namespace {

constexpr const char* kAttentionView = "attention_view";

void check_heads(const RecordedAttention& call, const std::vector<int64_t>& heads) {
  for (const auto head : heads) {
    TORCH_CHECK_VALUE(head >= 0 && head < call.heads(), kAttentionView, ": ", call.path,
                      ": expected a head in [0, ", call.heads(), "), got ", head);
  }
}

at::Tensor shown(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, at::kFloat).contiguous();
}

// Queries, windows and ALiBi count from the bottom-right diagonal, which pairs the last query with the last
// key.
int64_t origin_of(const RecordedAttention& call) {
  const auto& options = call.options;
  const bool aligned =
      options.causal == Causal::BottomRight || options.window.bounded() || call.alibi_slopes.defined();
  return aligned ? call.k.size(2) - call.q.size(2) : 0;
}

void take_numbers(const RecordedAttention& call, AttentionView& view) {
  const auto heads = std::ssize(view.heads), queries = call.q.size(2), keys = call.k.size(2);
  view.weights = at::empty({heads, queries, keys}, at::kFloat);
  if (!call.linear) view.logsumexp = at::empty({heads, queries}, at::kFloat);
  // Runs in parallel over heads, so that threads synchronise once per call; synchronising in each small step
  // of a head would take most of the time on a busy machine.
  at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
    for (auto place = begin; place < end; ++place) {
      const auto head = view.heads[static_cast<size_t>(place)];
      view.weights[place].copy_(call.weights(head)[0]);
      if (!call.linear) view.logsumexp[place].copy_(call.logsumexp(head)[0]);
    }
  });
  const auto visible = call.visible()[0];
  // A mask that is the same for every head is stored once.
  view.visible = visible.stride(0) == 0 || call.heads() == 1
                     ? visible.narrow(0, 0, 1)
                     : visible.index_select(0, at::tensor(view.heads, visible.options().dtype(at::kLong)));
  view.visible = view.visible.to(at::kCPU);
}

void take_tokens(const RecordedAttention& call, const ViewOptions& options, AttentionView& view) {
  const auto queries = call.q.size(2), keys = call.k.size(2);
  const auto check = [&](const char* name, const std::vector<std::string>& texts, int64_t wanted,
                         const char* what) {
    TORCH_CHECK_VALUE(texts.empty() || std::ssize(texts) == wanted, kAttentionView, ": ", call.path,
                      ": expected ", name, " for ", wanted, " ", what, ", got ", texts.size());
  };
  if (!options.key_tokens.empty()) {
    check("key_tokens", options.key_tokens, keys, "keys");
    check("tokens", options.tokens, queries, "queries");
    view.query_tokens = options.tokens;
    view.key_tokens = options.key_tokens;
    return;
  }
  check("tokens", options.tokens, keys, "keys");
  TORCH_CHECK_VALUE(options.tokens.empty() || queries <= keys, kAttentionView, ": ", call.path,
                    ": expected key_tokens beside tokens for ", queries, " queries and ", keys, " keys");
  view.key_tokens = options.tokens;
  if (!options.tokens.empty()) view.query_tokens.assign(options.tokens.end() - queries, options.tokens.end());
}

HeadNeurons neurons_of(const RecordedAttention& call, int64_t head) {
  const auto group = call.heads() / call.k.size(1);
  return {
      .head = head, .q = shown(call.q[0][head]), .k = shown(call.k[0][head / group]), .scale = call.scale()};
}

std::string heading(const RecordedAttention& call) {
  return call.path.empty() ? "(root)" : call.path;
}

}  // namespace

AttentionView attention_view(const RecordedAttention& call, const ViewOptions& options) {
  const KeptTensors normal;
  const auto item = viz::batch_item(kAttentionView, call, options.batch);
  TORCH_CHECK_VALUE(item.q.size(1) > 0 && item.q.size(2) > 0 && item.k.size(2) > 0, kAttentionView, ": ",
                    call.path, ": expected at least one head, query and key, got q ", describe(call.q),
                    " and k ", describe(call.k));
  check_heads(item, options.heads);
  check_heads(item, options.neurons);
  AttentionView view{.path = heading(call), .linear = call.linear, .batch = options.batch};
  view.heads = options.heads;
  if (view.heads.empty()) {
    view.heads.resize(static_cast<size_t>(item.heads()));
    std::iota(view.heads.begin(), view.heads.end(), 0);
  }
  view.key_origin = origin_of(item);
  view.image = options.image;
  take_tokens(item, options, view);
  take_numbers(item, view);
  for (const auto head : options.neurons) view.neurons.push_back(neurons_of(item, head));
  viz::check_view(kAttentionView, view);
  return view;
}

std::vector<std::string> attention_headings(const std::vector<RecordedAttention>& calls) {
  std::vector<std::string> names;
  std::map<std::string, int> count;
  for (const auto& call : calls) {
    names.push_back(call.sequence ? fmt::format("{}, sequence {}", heading(call), *call.sequence)
                                  : heading(call));
    ++count[names.back()];
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (count[names[i]] > 1) names[i] += fmt::format(", call {}", calls[i].number);
  }
  return names;
}

std::vector<AttentionView> attention_views(const std::vector<RecordedAttention>& calls,
                                           const ViewOptions& options) {
  TORCH_CHECK_VALUE(!calls.empty(), "attention_views: expected at least one recorded call, got none");
  std::vector<at::Tensor> rollouts(calls.size());
  if (options.image) rollouts = attention_rollout(calls, options.batch);
  const auto names = attention_headings(calls);
  std::vector<AttentionView> views;
  for (size_t i = 0; i < calls.size(); ++i) {
    views.push_back(attention_view(calls[i], options));
    views.back().path = names[i];
    views.back().rollout = rollouts[i];
  }
  return views;
}

std::vector<AttentionView> attention_views(const AttentionRecorder& recorder, const ViewOptions& options) {
  return attention_views(recorder.calls(), options);
}

}  // namespace attentive
