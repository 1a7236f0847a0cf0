#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <attentive/functional/recorded_attention.h>

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
