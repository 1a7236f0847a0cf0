#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attentive {

/// Which keys a query may see because of its position. With L queries and S keys, counted from 0:
///   BottomRight  query i sees keys 0 .. i + S - L   (the last query sees every key; right for a cache)
///   TopLeft      query i sees keys 0 .. i           (what PyTorch's `is_causal` means when L != S)
enum class Causal { None, BottomRight, TopLeft };

/// What an option `causal` holds: a `Causal`, to and from which it converts by itself. It is no flag, for
/// `true` could mean either alignment; the compiler says which two there are.
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

/// Sliding window: query i sees keys i + S - L - left .. i + S - L + right, both ends included; -1 means no
/// bound. "A causal window of 256 tokens" is `Window{255, 0}`.
struct Window {
  int64_t left = -1;
  int64_t right = -1;

  bool bounded() const { return left >= 0 || right >= 0; }
};

/// Which random stream decides what dropout drops. It is part of a call's meaning.
///   Any      the backend's own: the same seed, backend and device give the same result; the fast choice
///   Aten     the very bits of softmax followed by `nn::Dropout` on the generator: what the notebooks' seeds
///   need Counter  Philox keyed by one 64-bit draw from the (CPU) generator; the bit for (b, h, i, j) is a
///   pure function
///            of that key and the four indices, equal for every backend, tile size, thread count and device
enum class DropoutStream { Any, Aten, Counter };

/// What computes the result. A backend may be faster than `Reference`; it never means anything else.
///   Auto       the fastest one that can express the call exactly
///   Reference  the composed definition
///   Torch      PyTorch's fused kernels
///   Native     this package's own kernels
enum class Backend { Auto, Reference, Torch, Native };

/// Which attention weights a call returns. `Clean` are the softmax rows, `Dropped` those after dropout.
enum class Weights { None, Clean, Dropped };

/// Everything about an attention call that is not a tensor, so that a module can store it.
///
///   auto options = AttentionOptions{.causal = Causal::BottomRight, .window = {255, 0}};
struct AttentionOptions {
  /// Factor of the scores; not set: 1 / sqrt(head_dim). Finite; 0 is refused.
  std::optional<double> scale = std::nullopt;
  CausalOption causal = Causal::None;
  Window window = {};
  /// Scores become softcap * tanh(scores / softcap); not set: no cap. Positive and finite.
  std::optional<double> softcap = std::nullopt;
  /// Adds 1 to every softmax denominator (a sink with logit 0).
  bool softmax_plus_one = false;
  /// Probability of dropping a weight, in [0, 1]. Applied whenever positive: a module passes 0 outside
  /// training. The Counter stream takes it to the nearest multiple of 2^-16 and keeps the mean exact.
  double dropout_p = 0.0;
  DropoutStream dropout_stream = DropoutStream::Any;
  Backend backend = Backend::Auto;
};

std::string_view to_string(Causal value);
std::string_view to_string(DropoutStream value);
std::string_view to_string(Backend value);
std::string_view to_string(Weights value);

}  // namespace attentive
