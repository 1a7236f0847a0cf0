#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/recorded_attention.h>

namespace attentive {

/// Where the patches of an image stand among the tokens, in row-major order.
struct PatchImage {
  int64_t rows = 0;  ///< of patches
  int64_t columns = 0;
  int64_t first = 1;  ///< tokens before the patches: the class token, a distillation token
  at::Tensor pixels =
      {};  ///< (C, H, W) with 1 or 3 channels, from 0 to 1; undefined: only the patches are shown
};

/// The numbers of one head from which its scores are made: weight = softmax(scale * q . k) without masks and
/// biases.
struct HeadNeurons {
  int64_t head = 0;
  at::Tensor q = {};  ///< (L, D), float32 on the CPU
  at::Tensor k = {};  ///< (S, D)
  double scale = 1.0;
};

/// What a picture shows of one attention call and one batch item. `attention_view` makes it of a recorded
/// call; it may as well be filled by hand. H is the number of heads that are shown, L that of queries, S that
/// of keys.
struct AttentionView {
  std::string path = {};    ///< who made the call, as a heading: "trf_blocks.0.att"; "(root)" for the root
  bool linear = false;      ///< weights are shares of linear attention, not of a softmax
  int64_t batch = 0;        ///< which batch item this is
  at::Tensor weights = {};  ///< (H, L, S), float32 on the CPU, none of them negative
  at::Tensor visible =
      {};  ///< bool on the CPU, broadcasts to (H, L, S); false: hidden. Undefined: all are visible
  at::Tensor logsumexp = {};                   ///< (H, L), float32 on the CPU; undefined for linear attention
  std::vector<int64_t> heads = {};             ///< the number in the model of each of the H heads
  std::vector<std::string> query_tokens = {};  ///< L texts; empty: the positions are shown
  std::vector<std::string> key_tokens = {};    ///< S texts; empty: the positions are shown
  int64_t key_origin = 0;  ///< position of query 0 on the axis of the keys: S - L with a cache, otherwise 0
  std::optional<PatchImage> image = std::nullopt;
  at::Tensor rollout =
      {};  ///< (S), float32 on the CPU: `attention_rollout` up to this layer; undefined: none
  std::vector<HeadNeurons> neurons = {};
};

/// Options of `attention_view`.
struct ViewOptions {
  /// The texts of the tokens: S of them. The queries are the last L of these, as with a cache, unless
  /// `key_tokens` is given.
  std::vector<std::string> tokens = {};
  /// S texts for the keys of cross-attention; `tokens` are then the L texts of the queries.
  std::vector<std::string> key_tokens = {};
  std::vector<int64_t> heads = {};    ///< which heads, in this order; empty: all
  std::vector<int64_t> neurons = {};  ///< of which heads q and k are kept
  int64_t batch = 0;                  ///< which batch item
  std::optional<PatchImage> image = std::nullopt;
};

/// The view of one batch item of a recorded call: weights before dropout, hidden keys, logsumexp.
///
/// Throws c10::ValueError for a head or a batch item that the call does not have, for a head that is named
/// twice, for texts or patches that are not as many as tokens, and for a call without queries or keys. A
/// weight that is NaN, infinite or negative is refused with its head and query: no picture shows it. Memory:
/// O(H L S) numbers, and those of one head for each thread that computes one.
///
///   attentive::AttentionRecorder recorder(*model);
///   model->forward(ids);
///   auto view = attentive::attention_view(recorder.calls().at(0), {.tokens = {"The", " cat"}, .heads = {3}});
AttentionView attention_view(const RecordedAttention& call, const ViewOptions& options = {});

/// The headings of several calls: their paths, "(root)" for a root. The sequences of `attention_varlen`, and
/// calls that share a path (a module that runs several times), are told apart: "att, sequence 1", "att, call
/// 12".
std::vector<std::string> attention_headings(const std::vector<RecordedAttention>& calls);

/// The views of all calls, in their order and under their headings, each with the same options. With `image`,
/// each holds the attention rollout of the first token up to its layer (`attention_rollout`).
///
/// Throws what `attention_view` and `attention_rollout` throw, and c10::ValueError if there is no call.
std::vector<AttentionView> attention_views(const std::vector<RecordedAttention>& calls,
                                           const ViewOptions& options = {});
std::vector<AttentionView> attention_views(const AttentionRecorder& recorder,
                                           const ViewOptions& options = {});

}  // namespace attentive
