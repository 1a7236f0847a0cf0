#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_multi_head_attention_wrapper(double dropout) {
  return {.make = [=] { return MultiHeadAttentionWrapper(3, 2, 6, dropout, 2).ptr(); },
          .call = bind_one_input<MultiHeadAttentionWrapper>()};
}

}  // namespace

TEST_CASE("MultiHeadAttentionWrapper prints the notebook's table", "[multi_head_attention_wrapper]") {
  at::manual_seed(123);
  const auto y = MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2)->forward(batch());
  const auto printed = table({{-.4519f, .2216f, .4772f, .1063f},
                              {-.5874f, .0058f, .5891f, .3257f},
                              {-.6300f, -.0632f, .6202f, .3860f},
                              {-.5675f, -.0843f, .5478f, .3589f},
                              {-.5526f, -.0981f, .5321f, .3428f},
                              {-.5299f, -.1081f, .5077f, .3493f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("MultiHeadAttentionWrapper equals PyTorch", "[multi_head_attention_wrapper]") {
  check_golden("MultiHeadAttentionWrapper", notebook_multi_head_attention_wrapper(0.0), at::kCPU);
  check_training("MultiHeadAttentionWrapper.train", notebook_multi_head_attention_wrapper(0.5));
}

TEST_CASE("MultiHeadAttentionWrapper equals PyTorch on CUDA", "[multi_head_attention_wrapper][cuda]") {
  check_golden("MultiHeadAttentionWrapper", notebook_multi_head_attention_wrapper(0.0), cuda_or_skip());
}

TEST_CASE("MultiHeadAttentionWrapper is a torch::nn citizen", "[multi_head_attention_wrapper]") {
  ModuleSuite<MultiHeadAttentionWrapper> suite;
  suite.make = [] { return MultiHeadAttentionWrapper(6, 4, 5, 0.25, 2); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"heads.0.W_query.weight", "heads.0.W_key.weight", "heads.0.W_value.weight",
                "heads.1.W_query.weight", "heads.1.W_key.weight", "heads.1.W_value.weight"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MultiHeadAttentionWrapper stacks the weights of its heads", "[multi_head_attention_wrapper]") {
  MultiHeadAttentionWrapper module(3, 2, 6, 0.0, 3);
  const auto weights = module->forward_with_weights(batch()).second;
  CHECK(weights.sizes() == at::IntArrayRef({2, 3, 6, 6}));
  CHECK(module->forward_with_weights(sentence()).second.sizes() == at::IntArrayRef({3, 6, 6}));
  for (size_t n = 0; n < 3; ++n) {
    auto& head = module->heads->at<CausalAttentionImpl>(n);
    CHECK_CLOSE(head.forward_with_weights(batch()).second, weights.select(1, static_cast<int64_t>(n)));
  }
}

TEST_CASE("MultiHeadAttentionWrapper passes its attention options to every head",
          "[multi_head_attention_wrapper]") {
  MultiHeadAttentionWrapper module(
      MultiHeadAttentionWrapperOptions(3, 2, 6, 0.0, 2).attention({.causal = Causal::None}));
  CHECK(module->forward_with_weights(sentence()).second.gt(0).all().item<bool>());
}

TEST_CASE("MultiHeadAttentionWrapper names what is wrong", "[multi_head_attention_wrapper][errors]") {
  MultiHeadAttentionWrapper module(6, 4, 5, 0.0, 2);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "MultiHeadAttentionWrapper: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value_error([&] {
          module->forward(at::randn({2, 7, 6}));
        }) == "MultiHeadAttentionWrapper: expected at most context_length = 5 tokens, got 7");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "MultiHeadAttentionWrapper: expected x of dtype Float like the parameters, got Double");
  const auto make = [](MultiHeadAttentionWrapperOptions options) {
    return value_error([&] { MultiHeadAttentionWrapper bad(options); });
  };
  CHECK(make({0, 4, 5, 0.0, 2}) == "MultiHeadAttentionWrapper: expected d_in > 0, got 0");
  CHECK(make({6, 0, 5, 0.0, 2}) == "MultiHeadAttentionWrapper: expected d_out > 0, got 0");
  CHECK(make({6, 4, 5, 0.0, 0}) == "MultiHeadAttentionWrapper: expected num_heads in [1, 1048576], got 0");
  CHECK(make({6, 4, 5, 2.0, 2}) == "MultiHeadAttentionWrapper: expected dropout in [0, 1], got 2");
  CHECK(make({6, 4, -1, 0.0, 2}) ==
        "MultiHeadAttentionWrapper: expected context_length >= 0 (0: no limit), got -1");
}
