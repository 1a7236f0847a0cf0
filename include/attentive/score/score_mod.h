#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>
#include <attentive/score/vectors/every_set.h>

namespace attentive {

namespace detail {
/// An integer, an index of `pair`, or `pair`; of vectors, an index knows its row.
template <class I>
concept LookupArgument = std::integral<I> || std::same_as<I, TensorIndex> || std::same_as<I, TileIndex> ||
    requires(const I& i) {
  i.row;
} || requires(const I& i) {
  i.batch;
};
/// Whether these types may be the arguments of a lookup: up to four indices, or `pair` and up to four
/// integers.
template <class... I>
inline constexpr bool kLookup = (LookupArgument<I> && ...) && (0 + ... + !std::is_arithmetic_v<I>) > 0 &&
                                sizeof...(I) <= kMostIndices + ((0 + ... + !std::is_arithmetic_v<I>) == 1);

/// Whether a lookup with these arguments belongs to the reading over tensors, or over a tile.
template <class... I>
inline constexpr bool kOfTensors = ((std::same_as<I, TensorIndex> || std::same_as<I, TensorPairs>) || ...);
template <class... I>
inline constexpr bool kOfTile = ((std::same_as<I, TileIndex> || std::same_as<I, TilePairs>) || ...);
}  // namespace detail

/// A tensor inside a score or mask function, read by one to four indices. `captured` makes it.
class Captured {
 public:
  explicit Captured(std::shared_ptr<const detail::CapturedTensor> tensor) : tensor_(std::move(tensor)) {}

  /// One number per pair. The arguments are indices of `pair` and integers; `pair` itself may stand before
  /// integers that no index accompanies: `table(pair, 0)`, and alone, `scale(pair)`, it reads a tensor
  /// without dimensions.
  template <class... I>
  auto operator()(const I&... indices) const {
    static_assert(
        detail::kLookup<I...>,
        "a lookup in a captured tensor takes one to four indices of `pair` and integers, of which one "
        "is of `pair`, or `pair` itself before integers: table(pair.head, 0), table(pair, 3), scale(pair)");
    if constexpr (!detail::kLookup<I...>) {
      return 0;  // so that there is one error
    } else if constexpr (detail::kOfTensors<I...>) {
      return look_up_numbers(tensor_, detail::TensorArguments(indices...));
    } else if constexpr (detail::kOfTile<I...>) {
      return look_up_numbers(tensor_.get(), detail::TileArguments(indices...));
    } else {
      return look_up_numbers(static_cast<const void*>(tensor_.get()), indices...);
    }
  }

 private:
  std::shared_ptr<const detail::CapturedTensor> tensor_;
};

/// A tensor of indices inside a score or mask function. `captured_indices` makes it.
class CapturedIndices {
 public:
  explicit CapturedIndices(std::shared_ptr<const detail::CapturedTensor> tensor)
      : tensor_(std::move(tensor)) {}

  /// One index per pair; the arguments are those of `Captured`.
  template <class... I>
  auto operator()(const I&... indices) const {
    static_assert(
        detail::kLookup<I...>,
        "a lookup in a captured tensor takes one to four indices of `pair` and integers, of which one "
        "is of `pair`, or `pair` itself before integers: table(pair.head, 0), table(pair, 3), scale(pair)");
    if constexpr (!detail::kLookup<I...>) {
      return 0;  // so that there is one error
    } else if constexpr (detail::kOfTensors<I...>) {
      return look_up_indices(tensor_, detail::TensorArguments(indices...));
    } else if constexpr (detail::kOfTile<I...>) {
      return look_up_indices(tensor_.get(), detail::TileArguments(indices...));
    } else {
      return look_up_indices(static_cast<const void*>(tensor_.get()), indices...);
    }
  }

 private:
  std::shared_ptr<const detail::CapturedTensor> tensor_;
};

/// A floating-point or bool tensor of at most four dimensions, to be read inside a score or mask function.
/// Gradients flow to a floating-point one. An index beyond the tensor throws c10::IndexError, unless the pair
/// is hidden. Throws c10::ValueError for more dimensions and c10::TypeError for another dtype. Memory: it
/// holds the tensor, whose numbers are read at each call; one that is not float32 is converted at each call.
///
///   const auto slope = captured(slopes);  // (H)
///   auto score = score_mod([=](auto s, auto pair) {
///     return s - slope(pair.head) * abs(pair.query - pair.key);
///   });
Captured captured(const at::Tensor& tensor);

/// An integer tensor of at most four dimensions whose numbers are indices, such as the document of each
/// token: they can be compared, calculated with, and used for lookups. Numbers beyond int32 throw
/// c10::ValueError when they are read.
///
///   const auto document = captured_indices(documents);  // (S), int64
///   auto mask = mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); });
CapturedIndices captured_indices(const at::Tensor& tensor);

namespace detail {
namespace {

template <class F>
class ScoreFunction final : public PairFunction {
 public:
  ScoreFunction(F function, std::string name)
      : PairFunction(std::move(name), false), function_(std::move(function)) {}

  TensorScore score(const TensorScore& s, const TensorPairs& pair) const override {
    return function_(s, pair);
  }
  TensorMask mask(const TensorPairs&) const override { return {}; }
  const void* function() const override { return &function_; }
  const PairFunctionCode& code(VectorSet set) const override {
    static constexpr auto kCode = every_code<F, false>();
    return kCode[static_cast<size_t>(set)];
  }

 private:
  const F function_;
};

template <class F>
class MaskFunction final : public PairFunction {
 public:
  MaskFunction(F function, std::string name)
      : PairFunction(std::move(name), true), function_(std::move(function)) {}

  TensorScore score(const TensorScore& s, const TensorPairs&) const override { return s; }
  TensorMask mask(const TensorPairs& pair) const override { return mask_of(function_(pair)); }
  TileMask mask_of_tile(const TilePairs& pair) const override { return tile_mask_of(function_(pair)); }
  const void* function() const override { return &function_; }
  const PairFunctionCode& code(VectorSet set) const override {
    static constexpr auto kCode = every_code<F, true>();
    return kCode[static_cast<size_t>(set)];
  }

 private:
  const F function_;
};

}  // namespace
}  // namespace detail

/// A custom score function: a generic lambda from a score and its place to a new score.
///
///   auto score = score_mod([](auto s, auto pair) { return s - 0.1f * abs(pair.query - pair.key); });
///   auto y = attention(q, k, v, {.causal = Causal::BottomRight}, {.score = score}).output;
///
/// `s` is the score after scale and softcap, before biases, ALiBi and masks, which follow. `pair` has
/// the indices `pair.batch`, `pair.head`, `pair.query` and `pair.key`, and the lengths `pair.queries` and
/// `pair.keys`. A query counts as windows and ALiBi do, so that the last query has the place of the last key;
/// in packed sequences, and in batch items aligned by lengths, places count inside the sequence. The lambda
/// may use
///
///   + - * /                          of numbers and indices; indices also have %; both round down
///   < <= > >= == !=                  which give conditions, with & | ^ !, and where(condition, yes, no)
///   exp log tanh sqrt rsqrt abs min max sigmoid softplus sin cos floor pow
///   lookups in captured tensors      (`captured`, `captured_indices`)
///
/// and its own numbers. It is compiled for tensors and, for each instruction set of the platform, for vectors
/// of the native kernel, alone and with the derivative by `s`, which nobody has to write. Derivatives at
/// corners are those of PyTorch. What `where` does not take has a gradient of exactly 0, to any order, also
/// if a derivative in it is NaN or Inf. The lambda must be const and pure: several threads call it, again in
/// the backward pass, for pairs in range whether hidden or not; a result for a hidden pair is not read.
/// `name` stands in `explain` and in printed modules. What the lambda throws reaches the caller.
///
/// Indices that all pairs share have 64 bits, others 32: results beyond them mean nothing. An index is
/// divided by a number that all pairs share.
///
/// In a source that is compiled with -O0 or with coverage, scores are right but slow.
template <class F>
ScoreMod score_mod(F function, std::string name = "score_mod") {
  constexpr bool kTakes =
      std::is_invocable_v<const F&, const detail::TensorScore&, const detail::TensorPairs&>;
  static_assert(
      kTakes,
      "a score function takes (auto s, auto pair), and is const: [=](auto s, auto pair) { return s; }");
  if constexpr (kTakes) {
    constexpr bool kReturns = std::is_invocable_r_v<detail::TensorScore, const F&, const detail::TensorScore&,
                                                    const detail::TensorPairs&>;
    static_assert(
        kReturns,
        "a score function returns a number per pair, the new score: where(condition, yes, no) makes "
        "one of a condition");
    if constexpr (kReturns)
      return ScoreMod(std::make_shared<detail::ScoreFunction<F>>(std::move(function), std::move(name)));
  }
  return {};  // where there is an error above
}

/// A custom mask function: a generic lambda from a place to a condition, true where the query may attend to
/// the key.
///
///   auto mask = mask_mod([](auto pair) { return (pair.query >= pair.key) | (pair.key < 16); });
///   auto y = attention(q, k, v, {}, {.block_mask = mask}).output;
///
/// It takes part as `Mask::keep` does, without a tensor of pairs. The lambda has the operations and the rules
/// of `score_mod`. It is also evaluated for whole tiles, with ranges of indices: a tile whose pairs are all
/// shown, or all hidden, is recognised without them where the ranges tell.
template <class F>
MaskMod mask_mod(F function, std::string name = "mask_mod") {
  constexpr bool kTakes = std::is_invocable_v<const F&, const detail::TensorPairs&>;
  static_assert(
      kTakes,
      "a mask function takes (auto pair), and is const: [=](auto pair) { return pair.query >= pair.key; }");
  if constexpr (kTakes) {
    using Result = std::remove_cvref_t<std::invoke_result_t<const F&, const detail::TensorPairs&>>;
    constexpr bool kReturns = std::is_same_v<Result, detail::TensorMask> || std::is_same_v<Result, bool>;
    static_assert(
        kReturns,
        "a mask function returns a condition per pair, such as pair.query >= pair.key, true where the "
        "query may attend to the key");
    if constexpr (kReturns)
      return MaskMod(std::make_shared<detail::MaskFunction<F>>(std::move(function), std::move(name)));
  }
  return {};  // where there is an error above
}

}  // namespace attentive
