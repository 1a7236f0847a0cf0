#include <ATen/autocast_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/train/loss_scaler.h>

#include "support/errors.h"

using namespace attentive;

TEST_CASE("Autocast computes products in the lower precision and puts everything back", "[autocast]") {
  const auto a = at::randn({4, 4});
  const auto product = [&] { return at::mm(a, a).scalar_type(); };
  {
    const Autocast none(at::kCPU, std::nullopt);
    CHECK(product() == at::kFloat);
  }
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    CHECK(product() == at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      CHECK(product() == at::kHalf);
    }
    CHECK(product() == at::kBFloat16);
  }
  CHECK(product() == at::kFloat);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(test::value_error([] { return Autocast(at::kMeta, at::kHalf), 0; }) ==
        "Autocast: expected the device CPU or CUDA, got meta");
  CHECK(test::value_error([] { return Autocast(at::kCPU, at::kDouble), 0; }) ==
        "Autocast: expected the type BFloat16 or Half, got Double");
}
