#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/train/evaluate.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
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
