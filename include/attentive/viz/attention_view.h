#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>

namespace attentive {

/// Which of the tokens are the patches of an image, in row-major order.
struct PatchImage {
  int64_t rows = 0;  ///< number of rows of patches
  int64_t columns = 0;
  int64_t first = 1;  ///< tokens before the patches: the class token, a distillation token
  /// (C, H, W) with 1 or 3 channels, from 0 to 1; undefined: only the patches are shown.
  at::Tensor pixels = {};
};

/// The vectors from which the scores of one head are computed: weight = softmax(scale * q . k), ignoring
/// masks and biases.
struct HeadNeurons {
  int64_t head = 0;
  at::Tensor q = {};  ///< (L, D), float32 on the CPU
  at::Tensor k = {};  ///< (S, D)
  double scale = 1.0;
};

/// The data that a picture shows of one attention call and one batch item. `attention_view` makes it from a
/// recorded call, but it can also be filled by hand. H is the number of heads that are shown, L the number of
/// queries, S the number of keys.
struct AttentionView {
  std::string path = {};  ///< the module that called, as a heading: "trf_blocks.0.att"; "(root)" for the root
  bool linear = false;    ///< weights are shares of linear attention, not softmax weights
  int64_t batch = 0;      ///< the index of the batch item
  at::Tensor weights = {};  ///< (H, L, S), float32 on the CPU, none of them negative
  /// bool on the CPU, broadcasts to (H, L, S); false: hidden. Undefined: all are visible.
  at::Tensor visible = {};
  at::Tensor logsumexp = {};                   ///< (H, L), float32 on the CPU; undefined for linear attention
  std::vector<int64_t> heads = {};             ///< each shown head's number in the model
  std::vector<std::string> query_tokens = {};  ///< L texts; empty: the positions are shown
  std::vector<std::string> key_tokens = {};    ///< S texts; empty: the positions are shown
  int64_t key_origin = 0;  ///< position of query 0 on the axis of the keys: S - L with a cache, otherwise 0
  std::optional<PatchImage> image = std::nullopt;
  /// (S), float32 on the CPU: `attention_rollout` up to this layer; undefined: none.
  at::Tensor rollout = {};
  std::vector<HeadNeurons> neurons = {};
};

/// Options of `attention_view`.
struct ViewOptions {
  /// The texts of the S tokens. The queries are the last L of them, as with a cache, unless `key_tokens` is
  /// given.
  std::vector<std::string> tokens = {};
  /// The texts of the S keys in cross-attention; `tokens` are then the texts of the L queries.
  std::vector<std::string> key_tokens = {};
  std::vector<int64_t> heads = {};    ///< the heads to show, in this order; empty: all
  std::vector<int64_t> neurons = {};  ///< the heads for which q and k are kept
  int64_t batch = 0;                  ///< the batch item to show
  std::optional<PatchImage> image = std::nullopt;
};

/// Makes a view of one batch item of a recorded call: weights before dropout, hidden keys, logsumexp.
///
/// Throws c10::ValueError for a head or a batch item that the call does not have, for a head that is listed
/// twice, if the number of texts or patches differs from the number of tokens, and for a call without queries
/// or keys. A weight that is NaN, infinite or negative is refused with its head and query, because no picture
/// can show it. Memory: O(H L S) numbers, plus those of one head for each thread.
///
///   attentive::AttentionRecorder recorder(*model);
///   model->forward(ids);
///   auto view = attentive::attention_view(recorder.calls().at(0),
///                                        {.tokens = {"The", " cat"}, .heads = {3}});
AttentionView attention_view(const RecordedAttention& call, const ViewOptions& options = {});

/// The headings of several calls: their paths, "(root)" for the root. The sequences of `attention_varlen`,
/// and calls that share a path (a module that runs several times), are distinguished: "att, sequence 1",
/// "att, call 12".
std::vector<std::string> attention_headings(const std::vector<RecordedAttention>& calls);

/// Makes views of all calls, in their order and with their headings, each with the same options. With
/// `image`, each view holds the attention rollout of the first token up to its layer (`attention_rollout`).
///
/// Throws the errors of `attention_view` and `attention_rollout`, and c10::ValueError if there is no call.
std::vector<AttentionView> attention_views(const std::vector<RecordedAttention>& calls,
                                           const ViewOptions& options = {});
std::vector<AttentionView> attention_views(const AttentionRecorder& recorder,
                                           const ViewOptions& options = {});

}  // namespace attentive
