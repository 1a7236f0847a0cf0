#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>

#include <attentive/modules/module.h>

namespace attentive {

/// The sinusoidal encoding of positions first .. first + length - 1, float32 (length, dim):
///
///   table[p][2 i]     = sin(p / base^(2 i / dim))
///   table[p][2 i + 1] = cos(p / base^(2 i / dim))
///
/// Angles are computed in float64.
/// Throws c10::ValueError unless dim is even and positive, base > 0, first and length are not negative, no
/// position is beyond 2^53 and every angle is finite. Source: Vaswani et al. 2017, "Attention Is All You
/// Need", section 3.5.
///
///   auto table = attentive::sinusoidal_positions(1024, 512);
at::Tensor sinusoidal_positions(int64_t length, int64_t dim, double base = 10000.0, int64_t first = 0);

/// Options of `SinusoidalPositions`.
struct SinusoidalPositionsOptions {
  explicit SinusoidalPositionsOptions(int64_t dim) : dim_(dim) {}

  TORCH_ARG(int64_t, dim);  ///< features of a token, even
  TORCH_ARG(double, base) = 10000.0;

  ATTENTIVE_OPTIONS(dim_, base_);
};

/// Adds to every token the sinusoidal encoding of its position. It has no parameters, and so takes every
/// floating-point dtype, and no maximum length.
///
///   x (B, T, dim) or (T, dim) -> the same shape and dtype; token t has position first + t
///
///   attentive::SinusoidalPositions positions(512);
///   auto y = positions->forward(embeddings);
class SinusoidalPositionsImpl : public Module<SinusoidalPositionsImpl> {
 public:
  static constexpr const char* kName = "SinusoidalPositions";
  explicit SinusoidalPositionsImpl(int64_t dim) : SinusoidalPositionsImpl(SinusoidalPositionsOptions(dim)) {}
  explicit SinusoidalPositionsImpl(SinusoidalPositionsOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x, int64_t first = 0);

  SinusoidalPositionsOptions options;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})})
};
using SinusoidalPositions = ModuleHolder<SinusoidalPositionsImpl>;

/// Options of `LearnedPositions`.
struct LearnedPositionsOptions {
  LearnedPositionsOptions(int64_t context_length, int64_t dim) : context_length_(context_length), dim_(dim) {}

  TORCH_ARG(int64_t, context_length);  ///< number of positions
  TORCH_ARG(int64_t, dim);             ///< features of a token

  ATTENTIVE_OPTIONS(context_length_, dim_);
};

/// Adds to every token the learned vector of its position.
///
///   x (B, T, dim) or (T, dim) -> the same shape; token t has position first + t < context_length
///
/// Parameter weight (context_length, dim): name and random draw of `torch.nn.Embedding`.
/// Throws c10::ValueError for a position outside [0, context_length) and, outside autocast, c10::TypeError
/// for another dtype than that of weight.
///
///   attentive::LearnedPositions positions(1024, 768);
///   auto y = positions->forward(embeddings, cache.position());
class LearnedPositionsImpl : public Module<LearnedPositionsImpl> {
 public:
  static constexpr const char* kName = "LearnedPositions";
  LearnedPositionsImpl(int64_t context_length, int64_t dim)
      : LearnedPositionsImpl(LearnedPositionsOptions(context_length, dim)) {}
  explicit LearnedPositionsImpl(LearnedPositionsOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x, int64_t first = 0);

  LearnedPositionsOptions options;
  at::Tensor weight;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})})
};
using LearnedPositions = ModuleHolder<LearnedPositionsImpl>;

/// Selects the pairs of features of a head that are rotated together.
///   Interleaved  2 i and 2 i + 1         (the paper; GPT-J)
///   Halves       i and i + head_dim / 2  (GPT-NeoX, Llama in Hugging Face)
enum class RotaryPairing { Interleaved, Halves };
std::string_view to_string(RotaryPairing value);

/// Selects how positions beyond the trained length are mapped into it.
///   None    angle = p * base^(-2 i / head_dim)
///   Linear  p becomes p / factor (position interpolation)
///   Ntk     base becomes base * factor^(head_dim / (head_dim - 2)): the slowest rotation slows down by
///           exactly `factor`, the fastest does not change
///   Llama3  a pair that turns r times within original_context positions slows down by `factor` if r is below
///           low_freq_factor, not at all if r is above high_freq_factor, and in between by 1 / (s + (1 - s) /
///           factor), where s goes linearly from 0 to 1
///   Yarn    a pair slows down to (1 - s) + s / factor of its speed, where s goes linearly from 0 at the pair
///           that turns beta_fast times within original_context positions to 1 at the one that turns
///           beta_slow times; and the rotated features are multiplied by `magnitude()`
enum class RotaryScaling { None, Linear, Ntk, Llama3, Yarn };
std::string_view to_string(RotaryScaling value);

/// Options of `RotaryPositions`.
struct RotaryPositionsOptions {
  explicit RotaryPositionsOptions(int64_t head_dim) : head_dim_(head_dim) {}

  TORCH_ARG(int64_t, head_dim);  ///< features of a head, even
  TORCH_ARG(double, base) = 10000.0;
  TORCH_ARG(RotaryPairing, pairing) = RotaryPairing::Interleaved;
  TORCH_ARG(RotaryScaling, scaling) = RotaryScaling::None;
  TORCH_ARG(double, factor) = 1.0;             ///< factor of the scaling, at least 1
  TORCH_ARG(double, low_freq_factor) = 1.0;    ///< for Llama3
  TORCH_ARG(double, high_freq_factor) = 4.0;   ///< for Llama3, above low_freq_factor
  TORCH_ARG(double, original_context) = 8192;  ///< for Llama3 and Yarn: the trained length in positions
  TORCH_ARG(double, beta_fast) = 32.0;         ///< for Yarn, above beta_slow
  TORCH_ARG(double, beta_slow) = 1.0;          ///< for Yarn
  TORCH_ARG(bool, truncate) = true;  ///< for Yarn: whether the ends of the slope are rounded to whole pairs
  TORCH_ARG(double, mscale) = 0.0;   ///< for Yarn; 0: not set
  TORCH_ARG(double, mscale_all_dim) = 0.0;  ///< for Yarn; 0: not set
  /// For Yarn: what cosines and sines are multiplied by. If it is not set: the quotient of `mscale(weight)`
  /// for the weights mscale and mscale_all_dim, or, unless both are set, `mscale(1)`.
  TORCH_ARG(std::optional<double>, attention_factor) = std::nullopt;

  ATTENTIVE_OPTIONS(head_dim_, base_, pairing_, scaling_, factor_, low_freq_factor_, high_freq_factor_,
                    original_context_, beta_fast_, beta_slow_, truncate_, mscale_, mscale_all_dim_,
                    attention_factor_);
};

/// Rotary position embedding: rotates each pair of features of a query or key by an angle proportional to the
/// token's position, so that the product of a query and a key depends on their distance alone.
///
///   x (B, H, T, head_dim) or (H, T, head_dim) -> the same shape and dtype; token t has position first + t
///
/// It has no parameters. The angles are computed in float64 and cached: those from 0 to twice the farthest
/// position seen or, beyond 65,536, those of the call and the next 4,096, so that a sequence has no maximum
/// length. Two threads must not call one module at the same time.
/// Throws c10::ValueError for another head_dim, a position beyond 2^53 or invalid options. Memory: head_dim
/// numbers per cached position. Source: Su et al. 2021, "RoFormer"; Chen et al. 2023, "Extending Context
/// Window ... via Positional Interpolation"; Grattafiori et al. 2024, "The Llama 3 Herd of Models"; Peng et
/// al. 2023, "YaRN", as transformers computes it.
///
///   attentive::RotaryPositions rotary(64);
///   q = rotary->forward(q, cache.position());
class RotaryPositionsImpl : public Module<RotaryPositionsImpl> {
 public:
  static constexpr const char* kName = "RotaryPositions";
  explicit RotaryPositionsImpl(int64_t head_dim) : RotaryPositionsImpl(RotaryPositionsOptions(head_dim)) {}
  explicit RotaryPositionsImpl(RotaryPositionsOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x, int64_t first = 0);
  /// Angles (length, head_dim / 2) of positions first .. first + length - 1, float64.
  at::Tensor angles(int64_t length, int64_t first = 0) const;
  double magnitude() const;            ///< what cosines and sines are multiplied by: 1 but for Yarn
  double mscale(double weight) const;  ///< 1 + 0.1 weight log(factor) for Yarn, otherwise 1

  RotaryPositionsOptions options;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})})

  void tabulate(int64_t first, int64_t length, const at::Tensor& like);

  at::Tensor cos_, sin_;  // (positions, head_dim / 2); not state: rebuilt for another dtype or device
  int64_t begin_ = 0;     // the position of their first row
};
using RotaryPositions = ModuleHolder<RotaryPositionsImpl>;

}  // namespace attentive
