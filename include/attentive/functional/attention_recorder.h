#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/core/options.h>
#include <attentive/score/score_callbacks.h>

namespace attentive {

/// One attention call that an `AttentionRecorder` saw. It holds the tensors that determine the weights; the
/// weights are computed from them on request.
///
/// B is the batch size, H the number of heads, L that of queries, S that of keys. A call whose q did not have
/// rank 4 is stored as the equivalent rank-4 call: (L, D) is one head of one batch item, (B, L, D) is one
/// head, and further leading sizes are one batch.
///
/// The weights are those before dropout (`Weights::Clean`), computed by the reference backend from the q and
/// k that the call read (under autocast, those in autocast's dtype). Results have no history and are float32,
/// or float64 for float64 inputs, on the device of q.
///
/// Linear attention has no softmax: q and k are then the outputs of its feature map (with F features instead
/// of D), and a weight is the share of a key in its query's sum, f(q_i) . f(k_j) / (sum_j f(q_i) . f(k_j) +
/// eps). Linear attention never stores these weights, but their product with v is its output.
///
/// Each of the functions takes O(B H L S) memory, or O(B L S) for one head. They throw c10::ValueError for a
/// head outside [0, H).
///
///   for (const auto& call : recorder.calls()) std::cout << call.path << call.weights(0).sizes() << '\n';
struct RecordedAttention {
  /// The module that made the call, as `named_modules()` of the recorder's root names it: "trf_blocks.3.att",
  /// or "" for the root itself. "call 3" if the recorder has no root, or if the call does not name its
  /// module.
  std::string path;
  int64_t number = 0;  ///< index among all calls that the recorder saw, from 0, kept or not
  std::optional<int64_t> sequence = std::nullopt;  ///< which of the sequences of `attention_varlen` this is
  bool linear = false;                             ///< made by `linear_attention`
  /// The options of the call. For linear attention only `causal` has a meaning.
  AttentionOptions options = {};
  double eps = 0.0;  ///< linear attention: added to every denominator
  /// The backend that computed the call; linear attention has none.
  std::optional<Backend> backend = std::nullopt;

  at::Tensor q;  ///< (B, H, L, D), in the dtype that the call read; linear: features (B, H, L, F)
  at::Tensor k;  ///< (B, Hkv, S, D): all keys of a cache; linear: features (B, Hkv, S, F), 0 where hidden

  // The terms of the mask, combined; undefined if there is none.
  at::Tensor keep;           ///< bool, rank 4, broadcasts to (B, H, L, S); true: may attend
  at::Tensor bias;           ///< floating, rank 4, broadcasts to (B, H, L, S); -inf hides
  at::Tensor key_keep;       ///< bool (B, S); true: a real key
  at::Tensor key_lengths;    ///< int64 (B); keys from this one on are hidden
  at::Tensor query_lengths;  ///< int64 (B); queries from this one on see nothing

  at::Tensor alibi_slopes;  ///< (B, H) or (1, H); undefined without ALiBi
  at::Tensor sinks;         ///< (H); zeros for softmax_plus_one; undefined without sinks

  ScoreMod score;    ///< the score function of the call; empty without one
  MaskMod mask_mod;  ///< the mask function of the call; empty without one
  Normalise normalise = Normalise::Softmax;
  int64_t first_head = 0;  ///< the head of the call that is the first one here, for these functions
  /// Copies of the tensors that these functions captured, which are read in their place.
  std::vector<std::pair<const detail::CapturedTensor*, at::Tensor>> captured;

  int64_t heads() const;
  /// The factor of q . k: options.scale, or 1 / sqrt(D). 1 for linear attention.
  double scale() const;

  /// (B, H, L, S), before dropout. A hidden key has weight 0, and so has a visible key whose weight is too
  /// small for the dtype; `visible` distinguishes the two. Rows sum to 1, except with sinks and for queries
  /// without keys.
  at::Tensor weights() const;
  /// (B, L, S), of one query head; with grouped queries it uses the key head of that head's group.
  at::Tensor weights(int64_t head) const;

  /// (B, H, L, S): the input of the softmax, after every term of the call; -inf
  /// where a key is hidden. Linear attention: the products of features, 0 where a key is hidden.
  at::Tensor scores() const;
  at::Tensor scores(int64_t head) const;  ///< (B, L, S)

  /// Bool (B, H, L, S), true: the query may see the key. Broadcast dimensions take no memory, and the result
  /// may share the memory of `keep`.
  at::Tensor visible() const;
  at::Tensor visible(int64_t head) const;  ///< (B, L, S)

  /// (B, H, L), as `attention` returns it. Throws c10::ValueError for linear attention and Normalise::None.
  at::Tensor logsumexp() const;
  at::Tensor logsumexp(int64_t head) const;  ///< (B, L)
};

}  // namespace attentive

namespace torch::nn {
class Module;
}

namespace attentive {

/// Options of `AttentionRecorder`.
struct AttentionRecorderOptions {
  /// Selects the calls that are kept: a shell pattern for `RecordedAttention::path`, in which `*` stands for
  /// any characters, dots among them, `?` for one and `[0-3]` for one of several. A pattern that names a
  /// module chooses all modules inside it: "trf_blocks.0" is "trf_blocks.0" and "trf_blocks.0.*".
  std::string layers = "*";
  /// The largest number of calls that are kept; further ones are only counted.
  int64_t most_calls = std::numeric_limits<int64_t>::max();
};

namespace recording {
class Recording;
}

/// Records the attention calls of this thread while it lives, so that the weights of every layer and head can
/// be seen without touching a model: calls of `attention`, `attention_varlen` (one entry per sequence) and
/// `linear_attention`, made by this package's modules or by any other code.
///
/// A recorded call takes the same backend and gives the same bits, forward and backward, as one that is not
/// recorded: its q, k, mask, slopes, sinks and the tensors that its functions captured are copied after it
/// has run, and the weights are computed from the copies when `RecordedAttention::weights` is called. A later
/// change of the model's tensors or of a cache is therefore not seen. It works under autograd (copies have no
/// history), autocast and c10::InferenceMode (copies are normal tensors), and with any backend. The backward
/// pass is not recorded.
///
/// With a root, the calls of its modules are recorded, under their paths at the time of construction; calls
/// of other modules, and of modules that are clones or were registered later, are not. A module that is
/// registered twice has the first of its names. A call that does not name its module in
/// `AttentionExtras::caller` (a module of your own should) is recorded as "call 3". Without a root, every
/// call is recorded under such a name.
///
/// Recorders may be nested; each records the calls that its own options select, and the copies are shared. A
/// recorder belongs to the thread that made it and does not see other threads' calls, such as those of
/// replicas that run on separate threads. It may be destroyed on any thread and in any order, before the
/// model or after it; a root that no shared_ptr owns must live as long as calls are recorded. Its other
/// functions must not be called while its thread is in a forward pass. A call that throws is not recorded;
/// earlier ones stay.
///
/// Throws c10::ValueError for a `layers` that chooses no module of the root, and for most_calls < 0. If there
/// is no memory for a copy, the recorded call throws c10::OutOfMemoryError.
/// Memory: per call, q and k: (B H L D + B Hkv S D) numbers of their dtype, and the mask and captured
/// tensors as they were given.
/// With a cache of S tokens, every step of decoding keeps S keys per layer: use `most_calls` or `clear`.
///
///   attentive::AttentionRecorder recorder(*model, {.layers = "trf_blocks.0"});
///   model->forward(ids);
///   auto weights = recorder.calls().at(0).weights(/*head=*/3);  // (B, T, T)
class AttentionRecorder {
 public:
  /// Records every call of this thread.
  AttentionRecorder();
  explicit AttentionRecorder(AttentionRecorderOptions options);
  /// Records the calls of `root` and of the modules inside it.
  explicit AttentionRecorder(const torch::nn::Module& root, AttentionRecorderOptions options = {});
  ~AttentionRecorder();
  AttentionRecorder(const AttentionRecorder&) = delete;
  AttentionRecorder& operator=(const AttentionRecorder&) = delete;

  /// The calls that were kept, in their order. The reference is valid until the next recorded call or
  /// `clear`; a copy of an entry shares its tensors.
  const std::vector<RecordedAttention>& calls() const;
  /// The number of calls that were seen, kept or not.
  int64_t seen() const;
  /// Forgets all calls and counts from 0 again.
  void clear();

 private:
  std::shared_ptr<recording::Recording> recording_;
};

}  // namespace attentive
