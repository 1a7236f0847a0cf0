#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/cache/delta_cache.h>
#include <attentive/files/safetensors.h>
#include <attentive/functional/gated_delta_rule.h>
#include <attentive/modules/gated_delta_net.h>

#include "modules/mixer_cases.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::type_error;
using attentive::test::value_error;

namespace {

GatedDeltaNetOptions small_net() {
  return GatedDeltaNetOptions(6, 4).num_key_heads(2).key_dim(3).value_dim(5).kernel(3);
}

GatedDeltaNetOptions net_options(const nlohmann::json& python) {
  const auto integer = [&](const char* name) { return python.at(name).get<int64_t>(); };
  return GatedDeltaNetOptions(integer("hidden_size"), integer("linear_num_value_heads"))
      .num_key_heads(integer("linear_num_key_heads"))
      .key_dim(integer("linear_key_head_dim"))
      .value_dim(integer("linear_value_head_dim"))
      .kernel(integer("linear_conv_kernel_dim"))
      .eps(python.at("rms_norm_eps").get<double>());
}

void check_net_cases(const std::vector<test::MixerCase>& cases) {
  for (const auto& one : cases) {
    INFO(one.file.name << " " << one.options.dump());
    at::manual_seed(7);
    GatedDeltaNet net(net_options(one.options));
    test::check_mixer(one, *net, [&](const at::Tensor& x) { return net->forward(x, one.keep); });
    DeltaCache cache(net->cache_options(1, one.x.size(0)));
    const auto begin = [&] {
      cache.reset();
      cache.set_padding(one.padding);
    };
    test::check_mixer_steps(one, begin,
                            [&](const at::Tensor& tokens) { return net->forward_cached(tokens, cache, 0); });
  }
}

void check_channel_cases(const std::vector<test::MixerCase>& cases) {
  for (const auto& one : cases) {
    INFO(one.file.name);
    std::map<std::string, at::Tensor> leaves;
    for (const auto& [name, tensor] : one.file.inputs) leaves[name] = tensor.clone().requires_grad_();
    const auto heads = [&](const char* name) { return leaves.at(name).transpose(1, 2); };
    GatedDeltaRuleCall call;
    if (one.options.at("normalized").get<bool>()) call.normalize_eps = 1e-6;
    const auto [output, state] =
        gated_delta_rule(heads("q"), heads("k"), heads("v"), heads("gate"), heads("beta"), call,
                         leaves.count("state") ? leaves.at("state") : at::Tensor());
    const auto results = at::cat({output.transpose(1, 2).flatten(), state.flatten()});
    CHECK(test::mixer_difference(results, one.file.expected_output) <= 1e-5);
    (results * one.file.grad_output).sum().backward();
    double largest = 1;
    for (const auto& item : one.file.input_gradients)
      largest = std::max(largest, test::largest_of(item.second));
    CHECK(one.file.input_gradients.size() == leaves.size());
    for (const auto& [name, gradient] : one.file.input_gradients) {
      INFO("gradient of " << name);
      CHECK(test::mixer_difference(leaves.at(name).grad(), gradient, largest) <= 2e-5);
    }
  }
}

// Whether two caches continue alike, to the last bit.
bool continue_alike(GatedDeltaNet& net, DeltaCache one, DeltaCache other) {
  const auto x = at::randn({one.options().batch, 2, 6});
  return bit_equal(net->forward_cached(x, one, 0), net->forward_cached(x, other, 0));
}

}  // namespace

TEST_CASE("GatedDeltaNet equals transformers' Qwen3NextGatedDeltaNet", "[gated_delta_net][mixers]") {
  const auto cases = test::committed_mixers("delta");
  REQUIRE(cases.size() == 7);
  check_net_cases(cases);
}

TEST_CASE("GatedDeltaNet equals Qwen3NextGatedDeltaNet of drawn sizes", "[gated_delta_net][mixers][python]") {
  NEEDS_PYTHON("transformers");
  const auto cases = test::drawn_mixers("delta");
  REQUIRE(cases.size() == 50);
  check_net_cases(cases);
}

TEST_CASE("gated_delta_rule with gates per channel equals chunk_kimi_delta_attention",
          "[gated_delta_net][mixers]") {
  const auto cases = test::committed_mixers("channels");
  REQUIRE(cases.size() == 7);
  check_channel_cases(cases);
}

TEST_CASE("gated_delta_rule equals chunk_kimi_delta_attention of drawn sizes",
          "[gated_delta_net][mixers][python]") {
  NEEDS_PYTHON("transformers");
  const auto cases = test::drawn_mixers("channels");
  REQUIRE(cases.size() == 50);
  check_channel_cases(cases);
}

TEST_CASE("GatedDeltaNet is a torch::nn citizen", "[gated_delta_net]") {
  test::ModuleSuite<GatedDeltaNet> suite;
  suite.make = [] { return GatedDeltaNet(small_net()); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"dt_bias",           "A_log",       "conv1d.weight",  "in_proj_qkvz.weight",
                "in_proj_ba.weight", "norm.weight", "out_proj.weight"};
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.meta = false;  // its norm, as ATen's
  suite.run();
}

TEST_CASE("GatedDeltaNet continues from its cache as it computes whole sequences", "[gated_delta_net]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  INFO(c10::toString(type));
  const at::NoGradGuard no_grad;
  GatedDeltaNet net(GatedDeltaNetOptions(12, 4).num_key_heads(2).key_dim(16).value_dim(8));
  net->to(type);
  DeltaCache cache(net->cache_options(1, 2));
  CHECK(cache.layer(0).recurrent.scalar_type() == at::promote_types(type, at::kFloat));
  const auto x = at::randn({2, 300, 12}).to(type);
  std::vector<at::Tensor> outputs;
  int64_t first = 0;
  for (const int64_t length : {150, 1, 2, 0, 102, 1, 44}) {
    outputs.push_back(net->forward_cached(x.narrow(1, first, length), cache, 0));
    first += length;
    CHECK(cache.position() == first);
  }
  const double rtol = type == at::kFloat    ? 1e-5
                      : type == at::kDouble ? 1e-12
                      : type == at::kHalf   ? 5e-3
                                            : 4e-2;
  CHECK_WITHIN(at::cat(outputs, 1), net->forward(x), {rtol, 0});
}

TEST_CASE("GatedDeltaNet of packed sequences equals each alone", "[gated_delta_net]") {
  GatedDeltaNet net(small_net());
  for (const auto& lengths : {std::vector<int64_t>{4, 1, 0, 2, 9}, {1}, {0}, {2, 70}}) {
    std::vector<int64_t> offsets = {0};
    for (const auto length : lengths) offsets.push_back(offsets.back() + length);
    const auto x = at::randn({offsets.back(), 6}).requires_grad_();
    const auto parts = x.split_with_sizes(lengths);
    std::vector<at::Tensor> alone;
    for (const auto& part : parts) alone.push_back(net->forward(part));
    const auto want = at::cat(alone), got = net->forward_packed(x, at::tensor(offsets, at::kLong));
    CHECK_CLOSE(got, want);
    const auto weights = at::randn(got.sizes());
    const auto gradient = [&](const at::Tensor& y) {
      return torch::autograd::grad({(y * weights).sum()}, {x, net->conv1d->weight})[1];
    };
    if (x.size(0) > 0) CHECK(test::mixer_difference(gradient(got), gradient(want)) <= 2e-5);
  }
}

TEST_CASE("GatedDeltaNet: padding, no tokens, threads", "[gated_delta_net]") {
  const at::NoGradGuard no_grad;
  GatedDeltaNet net(small_net());
  auto x = at::randn({2, 7, 6});
  SECTION("padding may be NaN") {
    const auto want = net->forward(x.narrow(1, 3, 4));
    x.narrow(1, 0, 3).fill_(std::numeric_limits<double>::quiet_NaN());
    auto keep = at::ones({2, 7}, at::kBool);
    keep.narrow(1, 0, 3).fill_(false);
    CHECK_CLOSE(net->forward(x, keep).narrow(1, 3, 4), want);
    CHECK_CLOSE(net->forward(x[0], keep[0]).narrow(0, 3, 4), want[0]);
    for (const int64_t chunk : {1, 2, 7}) {
      INFO("chunks of " << chunk);
      DeltaCache cache(net->cache_options(1, 2));
      cache.set_padding(at::full({2}, 3, at::kInt));
      std::vector<at::Tensor> outputs;
      for (const auto& part : x.split(chunk, 1)) outputs.push_back(net->forward_cached(part, cache, 0));
      CHECK_CLOSE(at::cat(outputs, 1).narrow(1, 3, 4), want);
    }
  }
  SECTION("padding leaves the matrices as they are") {
    DeltaCache cache(net->cache_options(1, 2));
    cache.set_padding(at::full({2}, 9, at::kLong));
    cache.layer(0).conv.fill_(0.5);
    cache.layer(0).recurrent.fill_(2);
    net->forward_cached(x, cache, 0);
    CHECK(cache.layer(0).recurrent.eq(2).all().item<bool>());
  }
  SECTION("no tokens") {
    CHECK(net->forward(x.narrow(1, 0, 0)).sizes() == at::IntArrayRef({2, 0, 6}));
    CHECK(net->forward(x.narrow(0, 0, 0)).sizes() == at::IntArrayRef({0, 7, 6}));
  }
  SECTION("threads") {
    GatedDeltaNet wide(GatedDeltaNetOptions(64, 4).key_dim(32).value_dim(32));
    const auto tokens = at::randn({2, 400, 64});
    const auto run = [&](int threads) {
      const auto before = at::get_num_threads();
      at::set_num_threads(threads);
      DeltaCache cache(wide->cache_options(1, 2));
      wide->forward_cached(tokens, cache, 0);
      const auto y = wide->forward_cached(tokens.narrow(1, 0, 1), cache, 0);
      at::set_num_threads(before);
      return std::pair(y, cache.layer(0).recurrent);
    };
    const auto one = run(1), two = run(2);
    CHECK(bit_equal(one.first, two.first));
    CHECK(bit_equal(one.second, two.second));
  }
}

TEST_CASE("DeltaCache copies, reorders, resets, saves and loads", "[gated_delta_net][delta_cache]") {
  const at::NoGradGuard no_grad;
  GatedDeltaNet net(small_net());
  DeltaCache cache(net->cache_options(2, 2));
  CHECK(cache.bytes() == 2u * 4 * (2 * 32 * 3 + 2 * 4 * 3 * 5));
  cache.set_padding(at::tensor({2, 0}));
  const auto x = at::randn({2, 4, 6});
  for (const int64_t layer : {0, 1}) net->forward_cached(x, cache, layer);

  const DeltaCache copy = cache;
  CHECK(continue_alike(net, cache, copy));
  net->forward_cached(x, cache, 0);
  CHECK(copy.position() == 4);
  CHECK_FALSE(bit_equal(copy.layer(0).recurrent, cache.layer(0).recurrent));
  CHECK_FALSE(bit_equal(copy.layer(0).conv, cache.layer(0).conv));

  cache = copy;
  cache.reorder(at::tensor({1, 1, 0}).to(at::kInt));
  CHECK(cache.options().batch == 3);
  CHECK(bit_equal(cache.padding(), at::tensor({0, 0, 2}, at::kLong)));
  for (const int64_t layer : {0, 1}) {
    CHECK(bit_equal(cache.layer(layer).recurrent[2], copy.layer(layer).recurrent[0]));
    CHECK(bit_equal(cache.layer(layer).conv[0], copy.layer(layer).conv[1]));
  }

  const TemporaryFolder folder;
  save_safetensors(folder / "state.safetensors", cache.tensors());
  DeltaCache loaded(net->cache_options(2, 1));
  loaded.load(load_safetensors(folder / "state.safetensors").tensors);
  CHECK(loaded.position(1) == 4);
  CHECK(bit_equal(loaded.padding(), cache.padding()));
  CHECK(continue_alike(net, loaded, cache));

  cache.reset();
  CHECK(cache.position() == 0);
  CHECK_FALSE(cache.padding().defined());
  CHECK(continue_alike(net, cache, DeltaCache(net->cache_options(2, 3))));
  cache.reset(1);
  CHECK(continue_alike(net, cache, DeltaCache(net->cache_options(2, 1))));

  // An error leaves it unchanged.
  const auto unchanged = [&](const std::string& error, const std::string& expected) {
    CHECK(error == expected);
    CHECK(loaded.options().batch == 3);
    CHECK(loaded.position() == 4);
    for (const auto& [name, tensor] : copy.tensors()) {
      if (name != "padding" && name != "positions") CHECK(bit_equal(loaded.tensors().at(name)[0], tensor[1]));
    }
  };
  auto tensors = copy.tensors();
  const auto load = [&](const std::string& name, const at::Tensor& tensor) {
    auto changed = tensors;
    changed[name] = tensor;
    return value_error([&] { loaded.load(changed); });
  };
  unchanged(load("1.recurrent", at::zeros({2, 4, 3, 4})),
            "DeltaCache: expected 1.recurrent of shape (2, 4, 3, 5), got (2, 4, 3, 4)");
  unchanged(load("2.conv", at::zeros({2, 32, 3})), "DeltaCache: unknown tensor 2.conv");
  unchanged(load("positions", at::tensor({1, -1}, at::kLong)), "DeltaCache: expected positions >= 0, got -1");
  unchanged(load("padding", at::tensor({1}, at::kLong)),
            "DeltaCache: expected padding of shape (2,), got (1,)");
  auto wrong = tensors;
  wrong["1.conv"] = wrong["1.conv"].to(at::kDouble);
  unchanged(type_error([&] { loaded.load(wrong); }),
            "DeltaCache: expected 1.conv of dtype Float, got Double");
  wrong.erase("1.conv");
  unchanged(value_error([&] { loaded.load(wrong); }), "DeltaCache: missing tensor 1.conv");
  unchanged(value_error([&] {
              loaded.reorder(at::tensor({0, 3}));
            }),
            "DeltaCache: expected rows in [0, 3), got 3");
  unchanged(value_error([&] { loaded.reorder(at::ones({1})); }),
            "DeltaCache: expected rows as integers of shape (B,), got Float tensor of shape (1,)");
  unchanged(value_error([&] {
              loaded.set_padding(at::tensor({0, 1, 2}));
            }),
            "DeltaCache: expected padding before the first token, got it after 4");
  unchanged(value_error([&] { loaded.reset(0); }), "DeltaCache: expected batch > 0, got 0");
  unchanged(
      value_error([&] { net->forward_cached(x, loaded, 0); }),
      "GatedDeltaNet: expected a cache of its cache_options(): batch, conv_dim, kernel, num_heads, key_dim, "
      "value_dim = (2, 32, 3, 4, 3, 5) on cpu, got (3, 32, 3, 4, 3, 5) on cpu; reset(batch) starts with "
      "another batch");
  const auto three = at::randn({3, 1, 6});
  unchanged(value_error([&] { net->forward_cached(three, loaded, 2); }),
            "DeltaCache: expected a layer in [0, 2), got 2");
  unchanged(type_error([&] { net->forward_cached(three.to(at::kDouble), loaded, 0); }),
            "GatedDeltaNet: expected x of dtype Float like the parameters, got Double");
}

TEST_CASE("GatedDeltaNet names what is wrong", "[gated_delta_net]") {
  const auto of = [](const GatedDeltaNetOptions& options) {
    return value_error([&] { return GatedDeltaNet(options); });
  };
  CHECK(of(small_net().emb_dim(0)) == "GatedDeltaNet: expected emb_dim > 0, got 0");
  CHECK(of(small_net().num_key_heads(3)) ==
        "GatedDeltaNet: expected num_key_heads to divide num_heads = 4, got 3");
  CHECK(of(small_net().kernel(0)) == "GatedDeltaNet: expected kernel in [1, 1048576], got 0");
  CHECK(of(small_net().eps(-1)) == "GatedDeltaNet: expected eps to be finite and not negative, got -1");
  GatedDeltaNet net(small_net());
  const auto x = at::randn({2, 3, 6});
  CHECK(value_error([&] {
          return net->forward(x, at::ones({2, 2}, at::kBool));
        }) == "GatedDeltaNet: expected keep of shape (2, 3) on cpu, got Bool tensor of shape (2, 2) on cpu");
  CHECK(type_error([&] {
          return net->forward(x, at::ones({2, 3}));
        }) == "GatedDeltaNet: expected keep of dtype Bool, got Float");
  CHECK(value_error([&] {
          return net->forward(at::randn({2, 3, 5}));
        }) == "GatedDeltaNet: expected x of shape (B, T, 6) or (T, 6), got (2, 3, 5)");
  CHECK(value_error([&] {
          return net->forward_packed(x, at::tensor({0, 3}));
        }) == "GatedDeltaNet: expected packed x of shape (T, 6), got (2, 3, 6)");
  CHECK(value_error([&] {
          return net->forward_packed(x[0], at::tensor({0, 2}, at::kLong));
        }) == "gated_delta_rule: expected sequence_offsets to end at 3 (the packed tokens), got 2");
  CHECK(value_error([&] { return net->forward_packed(x[0], at::ones({2})); }) ==
        "GatedDeltaNet: expected offsets of shape (N + 1,) and dtype Long on the CPU, got Float tensor of "
        "shape (2,) on cpu");
}
