#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <attentive/train/loss_scaler.h>

#include "core/check.h"

namespace attentive {
namespace {

constexpr const char* kLossScaler = "LossScaler";
// Gradients that still overflow here exceed 1e9 and will not become finite with a smaller scale.
constexpr double kSmallestScale = 0x1p-14;

constexpr double kLargestScale = std::numeric_limits<float>::max();

// Scales are numbers of float32, as in torch.amp.GradScaler.
double rounded(double value) {
  return static_cast<double>(static_cast<float>(value));
}

// Whether a number is positive in float32. Beyond that dtype, the conversion would be undefined.
bool is_scale(double value) {
  return value > 0 && value <= kLargestScale && rounded(value) > 0;
}

double next_scale(double scale, double factor) {
  const auto next = scale * factor;
  return next > kLargestScale ? scale : rounded(next);
}

}  // namespace

std::string_view to_string(LossScalingMode value) {
  return enum_name(value, {"auto", "off", "fixed", "dynamic"});
}

LossScaler::LossScaler(LossScaling options) : options_(options) {
  if (options_.mode == LossScalingMode::Auto) options_.mode = LossScalingMode::Dynamic;
  if (!enabled()) return;
  TORCH_CHECK_VALUE(is_scale(options_.initial), kLossScaler,
                    ": expected initial to be a positive number of float32, got ", options_.initial);
  TORCH_CHECK_VALUE(std::isfinite(options_.growth) && options_.growth > 1, kLossScaler,
                    ": expected growth > 1, got ", options_.growth);
  TORCH_CHECK_VALUE(options_.backoff > 0 && options_.backoff < 1, kLossScaler,
                    ": expected backoff between 0 and 1, got ", options_.backoff);
  TORCH_CHECK_VALUE(options_.interval > 0, kLossScaler, ": expected interval > 0, got ", options_.interval);
  state_.scale = rounded(options_.initial);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  check_floating(kLossScaler, "loss", loss);
  if (!enabled()) return loss;
  const bool half = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (half ? loss.to(at::kFloat) : loss) * state_.scale;
}

bool LossScaler::can_shrink() const {
  return options_.mode == LossScalingMode::Dynamic &&
         next_scale(state_.scale, options_.backoff) >= kSmallestScale;
}

bool LossScaler::update(double gradient_norm) {
  const bool finite = std::isfinite(gradient_norm);
  TORCH_CHECK_VALUE(finite || can_shrink(), kLossScaler, ": expected gradients with a finite norm, got ",
                    gradient_norm, " with the scale ", state_.scale);
  if (options_.mode != LossScalingMode::Dynamic) return true;
  if (!finite) {
    state_ = {next_scale(state_.scale, options_.backoff), 0};
  } else if (++state_.finite_updates == options_.interval) {
    state_ = {next_scale(state_.scale, options_.growth), 0};
  }
  return finite;
}

void LossScaler::check_state(const LossScalerState& state) const {
  const bool dynamic = options_.mode == LossScalingMode::Dynamic;
  if (dynamic) {
    TORCH_CHECK_VALUE(is_scale(state.scale), kLossScaler,
                      ": expected scale to be a positive number of float32, got ", state.scale);
  } else {
    TORCH_CHECK_VALUE(state.scale == state_.scale, kLossScaler,
                      ": expected scale to be that of the options, ", state_.scale, ", got ", state.scale);
  }
  const auto most = dynamic ? options_.interval - 1 : 0;
  TORCH_CHECK_VALUE(state.finite_updates >= 0 && state.finite_updates <= most, kLossScaler,
                    ": expected finite_updates from 0 to ", most, ", got ", state.finite_updates);
}

void LossScaler::load_state(const LossScalerState& state) {
  check_state(state);
  state_ = state;
}

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> type)
    : device_(device), active_(type.has_value()) {
  if (!active_) return;
  TORCH_CHECK_VALUE(device == at::kCPU || device == at::kCUDA,
                    "Autocast: expected the device CPU or CUDA, got ", device);
  TORCH_CHECK_VALUE(*type == at::kBFloat16 || *type == at::kHalf,
                    "Autocast: expected the type BFloat16 or Half, got ", *type);
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  previous_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  // The outermost scope drops the cached casts of weights, because the optimizer is about to change them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_);
}

}  // namespace attentive
