#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/train/loss_scaler.h>

#include "support/errors.h"
#include "support/special_numbers.h"

using namespace attentive;
using attentive::test::kInfinity;
using attentive::test::value_error;

namespace {

LossScaling dynamic(double initial, int64_t interval = 2000) {
  return {.mode = LossScalingMode::Dynamic, .initial = initial, .interval = interval};
}

// Whether the gradients of an update overflow; a pattern without a period that matters.
bool overflows(int64_t update) {
  return update % 7 == 3 || update % 31 < 2;
}

}  // namespace

TEST_CASE("LossScaler has the scales and skipped updates of torch.amp.GradScaler", "[loss_scaler]") {
  // Written out: 65536, halved by an overflow, doubled after three updates in a row.
  LossScaler written(dynamic(65536, 3));
  std::vector<double> scales;
  std::vector<bool> done;
  for (const bool overflow : {false, true, true, false, false, true, false, false, false, false}) {
    scales.push_back(written.factor());
    done.push_back(written.update(overflow ? kInfinity : 1.5));
  }
  CHECK(scales == std::vector<double>{65536, 65536, 32768, 16384, 16384, 16384, 8192, 8192, 8192, 16384});
  CHECK(done == std::vector<bool>{true, false, false, true, true, false, true, true, true, true});
  CHECK(written.state().finite_updates == 1);

  for (const auto& options : {LossScaling{}, dynamic(0x1p127, 1), dynamic(0x1p30, 4),
                              LossScaling{.initial = 0.1, .growth = 1.7, .backoff = 0.3, .interval = 1}}) {
    INFO("initial " << options.initial << ", interval " << options.interval);
    LossScaler scaler(options);
    auto scale = at::full({}, options.initial, at::kFloat), tracker = at::zeros({}, at::kInt);
    for (int64_t update = 0; update < 200 && (scaler.can_shrink() || !overflows(update)); ++update) {
      REQUIRE(scaler.factor() == scale.item<double>());
      CHECK(scaler.update(overflows(update) ? NAN : 0.0) == !overflows(update));
      at::_amp_update_scale_(scale, tracker, at::full({}, overflows(update), at::kFloat), options.growth,
                             options.backoff, options.interval);
      CHECK(scaler.state().finite_updates == tracker.item<int64_t>());
    }
  }
}

TEST_CASE("LossScaler multiplies a loss and its gradient", "[loss_scaler]") {
  const LossScaler scaler;
  CHECK(scaler.factor() == 65536);
  const auto x = at::full({}, 3.0).requires_grad_(true);
  scaler.scale(x * 2).backward();
  CHECK(x.grad().item<double>() == 2 * 65536);
  // Float16 has no number as large as the scaled loss.
  CHECK(scaler.scale(at::full({}, 2.0, at::kHalf)).item<double>() == 2 * 65536);
  CHECK(scaler.scale(at::full({}, 2.0, at::kDouble)).scalar_type() == at::kDouble);
  LossScaler off({.mode = LossScalingMode::Off, .initial = -1});
  CHECK(off.factor() == 1);
  CHECK(off.scale(x).is_same(x));
  CHECK(off.update(7));
  LossScaler fixed({.mode = LossScalingMode::Fixed, .initial = 8, .interval = 1});
  CHECK(fixed.update(1));
  CHECK(fixed.factor() == 8);
}

TEST_CASE("LossScaler goes on from a state", "[loss_scaler]") {
  LossScaler whole(dynamic(1024, 3)), second(dynamic(1024, 3));
  for (int64_t update = 0; update < 5; ++update) whole.update(overflows(update) ? kInfinity : 1);
  second.load_state(whole.state());
  for (int64_t update = 5; update < 40; ++update) {
    CHECK(second.factor() == whole.factor());
    CHECK(second.update(overflows(update) ? kInfinity : 1) ==
          whole.update(overflows(update) ? kInfinity : 1));
  }
  const auto refused = [](LossScaling options, LossScalerState state) {
    LossScaler scaler(options);
    const auto message = value_error([&] { return scaler.load_state(state), 0; });
    CHECK(scaler.factor() == options.initial);
    return message;
  };
  CHECK(refused(dynamic(8), {.scale = 0}) ==
        "LossScaler: expected scale to be a positive number of float32, got 0");
  CHECK(refused(dynamic(8), {.scale = 1e39}) ==
        "LossScaler: expected scale to be a positive number of float32, got 1e+39");
  CHECK(refused(dynamic(8, 5), {.scale = 4, .finite_updates = 5}) ==
        "LossScaler: expected finite_updates from 0 to 4, got 5");
  CHECK(refused(dynamic(8, 5), {.scale = 4, .finite_updates = -1}) ==
        "LossScaler: expected finite_updates from 0 to 4, got -1");
  CHECK(refused({.mode = LossScalingMode::Fixed, .initial = 8}, {.scale = 4}) ==
        "LossScaler: expected scale to be that of the options, 8, got 4");
}

TEST_CASE("LossScaler refuses options, losses and gradients without meaning, by name", "[loss_scaler]") {
  const auto refused = [](LossScaling options) {
    return value_error([&] { return LossScaler(options).factor(); });
  };
  for (const auto& [initial, printed] :
       {std::pair{0.0, "0"}, {-1.0, "-1"}, {1e39, "1e+39"}, {1e-60, "1e-60"}, {double(NAN), "nan"}}) {
    CHECK(refused({.initial = initial}) ==
          std::string("LossScaler: expected initial to be a positive number of float32, got ") + printed);
  }
  CHECK(refused({.growth = 1}) == "LossScaler: expected growth > 1, got 1");
  CHECK(refused({.growth = kInfinity}) == "LossScaler: expected growth > 1, got inf");
  CHECK(refused({.backoff = 1}) == "LossScaler: expected backoff between 0 and 1, got 1");
  CHECK(refused({.backoff = 0}) == "LossScaler: expected backoff between 0 and 1, got 0");
  CHECK(refused({.interval = 0}) == "LossScaler: expected interval > 0, got 0");
  CHECK(test::type_error([] { return LossScaler().scale(at::ones({}, at::kLong)).dim(); }) ==
        "LossScaler: expected loss of dtype Double, Float, BFloat16 or Half, got Long tensor of shape ()");
  CHECK(value_error([] { return LossScaler().scale({}).dim(); }) ==
        "LossScaler: expected loss to be a tensor, got an undefined one");
  // A smaller scale cannot help any more, or is not wanted.
  LossScaler smallest(dynamic(0x1p-13));
  CHECK_FALSE(smallest.update(kInfinity));
  CHECK(smallest.factor() == 0x1p-14);
  CHECK(value_error([&] { return smallest.update(kInfinity); }) ==
        "LossScaler: expected gradients with a finite norm, got inf with the scale 6.10352e-05");
  CHECK(smallest.factor() == 0x1p-14);
  LossScaler fixed({.mode = LossScalingMode::Fixed, .initial = 8});
  CHECK(value_error([&] { return fixed.update(NAN); }) ==
        "LossScaler: expected gradients with a finite norm, got nan with the scale 8");
}
