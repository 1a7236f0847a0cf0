#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "support/runner.h"

namespace bench {

void forward_suite(Runner& runner);
void forward_backward_suite(Runner& runner);
void dropout_suite(Runner& runner);
void window_suite(Runner& runner);
void variants_suite(Runner& runner);
void learned_suite(Runner& runner);
void half_suite(Runner& runner);
void score_suite(Runner& runner);
void gallery_suite(Runner& runner);
void decode_suite(Runner& runner);
#ifdef ATTENTIVE_BENCH_ACCELERATE
void accelerate_suite(Runner& runner);
#endif
void module_suite(Runner& runner);
void tiny_suite(Runner& runner);
void load_suite(Runner& runner);
void growth_suite(Runner& runner);
void threads_suite(Runner& runner);

// The GPU suites, in gpu_bench.cpp.
void gpu_grid_suite(Runner& runner);
void gpu_options_suite(Runner& runner);
void gpu_decode_suite(Runner& runner);

/// The device on which a suite runs by default; on another one, it runs only if it is named.
enum class Meant { Cpu, Gpu, Both };

struct Suite {
  std::string_view name;
  void (*run)(Runner&);
  Meant meant = Meant::Cpu;
};

inline constexpr Suite kSuites[] = {
    {"forward", forward_suite},
    {"forward-backward", forward_backward_suite},
    {"dropout", dropout_suite},
    {"window", window_suite},
    {"variants", variants_suite},
    {"learned", learned_suite},
    {"half", half_suite},
    {"scores", score_suite},
    {"gallery", gallery_suite},
    {"decode", decode_suite},
#ifdef ATTENTIVE_BENCH_ACCELERATE
    {"accelerate", accelerate_suite},
#endif
    {"gpu-grid", gpu_grid_suite, Meant::Gpu},
    {"gpu-options", gpu_options_suite, Meant::Gpu},
    {"gpu-decode", gpu_decode_suite, Meant::Gpu},
    {"module", module_suite, Meant::Both},
    {"tiny", tiny_suite},
    {"load", load_suite},
    {"growth", growth_suite},
    {"threads", threads_suite},
};

// Inputs, sizes and ways that suites share.

struct Shape {
  int64_t B, H, T, D;
};

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

/// The window, softcap and dropout of cases that have one.
inline constexpr int64_t kWindow = 256;
inline constexpr double kSoftcap = 30.0, kDropout = 0.1;

Limit limit_of(at::ScalarType type);
/// The largest difference between the results of two contenders that a case allows.
double allowed_error(at::ScalarType type);
std::string token_count(int64_t tokens);  ///< 1024 -> "1k"

struct Qkv {
  at::Tensor q, k, v;
};

/// Normally distributed inputs from a fixed seed, with the layout (B, H, T, D).
Qkv make_qkv(const Shape& shape, at::ScalarType type, bool gradients = false, at::Device device = at::kCPU);

/// Exact flops of one forward pass (two products); causal: of the visible triangle.
double attention_flops(const Shape& shape, bool causal);
/// Exact flops of one forward pass with a causal window of `width` keys.
double window_flops(const Shape& shape, int64_t width);
/// Factor for forward and backward together: the forward pass has two products, the backward pass five.
inline constexpr double kWithBackward = 3.5;

/// Runs `forward`, then the backward pass for a fixed output gradient; returns the output and the gradients.
std::function<Tensors()> with_backward(const Qkv& inputs, const at::Tensor& grad_output,
                                       std::function<at::Tensor()> forward);

/// (tokens, tokens), true where a causal query may not see a key; with `width`, also beyond a window of that
/// many keys.
at::Tensor hidden_by(int64_t tokens, std::optional<int64_t> width, at::Device device);
/// The ALiBi bias, -slope * distance, (1, H, T, T) in float32.
at::Tensor alibi_bias(const at::Tensor& slopes, int64_t tokens);

/// Options of attention composed from single tensor operations.
struct Composition {
  at::Tensor hidden = {};  ///< true: hidden; broadcasts to (B, H, L, S)
  at::Tensor bias = {};    ///< added to the scores; broadcasts likewise
  at::Tensor sinks = {};   ///< (H)
  double softcap = 0.0;    ///< 0: none
  double dropout_p = 0.0;
};

/// Computes attention by single tensor operations, as in the chapter-3 notebook.
at::Tensor composed(const Qkv& inputs, const Composition& composition);
at::Tensor composed(const Qkv& inputs, bool causal, double dropout_p);

/// Checks causal attention with dropout, forward and backward, against the composed definition with the same
/// `Counter` stream, because other implementations draw other numbers. Two heads suffice.
Check same_drops(const Qkv& inputs, const at::Tensor& grad_output, double dropout_p);

/// Calls PyTorch's function, causal or not, without other options.
at::Tensor sdpa(const Qkv& inputs, bool causal, double dropout_p = 0.0);

}  // namespace bench
