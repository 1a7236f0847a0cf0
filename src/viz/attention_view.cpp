#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "viz/head_rows.h"

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

// The position of the first query of one batch item. Without an alignment of the caller's, queries, windows
// and ALiBi count from the bottom-right diagonal, which pairs the last query with the last key.
int64_t origin_of(const RecordedAttention& call) {
  const auto& options = call.options;
  const auto length = [](const at::Tensor& lengths, int64_t whole) {
    return lengths.defined() ? lengths.item<int64_t>() : whole;
  };
  if (options.align == Align::Lengths)
    return length(call.key_lengths, call.k.size(2)) - length(call.query_lengths, call.q.size(2));
  const bool aligned =
      options.align == Align::BottomRight &&
      (options.causal == Causal::BottomRight || options.window.bounded() || call.alibi_slopes.defined());
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
  const NormalTensorsGuard normal;
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

namespace attentive::viz {

RecordedAttention batch_item(const char* caller, const RecordedAttention& call, int64_t batch) {
  for (const auto& [name, tensor] : {std::pair("q", call.q), std::pair("k", call.k)}) {
    check_defined(caller, name, tensor);
    TORCH_CHECK_VALUE(tensor.dim() == 4, caller, ": ", call.path, ": expected ", name, " of rank 4, got ",
                      describe(tensor));
  }
  const auto batches = call.q.size(0);
  TORCH_CHECK_VALUE(batch >= 0 && batch < batches, caller, ": ", call.path, ": expected a batch item in [0, ",
                    batches, "), got ", batch);
  auto item = call;
  for (auto* part : {&item.q, &item.k, &item.keep, &item.bias, &item.key_keep, &item.key_lengths,
                     &item.query_lengths, &item.alibi_slopes}) {
    if (part->defined() && part->size(0) > 1) *part = part->narrow(0, batch, 1);
  }
  return item;
}

namespace {

class Checks {
 public:
  Checks(const char* caller, const AttentionView& view) : caller_(caller), view_(view) {
    check_tensor("weights", view.weights, at::kFloat, {});
    TORCH_CHECK_VALUE(view.weights.dim() == 3 && view.weights.numel() > 0, caller, ": ", view.path,
                      ": expected weights of shape (heads, queries, keys), none of them 0, got ",
                      shape_string(view.weights.sizes()));
    heads_ = view.weights.size(0), queries_ = view.weights.size(1), keys_ = view.weights.size(2);
    TORCH_CHECK_VALUE(keys_ <= INT32_MAX && queries_ <= INT32_MAX, caller, ": ", view.path,
                      ": expected fewer than 2^31 tokens, got ", shape_string(view.weights.sizes()));
  }

  void heads() const {
    const auto& heads = view_.heads;
    TORCH_CHECK_VALUE(std::ssize(heads) == heads_, caller_, ": ", view_.path, ": expected the numbers of ",
                      heads_, " heads, got ", heads.size());
    for (auto head = heads.begin(); head != heads.end(); ++head) {
      TORCH_CHECK_VALUE(*head >= 0 && std::find(heads.begin(), head, *head) == head, caller_, ": ",
                        view_.path, ": expected heads that are named once, got ", at::IntArrayRef(heads));
    }
  }

  void visible() const {
    if (!view_.visible.defined()) return;
    const auto& visible = view_.visible;
    TORCH_CHECK_VALUE(visible.scalar_type() == at::kBool && visible.is_cpu() &&
                          at::is_expandable_to(visible.sizes(), view_.weights.sizes()),
                      caller_, ": ", view_.path, ": expected a bool visible on the CPU that broadcasts to ",
                      shape_string(view_.weights.sizes()), ", got ", describe(visible));
  }

  void numbers() const {
    const auto [low, high] = at::aminmax(view_.weights);  // one pass; if there is a NaN, both are NaN
    if (low.item<float>() >= 0 && std::isfinite(high.item<float>())) return;
    const auto wrong = at::isfinite(view_.weights).logical_and_(view_.weights.ge(0)).logical_not_();
    const auto place = wrong.nonzero()[0];
    const auto head = place[0].item<int64_t>(), query = place[1].item<int64_t>(),
               key = place[2].item<int64_t>();
    TORCH_CHECK_VALUE(false, caller_, ": ", view_.path, ", head ", view_.heads[static_cast<size_t>(head)],
                      ": expected finite weights that are not negative, got ",
                      view_.weights[head][query][key].item<float>(), " of query ", query, " for key ", key);
  }

  void tokens() const {
    check_count("query_tokens", view_.query_tokens.size(), queries_, "queries");
    check_count("key_tokens", view_.key_tokens.size(), keys_, "keys");
  }

  void optional_tensors() const {
    if (view_.logsumexp.defined()) check_tensor("logsumexp", view_.logsumexp, at::kFloat, {heads_, queries_});
    if (view_.rollout.defined()) check_tensor("rollout", view_.rollout, at::kFloat, {keys_});
    for (const auto& neurons : view_.neurons) {
      TORCH_CHECK_VALUE(std::find(view_.heads.begin(), view_.heads.end(), neurons.head) != view_.heads.end(),
                        caller_, ": ", view_.path,
                        ": expected neurons of a head that is shown, got those of head ", neurons.head);
      check_defined(caller_, "neurons.q", neurons.q);
      const auto features = neurons.q.dim() == 2 ? neurons.q.size(1) : 0;
      check_tensor("neurons.q", neurons.q, at::kFloat, {queries_, features});
      check_tensor("neurons.k", neurons.k, at::kFloat, {keys_, features});
    }
  }

  void image() const {
    if (!view_.image) return;
    const auto& image = *view_.image;
    const bool fits = image.rows > 0 && image.columns > 0 && image.first >= 0 && image.rows <= keys_ &&
                      image.columns <= keys_ && image.rows * image.columns + image.first == keys_;
    TORCH_CHECK_VALUE(fits, caller_, ": ", view_.path, ": expected ", keys_, " tokens, got an image of ",
                      image.rows, " x ", image.columns, " patches and ", image.first, " before them");
    const auto& pixels = image.pixels;
    if (!pixels.defined()) return;
    TORCH_CHECK_VALUE(
        pixels.dim() == 3 && (pixels.size(0) == 1 || pixels.size(0) == 3) && pixels.numel() > 0 &&
            pixels.is_floating_point() && pixels.is_cpu(),
        caller_, ": ", view_.path,
        ": expected pixels as floating numbers of shape (1 or 3, height, width) on the CPU, got ",
        describe(pixels));
    TORCH_CHECK_VALUE(pixels.ge(0).logical_and_(pixels.le(1)).all().item<bool>(), caller_, ": ", view_.path,
                      ": expected pixels from 0 to 1");
  }

 private:
  // If `sizes` is empty, any shape is accepted.
  void check_tensor(const char* name, const at::Tensor& tensor, at::ScalarType type,
                    at::IntArrayRef sizes) const {
    check_defined(caller_, name, tensor);
    TORCH_CHECK_VALUE(
        tensor.scalar_type() == type && tensor.is_cpu() && (sizes.empty() || tensor.sizes() == sizes),
        caller_, ": ", view_.path, ": expected ", name, " as float32 on the CPU",
        sizes.empty() ? std::string() : " of shape " + shape_string(sizes), ", got ", describe(tensor));
  }

  void check_count(const char* name, size_t given, int64_t wanted, const char* what) const {
    TORCH_CHECK_VALUE(given == 0 || static_cast<int64_t>(given) == wanted, caller_, ": ", view_.path,
                      ": expected ", name, " for ", wanted, " ", what, ", got ", given);
  }

  const char* caller_;
  const AttentionView& view_;
  int64_t heads_ = 0, queries_ = 0, keys_ = 0;
};

}  // namespace

void check_view(const char* caller, const AttentionView& view) {
  const Checks checks(caller, view);
  checks.heads();
  checks.visible();
  checks.numbers();
  checks.tokens();
  checks.optional_tensors();
  checks.image();
}

HeadMemory::HeadMemory(const AttentionView& view, int64_t place)
    : weights(view.weights.select(0, place).contiguous()), rows{} {
  rows = {weights.const_data_ptr<float>(), nullptr, weights.size(0), weights.size(1)};
  if (!view.visible.defined()) return;
  visible = view.visible.expand(view.weights.sizes()).select(0, place).contiguous();
  rows.visible = visible.const_data_ptr<bool>();
}

}  // namespace attentive::viz
