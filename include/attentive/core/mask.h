#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Selects the part of a mask that `Mask::describe` prints.
struct MaskView {
  int64_t batch = 0;  ///< the batch item
  int64_t head = 0;   ///< the query head
  int64_t most = 20;  ///< at most this many rows and columns are printed: the first and the last ones
};

/// A typed attention mask: it says what its numbers mean, so that nothing has to be guessed.
///
/// Terms combine with `&`: a pair (query, key) may attend only if every term allows it, and biases add up.
///
/// Shapes, with q of shape (..., L, D) and S keys:
///   keep, hide, bias   (L, S), or the rank of q with sizes that broadcast to q's leading dimensions and
///                      (L, S). With a 4-D q, rank 3 is refused, because (X, L, S) could be per batch or per
///                      head: use `Mask::per_batch` or `Mask::per_head`.
///   key_keep           (B, S)
///   key_lengths        (B); key j of sequence b may be seen while j < key_lengths[b]
///   query_lengths      (B); query i of sequence b sees something while i < query_lengths[b]
///
/// Several biases are added with the wider of their dtypes and q's.
/// A bias entry of -inf hides its pair as a false `keep` does: the score is never read.
///
/// Throws c10::TypeError for a dtype that does not fit the term and c10::ValueError for a wrong rank.
/// Memory: a mask holds references to the given tensors. Tensors that the backward pass reads again are
/// either copied (lengths, key_keep) or watched by autograd, which raises an error if they were changed in
/// between.
///
///   Mask mask = Mask::key_lengths(lengths) & Mask::bias(relative_position_bias);
class Mask {
 public:
  /// Every query may see every key.
  Mask() = default;

  /// A bool tensor alone means `keep`. Any other dtype is refused: a floating-point mask could mean 0/1 or
  /// "added to the scores", so use `Mask::keep` or `Mask::bias`.
  Mask(const at::Tensor& keep);  // NOLINT(google-explicit-constructor)

  /// True, or a non-zero integer: the query may attend to the key.
  static Mask keep(const at::Tensor& mask);
  /// True, or a non-zero integer: the query may not attend to the key.
  static Mask hide(const at::Tensor& mask);
  /// Floating-point numbers added to the scores. Gradients flow to them.
  static Mask bias(const at::Tensor& bias);
  /// (B, S), true or non-zero: the key is a real token.
  static Mask key_keep(const at::Tensor& mask);
  /// (B) integers: how many keys of each sequence are real tokens.
  static Mask key_lengths(const at::Tensor& lengths);
  /// (B) integers: how many queries of each sequence are real tokens. The others see no key and give 0. They
  /// are read by the host.
  static Mask query_lengths(const at::Tensor& lengths);

  /// Reads the rank-3 terms of `mask` as (B, L, S).
  static Mask per_batch(const Mask& mask);
  /// Reads the rank-3 terms of `mask` as (H, L, S).
  static Mask per_head(const Mask& mask);

  Mask& operator&=(const Mask& other);
  friend Mask operator&(Mask left, const Mask& right) { return left &= right; }

  /// True if nothing is masked and nothing is added.
  bool empty() const;

  /// The mask as a grid: a row per query, a column per key, 'x' where the query may attend to the key, '+'
  /// where it may and a bias is added, '.' where it may not. Lines below the grid say what it does not show:
  /// the rows and columns left out, queries without any key, and whether other batch items or heads differ.
  /// The sizes of the batch and the heads are those of the terms. Throws c10::ValueError for sizes below 0,
  /// for terms that do not fit them, and for a batch item or head that the mask does not have.
  /// Memory: O(most * most) for the printed cells; masks of pairs are read in blocks.
  /// `describe_mask` also draws what the options of a call hide.
  ///
  ///   std::cout << mask.describe(/*queries=*/4, /*keys=*/6);
  std::string describe(int64_t queries, int64_t keys, const MaskView& view = {}) const;

  /// The terms: bool tensors (true: may attend), floating-point tensors, bool (B, S), and integers (B) twice.
  const std::vector<at::Tensor>& keep_terms() const { return keep_; }
  const std::vector<at::Tensor>& bias_terms() const { return bias_; }
  const std::vector<at::Tensor>& key_keep_terms() const { return key_keep_; }
  const std::vector<at::Tensor>& key_length_terms() const { return key_lengths_; }
  const std::vector<at::Tensor>& query_length_terms() const { return query_lengths_; }

 private:
  std::vector<at::Tensor> keep_;
  std::vector<at::Tensor> bias_;
  std::vector<at::Tensor> key_keep_;
  std::vector<at::Tensor> key_lengths_;
  std::vector<at::Tensor> query_lengths_;
};

}  // namespace attentive
