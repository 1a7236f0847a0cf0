#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>

#include "functional/elementwise.h"
#include "kernels/dropout_counter.h"
#include "support/compare.h"

using namespace attentive;

namespace {

constexpr double kP = 0.3;

// The mask computed number by number from the definition of the stream.
at::Tensor expected_mask(at::IntArrayRef sizes, uint64_t key) {
  auto mask = at::ones(sizes);
  auto* out = mask.mutable_data_ptr<float>();
  const auto threshold = kernels::keep_threshold(kP);
  for (int64_t n = 0; n < mask.numel(); ++n) {
    const bool survives =
        kernels::dropout_words(key, 0, 0, 0, n).survives(static_cast<int>(n / 16 % 8), threshold);
    out[n] = survives ? static_cast<float>(65536.0 / threshold) : 0.0f;
  }
  return mask;
}

uint64_t next_key(uint64_t seed) {
  at::manual_seed(seed);
  const auto key = kernels::draw_dropout_key(std::nullopt);
  at::manual_seed(seed);
  return key;
}

}  // namespace

TEST_CASE("drop_features keeps what the Counter stream keeps, in every dtype and layout",
          "[feature_dropout]") {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1}, {7, 19}, {128}, {3, 129, 131}}) {
    const auto x = at::randn(sizes);
    const auto residual = at::randn(sizes);
    const auto mask = expected_mask(sizes, next_key(3));
    CHECK(at::equal(drop_features(x, kP, true), x * mask));
    (void)next_key(3);
    CHECK_WITHIN(add_dropped(residual, x, kP, true), residual + x * mask,
                 {1e-6, 1e-6});  // one rounding instead of two
    for (const auto type : {at::kDouble, at::kBFloat16}) {
      (void)next_key(3);
      CHECK(at::equal(drop_features(x.to(type), kP, true).ne(0), mask.ne(0)));
    }
    if (x.dim() == 2) {
      const auto turned = x.t().contiguous().t();
      (void)next_key(3);
      CHECK_WITHIN(add_dropped(residual, turned, kP, true), residual + x * mask,
                   {1e-6, 1e-6});  // one rounding instead of two
    }
  }
}

TEST_CASE("drop_features drops its share", "[feature_dropout]") {
  at::manual_seed(4);
  constexpr double count = 200'000;
  const auto survivors = drop_features(at::ones({200'000}), kP, true).ne(0).sum().item<double>();
  CHECK(std::abs(survivors / count - (1 - kP)) < 5 * std::sqrt(kP * (1 - kP) / count));
}

TEST_CASE("drop_features is the same for every number of threads", "[feature_dropout]") {
  const auto x = at::randn({300, 401});
  const auto threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    at::manual_seed(5);
    results.push_back(drop_features(x, kP, true));
  }
  at::set_num_threads(threads);
  CHECK(at::equal(results[0], results[1]));
  CHECK(at::equal(results[0], results[2]));
}

TEST_CASE("drop_features's gradient passes where the number survived", "[feature_dropout]") {
  const auto x = at::randn({5, 77}).requires_grad_();
  const auto residual = at::randn({5, 77}).requires_grad_();
  const auto direction = at::randn({5, 77}).requires_grad_();
  const auto mask = expected_mask({5, 77}, next_key(6));
  const auto y = add_dropped(residual, x, kP, true);
  const auto first = torch::autograd::grad({y}, {x, residual}, {direction}, true, true);
  CHECK(at::equal(first[0].detach(), (direction * mask).detach()));
  CHECK(at::equal(first[1].detach(), direction.detach()));
  CHECK(at::equal(torch::autograd::grad({first[0].sum()}, {direction})[0], mask));
  (void)next_key(6);
  const auto alone = drop_features(x, kP, true);
  CHECK(at::equal(torch::autograd::grad({alone}, {x}, {direction.detach()})[0], (direction * mask).detach()));
}

TEST_CASE("drop_features 0 and evaluation draw nothing, 1 leaves nothing, Aten is PyTorch's",
          "[feature_dropout]") {
  const auto x = at::randn({4, 33});
  CHECK(at::equal(add_dropped(x, x, 0.0, true), x + x));
  CHECK(at::equal(add_dropped(x, x, kP, false), x + x));
  CHECK(at::equal(add_dropped(x, x, 1.0, true), x));
  const auto key = next_key(7);
  (void)drop_features(x, 0.0, true);
  (void)drop_features(x, kP, false);
  CHECK(kernels::draw_dropout_key(std::nullopt) == key);
  const DropoutStreamGuard guard(DropoutStream::Aten);
  at::manual_seed(8);
  const auto expected = x + at::dropout(x, kP, true);
  at::manual_seed(8);
  CHECK(at::equal(add_dropped(x, x, kP, true), expected));
}
