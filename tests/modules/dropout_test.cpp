// Tests the statistics of dropout in every class that has it, on every device and for every stream.

#include <cmath>
#include <functional>

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>

#include "kernels/dropout_counter.h"
#include "modules/golden_check.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr double kP = 0.3;

struct Dropper {
  const char* name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& x, Weights)> weights;
};

template <class Holder>
Dropper dropper_of(const char* name, Holder module) {
  return {name, module.ptr(), [module](const at::Tensor& x, Weights which) mutable {
            return module->forward_with_weights(x, Mask(), which).second;
          }};
}

std::vector<Dropper> droppers() {
  auto cross = CrossAttention(8, 8, 8, kP, 2);
  auto sdpa = ScaledDotProductAttention(kP);
  return {dropper_of("CausalAttention", CausalAttention(8, 8, 0, kP)),
          dropper_of("MultiHeadAttentionWrapper", MultiHeadAttentionWrapper(8, 8, 0, kP, 2)),
          dropper_of("MultiHeadAttention", MultiHeadAttention(8, 8, 0, kP, 2)),
          dropper_of("MultiHeadSelfAttention", MultiHeadSelfAttention(8, 2, kP)),
          dropper_of("FusedSelfAttention", FusedSelfAttention(FusedSelfAttentionOptions(8, 2).dropout(kP))),
          {"CrossAttention", cross.ptr(),
           [cross](const at::Tensor& x, Weights which) mutable {
             return cross->forward_with_weights(x, x, Mask(), which).second;
           }},
          {"ScaledDotProductAttention", sdpa.ptr(), [sdpa](const at::Tensor& x, Weights which) mutable {
             return sdpa->forward_with_weights(x, x, x, Mask(), which).second;
           }}};
}

void check_statistics(const at::Device& device) {
  at::manual_seed(5);
  const auto x = at::randn({8, 40, 8}).to(device);
  for (auto& dropper : droppers()) {
    for (const auto stream : {DropoutStream::Any, DropoutStream::Aten, DropoutStream::Counter}) {
      INFO(dropper.name << ", stream " << to_string(stream) << " on " << device);
      const DropoutStreamGuard guard(stream);
      dropper.module->to(device);
      dropper.module->train();
      const auto dropped = dropper.weights(x, Weights::Dropped).detach();
      dropper.module->eval();
      const auto clean = dropper.weights(x, Weights::Dropped).detach();
      CHECK(bit_equal(clean, dropper.weights(x, Weights::Clean).detach()));
      const auto survivors = dropped.ne(0);
      // Survivors are scaled. Their number is binomial and must be within five standard deviations of its
      // mean.
      const double kept = stream == DropoutStream::Aten ? 1 - kP : kernels::keep_threshold(kP) / 65536.0;
      CHECK_WITHIN(dropped * kept, clean * survivors, {1e-6, 0.0});
      const double count = clean.ne(0).sum().item<double>();
      const double share = survivors.sum().item<double>() / count;
      CHECK(std::abs(share - (1 - kP)) < 5 * std::sqrt(kP * (1 - kP) / count));
    }
  }
}

}  // namespace

TEST_CASE("Dropout drops its share of the weights and scales the rest", "[dropout]") {
  check_statistics(at::kCPU);
}

TEST_CASE("Dropout drops its share of the weights on CUDA", "[dropout][cuda]") {
  check_statistics(cuda_or_skip());
}

TEST_CASE("Dropout 0 and evaluation draw nothing, dropout 1 leaves nothing", "[dropout]") {
  const auto x = at::randn({2, 5, 8});
  const auto next_after = [&](double p, bool train) {
    MultiHeadSelfAttention module(8, 2, p);
    module->train(train);
    at::manual_seed(6);
    module->forward(x);
    return at::randn({4});
  };
  at::manual_seed(6);
  const auto undisturbed = at::randn({4});
  CHECK(bit_equal(next_after(0.0, true), undisturbed));
  CHECK(bit_equal(next_after(0.5, false), undisturbed));
  CHECK(bit_equal(next_after(1.0, true), undisturbed));
  CHECK_FALSE(bit_equal(next_after(0.5, true), undisturbed));
  MultiHeadSelfAttention all(8, 2, 1.0);
  const auto [y, weights] = all->forward(x);
  CHECK(y.eq(0).all().item<bool>());
  CHECK(weights.eq(0).all().item<bool>());
}

TEST_CASE("Inverted dropout keeps the mean", "[dropout]") {
  // The notebook's example: 2, 3, 5 and 7, of which 3 and 7 are dropped with p = 0.5.
  const auto values = table({{2, 3, 5, 7}});
  const auto keep = table({{1, 0, 1, 0}});
  CHECK(values.mean().item<float>() == 4.25f);
  CHECK((values * keep).mean().item<float>() == 1.75f);
  CHECK((values * keep / (1 - 0.5)).mean().item<float>() == 3.5f);
}
