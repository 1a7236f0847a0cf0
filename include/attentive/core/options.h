#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Selects the keys that a query may see by its position. With L queries and S keys, counted from 0:
///   BottomRight  query i sees keys 0 .. i + S - L   (the last query sees every key, as a cache needs)
///   TopLeft      query i sees keys 0 .. i           (what PyTorch's `is_causal` means when L != S)
enum class Causal { None, BottomRight, TopLeft };

/// The type of every option named `causal`: a `Causal`, with implicit conversions both ways. A bool does not
/// compile, because `true` could mean either alignment; the compiler's message names both.
///
///   Causal causal = options.causal;
class CausalOption {
 public:
  constexpr CausalOption(Causal value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  template <std::integral Flag>
  constexpr CausalOption(Flag) : value_(Causal::None) {  // NOLINT(google-explicit-constructor)
    static_assert(
        !std::integral<Flag>,
        "causal is not a flag: write .causal = attentive::Causal::BottomRight (the last query sees every "
        "key) or .causal = attentive::Causal::TopLeft (PyTorch's is_causal); for as many queries as keys "
        "both are the same");
  }
  constexpr operator Causal() const { return value_; }  // NOLINT(google-explicit-constructor)

 private:
  Causal value_;
};

/// A sliding window: query i, which stands at key p (see `Align`), sees keys p - left .. p + right, both ends
/// included; -1 means unbounded. A causal window of 256 tokens is `Window{255, 0}`.
struct Window {
  int64_t left = -1;
  int64_t right = -1;

  bool bounded() const { return left >= 0 || right >= 0; }
};

/// Selects where query i stands among the keys. Windows, ALiBi's distances, score and mask functions and
/// Counter dropout count from that key, also without a causal mask:
///   BottomRight  at key i + S - L: the last query stands at the last key, as a cache needs
///   TopLeft      at key i
///   Lengths      at key i + key_length[b] - query_length[b] of batch item b: its last real query stands at
///                its last real key. It needs `Mask::key_lengths`; without `Mask::query_lengths`, all L
///                queries are real. A query that would stand before the first key sees nothing. Each item
///                equals a call of its own on q[b, :, :query_length] and k, v[b, :, :key_length]
/// `causal` says itself where its diagonal lies: Causal::TopLeft is j <= i with every alignment, and
/// Causal::BottomRight is j <= i + S - L, but with Lengths j <= i + key_length[b] - query_length[b].
///
///   auto y = attention(q, cached_k, cached_v, {.causal = Causal::BottomRight, .align = Align::Lengths},
///                      Mask::key_lengths(lengths));
enum class Align { BottomRight, TopLeft, Lengths };

/// Selects the random stream that decides which weights dropout removes. The stream is part of a call's
/// meaning.
///   Any      the backend's own stream: the same seed, backend and device give the same result; the fastest
///   Aten     exactly the bits of softmax followed by `nn::Dropout` on the generator, as the notebooks' seeds
///            require
///   Counter  Philox keyed by one 64-bit draw from the (CPU) generator: the bit of a weight is a pure
///            function of that key, b, h, the query's position (`Align`) and the key's position j. It is
///            equal for every backend, tile size, thread count and device, and for a call with only the last
///            queries of a sequence
enum class DropoutStream { Any, Aten, Counter };

/// Selects the implementation that computes the result. A backend may be faster than `Reference`, but it
/// computes the same thing.
///   Auto       the fastest backend that can express the call exactly
///   Reference  the definition, composed of ATen operations
///   Torch      PyTorch's fused kernels
///   Native     this package's own kernels
enum class Backend { Auto, Reference, Torch, Native };

/// Selects the attention weights that a call returns: `Clean` are the rows of the softmax, `Dropped` the same
/// rows after dropout.
enum class Weights { None, Clean, Dropped };

/// Selects how scores become weights: by a softmax over the keys of each query, or not at all, so that a
/// score function returns the weights themselves.
enum class Normalise { Softmax, None };

/// The options of an attention call: everything that is not a tensor, so that a module can store it.
///
///   auto options = AttentionOptions{.causal = Causal::BottomRight, .window = {255, 0}};
struct AttentionOptions {
  /// Factor of the scores; if not set, 1 / sqrt(head_dim). It must be finite and not 0.
  std::optional<double> scale = std::nullopt;
  CausalOption causal = Causal::None;
  Window window = {};
  Align align = Align::BottomRight;  ///< where a query stands, for all but the causal diagonal
  /// Scores become softcap * tanh(scores / softcap); if not set, there is no cap. It must be positive and
  /// finite.
  std::optional<double> softcap = std::nullopt;
  /// Adds 1 to every softmax denominator (a sink with logit 0).
  bool softmax_plus_one = false;
  /// Probability of dropping a weight, in [0, 1]. It is applied whenever it is positive, so a module passes 0
  /// outside training. The Counter stream rounds the probability to the nearest multiple of 2^-16 and keeps
  /// the mean exact.
  double dropout_p = 0.0;
  DropoutStream dropout_stream = DropoutStream::Any;
  Backend backend = Backend::Auto;
};

std::string_view to_string(Causal value);
std::string_view to_string(Align value);
std::string_view to_string(DropoutStream value);
std::string_view to_string(Backend value);
std::string_view to_string(Weights value);
std::string_view to_string(Normalise value);

/// The results of `attention`; a member that was not requested is undefined.
struct AttentionResult {
  at::Tensor output;     ///< (..., L, Dv), dtype of q
  at::Tensor weights;    ///< (..., L, S), dtype of q
  at::Tensor logsumexp;  ///< (..., L), natural logarithm, sinks included; -inf for a query without keys,
                         ///< +inf with a sink of +inf; float32, or float64 for float64 inputs
};

/// Sets this thread's preferred backend for the guard's lifetime; guards nest. A call whose options name a
/// backend ignores it. Unlike a backend named by the options, a preferred one that cannot express a call
/// falls back as `Auto` does. A backward pass uses the backend that its forward pass chose, whatever guard is
/// alive then.
///
///   BackendGuard guard(Backend::Reference);
///   model->forward(x);
class BackendGuard {
 public:
  explicit BackendGuard(Backend preferred);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

  /// The preference in force on this thread; `Backend::Auto` without a guard.
  static Backend current();

 private:
  Backend previous_;
};

/// Sets this thread's dropout stream, for the guard's lifetime and for calls whose options leave it at
/// `DropoutStream::Any`; guards nest.
///
///   DropoutStreamGuard guard(DropoutStream::Aten);  // draw what the notebook drew
///   auto y = module->forward(x);
class DropoutStreamGuard {
 public:
  explicit DropoutStreamGuard(DropoutStream stream);
  ~DropoutStreamGuard();
  DropoutStreamGuard(const DropoutStreamGuard&) = delete;
  DropoutStreamGuard& operator=(const DropoutStreamGuard&) = delete;

  /// The stream in force on this thread; `DropoutStream::Any` without a guard.
  static DropoutStream current();

 private:
  DropoutStream previous_;
};

}  // namespace attentive
