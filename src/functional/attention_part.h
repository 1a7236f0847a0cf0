#pragma once

// Computes a call of attention() in parts, each with some of its queries, keys or heads.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <attentive/functional/attention.h>

#include "kernels/problem.h"

namespace attentive {

/// The indices of the first query, key and head of a part within the whole call.
struct PartPlace {
  int64_t query = 0, key = 0, head = 0;
};

/// A checked call over a whole sequence whose q, k and v are distributed over several processes.
class WholeAttention {
 public:
  /// q, k and v hold one of `parts` parts of equal length of the sequence. Options and extras are those of
  /// the whole call. Throws what attention() throws, with `caller` as the prefix, and c10::ValueError unless
  /// q, k and v have rank 4 and hold the same tokens, for Normalise::None, and for a score that captured a
  /// tensor with a gradient.
  WholeAttention(const char* caller, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const AttentionOptions& options, const AttentionExtras& extras, int64_t parts);

  /// The dtype of the call; under autocast, autocast's.
  at::ScalarType dtype() const { return whole_.q.scalar_type(); }
  const at::Tensor& sinks() const { return whole_.sinks; }
  bool has_dropout() const { return whole_.has_dropout(); }
  bool has_aten_dropout() const { return has_dropout() && whole_.dropout_stream == DropoutStream::Aten; }
  bool bias_needs_gradient() const { return kernels::requires_gradient(whole_.bias); }
  bool slopes_need_gradient() const { return kernels::requires_gradient(whole_.alibi_slopes); }
  /// A text of everything that must be equal in all processes, one line each: sizes, options, and masks,
  /// slopes, sinks and captured tensors with a digest of their values (on a GPU, only for tensors of at most
  /// 1 MiB), score and mask functions by name.
  std::string text() const;

  /// Draws a key of Counter dropout from the call's generator, and sets the key that all parts use.
  uint64_t draw_dropout_key() const;
  void set_dropout_key(uint64_t key);

  /// Output and logsumexp of the queries of a part over its keys, with their parts of the masks, slopes and,
  /// unless they are left out, sinks. Causality, windows, distances, Counter dropout and the places of score
  /// and mask functions are those of the whole call.
  AttentionResult part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PartPlace& place,
                       bool with_sinks = true) const;
  /// Like `part`, for k and v that have a wider dtype than q but hold values of q's dtype. Results are
  /// computed in q's dtype, and the gradients of k and v in the wider one, so that a sum of gradients over
  /// several parts is rounded once.
  AttentionResult part_with_wide_gradients(const at::Tensor& q, const at::Tensor& wide_k,
                                           const at::Tensor& wide_v, const PartPlace& place) const;
  /// Recomputes a part, without sinks, and returns the gradients of its q, k and v. `result_gradients` maps
  /// its results to the gradients of its output and logsumexp.
  using ResultGradients = std::function<std::pair<at::Tensor, at::Tensor>(const AttentionResult&)>;
  std::array<at::Tensor, 3> part_gradients(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const PartPlace& place,
                                           const ResultGradients& result_gradients) const;
  /// Whether causality or the window hides all keys of a part from all its queries.
  bool hides(const PartPlace& place, int64_t queries, int64_t keys) const;

 private:
  void check_functions() const;
  kernels::Problem problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const PartPlace& place) const;

  const char* caller_;
  Backend backend_;
  kernels::Problem whole_;  ///< q, k and v have shapes but no values
};

/// Returns the gradients that `compute` returns, in the backward pass of a call in parts. Under create_graph,
/// differentiating them again throws c10::NotImplementedError, which names `context_attention` and the
/// remedy.
std::vector<at::Tensor> first_derivative_of_parts(const std::vector<at::Tensor>& inputs,
                                                  const std::function<std::vector<at::Tensor>()>& compute);

}  // namespace attentive
