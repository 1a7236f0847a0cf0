#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/util/MathConstants.h>

#include <attentive/modules/positions.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "functional/elementwise.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 53;  // the integers that float64 represents exactly

// A rotary table for positions up to kFromZero starts at position 0; beyond them, it holds the positions of
// the call and the next kAhead.
constexpr int64_t kFromZero = int64_t{1} << 16, kAhead = int64_t{1} << 12;

// Throws unless first and length are not negative and every position is exact in float64.
void check_positions(const char* caller, int64_t first, int64_t length) {
  TORCH_CHECK_VALUE(first >= 0, caller, ": expected a first position >= 0, got ", first);
  TORCH_CHECK_VALUE(length >= 0, caller, ": expected length >= 0, got ", length);
  TORCH_CHECK_VALUE(length <= kMostPositions && first <= kMostPositions - length, caller,
                    ": expected positions of at most 2^53, got ", length, " from ", first);
}

// The angles (length, dim / 2): position times base^(-2 i / dim).
at::Tensor angle_table(const char* caller, int64_t length, int64_t dim, double base, int64_t first) {
  check_positions(caller, first, length);
  const auto features = static_cast<double>(dim);
  const double steepest = base < 1 ? std::exp(-std::log(base) * (features - 2) / features) : 1.0;
  TORCH_CHECK_VALUE(std::isfinite(steepest * static_cast<double>(first + length)) && std::isfinite(base),
                    caller, ": expected a base with finite angles, got ", base, " at position ",
                    first + length);
  return with_allocation_errors(caller, "angles of " + std::to_string(length) + " positions", [&] {
    const auto type = at::TensorOptions(at::kDouble);
    const auto pair = at::arange(dim / 2, type);
    const auto frequency = pair.mul(-2.0 / features * std::log(base)).exp();
    return at::arange(length, type).add(static_cast<double>(first)).unsqueeze(1) * frequency;
  });
}

void check_even(const char* caller, const char* name, int64_t dim) {
  TORCH_CHECK_VALUE(dim > 0 && dim % 2 == 0, caller, ": expected an even ", name, " > 0, got ", dim);
}

void check_base(const char* caller, double base) {
  TORCH_CHECK_VALUE(std::isfinite(base) && base > 0, caller, ": expected base > 0, got ", base);
}

double scaled_base(const RotaryPositionsOptions& options) {
  if (options.scaling() != RotaryScaling::Ntk) return options.base();
  const auto dim = static_cast<double>(options.head_dim());
  return options.base() * std::pow(options.factor(), dim / (dim - 2));
}

void check_llama3(const char* caller, const RotaryPositionsOptions& options) {
  const auto low = options.low_freq_factor(), high = options.high_freq_factor();
  TORCH_CHECK_VALUE(std::isfinite(high) && low > 0 && low < high, caller,
                    ": expected 0 < low_freq_factor < high_freq_factor, got ", low, " and ", high);
  TORCH_CHECK_VALUE(std::isfinite(options.original_context()) && options.original_context() > 0, caller,
                    ": expected original_context > 0, got ", options.original_context());
}

// The factors (head_dim / 2) for the angles of each pair.
at::Tensor llama3_factors(const RotaryPositionsOptions& options) {
  const auto dim = static_cast<double>(options.head_dim());
  const auto pair = at::arange(options.head_dim() / 2, at::TensorOptions(at::kDouble));
  const auto turns = pair.mul(-2.0 / dim * std::log(options.base()))
                         .exp()
                         .mul(options.original_context() / (2.0 * c10::pi<double>));
  const auto low = options.low_freq_factor(), high = options.high_freq_factor();
  const auto kept = turns.sub(low).div(high - low).clamp(0.0, 1.0);
  return kept + (1.0 - kept) / options.factor();
}

void check_yarn(const char* caller, const RotaryPositionsOptions& options) {
  TORCH_CHECK_VALUE(options.base() > 1, caller, ": expected base > 1 for Yarn scaling, got ", options.base());
  const auto fast = options.beta_fast(), slow = options.beta_slow();
  TORCH_CHECK_VALUE(std::isfinite(fast) && slow > 0 && slow < fast, caller,
                    ": expected 0 < beta_slow < beta_fast, got ", slow, " and ", fast);
  const auto check = [&](const char* name, double value, bool valid, const char* wanted) {
    TORCH_CHECK_VALUE(valid && std::isfinite(value), caller, ": expected ", name, wanted, ", got ", value);
  };
  check("original_context", options.original_context(), options.original_context() > 0, " > 0");
  check("mscale", options.mscale(), options.mscale() >= 0, " >= 0");
  check("mscale_all_dim", options.mscale_all_dim(), options.mscale_all_dim() >= 0, " >= 0");
  const auto magnitude = options.attention_factor().value_or(1.0);
  check("attention_factor", magnitude, magnitude > 0, " > 0");
}

// The factors (head_dim / 2) for the angles of each pair.
at::Tensor yarn_factors(const RotaryPositionsOptions& options) {
  const auto dim = static_cast<double>(options.head_dim());
  const auto pair_that_turns = [&](double times) {
    return dim / 2 * std::log(options.original_context() / (times * 2.0 * c10::pi<double>)) /
           std::log(options.base());
  };
  auto first = pair_that_turns(options.beta_fast()), last = pair_that_turns(options.beta_slow());
  if (options.truncate()) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1);  // as published, though there are dim / 2 pairs
  if (first == last) last += 1e-3;
  const auto pair = at::arange(options.head_dim() / 2, at::TensorOptions(at::kDouble));
  const auto slowed = pair.sub(first).div(last - first).clamp(0.0, 1.0);
  return (1.0 - slowed) + slowed / options.factor();
}

// Throws unless x is (B, T, dim) or (T, dim).
void check_tokens(const char* caller, const at::Tensor& x, int64_t dim) {
  check_floating(caller, "x", x);
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 3) && x.size(-1) == dim, caller,
                    ": expected x of shape (B, T, ", dim, ") or (T, ", dim, "), got ",
                    shape_string(x.sizes()));
}

}  // namespace

at::Tensor sinusoidal_positions(int64_t length, int64_t dim, double base, int64_t first) {
  constexpr const char* caller = "sinusoidal_positions";
  check_even(caller, "dim", dim);
  check_base(caller, base);
  const auto angles = angle_table(caller, length, dim, base, first);
  return at::stack({angles.sin(), angles.cos()}, 2).flatten(1).to(at::kFloat);
}

std::string_view to_string(RotaryPairing value) {
  return enum_name(value, {"interleaved", "halves"});
}

std::string_view to_string(RotaryScaling value) {
  return enum_name(value, {"none", "linear", "ntk", "llama3", "yarn"});
}

void SinusoidalPositionsImpl::reset() {
  check_even(kName, "dim", options.dim());
  check_base(kName, options.base());
}

at::Tensor SinusoidalPositionsImpl::forward(const at::Tensor& x, int64_t first) {
  check_tokens(kName, x, options.dim());
  check_positions(kName, first, x.size(-2));
  return x + sinusoidal_positions(x.size(-2), options.dim(), options.base(), first).to(x.options());
}

void LearnedPositionsImpl::reset() {
  check_positive(kName, "context_length", options.context_length());
  check_positive(kName, "dim", options.dim());
  weight = register_parameter("weight", normal_parameter({options.context_length(), options.dim()}));
}

at::Tensor LearnedPositionsImpl::forward(const at::Tensor& x, int64_t first) {
  check_tokens(kName, x, options.dim());
  check_device(kName, "x", x, weight);
  check_dtype(kName, "x", x, weight);
  check_positions(kName, first, x.size(-2));
  TORCH_CHECK_VALUE(first + x.size(-2) <= options.context_length(), kName,
                    ": expected positions below context_length = ", options.context_length(), ", got ", first,
                    " .. ", first + x.size(-2) - 1);
  return x + weight.narrow(0, first, x.size(-2));
}

void RotaryPositionsImpl::reset() {
  check_even(kName, "head_dim", options.head_dim());
  check_base(kName, options.base());
  TORCH_CHECK_VALUE(std::isfinite(options.factor()) && options.factor() >= 1.0, kName,
                    ": expected factor >= 1, got ", options.factor());
  TORCH_CHECK_VALUE(options.scaling() != RotaryScaling::None || options.factor() == 1.0, kName,
                    ": expected factor = 1 without scaling, got ", options.factor());
  TORCH_CHECK_VALUE(options.scaling() != RotaryScaling::Ntk || options.head_dim() > 2, kName,
                    ": expected head_dim > 2 for Ntk scaling, got ", options.head_dim());
  if (options.scaling() == RotaryScaling::Llama3) check_llama3(kName, options);
  if (options.scaling() == RotaryScaling::Yarn) check_yarn(kName, options);
  TORCH_CHECK_VALUE(std::isfinite(scaled_base(options)), kName,
                    ": expected a finite base * factor^(head_dim / (head_dim - 2)), got base = ",
                    options.base(), ", factor = ", options.factor());
}

at::Tensor RotaryPositionsImpl::angles(int64_t length, int64_t first) const {
  auto table = angle_table(kName, length, options.head_dim(), scaled_base(options), first);
  if (options.scaling() == RotaryScaling::Linear) table.div_(options.factor());
  if (options.scaling() == RotaryScaling::Llama3) table.mul_(llama3_factors(options));
  if (options.scaling() == RotaryScaling::Yarn) table.mul_(yarn_factors(options));
  return table;
}

double RotaryPositionsImpl::mscale(double weight) const {
  return options.scaling() == RotaryScaling::Yarn ? 1.0 + 0.1 * weight * std::log(options.factor()) : 1.0;
}

double RotaryPositionsImpl::magnitude() const {
  const bool both = options.mscale() != 0 && options.mscale_all_dim() != 0;
  const auto usual = both ? mscale(options.mscale()) / mscale(options.mscale_all_dim()) : mscale(1.0);
  return options.scaling() == RotaryScaling::Yarn ? options.attention_factor().value_or(usual) : 1.0;
}

void RotaryPositionsImpl::tabulate(int64_t first, int64_t length, const at::Tensor& like) {
  const auto last = first + length;
  if (cos_.defined() && first >= begin_ && last <= begin_ + cos_.size(0) && cos_.device() == like.device() &&
      cos_.scalar_type() == like.scalar_type()) {
    return;
  }
  // A growing cache needs one more position per step, so more than needed are computed at once.
  const bool from_zero = last <= kFromZero;
  const NormalTensorsGuard kept;
  const auto table =
      from_zero ? angles(2 * last) : angles(std::min(length + kAhead, kMostPositions - first), first);
  with_allocation_errors(kName, "a table of " + std::to_string(table.size(0)) + " positions", [&] {
    auto cos = table.cos().mul_(magnitude()).to(like.options().requires_grad(false));
    sin_ = table.sin().mul_(magnitude()).to(like.options().requires_grad(false));
    cos_ = std::move(cos);
  });
  begin_ = from_zero ? 0 : first;
}

at::Tensor RotaryPositionsImpl::forward(const at::Tensor& x, int64_t first) {
  check_floating(kName, "x", x);
  TORCH_CHECK_VALUE((x.dim() == 3 || x.dim() == 4) && x.size(-1) == options.head_dim(), kName,
                    ": expected x of shape (B, H, T, ", options.head_dim(), ") or (H, T, ",
                    options.head_dim(), "), got ", shape_string(x.sizes()));
  const auto length = x.size(-2);
  check_positions(kName, first, length);
  tabulate(first, length, x);
  const auto cos = cos_.narrow(0, first - begin_, length), sin = sin_.narrow(0, first - begin_, length);
  if (options.pairing() == RotaryPairing::Halves) {
    auto fused = fused_rotated_halves(x, cos, sin);
    if (fused.defined()) return fused;
    const auto half = options.head_dim() / 2;
    const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  }
  const auto pairs = x.unflatten(-1, {options.head_dim() / 2, 2});
  const auto a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  return at::stack({a * cos - b * sin, b * cos + a * sin}, -1).flatten(-2);
}

}  // namespace attentive
