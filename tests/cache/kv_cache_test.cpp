#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/cache/kv_cache.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

KVCacheOptions small(int64_t layers = 2) {
  return {.layers = layers, .batch = 2, .num_kv_heads = 3, .head_dim = 4};
}

// Keys of tokens first .. first + count - 1; each number encodes its token, sequence and layer.
at::Tensor tokens(int64_t first, int64_t count, int64_t layer = 0, int64_t batch = 2) {
  const auto token = at::arange(first, first + count).view({1, 1, count, 1});
  const auto sequence = at::arange(batch).view({batch, 1, 1, 1});
  return (token * 100 + sequence * 10 + layer).expand({batch, 3, count, 4}).to(at::kFloat);
}

at::Tensor put(KVCache& cache, int64_t first, int64_t count) {
  at::Tensor keys;
  for (int64_t layer = 0; layer < cache.options().layers; ++layer) {
    const auto k = tokens(first, count, layer, cache.options().batch);
    const auto [all_k, all_v] = cache.append(layer, k, -k);
    CHECK(bit_equal(all_v, -all_k));
    if (layer == 0) keys = all_k.clone();
  }
  return keys;
}

}  // namespace

TEST_CASE("DenseKVCache keeps every token in order", "[kv_cache]") {
  DenseKVCache cache(small(), 10);
  CHECK(cache.bytes() == 2u * 2 * 2 * 3 * 10 * 4 * 4);
  int64_t position = 0;
  for (const int64_t count : {4, 1, 0, 3, 2}) {
    CHECK(cache.room() == 10 - position);
    CHECK(bit_equal(put(cache, position, count), tokens(0, position + count)));
    position += count;
    CHECK(cache.position() == position);
    CHECK(cache.stored() == position);
  }
  CHECK(value_error([&] { return put(cache, 10, 1); }) ==
        "DenseKVCache: expected at most capacity = 10 tokens, got 10 + 1");
  cache.reset();
  CHECK(cache.position() == 0);
  CHECK(bit_equal(put(cache, 5, 2), tokens(5, 2)));
  const auto double_bytes = DenseKVCache({.layers = 1, .head_dim = 8, .dtype = at::kDouble}, 16).bytes();
  CHECK(double_bytes == 2u * 16 * 8 * 8);
}

TEST_CASE("RingKVCache keeps the window in order, whatever the chunks", "[kv_cache]") {
  for (const int64_t window : {1, 2, 5, 8}) {
    for (const int64_t chunk : {1, 3, 8}) {
      RingKVCache cache(small(), window, chunk);
      CHECK(cache.slots() == window - 1 + chunk);
      CHECK(cache.room() == chunk);
      int64_t position = 0;
      for (int i = 0; i < 60; ++i) {
        const int64_t count = std::min<int64_t>(chunk, 1 + (i * 7) % 4);
        const auto oldest = std::max<int64_t>(0, position - (window - 1));
        INFO("window " << window << ", chunk " << chunk << ", token " << position);
        REQUIRE(bit_equal(put(cache, position, count), tokens(oldest, position + count - oldest)));
        position += count;
        REQUIRE(cache.position() == position);
      }
    }
  }
  RingKVCache cache(small(), 4);
  CHECK(cache.room() == 4);
  CHECK(value_error([&] { return put(cache, 0, 5); }) ==
        "RingKVCache: expected at most chunk = 4 tokens at once, got 5");
}

TEST_CASE("KVCache reorders, widens and narrows its batch", "[kv_cache]") {
  for (const bool ring : {false, true}) {
    std::unique_ptr<KVCache> cache;
    if (ring) {
      cache = std::make_unique<RingKVCache>(small(), 3, 4);
    } else {
      cache = std::make_unique<DenseKVCache>(small(), 20);
    }
    put(*cache, 0, 4);
    put(*cache, 4, 2);
    const auto stored = cache->stored();
    for (const auto& rows : {at::tensor({1, 0}), at::tensor({1, 1, 0, 1}), at::tensor({2}).to(at::kInt)}) {
      const auto before = cache->options().batch;
      std::vector<at::Tensor> old;
      for (int64_t layer = 0; layer < 2; ++layer) {
        old.push_back(cache->append(layer, tokens(0, 0, 0, before), tokens(0, 0, 0, before)).first.clone());
      }
      cache->reorder(rows);
      const auto now = rows.size(0);
      CHECK(cache->options().batch == now);
      CHECK(cache->bytes() == static_cast<size_t>(2 * 2 * now * 3 * cache->slots() * 4 * 4));
      for (int64_t layer = 0; layer < 2; ++layer) {
        const auto k = cache->append(layer, tokens(0, 0, 0, now), tokens(0, 0, 0, now)).first;
        CHECK(bit_equal(k, old[static_cast<size_t>(layer)].index_select(0, rows)));
      }
    }
    CHECK(cache->stored() <= stored);
    CHECK(cache->position() == 6);
    CHECK(value_error([&] { return cache->reorder(at::tensor({1})), 0; }) ==
          "KVCache: expected rows in [0, 1), got 1");
    CHECK(value_error([&] { return cache->reorder(at::tensor({-1})), 0; }) ==
          "KVCache: expected rows in [0, 1), got -1");
    CHECK(value_error([&] { return cache->reorder(at::randn({2})), 0; }) ==
          "KVCache: expected rows as integers of shape (B,), got Float tensor of shape (2,)");
    cache->reset(3);
    CHECK(cache->position() == 0);
    CHECK(bit_equal(put(*cache, 0, 2), tokens(0, 2, 0, 3)));
  }
}

TEST_CASE("KVCache takes tokens back", "[kv_cache]") {
  DenseKVCache cache(small(), 10);
  put(cache, 0, 6);
  cache.truncate(4);
  CHECK(cache.position() == 4);
  CHECK(bit_equal(put(cache, 4, 3), tokens(0, 7)));
  CHECK(value_error([&] { return cache.truncate(8), 0; }) == "KVCache: expected a length in [0, 7], got 8");
  RingKVCache ring(small(), 3, 2);
  put(ring, 0, 2);
  ring.truncate(1);
  CHECK(bit_equal(put(ring, 1, 2), tokens(0, 3)));
  put(ring, 3, 2);
  CHECK(value_error([&] { return ring.truncate(4), 0; }) ==
        "KVCache: expected a cache that has dropped no tokens, got one that holds 4 of 5 tokens");
}

TEST_CASE("KVCache keeps the padding of its rows", "[kv_cache]") {
  DenseKVCache cache(small(), 12);
  CHECK_FALSE(cache.padding().defined());
  cache.set_padding(at::tensor({1, 3}));
  CHECK(bit_equal(cache.padding(), at::tensor({1, 3}, at::kLong)));
  CHECK(cache.least_padding() == 1);
  CHECK(bit_equal(put(cache, 0, 4), tokens(0, 4)));
  cache.reorder(at::tensor({1, 1, 0}));
  CHECK(bit_equal(cache.padding(), at::tensor({3, 3, 1}, at::kLong)));
  CHECK(cache.stored() == 3);  // the first token is padding of every row
  cache.reorder(at::tensor({0, 1}));
  CHECK(cache.least_padding() == 3);
  CHECK(cache.position() == 4);
  CHECK(cache.stored() == 1);
  cache.append(0, tokens(4, 1), tokens(4, 1));
  const auto [k, v] = cache.append(1, tokens(4, 1, 1), tokens(4, 1, 1));
  CHECK(bit_equal(k.narrow(2, 0, 1), tokens(3, 1, 1).index_select(0, at::tensor({1, 1}))));
  cache.truncate(4);
  CHECK(cache.stored() == 1);
  cache.truncate(2);
  CHECK(cache.stored() == 0);
  CHECK(cache.append(0, tokens(2, 1), tokens(2, 1)).first.size(2) == 1);
  cache.append(1, tokens(2, 1), tokens(2, 1));
  const auto refused = [&](const at::Tensor& padding) {
    return value_error([&] { return cache.set_padding(padding), 0; });
  };
  CHECK(refused(at::tensor({1, 2})) == "KVCache: expected padding before the first token, got it after 3");
  cache.reset();
  CHECK_FALSE(cache.padding().defined());
  CHECK(cache.least_padding() == 0);
  CHECK(refused(at::tensor({1, -2})) == "KVCache: expected padding >= 0, got -2");
  CHECK(refused(at::tensor({1})) ==
        "KVCache: expected padding as integers of shape (2,), got Int tensor of shape (1,)");
  CHECK(refused(at::zeros({2})) ==
        "KVCache: expected padding as integers of shape (2,), got Float tensor of shape (2,)");
  cache.set_padding(at::tensor({5, 4}));
  cache.set_padding(at::tensor({0, 0}));
  CHECK_FALSE(cache.padding().defined());
}

TEST_CASE("KVCache refuses misuse by name", "[kv_cache]") {
  DenseKVCache cache(small(), 10);
  const auto append = [&](int64_t layer, const at::Tensor& k, const at::Tensor& v) {
    return value_error([&] { return cache.append(layer, k, v).first; });
  };
  const auto good = tokens(0, 2);
  CHECK(append(2, good, good) == "KVCache: expected a layer in [0, 2), got 2");
  CHECK(append(-1, good, good) == "KVCache: expected a layer in [0, 2), got -1");
  CHECK(append(0, good.narrow(0, 0, 1), good) ==
        "KVCache: expected k and v of shape (2, 3, T, 4), got (1, 3, 2, 4) and (2, 3, 2, 4); reset(batch) "
        "starts "
        "with another batch");
  CHECK(append(0, good, good.narrow(2, 0, 1)).starts_with("KVCache: expected k and v of shape (2, 3, T, 4)"));
  CHECK(append(0, {}, good) == "KVCache: expected k to be a tensor, got an undefined one");
  CHECK_THROWS_AS(cache.append(0, good.to(at::kDouble), good.to(at::kDouble)), c10::TypeError);
  CHECK(append(0, good.to(at::kMeta), good.to(at::kMeta)) ==
        "KVCache: expected k and v on cpu, got meta and meta");
  CHECK(append(0, good.clone().requires_grad_(true), good)
            .starts_with("KVCache: expected at::NoGradGuard around a cached forward pass"));
  // A pass must not skip a layer, visit one twice, or append a different number of tokens.
  CHECK(append(1, good, good) ==
        "KVCache: expected layer 1 to append the 0 tokens that layer 0 appended, got 2");
  CHECK(append(0, good, good) == "no error");
  CHECK(append(0, good, good).starts_with("KVCache: expected the other layers before layer 0 again"));
  CHECK(append(1, tokens(0, 1), tokens(0, 1)) ==
        "KVCache: expected layer 1 to append the 2 tokens that layer 0 appended, got 1");
  CHECK(value_error([&] {
          return cache.reorder(at::tensor({0, 1})), 0;
        }) == "KVCache: expected reorder between two forward passes, got it inside one");
  CHECK(value_error([&] { return cache.truncate(0), 0; }) ==
        "KVCache: expected truncate between two forward passes, got it inside one");
  // After a reset in the middle of a pass, the next layer cannot continue that pass.
  cache.reset();
  CHECK(append(1, good, good) ==
        "KVCache: expected layer 1 to append the 0 tokens that layer 0 appended, got 2");
  CHECK(append(0, good, good) == "no error");
  CHECK(append(1, good, good) == "no error");

  CHECK(value_error([] { return DenseKVCache({}, 0).slots(); }) == "KVCache: expected capacity > 0, got 0");
  CHECK(value_error([] { return DenseKVCache({.layers = 0}, 1).slots(); }) ==
        "KVCache: expected layers > 0, got 0");
  CHECK(value_error([] { return RingKVCache({}, 0).slots(); }) == "KVCache: expected window > 0, got 0");
  CHECK(value_error([] { return RingKVCache({}, 2, -2).slots(); }) == "KVCache: expected chunk > 0, got -2");
  CHECK_THROWS_AS(DenseKVCache({.dtype = at::kLong}, 1), c10::TypeError);
}

TEST_CASE("KVCache is as it was after an error", "[kv_cache]") {
  for (const bool ring : {false, true}) {
    // There are so many slots that a larger batch fits into no address space; the memory is never touched.
    std::unique_ptr<KVCache> cache = std::make_unique<DenseKVCache>(small(), 1 << 20);
    if (ring) cache = std::make_unique<RingKVCache>(small(), 4, 1 << 20);
    put(*cache, 0, 2);
    const auto unchanged = [&] {
      CHECK(cache->options().batch == 2);
      CHECK(cache->position() == 2);
      CHECK(cache->stored(1) == 2);
      CHECK(bit_equal(cache->append(0, tokens(0, 0), tokens(0, 0)).first, tokens(0, 2)));
      CHECK(bit_equal(cache->append(1, tokens(0, 0, 1), tokens(0, 0, 1)).first, tokens(0, 2, 1)));
    };
    const auto refused = test::error_of<c10::OutOfMemoryError>([&] { cache->reset(int64_t{1} << 30); });
    CHECK(refused.starts_with("KVCache: cannot reserve "));
    CHECK(refused.find(" bytes: ") != std::string::npos);
    unchanged();
    CHECK(value_error([&] { return cache->reset(int64_t{1} << 62), 0; })
              .starts_with(
                  "KVCache: expected fewer than 2^63 bytes, got layers = 2, batch = 4611686018427387904"));
    CHECK(value_error([&] { return cache->reset(0), 0; }) == "KVCache: expected batch > 0, got 0");
    unchanged();
    CHECK(test::error_of<c10::OutOfMemoryError>([&] {
            cache->reorder(at::zeros({1}, at::kLong).expand({int64_t{1} << 22}));
          }).starts_with("KVCache: cannot reserve "));
    unchanged();
  }
}

TEST_CASE("KVCache names what is out of range or too large", "[kv_cache]") {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  DenseKVCache cache(small(), 10);
  for (const int64_t layer : {int64_t{5}, int64_t{-1}, kMost}) {
    const auto expected = "KVCache: expected a layer in [0, 2), got " + std::to_string(layer);
    CHECK(value_error([&] { return cache.position(layer); }) == expected);
    CHECK(value_error([&] { return cache.stored(layer); }) == expected);
  }
  CHECK(value_error([&] {
          return cache.truncate(kMost), 0;
        }).starts_with("KVCache: expected a length in [0, 0]"));
  CHECK(value_error([] { return RingKVCache({}, kMost).slots(); }) ==
        "KVCache: expected window - 1 + chunk below 2^63, got 9223372036854775807 - 1 + 9223372036854775807");
  CHECK(
      value_error([] { return RingKVCache({}, 2, kMost).slots(); }).starts_with("KVCache: expected window"));
  CHECK(value_error([] {
          return DenseKVCache({}, kMost).slots();
        }).starts_with("KVCache: expected fewer than 2^63 bytes, got layers = 1, batch = 1"));
  for (auto member : {&KVCacheOptions::layers, &KVCacheOptions::batch, &KVCacheOptions::num_kv_heads,
                      &KVCacheOptions::head_dim}) {
    KVCacheOptions options;
    options.*member = kMost;
    CHECK(
        value_error([&] { return DenseKVCache(options, 1).slots(); }).starts_with("KVCache: expected fewer"));
    options.*member = int64_t{1} << 45;
    CHECK(test::error_of<c10::OutOfMemoryError>([&] {
            DenseKVCache(options, 1);
          }).starts_with("KVCache: cannot reserve "));
  }
}

TEST_CASE("KVCache made under InferenceMode serves outside it", "[kv_cache]") {
  const auto made = [](bool ring) -> std::unique_ptr<KVCache> {
    const c10::InferenceMode inference;
    if (ring) return std::make_unique<RingKVCache>(small(), 4, 3);
    return std::make_unique<DenseKVCache>(small(), 10);
  };
  for (const bool ring : {false, true}) {
    const auto cache = made(ring);
    CHECK(bit_equal(put(*cache, 0, 2), tokens(0, 2)));
    {
      const c10::InferenceMode inference;
      CHECK(bit_equal(put(*cache, 2, 1), tokens(0, 3)));
      cache->reset(3);
    }
    CHECK(bit_equal(put(*cache, 0, 2), tokens(0, 2, 0, 3)));
    {
      const c10::InferenceMode inference;
      cache->reorder(at::tensor({2, 2}));
    }
    CHECK_FALSE(cache->append(0, tokens(0, 0), tokens(0, 0)).first.is_inference());
    cache->reset();
    CHECK(bit_equal(put(*cache, 0, 2), tokens(0, 2)));
  }
}

TEST_CASE("KVCache under autocast takes its dtype, or holds it exactly", "[kv_cache][autocast]") {
  const auto numbers = at::randn({1, 1, 3, 64});
  const auto append = [](at::ScalarType kept, const at::Tensor& k) {
    DenseKVCache cache({.dtype = kept}, 4);
    return cache.append(0, k, k).first.clone();
  };
  const auto low = numbers.to(at::kBFloat16);
  // Without autocast, another dtype is an error.
  for (const auto& [kept, given] : {std::pair{at::kFloat, at::kBFloat16}, {at::kBFloat16, at::kFloat}})
    CHECK_THROWS_AS(append(kept, numbers.to(given)), c10::TypeError);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto exact = append(at::kFloat, low), cast = append(at::kBFloat16, numbers);
  // float16 is neither autocast's dtype nor wide enough for it.
  const auto refused = test::type_error([&] { append(at::kHalf, low); });
  const auto narrowed = test::type_error([&] { append(at::kHalf, numbers); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(bit_equal(exact, low.to(at::kFloat)));
  CHECK(bit_equal(cast, low));
  CHECK(refused == "KVCache: expected k and v of dtype Half, got BFloat16 and BFloat16");
  CHECK(narrowed == "KVCache: expected k and v of dtype Half, got Float and Float");
}

TEST_CASE("KVCache holds values that are the first features of the keys", "[kv_cache]") {
  const KVCacheOptions options{
      .layers = 2, .batch = 2, .num_kv_heads = 1, .head_dim = 4, .values_in_keys = 3};
  const auto k = at::randn({2, 1, 9, 4});
  const auto put_all = [&](KVCache& cache, const at::Tensor& tokens) {
    std::pair<at::Tensor, at::Tensor> held;
    for (int64_t layer = 0; layer < 2; ++layer) held = cache.append(layer, tokens);
    CHECK(held.second.is_alias_of(held.first));
    CHECK(bit_equal(held.second, held.first.narrow(3, 0, 3)));
    return held.first;
  };
  DenseKVCache cache(options, 9);
  CHECK(cache.bytes() == 2u * 2 * 9 * 4 * 4);
  put_all(cache, k.narrow(2, 0, 4));
  CHECK(bit_equal(put_all(cache, k.narrow(2, 4, 5)), k));
  cache.truncate(6);
  cache.reorder(at::tensor({1, 0}));
  const auto none = at::zeros({2, 1, 0, 4});
  CHECK(bit_equal(put_all(cache, none), k.narrow(2, 0, 6).flip(0)));
  cache.reorder(at::tensor({0, 0, 1}));
  CHECK(bit_equal(put_all(cache, at::zeros({3, 1, 0, 4}))[1], k[1].narrow(1, 0, 6)));
  RingKVCache ring(options, 3, 2);
  for (int64_t t = 0; t < 8; t += 2) {
    const auto held = put_all(ring, k.narrow(2, t, 2));
    CHECK(bit_equal(held, k.narrow(2, std::max<int64_t>(t - 2, 0), held.size(2))));
  }
  CHECK(
      value_error([&] { return ring.append(0, none, none); }) ==
      "KVCache: expected no v, since values are the first 3 features of the keys (values_in_keys), got Float "
      "tensor of shape (2, 1, 0, 4)");
  CHECK(value_error([&] { return DenseKVCache({.head_dim = 4, .values_in_keys = 5}, 9).bytes(); }) ==
        "KVCache: expected values_in_keys in [0, head_dim = 4], got 5");
  DenseKVCache both(small(1), 9);
  CHECK(value_error([&] { return both.append(0, tokens(0, 1)); }) ==
        "KVCache: expected v to be a tensor, got an undefined one");
}

TEST_CASE("KVCache continues from the tensors that it saved", "[kv_cache]") {
  for (const int64_t in_keys : {0, 3}) {
    auto options = small();
    options.values_in_keys = in_keys;
    const auto add = [&](KVCache& cache, int64_t first, int64_t count) {
      std::vector<at::Tensor> held;
      for (int64_t layer = 0; layer < 2; ++layer) {
        const auto k = tokens(first, count, layer, cache.options().batch);
        held.push_back(cache.append(layer, k, in_keys ? at::Tensor() : -k).first.clone());
      }
      return at::stack(held);
    };
    RingKVCache ring(options, 3, 4);
    ring.set_padding(at::tensor({1, 0}));
    add(ring, 0, 4);
    add(ring, 4, 2);
    auto saved = ring.tensors();
    for (auto& [name, tensor] : saved) tensor = tensor.clone();
    options.batch = 1;
    RingKVCache other(options, 3, 4);
    other.load(saved);
    CHECK(other.options().batch == 2);
    CHECK(other.position(1) == 6);
    CHECK(bit_equal(other.padding(), ring.padding()));
    CHECK(bit_equal(add(other, 6, 1), add(ring, 6, 1)));

    DenseKVCache dense(options, 9);
    add(dense, 0, 2);
    const auto unchanged = [&](const std::string& error, const std::string& expected) {
      CHECK(error == expected);
      CHECK(dense.position() == 2);
      CHECK(dense.options().batch == 1);
    };
    const auto load = [&](const std::string& name, const at::Tensor& tensor) {
      auto changed = saved;
      changed[name] = tensor;
      return value_error([&] { dense.load(changed); });
    };
    unchanged(load("0.k", at::zeros({1, 3, 10, 4})),
              "KVCache: expected 0.k of shape (B, 3, at most 9, 4), got (1, 3, 10, 4)");
    unchanged(load("1.k", at::zeros({2, 3, 3, 4})),
              "KVCache: expected 1.k of shape (2, 3, 4, 4), got (2, 3, 3, 4)");
    unchanged(load("2.k", at::zeros({2, 3, 4, 4})), "KVCache: unknown tensor 2.k");
    unchanged(load("positions", at::tensor({6, 7}, at::kLong)),
              "KVCache: expected equal positions of at least 4, got 7");
    unchanged(load("positions", at::tensor({3, 3}, at::kLong)),
              "KVCache: expected equal positions of at least 4, got 3");
  }
}
