#pragma once

// Numbers of all pairs as tensors, by which the definition reads a function of pairs: on any device, in any
// dtype, and under autograd to any order. Each type has the operations of its namesake for vectors
// (dual_numbers.h, places.h).

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/score/score_callbacks.h>

namespace attentive::detail {

/// The part of an evaluation over tensors that its operands do not hold.
struct TensorEvaluation {
  at::TensorOptions numbers;  ///< dtype and device of scores
  /// Bool: pairs whose results are not read, where lookups may be out of range; undefined: there are none.
  at::Tensor hidden = {};
  /// Not null: the evaluation only lists the tensors that it looks up.
  std::vector<std::shared_ptr<const CapturedTensor>>* listed = nullptr;
  /// Tensors that are read in place of captured ones, in a backward pass.
  std::vector<std::pair<const CapturedTensor*, at::Tensor>> replaced = {};
};

/// A condition per pair.
struct TensorMask {
  at::Tensor pairs;

  template <class T>
  requires std::same_as<T, bool>
  operator T() const { return no_bool<T>(); }
};

/// An index per pair: int64, broadcasts to (B, H, L, S).
struct TensorIndex {
  at::Tensor pairs;
  const TensorEvaluation* evaluation = nullptr;  ///< null: a number of the function itself

  TensorIndex(at::Tensor indices, const TensorEvaluation* by) : pairs(std::move(indices)), evaluation(by) {}
  TensorIndex(std::integral auto number)
      : TensorIndex(static_cast<int64_t>(number), 0) {}  // NOLINT(*-explicit-*)

 private:
  TensorIndex(int64_t number, int);
};

struct TensorOrigin;

/// A number per pair, broadcasts to (B, H, L, S).
struct TensorScore {
  at::Tensor pairs;
  std::shared_ptr<TensorOrigin> origin;  ///< the operation; null: none that has a gradient

  explicit TensorScore(at::Tensor numbers, std::shared_ptr<TensorOrigin> from = nullptr)
      : pairs(std::move(numbers)), origin(std::move(from)) {}
  TensorScore(double number);               // NOLINT(google-explicit-constructor)
  TensorScore(const TensorIndex& indices);  // NOLINT(google-explicit-constructor)
};

/// The numbers of the result of a function, which end the evaluation: only then is known what `where` hides
/// from the result. Such numbers, and `hidden` pairs (bool; undefined: there are none), have gradients of 0
/// to any order, also where a derivative is no finite number: autograd alone gives NaN for 0 times Inf.
at::Tensor numbers_of(const TensorScore& result, const at::Tensor& hidden);

/// The places of all pairs.
struct TensorPairs {
  TensorIndex batch, head, query, key, queries, keys;
};

TensorMask operator&(const TensorMask& a, const TensorMask& b);
TensorMask operator|(const TensorMask& a, const TensorMask& b);
TensorMask operator^(const TensorMask& a, const TensorMask& b);
TensorMask operator!(const TensorMask& a);

TensorIndex operator+(const TensorIndex& a, const TensorIndex& b);
TensorIndex operator-(const TensorIndex& a, const TensorIndex& b);
TensorIndex operator*(const TensorIndex& a, const TensorIndex& b);
TensorIndex operator/(const TensorIndex& a, const TensorIndex& b);
TensorIndex operator%(const TensorIndex& a, const TensorIndex& b);
TensorIndex operator-(const TensorIndex& a);
TensorIndex operator+(const TensorIndex& a);
#define ATTENTIVE_COMPARE(OP) TensorMask operator OP(const TensorIndex& a, const TensorIndex& b);
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE
TensorIndex abs(const TensorIndex& a);
TensorIndex min(const TensorIndex& a, const TensorIndex& b);
TensorIndex max(const TensorIndex& a, const TensorIndex& b);
TensorIndex floor(const TensorIndex& a);
TensorIndex where(const TensorMask& condition, const TensorIndex& yes, const TensorIndex& no);

TensorScore operator+(const TensorScore& a, const TensorScore& b);
TensorScore operator-(const TensorScore& a, const TensorScore& b);
TensorScore operator*(const TensorScore& a, const TensorScore& b);
TensorScore operator/(const TensorScore& a, const TensorScore& b);
TensorScore operator-(const TensorScore& a);
TensorScore operator+(const TensorScore& a);
#define ATTENTIVE_COMPARE(OP) TensorMask operator OP(const TensorScore& a, const TensorScore& b);
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE
#define ATTENTIVE_TENSOR_FUNCTION(function) TensorScore function(const TensorScore& a);
ATTENTIVE_SCORE_FUNCTIONS(ATTENTIVE_TENSOR_FUNCTION)
#undef ATTENTIVE_TENSOR_FUNCTION
TensorScore abs(const TensorScore& a);
TensorScore floor(const TensorScore& a);
TensorScore pow(const TensorScore& a, const TensorScore& b);
TensorScore min(const TensorScore& a, const TensorScore& b);
TensorScore max(const TensorScore& a, const TensorScore& b);
TensorScore where(const TensorMask& condition, const TensorScore& yes, const TensorScore& no);
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> TensorScore where(const TensorMask& condition,
                                                                              A yes, B no) {
  return where(condition, TensorScore(static_cast<double>(yes)), TensorScore(static_cast<double>(no)));
}

/// The arguments of a lookup: indices and integers, or `pair` and then integers.
struct TensorArguments {
  const TensorEvaluation* evaluation = nullptr;
  std::vector<TensorIndex> indices;

  template <class... I>
  explicit TensorArguments(const I&... given) {
    (add(given), ...);
  }

 private:
  void add(const TensorPairs& pair) { evaluation = pair.batch.evaluation; }
  void add(const TensorIndex& index) {
    if (index.evaluation) evaluation = index.evaluation;
    indices.push_back(index);
  }
};

/// The numbers of a captured tensor at these indices, which broadcast together. Throws c10::IndexError for an
/// index beyond the tensor at a pair that is not hidden.
TensorScore look_up_numbers(const std::shared_ptr<const CapturedTensor>& captured,
                            const TensorArguments& arguments);
TensorIndex look_up_indices(const std::shared_ptr<const CapturedTensor>& captured,
                            const TensorArguments& arguments);

/// Throws c10::IndexError for an index beyond a captured tensor of these sizes.
[[noreturn]] void throw_captured_range(at::IntArrayRef sizes, int64_t dimension, int64_t index);

/// The condition that a function returned.
inline TensorMask mask_of(const TensorMask& result) {
  return result;
}
TensorMask mask_of(bool result);

}  // namespace attentive::detail
