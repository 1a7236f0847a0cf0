#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <attentive/train/evaluate.h>

#include "support/compare.h"
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

using attentive::test::value_error;

TEST_CASE("BlockSampler draws the rows of torch.randint with the same seed", "[block_sampler]") {
  // Python: g = torch.Generator().manual_seed(1337); torch.randint(100 - 8, (4,), generator=g), twice
  BlockSampler sampler(at::arange(100), {.block = 8, .batch = 4, .seed = 1337});
  const std::vector<std::vector<int64_t>> starts{{83, 37, 52, 56}, {11, 33, 75, 82}};
  for (const auto& expected : starts) {
    at::rand({17});  // the default generator is not used
    const auto [x, y] = sampler.next();
    CHECK(x.sizes() == at::IntArrayRef({4, 8}));
    for (int64_t row = 0; row < 4; ++row) {
      const auto start = expected[static_cast<size_t>(row)];
      CHECK(bit_equal(x[row], at::arange(start, start + 8)));
      CHECK(bit_equal(y[row], at::arange(start + 1, start + 9)));
    }
  }
  CHECK(sampler.position() == 2);
}

TEST_CASE("BlockSampler reaches the first and the last block", "[block_sampler]") {
  BlockSampler sampler(at::arange(10).to(at::kShort), {.block = 7, .batch = 64, .seed = 1});
  const auto [x, y] = sampler.next();
  CHECK(x.scalar_type() == at::kLong);
  CHECK(x.min().item<int64_t>() == 0);
  CHECK(y.max().item<int64_t>() == 9);
}

TEST_CASE("BlockSampler goes on from a saved place", "[block_sampler]") {
  BlockSampler sampler(at::arange(1000), {.block = 4, .batch = 3, .seed = 5});
  for (int i = 0; i < 10; ++i) sampler.next();
  const auto state = sampler.state();
  const auto position = sampler.position();
  const auto expected = sampler.next().first;
  BlockSampler other(at::arange(1000), {.block = 4, .batch = 3, .seed = 99});
  other.restore(position, state);
  CHECK(other.position() == 10);
  CHECK(bit_equal(other.next().first, expected));
  CHECK(value_error([&] {
          other.restore(0, at::zeros({3}, at::kByte));
          return 0;
        }).starts_with("BlockSampler: expected the state of a CPU generator ("));
}

TEST_CASE("BlockSampler gives the processes of a group the rows of one process", "[block_sampler]") {
  for (const int64_t size : {2, 4}) {
    BlockSampler whole(at::arange(500), {.block = 6, .batch = 8, .seed = 2});
    std::vector<BlockSampler> parts;
    for (int64_t rank = 0; rank < size; ++rank) {
      parts.emplace_back(at::arange(500), BlockSamplerOptions{6, 8, 2, rank, size});
    }
    for (int i = 0; i < 3; ++i) {
      const auto expected = whole.next();
      std::vector<at::Tensor> x, y;
      for (auto& part : parts) {
        auto rows = part.next();
        x.push_back(rows.first);
        y.push_back(rows.second);
      }
      CHECK(x.front().size(0) == 8 / size);
      CHECK(bit_equal(at::cat(x), expected.first));
      CHECK(bit_equal(at::cat(y), expected.second));
    }
    for (const auto& part : parts) {
      CHECK(part.position() == whole.position());
      CHECK(bit_equal(part.state(), whole.state()));
    }
  }
}

TEST_CASE("BlockSampler passes over the batches that others take", "[block_sampler]") {
  const BlockSamplerOptions options{.block = 6, .batch = 8, .seed = 2};
  BlockSampler whole(at::arange(500), options), second(at::arange(500), options);
  whole.next();
  const auto expected = whole.next().first;
  for (int i = 0; i < 3; ++i) whole.next();
  second.skip(0);
  CHECK(second.position() == 0);
  second.skip(1);
  CHECK(bit_equal(second.next().first, expected));
  second.skip(3);
  CHECK(second.position() == 5);
  CHECK(bit_equal(second.state(), whole.state()));
  CHECK(value_error([&] { second.skip(-1); }) == "BlockSampler: expected batches >= 0 to skip, got -1");
}

TEST_CASE("BlockSampler refuses texts and settings that give no block, by name", "[block_sampler]") {
  const auto refused = [](const at::Tensor& tokens, BlockSamplerOptions options) {
    return value_error([&] { return BlockSampler(tokens, options); });
  };
  CHECK(refused(at::arange(8), {.block = 8}) == "BlockSampler: expected more than block = 8 tokens, got 8");
  CHECK(refused(at::arange(0), {.block = 8}) == "BlockSampler: expected more than block = 8 tokens, got 0");
  CHECK(refused(at::arange(9), {.block = 0}) ==
        "BlockSampler: expected block > 0 and batch > 0, got 0 and 12");
  CHECK(refused(at::arange(9), {.block = 8, .rank = 1}) ==
        "BlockSampler: expected 0 <= rank < world_size, got rank 1 of 1");
  CHECK(refused(at::arange(9), {.block = 8, .batch = 5, .rank = 1, .world_size = 2}) ==
        "BlockSampler: expected batch to be a multiple of world_size, got 5 and 2");
  CHECK(refused(at::zeros({9}), {.block = 8}) ==
        "BlockSampler: expected tokens as integers of shape (N,) on the CPU, got Float tensor of shape (9,)");
  CHECK(refused({}, {}) == "BlockSampler: expected tokens to be a tensor, got an undefined one");
}
