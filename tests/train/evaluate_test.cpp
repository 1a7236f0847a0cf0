#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <attentive/train/evaluate.h>

#include "support/errors.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using Catch::Matchers::WithinAbs;

TEST_CASE("evaluate predicts every token but the first exactly once", "[evaluate]") {
  auto model = test::make_bigram();
  // Blocks of 5 in batches of 2 leave a partial batch and a partial block for most lengths.
  for (int64_t count = 2; count < 40; ++count) {
    std::vector<int64_t> seen(static_cast<size_t>(count), 0);
    double sum = 0;
    const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
      CHECK((y - x).eq(1).all().item<bool>());
      CHECK(x.size(0) <= 2);
      CHECK(x.size(1) <= 5);
      CHECK_FALSE(model->is_training());
      for (int64_t i = 0; i < y.numel(); ++i) ++seen[static_cast<size_t>(y.flatten()[i].item<int64_t>())];
      sum += y.sum().item<double>();
      return y.to(at::kDouble).mean();
    };
    const double mean = evaluate(*model, loss, at::arange(count), {.block = 5, .batch = 2});
    CHECK(seen[0] == 0);
    for (size_t i = 1; i < seen.size(); ++i) CHECK(seen[i] == 1);
    CHECK_THAT(mean, WithinAbs(sum / static_cast<double>(count - 1), 1e-12));
    CHECK(model->is_training());
  }
}

TEST_CASE("evaluate does not depend on the batch and refuses a text without targets", "[evaluate]") {
  auto model = test::make_bigram();
  const auto tokens = test::squares(203);
  const double one = evaluate(*model, test::loss_of(model), tokens, {.block = 8, .batch = 1});
  CHECK_THAT(evaluate(*model, test::loss_of(model), tokens, {.block = 8, .batch = 16}), WithinAbs(one, 1e-6));
  CHECK(test::value_error([&] { return evaluate(*model, test::loss_of(model), at::arange(1)); }) ==
        "evaluate: expected tokens of shape (N,) with N >= 2, got (1,)");
}

TEST_CASE("evaluate in a group returns the bits of one process", "[evaluate][training_group]") {
  // 1 to 13 batches, of which the last may be shorter: some ranks have fewer than others, or none.
  for (const int64_t count : {2, 7, 40, 63}) {
    auto model = test::make_bigram();
    const auto tokens = test::squares(count);
    const double one = evaluate(*model, test::loss_of(model), tokens, {.block = 5, .batch = 1});
    for (const int64_t size : {2, 3, 4}) {
      std::vector<std::shared_ptr<test::Bigram>> models;
      for (int64_t rank = 0; rank < size; ++rank) models.push_back(test::make_bigram());
      std::vector<double> results(static_cast<size_t>(size));
      std::vector<int64_t> calls(static_cast<size_t>(size));
      const auto errors = test::run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
        const auto rank = static_cast<size_t>(group->rank());
        const auto loss = [&, loss_of = test::loss_of(models[rank])](const at::Tensor& x,
                                                                     const at::Tensor& y) {
          ++calls[rank];
          return loss_of(x, y);
        };
        results[rank] = evaluate(*models[rank], loss, tokens, {.block = 5, .batch = 1, .group = group});
      });
      INFO(count << " tokens, " << size << " processes");
      CHECK(errors == std::vector<std::string>(static_cast<size_t>(size), "no error"));
      CHECK(results == std::vector<double>(static_cast<size_t>(size), one));
      const auto batches = (count - 1 + 4) / 5;
      for (int64_t rank = 0; rank < size; ++rank) {
        CHECK(calls[static_cast<size_t>(rank)] == (batches - rank + size - 1) / size);
      }
    }
  }
}
