// Mask functions evaluated for whole tiles, against the definition on each pair.

#include <atomic>
#include <concepts>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/attention.h>
#include <attentive/functional/named_masks.h>

#include "score/evaluate.h"

using namespace attentive;
using namespace attentive::detail;
using namespace attentive::test;

namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

// A mask, and whether it says all that there is to say: a tile whose pairs agree is never left open.
struct Case {
  std::string name;
  bool sharp;
  MaskMod mask;
};

std::vector<Case> cases() {
  const auto documents = captured_indices(at::arange(600, at::kInt).floor_divide(70));
  const auto drawn = at::randint(0, 9, {3, 600}, at::kInt);
  const auto of_batch = captured_indices(std::get<0>(drawn.sort(1)));
  const auto table = captured_indices(drawn.slice(1, 0, 20).t());  // (20, 3), not contiguous
  const auto pairs = captured_indices(at::randint(0, 2, {600, 600}, at::kInt));
  const auto one = captured_indices(at::full({}, 40, at::kInt));
  const auto numbers = captured(at::randn({600}));
  return {
      {"causal", true, mask_mod([](auto pair) { return pair.key <= pair.query; })},
      {"<", true, mask_mod([](auto pair) { return pair.key < pair.query; })},
      {">", true, mask_mod([](auto pair) { return pair.key > pair.query; })},
      {">=", true, mask_mod([](auto pair) { return pair.key >= pair.query; })},
      {"==", true, mask_mod([](auto pair) { return pair.key == pair.query; })},
      {"!=", true, mask_mod([](auto pair) { return pair.key != pair.query + 100; })},
      {"prefix", true, mask_mod([](auto pair) { return (pair.key <= pair.query) | (pair.key < 90); })},
      {"window", true,
       mask_mod([](auto pair) { return (pair.key <= pair.query) & (pair.query - pair.key < 64); })},
      {"both sides", true, mask_mod([](auto pair) { return abs(pair.query - pair.key) <= 100; })},
      {"not", true, mask_mod([](auto pair) { return !(abs(pair.query - pair.key) <= 100); })},
      {"^", true, mask_mod([](auto pair) { return (pair.query < 200) ^ (pair.key < 300); })},
      {"no limit", true, mask_mod([](auto pair) { return pair.query - pair.key < kMost; })},
      {"product", true, mask_mod([](auto pair) { return pair.key * -3 < pair.query * 2 - 1700; })},
      {"product of both", true,
       mask_mod([](auto pair) { return (pair.key - 200) * (pair.query - 200) < 5000; })},
      {"negative", true, mask_mod([](auto pair) { return -pair.key + 70 >= +pair.query - 400; })},
      {"floor", true, mask_mod([](auto pair) { return floor(pair.key) < 100; })},
      {"blocks", true, mask_mod([](auto pair) { return pair.query / 32 == pair.key / 32; })},
      {"blocks before 0", true,
       mask_mod([](auto pair) { return (pair.query - 300) / 32 == (pair.key - 300) / 32; })},
      {"divided by -32", true,
       mask_mod([](auto pair) { return pair.query / -32 <= (pair.key - 300) / -32; })},
      {"divided by a length", true, mask_mod([](auto pair) { return pair.query / pair.keys < 1; })},
      {"remainder", false, mask_mod([](auto pair) { return pair.key % 64 < 16; })},
      {"remainder before 0", false, mask_mod([](auto pair) { return (pair.key - 300) % 64 < 16; })},
      {"remainder of -64", false, mask_mod([](auto pair) { return (pair.key - 300) % -64 < -16; })},
      {"remainder of -1", true, mask_mod([](auto pair) { return (pair.key - 300) % -1 == 0; })},
      {"remainder of many", false, mask_mod([](auto pair) { return pair.key % pair.queries < 450; })},
      {"dilated", false, mask_mod([](auto pair) { return (pair.query - pair.key) % 7 == 0; })},
      {"min", true, mask_mod([](auto pair) { return min(pair.query, 200) < min(pair.key, 300); })},
      {"max", true, mask_mod([](auto pair) { return max(pair.query, 200) < max(pair.key, 300); })},
      {"where", false,
       mask_mod([](auto pair) { return where(pair.query < 300, pair.key, pair.query) < 250; })},
      {"lookup of a number", false,
       mask_mod([=](auto pair) { return pair.key < 40 * table(where(pair.key < 300, 5, pair.head), 1); })},
      {"where of numbers", false,
       mask_mod([](auto pair) { return where(pair.key < 300, 0.5f, 1.0f) < 0.7f; })},
      {"heads", true,
       mask_mod([](auto pair) { return pair.key < 100 * pair.head + pair.queries - pair.batch; })},
      {"documents", true, mask_mod([=](auto pair) { return documents(pair.query) == documents(pair.key); })},
      {"documents of a batch", true, mask_mod([=](auto pair) {
         return of_batch(pair.batch, pair.query) == of_batch(pair.batch, pair.key);
       })},
      {"table", false,
       mask_mod([=](auto pair) { return table(pair.key / 32, 2) <= table(pair.query / 32, pair.batch); })},
      {"table of a place", false, mask_mod([=](auto pair) { return table(pair.key % 20, 1) != 4; })},
      {"pairs", false, mask_mod([=](auto pair) { return pairs(pair.query, pair.key) == 0; })},
      {"one number", true, mask_mod([=](auto pair) { return pair.key < one(pair); })},
      {"numbers", false,
       mask_mod([=](auto pair) { return (numbers(pair.key) < 3) & (pair.query >= pair.key); })},
      {"index and number", false,
       mask_mod([](auto pair) { return exp(pair.key) + 0.5f * pair.query < 100.0f; })},
      {"every number", false, mask_mod([](auto pair) {
         const auto x =
             log(max(pair.key, 1)) + tanh(pair.query) - sqrt(pair.key) * rsqrt(pair.query + 1) / 2.0f;
         const auto y = sigmoid(x) + softplus(x) + sin(x) + cos(x) + floor(x) + abs(x);
         return (pow(pair.key, 2.0f) > min(x, y)) ^ (max(x, -y) <= +x) ^ (x >= y) ^ (x == y) ^ (x != 1.0f) ^
                (y < 0);
       })},
      {"all", true, mask_mod([](auto) { return true; })},
      {"none", true, mask_mod([](auto) { return false; })},
      {"dilated_mask", false, dilated_mask(90, 3)},
      {"global_local_mask", false, global_local_mask(20, 90, -1)},
      {"neighbourhood_2d_mask", false, neighbourhood_2d_mask(20, 20, 3)},
      {"block_diffusion_mask", false, block_diffusion_mask(250, 50)},
  };
}

// Counts the vectors of pairs that a mask is asked for.
struct Counted {
  std::shared_ptr<std::atomic<int64_t>> vectors = std::make_shared<std::atomic<int64_t>>(0);

  template <class At>
  void operator()(const At&) const {
    if constexpr (!std::same_as<At, TilePairs> && !std::same_as<At, TensorPairs>) ++*vectors;
  }
};

}  // namespace

TEST_CASE("what a mask says of a tile holds for its pairs", "[score][tiles]") {
  at::manual_seed(7);
  std::mt19937 random(11);
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(below));
  };
  for (const auto& [name, sharp, mask] : cases()) {
    int64_t settled = 0, wrong = 0, left_open = 0;
    std::string places;
    for (int n = 0; n < 300; ++n) {
      const auto range = [&](int64_t most) {
        const int64_t size = n % 3 == 0 ? 1 + draw(4) : 1 + draw(128), from = draw(most - size);
        return CallbackRange{from, from + size};
      };
      const TilePlace place{draw(3), draw(4), range(500), range(600)};
      const auto [said, faulty] = read_tile(mask, place);
      const auto pairs = read_pairs(mask, place);
      const bool any = pairs.any().item<bool>(), all = pairs.all().item<bool>();
      const bool misled = faulty || (any && !said.may_hold) || (!all && !said.may_fail);
      const bool open = said.may_hold && said.may_fail;
      wrong += misled;
      left_open += open && any == all;
      settled += !open;
      if (misled || (sharp && open && any == all)) {
        places += " queries " + std::to_string(place.queries.lo) + " to " + std::to_string(place.queries.hi) +
                  ", keys " + std::to_string(place.keys.lo) + " to " + std::to_string(place.keys.hi) + ";";
      }
    }
    INFO(name << ": " << settled << " settled, " << left_open << " left open in vain;" << places);
    CHECK(wrong == 0);
    if (sharp) CHECK((left_open == 0 && settled > 0));
  }
}

TEST_CASE("an index that may be at fault leaves a tile to its pairs", "[score][tiles]") {
  const auto numbers = captured(at::randn({100}));
  const auto indices = captured_indices(at::arange(100, at::kInt));
  const auto faulty = [](const MaskMod& mask) { return read_tile(mask, {0, 0, {0, 50}, {60, 101}}).faulty; };
  CHECK(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (numbers(pair.key) > 0); })));
  CHECK(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (indices(pair.key) > 0); })));
  CHECK(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (indices(pair.query - 1) > 0); })));
  CHECK(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (pair.key / pair.head > 0); })));
  CHECK(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (pair.key % pair.batch > 0); })));
  CHECK_FALSE(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (numbers(pair.key - 1) > 0); })));
  CHECK_FALSE(faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (indices(pair.key - 1) > 0); })));
  CHECK_FALSE(
      faulty(mask_mod([=](auto pair) { return (pair.key >= 0) | (pair.key / (pair.head - 1) > 0); })));
}

TEST_CASE("results beyond int64 leave a tile to its pairs", "[score][tiles]") {
  const auto open = [](const MaskMod& mask) {
    const auto [said, faulty] = read_tile(mask, {0, 0, {1, 50}, {60, 101}});
    return said.may_hold && said.may_fail && !faulty;
  };
  CHECK(open(mask_mod([](auto pair) { return pair.query + kMost > 0; })));
  CHECK(open(mask_mod([](auto pair) { return kLeast - pair.query < 0; })));
  CHECK(open(mask_mod([](auto pair) { return pair.key * kMost > 0; })));
  CHECK(open(mask_mod([](auto pair) { return (pair.query - 1 + kLeast) / -1 > 0; })));
  CHECK(open(mask_mod([](auto pair) { return (pair.query + kMost) % 3 == 0; })));
  CHECK(open(mask_mod([](auto pair) { return abs(pair.query + kMost) > 0; })));
  CHECK_FALSE(open(mask_mod([](auto pair) { return pair.query - 50 + kMost > 0; })));
}

TEST_CASE("tiles that a mask settles as a whole cost no pair", "[score][tiles]") {
  const auto documents = captured_indices(at::arange(1024, at::kInt).floor_divide(256));
  const auto vectors = [](const auto& mask, int64_t tokens) {
    const Counted counted;
    const auto blocks = BlockMask::kept(mask_mod([=](auto pair) {
                                          counted(pair);
                                          return mask(pair);
                                        }),
                                        1, 1, tokens, tokens);
    return counted.vectors->load();
  };
  CHECK(vectors([=](auto pair) { return documents(pair.query) == documents(pair.key); }, 1024) == 0);
  CHECK(vectors([](auto pair) { return pair.key / 128 <= pair.query / 128; }, 1000) == 0);
  // A tile of 128 x 128 pairs, and as many as lie on the diagonal.
  const int64_t one = vectors([](auto pair) { return pair.key <= pair.query; }, 128);
  CHECK(one > 0);
  CHECK(vectors([](auto pair) { return pair.key <= pair.query; }, 1024) == 8 * one);
}

TEST_CASE("a lookup beyond a captured tensor is refused in a tile that needs none",
          "[score][tiles][errors]") {
  const auto numbers = captured_indices(at::arange(1000, at::kInt));
  const auto mask = mask_mod([=](auto pair) { return (pair.key >= 0) | (numbers(pair.key) == 3); });
  CHECK(BlockMask::kept(mask, 1, 1, 1000, 1000).count().full == 64);
  CHECK_THROWS_AS(BlockMask::kept(mask, 1, 1, 1000, 1001), c10::IndexError);
}
