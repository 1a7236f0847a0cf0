#pragma once

// A call of attention() in parts: some of its queries, keys or heads.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <attentive/functional/attention.h>

#include "kernels/problem.h"

namespace attentive {

// Where the first query, key and head of a part are in the whole.
struct PartPlace {
  int64_t query = 0, key = 0, head = 0;
};

// A call over a whole sequence, checked, whose q, k and v are not in one place.
class WholeAttention {
 public:
  // q, k and v are one of `parts` parts of the sequence, of equal length. Options and extras are those of the whole.
  // Throws what attention() throws, prefixed with `who`, and c10::ValueError unless q, k and v have rank 4 and hold the
  // same tokens.
  WholeAttention(const char* who, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const AttentionOptions& options, const AttentionExtras& extras, int64_t parts);

  // The dtype of the call, autocast's where that is on.
  at::ScalarType dtype() const { return whole_.q.scalar_type(); }
  const at::Tensor& sinks() const { return whole_.sinks; }
  bool has_dropout() const { return whole_.has_dropout(); }
  bool has_aten_dropout() const { return has_dropout() && whole_.dropout_stream == DropoutStream::Aten; }
  bool bias_needs_gradient() const { return kernels::requires_gradient(whole_.bias); }
  // What has to be the same wherever a part of it is computed, a line each: sizes, options, and the masks, slopes and sinks with
  // a digest of their values (on a GPU, of tensors of at most 1 MiB).
  std::string text() const;

  // A key of Counter dropout from the call's generator, and the key that all parts use.
  uint64_t draw_dropout_key() const;
  void set_dropout_key(uint64_t key);

  // Output and logsumexp of the queries of a part over its keys, with what belongs to them of the masks and slopes, and of
  // the sinks unless they are left out. Causality, windows, distances and Counter dropout are those of the whole.
  AttentionResult part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PartPlace& place,
                       bool with_sinks = true) const;
  // The same for k and v of a wider dtype that hold values of q's: computed in q's dtype, but their gradients in their own,
  // so that sums of gradients of several parts are rounded once.
  AttentionResult part_with_wide_gradients(const at::Tensor& q, const at::Tensor& wide_k,
                                           const at::Tensor& wide_v, const PartPlace& place) const;
  // Computes a part, without sinks, once more, and returns the gradients of its q, k and v. `of_results` says what those of its output
  // and logsumexp are.
  using ResultGradients = std::function<std::pair<at::Tensor, at::Tensor>(const AttentionResult&)>;
  std::array<at::Tensor, 3> part_gradients(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const PartPlace& place, const ResultGradients& of_results) const;
  // Whether causality or the window hides every key of a part from every query of it.
  bool hides(const PartPlace& place, int64_t queries, int64_t keys) const;

 private:
  kernels::Problem problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const PartPlace& place) const;

  const char* who_;
  Backend backend_;
  kernels::Problem whole_;  // q, k and v have shapes but no values
};

// The gradients that `compute` returns, in a backward pass of a call in parts. Under create_graph, whoever differentiates
// them again gets c10::NotImplementedError, which names `context_attention` and the remedy.
std::vector<at::Tensor> first_derivative_of_parts(const std::vector<at::Tensor>& inputs,
                                                  const std::function<std::vector<at::Tensor>()>& compute);

}  // namespace attentive
