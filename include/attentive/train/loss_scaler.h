#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <attentive/core/option_list.h>

namespace attentive {

/// How the scale of a loss is chosen.
/// Auto: Dynamic; in a `Trainer`, Dynamic under float16 autocast and otherwise Off.
/// Off: the loss is not scaled.
/// Fixed: always the initial scale.
/// Dynamic: as large as the gradients allow, by the rules of Python's torch.amp.GradScaler.
enum class LossScalingMode { Auto, Off, Fixed, Dynamic };
std::string_view to_string(LossScalingMode value);

/// Options of a `LossScaler`, with the defaults of torch.amp.GradScaler. Only Dynamic uses the last three.
struct LossScaling {
  LossScalingMode mode = LossScalingMode::Auto;
  double initial = 65536;   ///< the first scale
  double growth = 2;        ///< the factor after `interval` updates in a row with finite gradients
  double backoff = 0.5;     ///< the factor after gradients that are not finite
  int64_t interval = 2000;  ///< updates with one scale before it grows

  ATTENTIVE_OPTIONS(mode, initial, growth, backoff, interval);
};

/// The changing part of a `LossScaler`, to be saved with a run.
struct LossScalerState {
  double scale = 1;
  int64_t finite_updates = 0;  ///< consecutive ones since the scale last changed

  ATTENTIVE_OPTIONS(scale, finite_updates);
};

/// Multiplies the loss, so that the gradients of a float16 backward pass neither vanish (below 6e-8) nor
/// overflow (above 65504). The optimizer divides by the same number. An update whose gradients overflowed is
/// skipped, and the next one has a smaller scale.
///
/// Scales and skipped updates are those of torch.amp.GradScaler. With the default factors, all scales are
/// powers of two: the gradients are those of the unscaled loss in every bit, except for numbers that would
/// have been rounded because they are below the smallest normal number of a dtype.
/// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
///
///   attentive::LossScaler scaler;
///   scaler.scale(loss).backward();
///   const auto norm = optimizer.clip(1.0, scaler.factor()).item<double>();
///   if (scaler.update(norm)) optimizer.step();
///   optimizer.zero_grad();
class LossScaler {
 public:
  /// Throws c10::ValueError unless initial is positive in float32, to which it is rounded, growth is finite
  /// and greater than 1, backoff is between 0 and 1, and interval is positive.
  explicit LossScaler(LossScaling options = {});

  /// Whether losses are multiplied at all.
  bool enabled() const { return options_.mode != LossScalingMode::Off; }
  /// The current scale; 1 if losses are not scaled.
  double factor() const { return state_.scale; }
  /// The loss multiplied by the scale, in float32 if it has a half type; the loss itself if losses are not
  /// scaled. For several backward passes before one step, multiply each loss. Throws c10::ValueError or
  /// c10::TypeError unless the loss is a floating-point tensor.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Whether gradients with a norm that is not finite are an overflow, after which a smaller scale may help:
  /// in mode Dynamic, until the next scale would be below 2^-14.
  bool can_shrink() const;
  /// Chooses the scale of the next update, and returns whether this update is to be done: false if the norm
  /// is not finite. Call it once for each update, with a norm that is the same in every process. Throws
  /// c10::ValueError if the norm is not finite and the scale cannot shrink; nothing has then changed.
  bool update(double gradient_norm);

  const LossScalerState& state() const { return state_; }
  /// Throws c10::ValueError, and then changes nothing, for a state that a scaler with these options cannot
  /// have.
  void load_state(const LossScalerState& state);
  /// Throws the errors that `load_state` would throw.
  void check_state(const LossScalerState& state) const;

 private:
  LossScaling options_;
  LossScalerState state_;
};

/// Runs this thread's matrix products in a lower precision during the guard's lifetime, as Python's
/// `torch.autocast` does. Without a type (nullopt), it changes nothing.
///
///   {
///     attentive::Autocast autocast(at::kCPU, at::kBFloat16);
///     loss = loss_of(model->forward(x), y);
///   }
///   loss.backward();  // outside
class Autocast {
 public:
  /// Throws c10::ValueError for a device other than CPU and CUDA, or for a type other than bfloat16 and
  /// float16.
  Autocast(at::DeviceType device, std::optional<at::ScalarType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool active_;
  bool was_enabled_ = false;
  at::ScalarType previous_ = at::kBFloat16;
};

}  // namespace attentive
