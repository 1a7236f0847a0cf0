// Traps 11 to 14: what stays PyTorch's, bit for bit and error for error, and what is reached.

#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <attentive/compat/from.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/compare.h>

#include "accelerate/sdpa_call.h"
#include "accelerate/sdpa_calls.h"
#include "support/errors.h"
#include "support/openmp_runtimes.h"

using namespace attentive;
using namespace attentive::test;
using accelerate::EverySizeGuard;

namespace {

// Whether a call that is left for its size has PyTorch's bits in both directions.
bool left_alone_by_size(const SdpaCase& call) {
  const auto on = run(call);
  CHECK(only_reason() == "PyTorch is faster for a call of this size");
  stop_accelerating_sdpa();
  const bool same = same_bits(on, run(call));
  accelerate_sdpa();
  return same;
}

}  // namespace

TEST_CASE("trap 11: whatever PyTorch refuses or composes stays as it was", "[accelerate][trap]") {
  at::manual_seed(9);
  const auto plain = random_call("plain");
  const auto with = [&](const std::function<void(SdpaCase&)>& change) {
    auto call = plain;
    change(call);
    return left_alone(call);
  };
  CHECK(left_alone(cast(plain, at::kDouble)) == "it accepts only float32, bfloat16 and float16");
  CHECK(with([](auto& c) { c.k = c.k.to(at::kDouble); }) == "it needs q, k and v of one dtype");
  CHECK(with([](auto& c) { c.mask = at::ones({33}, at::kBool); }) ==
        "it needs a mask of rank 2 to that of q");
  CHECK(with([](auto& c) {
          c.mask = at::ones({1, 1, 1, 33, 33}, at::kBool);
        }) == "it needs a mask of rank 2 to that of q");
  CHECK(with([](auto& c) {
          c.mask = at::ones({33, 32}, at::kBool);
        }) == "it needs a mask that broadcasts to (B, H, L, S)");
  CHECK(with([](auto& c) {
          c.mask = at::ones({3, 1, 33, 33});
        }) == "it needs a mask that broadcasts to (B, H, L, S)");
  CHECK(with([](auto& c) {
          c.mask = at::ones({33, 33}, at::kDouble);
        }) == "it needs a mask that is bool, float32 or of the dtype of q");
  CHECK(with([](auto& c) {
          c.mask = at::ones({33, 33}, at::kLong);
        }) == "it needs a mask that is bool, float32 or of the dtype of q");
  CHECK(with([](auto& c) {
          c.mask = at::ones({33, 33}, at::kBool);
          c.causal = true;
        }) == "a mask and is_causal exclude each other");
  CHECK(with([](auto& c) { c.dropout_p = 1.0; }) == "a dropout of 1 leaves nothing to compute");
  CHECK(with([](auto& c) { c.dropout_p = -0.5; }) == "dropout_p is no probability");
  CHECK(with([](auto& c) { c.dropout_p = 1.5; }) == "dropout_p is no probability");
  CHECK(with([](auto& c) { c.scale = 0.0; }) == "it needs a scale between 1e-30 and 1e30");
  CHECK(with([](auto& c) { c.k = c.k.narrow(3, 0, 8); }) == "the sizes of q, k and v do not match");
  // With dropout, PyTorch takes its composition. Its kernel reads beyond keys that are fewer than the values.
  const auto composed = [&](const std::function<void(SdpaCase&)>& change) {
    return with([&](auto& c) {
      change(c);
      c.dropout_p = 0.1;
    });
  };
  CHECK(composed([](auto& c) { c.k = c.k.narrow(2, 0, 20); }) == "the sizes of q, k and v do not match");
  CHECK(composed([](auto& c) { c.k = c.k.narrow(1, 0, 2), c.v = c.v.narrow(1, 0, 2); }) ==
        "heads share keys only with enable_gqa");
  CHECK(composed([](auto& c) { c.k = c.k.narrow(1, 0, 3), c.v = c.v.narrow(1, 0, 3), c.grouped = true; }) ==
        "the heads of q are not a multiple of the heads of k");
  CHECK(composed([](auto& c) { c.v = c.v.narrow(1, 0, 1); }) == "k and v differ in their heads");
  CHECK(composed([](auto& c) {
          c.q = c.q.repeat({2, 1, 1, 1});
        }) == "the batches of q, k and v do not match");
  CHECK(composed([](auto& c) { c.q = c.q.narrow(0, 0, 1), c.k = c.k.narrow(0, 0, 1); }) ==
        "the batches of q, k and v do not match");  // a mask of v's batch would not broadcast
  CHECK(with([](auto& c) {
          for (auto* x : {&c.q, &c.k, &c.v}) *x = x->unsqueeze(0);
        }) == "it needs q, k and v of rank 3 or 4");
  CHECK(with([](auto& c) {
          for (auto* x : {&c.q, &c.k, &c.v}) *x = x->select(0, 0).select(0, 0);
        }) == "it needs q, k and v of rank 3 or 4");
  CHECK(left_alone(random_call("no query", {.queries = 0})) == "it does not accept empty inputs");
  CHECK(left_alone(random_call("no key", {.keys = 0})) == "it does not accept empty inputs");
  CHECK(left_alone(random_call("no item", {.batch = 0})) == "it does not accept empty inputs");
  CHECK(left_alone(random_call("no number", {.dim = 0})) == "it does not accept empty inputs");
}

TEST_CASE("trap 11: the fused operators refuse what they refused", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(10);
  const auto call = random_call("plain");
  const auto errors = [&] {
    const auto flash = [&](const at::Tensor& q, double p, const std::optional<at::Tensor>& mask) {
      return error_of<c10::Error>(
          [&] { at::_scaled_dot_product_flash_attention_for_cpu(q, call.k, call.v, p, false, mask); });
    };
    return std::vector{flash(call.q, 0.5, {}), flash(call.q[0], 0.0, {}),
                       flash(call.q, 0.0, at::zeros({4, 33, 33})), flash(call.q.to(at::kDouble), 0.0, {})};
  };
  const auto off = errors();
  // PyTorch's kernel reads beyond keys of batch 1, so that it is not called with them here.
  const std::optional<at::Tensor> no_mask;
  const auto one = call.k.narrow(0, 0, 1);
  CHECK(accelerate::decide_flash({call.q, one, call.v, no_mask}, false).reason ==
        "it does not broadcast batches in this operator");
  CHECK(accelerate::decide_flash({call.q, call.k, one, no_mask}, false).reason ==
        "it does not broadcast batches in this operator");
  const SdpaGuard guard;
  CHECK(errors() == off);
}

TEST_CASE("trap 12: PyTorch's C++ modules never call the function, and the report says so",
          "[accelerate][trap]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  reset_sdpa_report();
  at::manual_seed(11);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(32, 4).dropout(0.1));
  const auto x = at::randn({10, 2, 32});
  attention->forward(x, x, x, {}, /*need_weights=*/false);
  torch::nn::TransformerEncoderLayer layer(torch::nn::TransformerEncoderLayerOptions(32, 4));
  layer->forward(x).sum().backward();
  layer->eval();
  layer->forward(x);
  CHECK(to_string(sdpa_report()) == "        0 taken\n        0 left to PyTorch\n");
}

TEST_CASE("trap 12: compat::from reaches PyTorch's C++ modules, which accelerate_sdpa does not",
          "[accelerate][trap]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(15);
  const auto x = at::randn({10, 2, 32});
  // The number of calls of attention(); PyTorch's function is called by neither module.
  const auto attentions_of = [](const std::function<void()>& run) {
    reset_sdpa_report();
    const AttentionRecorder recorder;
    run();
    CHECK(to_string(sdpa_report()) == "        0 taken\n        0 left to PyTorch\n");
    return recorder.seen();
  };
  const auto check = [&](const auto& theirs, int64_t attentions, const auto& call) {
    INFO(theirs->name());
    CHECK(attentions_of([&] { call(theirs); }) == 0);
    CHECK(attentions_of([&] { call(compat::from(theirs)); }) == attentions);
  };
  const auto self = [&](auto module) { module->forward(x).sum().backward(); };
  const auto cross = [&](auto module) { module->forward(x, x).sum().backward(); };
  const torch::nn::TransformerEncoderLayer encoder_layer(torch::nn::TransformerEncoderLayerOptions(32, 4));
  const torch::nn::TransformerDecoderLayer decoder_layer(torch::nn::TransformerDecoderLayerOptions(32, 4));
  check(torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(32, 4).dropout(0.1)), 1,
        [&](auto module) { std::get<0>(module->forward(x, x, x, {}, false)).sum().backward(); });
  check(encoder_layer, 1, self);
  check(decoder_layer, 2, cross);
  check(torch::nn::TransformerEncoder(encoder_layer, 3), 3, self);
  check(torch::nn::TransformerDecoder(decoder_layer, 2), 4, cross);
  check(torch::nn::Transformer(torch::nn::TransformerOptions(32, 4, 1, 2)), 5, cross);
}

TEST_CASE("trap 12: the Torch backend of attention() stays PyTorch's kernel", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(12);
  const auto call = random_call("backend", {.queries = 100, .keys = 100});
  const auto compute = [&] {
    const auto q = call.q.clone().requires_grad_();
    const auto y = attention(q, call.k, call.v, {.causal = Causal::TopLeft, .backend = Backend::Torch});
    y.sum().backward();
    return std::pair(y.detach(), q.grad());
  };
  const auto off = compute();
  const SdpaGuard guard;
  reset_sdpa_report();
  const auto on = compute();
  CHECK(bit_equal(on.first, off.first));
  CHECK(bit_equal(on.second, off.second));
  CHECK(sdpa_report().taken == 0);
}

TEST_CASE("trap 12: a TorchScript file is reached, forward and backward", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(13);
  const auto call = random_call("script");
  std::stringstream file;
  {
    torch::jit::Module module("attend");
    module.define(R"(
def forward(self, q, k, v):
    return torch.scaled_dot_product_attention(q, k, v, None, 0.1, True)
)");
    module.save(file);
  }
  auto loaded = torch::jit::load(file);
  const SdpaGuard guard;
  auto direct = call;
  direct.causal = true;
  direct.dropout_p = 0.1;
  const auto want = run(direct);
  reset_sdpa_report();
  const auto q = call.q.clone().requires_grad_();
  at::manual_seed(3);
  const auto y = loaded.forward({q, call.k, call.v}).toTensor();
  at::manual_seed(4);
  y.backward(at::randn(y.sizes()));
  CHECK(sdpa_report().taken == 1);
  CHECK(bit_equal(y.detach(), want.tensors[0]));
  CHECK(bit_equal(q.grad(), want.tensors[1]));
}

TEST_CASE("trap 13: a process with accelerated calls has one OpenMP runtime", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  sdpa(random_call("any"));
  // LibTorch names its libgomp, whose calls the runtime of the program serves: kernels/openmp_test.cpp.
  std::set<std::string> serving;
  for (const auto* library : {"", "libtorch_cpu.so"}) {
    for (const auto& [function, file] : openmp_calls_of(library)) serving.insert(file);
  }
  REQUIRE(serving.size() == 1);
  const bool llvm = serving.begin()->find("libomp") != std::string::npos;
  CHECK(loaded_openmp_runtimes().size() <= (llvm ? 2 : 1));
}

TEST_CASE("trap 14: calls for which PyTorch is faster are left to it", "[accelerate][trap]") {
  at::manual_seed(14);
  const SdpaGuard guard;
  auto tiny = random_call(
      "tiny", {.batch = 1, .heads = 12, .kv_heads = 12, .queries = 8, .keys = 8, .dim = 64, .value_dim = 64});
  reset_sdpa_report();
  CHECK(left_alone_by_size(tiny));
  reset_sdpa_report();
  run(cast(tiny, at::kHalf));
  run(tiny, /*with_gradients=*/false);
  tiny.dropout_p = 0.1;
  run(tiny);
  CHECK(sdpa_report().taken == 3);
  CHECK(sdpa_report().left.empty());
  reset_sdpa_report();
  run(random_call("large", {.batch = 1, .queries = 512, .keys = 512, .dim = 64, .value_dim = 64}));
  CHECK(sdpa_report().taken == 1);
  reset_sdpa_report();
  tiny = random_call("tiny", {.batch = 2, .heads = 12, .kv_heads = 12, .queries = 8, .keys = 8, .dim = 64});
  for (auto* x : {&tiny.k, &tiny.v}) {
    auto shared = tiny;
    (x == &tiny.k ? shared.k : shared.v) = x->narrow(0, 0, 1);
    run(shared);
  }
  CHECK(sdpa_report().taken == 2);
}

// The switch, the guard and the report.

TEST_CASE("guards nest and give back what was set", "[accelerate]") {
  using accelerate::sdpa_switch;
  using accelerate::Switch;
  stop_accelerating_sdpa();
  {
    const SdpaGuard guard;
    CHECK(sdpa_switch() == Switch::OurDropout);
    {
      const SdpaGuard exact({.dropout = SdpaDropout::Exact});
      CHECK(sdpa_switch() == Switch::ExactDropout);
      {
        const SdpaGuard inner;
        CHECK(sdpa_switch() == Switch::OurDropout);
        stop_accelerating_sdpa();
        CHECK_FALSE(accelerates_sdpa());
      }
      CHECK(sdpa_switch() == Switch::ExactDropout);
      CHECK(accelerates_sdpa());
    }
    CHECK(sdpa_switch() == Switch::OurDropout);
  }
  CHECK_FALSE(accelerates_sdpa());
  accelerate_sdpa({.dropout = SdpaDropout::Exact});
  CHECK(sdpa_switch() == Switch::ExactDropout);
  accelerate_sdpa();
  CHECK(sdpa_switch() == Switch::OurDropout);
  stop_accelerating_sdpa();
}

TEST_CASE("nothing is counted while acceleration is off", "[accelerate]") {
  const EverySizeGuard every_size;
  { const SdpaGuard guard; }
  reset_sdpa_report();
  run(random_call("off"));
  CHECK(sdpa_report().taken == 0);
  CHECK(sdpa_report().left.empty());
}

TEST_CASE("the report counts each call once, from several threads", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  reset_sdpa_report();
  constexpr int kThreads = 4, kCalls = 25;
  const auto good = random_call("good");
  const auto wide = cast(good, at::kDouble);
  auto without = good;
  without.dropout_p = 1.0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int n = 0; n < kCalls; ++n) {
        sdpa(good);
        sdpa(wide);
        sdpa(wide);
        sdpa(without);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(to_string(sdpa_report()) ==
        "      100 taken\n      300 left to PyTorch\n"
        "      200   it accepts only float32, bfloat16 and float16\n"
        "      100   a dropout of 1 leaves nothing to compute\n");
  reset_sdpa_report();
  CHECK(to_string(sdpa_report()) == "        0 taken\n        0 left to PyTorch\n");
}

TEST_CASE("a call that PyTorch hands on to its fused operator counts as taken", "[accelerate]") {
  using namespace accelerate;
  reset_sdpa_report();
  {
    const LeavingCall outer("outer");
    count_left("inside");  // it belongs to the call that is being left
    count_taken();
  }
  CHECK(sdpa_report().taken == 1);
  CHECK(sdpa_report().left.empty());
  { const LeavingCall alone("alone"); }
  REQUIRE(sdpa_report().left.size() == 1);
  CHECK(sdpa_report().left[0].reason == "alone");
  reset_sdpa_report();
}
