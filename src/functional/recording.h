#pragma once

// The attention functions show their calls to the recorders of their thread by these functions.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/linear_attention.h>

#include "kernels/problem.h"

namespace attentive::recording {

/// State shared by a recorder and its thread. The recorder may be destroyed on another thread, hence the
/// mutex.
class Recording {
 public:
  Recording(const torch::nn::Module* root, AttentionRecorderOptions options);

  /// Keeps the result of `copy` if the call belongs to a module of the root and is selected by the options.
  void take(const torch::nn::Module* caller, const std::function<const RecordedAttention&()>& copy);
  void close();
  bool open();
  void clear();

  const std::vector<RecordedAttention>& calls() const { return calls_; }
  int64_t seen() const { return seen_; }

 private:
  struct Name {
    std::string path;
    /// Detects a destroyed module, whose address another module may have now. Not set for a root that no
    /// shared_ptr owns.
    std::optional<std::weak_ptr<const torch::nn::Module>> module;
  };
  void name_modules(const torch::nn::Module& root);
  /// The path under which a call is recorded; none for a module of another model.
  std::optional<std::string> path_of(const torch::nn::Module* caller) const;
  bool chosen(const std::string& path) const;

  const AttentionRecorderOptions options_;
  const bool rooted_;
  std::unordered_map<const torch::nn::Module*, Name> names_;
  std::mutex mutex_;
  bool open_ = true;
  int64_t seen_ = 0;
  std::vector<RecordedAttention> calls_;
};

/// Show the calls of this thread to `recording`, until `forget` or until it is closed.
void listen(std::shared_ptr<Recording> recording);
void forget(const std::shared_ptr<Recording>& recording);

/// The recorders of a thread, or null if it has none; a call that is not recorded only tests this pointer.
struct Listeners;
extern constinit thread_local Listeners* listeners;

inline bool wanted() {
  return listeners != nullptr;
}

/// Shows a finished call to this thread's recorders. `caller` may be null.
void attention(const torch::nn::Module* caller, const kernels::Problem& problem,
               const AttentionOptions& options, std::optional<int64_t> sequence = std::nullopt);
/// Shows a finished call of linear attention. `query_features` has all queries; `key_features` has the keys
/// up to the last one that a query may see.
void linear_attention(const torch::nn::Module* caller, const kernels::Problem& problem,
                      const LinearAttentionCall& call, const at::Tensor& query_features,
                      const at::Tensor& key_features);

}  // namespace attentive::recording
