#pragma once

// Functions of pairs (query, key) that a program supplies, in the form in which the library calls them: as
// pointers to code that the program's own source was compiled to. `score_mod` and `mask_mod` make these
// objects from a lambda.

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/score/vector_set.h>

namespace attentive {

namespace detail {

constexpr int kMostIndices = 4;  ///< of a captured tensor
constexpr int kMostLanes = 16;   ///< numbers of the widest vector

/// A captured tensor as vector code reads it.
struct CapturedView {
  const void* owner = nullptr;    ///< the `CapturedTensor`
  const void* numbers = nullptr;  ///< float, or int32_t for indices
  int rank = 0;
  std::array<int64_t, kMostIndices> sizes = {}, strides = {};
  float* gradient = nullptr;  ///< laid out by `strides`; null: not wanted
};

/// One row of a tile: pairs of one query and consecutive keys, or of one key and consecutive queries. Columns
/// [lo, hi) hold pairs that the position shows. Rows are padded to 16 numbers, of which those of other
/// columns mean nothing.
struct CallbackRow {
  int64_t batch = 0, head = 0;
  int64_t query = 0, key = 0;  ///< of column 0; one of them grows along the row
  int64_t queries = 0, keys = 0;
  float log_queries = 0.0f,
        log_keys = 0.0f;  ///< of the two numbers; sigmoid attention takes one in every row
  int64_t lo = 0, hi = 0;
  float scale = 1.0f;       ///< s = scale * score, unless `slopes_given`
  float* scores = nullptr;  ///< in: scores; out: f(s), of one query also -inf beyond the range
  /// out: the derivative of f(s) by the score before its scale, -0 if f(s) does not depend on it
  float* slopes = nullptr;
  bool slopes_given = false;  ///< whether the scores are s already, and `slopes` their derivatives
  float* inputs = nullptr;    ///< out: s; null: not wanted
  const float* logit_gradients =
      nullptr;              ///< for the gradients of captured tensors: those of f(s), -0 for a hidden pair
  uint8_t* keep = nullptr;  ///< in and out: a mask sets columns to 0 that it hides
  const CapturedView* captured = nullptr;
  int64_t captured_count = 0;

  int64_t column = 0;  ///< the first column of the vector at work
  /// Lookups are numbered in the order of evaluation. The slopes are the derivatives by lookup number `seed`,
  /// or by s if it is negative.
  int64_t lookup = 0, seed = -1;
  const CapturedView* seeded = nullptr;  ///< out: the view of that lookup; null: there is none
  int64_t seeded_base = 0;               ///< out: the offset of each of its lanes is the sum of both
  std::array<int32_t, kMostLanes> seeded_offsets = {};
  /// The first lookup beyond its tensor, of any column in [lo, hi).
  const CapturedView* bad = nullptr;
  int bad_dimension = 0;
  int64_t bad_index = 0, bad_column = 0;
  bool divided_by_zero = false;  ///< out: whether an index was

  void set_lengths(int64_t of_queries, int64_t of_keys) {
    queries = of_queries;
    keys = of_keys;
    log_queries = std::log(static_cast<float>(queries));
    log_keys = std::log(static_cast<float>(keys));
  }
  /// Takes over the faults that a copy of the row found.
  void take_faults(const CallbackRow& copy) {
    if (copy.divided_by_zero) divided_by_zero = true;
    if (!copy.bad) return;
    bad = copy.bad;
    bad_dimension = copy.bad_dimension;
    bad_index = copy.bad_index;
    bad_column = copy.bad_column;
  }
};

/// The columns [lo, hi) of a row; none if lo is not below hi.
struct CallbackRange {
  int64_t lo = 0, hi = 0;
};

/// Rows of consecutive queries, or of consecutive keys, of a tile.
struct CallbackStrip {
  CallbackRow row;  ///< the first one, but for its range
  int64_t rows = 1;
  const CallbackRange* ranges = nullptr;  ///< of each row
  /// Numbers from a row's `scores`, `slopes` and `inputs` to those of the next one.
  int64_t scores_stride = 0, slopes_stride = 0, inputs_stride = 0;
  float* largest = nullptr;  ///< out, of each query: the largest f(s), -inf if all are NaN; null: not wanted
};

using PairCode = void (*)(const void* function, CallbackRow& row);
using StripCode = void (*)(const void* function, CallbackStrip& strip);

/// The code of one instruction set, of a score or of a mask; all null if there is none.
struct PairFunctionCode {
  StripCode scores_along_keys = nullptr;     ///< rows of queries: scores
  StripCode scores_along_queries = nullptr;  ///< rows of keys: scores with their derivatives
  PairCode captured_gradients = nullptr;     ///< a row of one key: adds to the gradients of captured tensors
  PairCode mask_along_keys = nullptr;        ///< a row of one query
  PairCode mask_along_queries = nullptr;     ///< a row of one key
};

/// A tensor that a function reads by indices.
struct CapturedTensor {
  at::Tensor tensor;
  bool indices = false;  ///< whether its numbers are indices
  /// Whether the function has code of its own that reads it as it is, so that it needs no `CapturedView`.
  bool in_place = false;
};

struct TensorScore;
struct TensorMask;
struct TensorPairs;
struct TileMask;
struct TilePairs;

template <class>
inline constexpr bool kNoBool = false;
/// Refuses a condition per pair where one bool is wanted.
template <class T>
bool no_bool() {
  static_assert(
      kNoBool<T>,
      "a condition of a score differs from pair to pair: write where(condition, yes, no) in place of "
      "if and ?:, and & | ! in place of && || not");
  return false;
}

/// A function of pairs. It is const and pure, and several threads call it.
class PairFunction {
 public:
  virtual ~PairFunction() = default;
  PairFunction(const PairFunction&) = delete;
  PairFunction& operator=(const PairFunction&) = delete;

  virtual TensorScore score(const TensorScore& s, const TensorPairs& pair) const = 0;
  virtual TensorMask mask(const TensorPairs& pair) const = 0;
  /// Evaluates a mask for a whole tile; unless it is overridden, the pairs have to decide.
  virtual TileMask mask_of_tile(const TilePairs& pair) const;
  virtual const void* function() const = 0;
  virtual const PairFunctionCode& code(VectorSet set) const = 0;

  const std::string& name() const { return name_; }
  /// The captured tensors, each once, in the order in which an evaluation reads them first.
  const std::vector<std::shared_ptr<const CapturedTensor>>& captured() const;
  /// Whether results may differ between batch items, or between heads.
  bool by_batch() const;
  bool by_head() const;

 protected:
  PairFunction(std::string name, bool is_mask) : name_(std::move(name)), is_mask_(is_mask) {}

 private:
  std::string name_;
  bool is_mask_;
  void evaluate() const;

  mutable std::once_flag evaluated_;
  mutable bool by_batch_ = false, by_head_ = false;
  mutable std::vector<std::shared_ptr<const CapturedTensor>> captured_;
};

/// The tiles of a mask: rows of 128 queries by 128 keys.
struct BlockClasses {
  static constexpr int64_t kSize = 128;
  enum Class : uint8_t { Empty, Partial, Full };

  int64_t batch = 0, heads = 0, queries = 0,
          keys = 0;  ///< batch and heads are 1 if the mask does not depend on them
  at::Tensor
      classes;  ///< uint8 (batch, heads, ceil(queries / 128), ceil(keys / 128)), contiguous, on the CPU
  std::vector<int64_t> versions;  ///< of the captured tensors
};

}  // namespace detail

/// A function that turns the scores of a call into other scores; empty by default. `score_mod` makes one from
/// a lambda (score/score_mod.h). Copies share the function.
class ScoreMod {
 public:
  ScoreMod() = default;
  explicit ScoreMod(std::shared_ptr<const detail::PairFunction> function) : function_(std::move(function)) {}

  explicit operator bool() const { return function_ != nullptr; }
  /// The name that was given to `score_mod`; empty without a function.
  std::string name() const { return function_ ? function_->name() : std::string(); }
  const std::shared_ptr<const detail::PairFunction>& function() const { return function_; }

 private:
  std::shared_ptr<const detail::PairFunction> function_;
};

/// A function that says which pairs may attend; empty by default, which hides none. `mask_mod` makes one from
/// a lambda (score/score_mod.h), and functional/named_masks.h has named ones. Copies share the function.
class MaskMod {
 public:
  MaskMod() = default;
  explicit MaskMod(std::shared_ptr<const detail::PairFunction> function) : function_(std::move(function)) {}

  explicit operator bool() const { return function_ != nullptr; }
  /// The name that was given to `mask_mod`; empty without a function.
  std::string name() const { return function_ ? function_->name() : std::string(); }
  const std::shared_ptr<const detail::PairFunction>& function() const { return function_; }

 private:
  std::shared_ptr<const detail::PairFunction> function_;
};

}  // namespace attentive
