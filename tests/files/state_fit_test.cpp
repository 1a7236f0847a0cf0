// Which tensors may be loaded into a module, and that nothing changes if one of them may not.

#include <algorithm>
#include <map>
#include <string>

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/core/module_state.h>
#include <attentive/files/state_dict.h>
#include <attentive/modules/multi_head_attention.h>

#include "files/dtypes.h"
#include "files/small_states.h"
#include "support/compare.h"
#include "support/default_dtype.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::check_equal;
using attentive::test::make;
using attentive::test::snapshot;
using attentive::test::value_error;
using Catch::Matchers::ContainsSubstring;

namespace {

// Values that no new module has.
StateDict ones() {
  auto state = snapshot(make());
  for (auto& [key, tensor] : state) tensor.fill_(1);
  return state;
}

struct MaskAlone : torch::nn::Module, CausalMaskBuffer {
  int64_t context_length() const override { return 4; }
};

}  // namespace

TEST_CASE("a tensor that cannot be copied is refused before anything changes", "[state_dict][errors]") {
  auto module = make();
  const auto before = snapshot(module);
  const auto square = at::ones({2, 2});
  std::map<std::string, at::Tensor> bad = {
      {"expected plain numbers, got a quantized tensor (QInt8); dequantize() it first",
       at::quantize_per_tensor(square, 0.1, 0, at::kQInt8)},
      {"expected a tensor with data, got one on the meta device", square.to(at::kMeta)},
      {"expected a dense tensor, got a sparse one", square.to_sparse()},
      {"expected a dense tensor, got a nested one", at::_nested_tensor_from_tensor_list({square, square})},
      {"expected dtype Float, got Bits8", at::empty({2, 2}, at::kBits8)},
      {"expected dtype Float, got ComplexFloat", square.to(at::kComplexFloat)}};
  if (const auto* four_bits = find_torch_dtype("float4_e2m1fn_x2")) {  // LibTorch has it since 2.8
    bad["expected dtype Float, got Float4_e2m1fn_x2"] = at::empty({2, 2}, four_bits->dtype);
  }
  for (const auto& [reason, tensor] : bad) {
    // Comes after W_key in the order of names, so that an unchecked load would already have changed
    // something.
    StateDict state = ones();
    state["out_proj.weight"] = tensor;
    CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
               ContainsSubstring("nothing was changed:\nmisshapen out_proj.weight: " + reason));
    check_equal(snapshot(module), before);
    // A bad mask changes nothing either.
    state = ones();
    state["mask"] = tensor;
    CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
               ContainsSubstring("misshapen mask: expected "));
    check_equal(snapshot(module), before);
    const auto report = load_state_dict(*make(), {{"out_proj.weight", tensor}}, {.strict = false});
    CHECK(report.misshapen == std::vector<std::string>{"out_proj.weight: " + reason});
  }
}

TEST_CASE("a module without data or with inference tensors is told from one to load into", "[state_dict]") {
  auto module = make();
  module->out_proj->bias = module->out_proj->register_parameter("other", at::empty({2}, at::kMeta));
  auto state = ones();
  state["out_proj.other"] = at::zeros({2});
  CHECK_THAT(value_error([&] { load_state_dict(*module, state); }),
             ContainsSubstring(
                 "misshapen out_proj.other: expected a module with data, but it is on the meta device"));

  auto served = [] {
    const c10::InferenceMode inference;
    return make();
  }();
  CHECK(served->W_query->weight.is_inference());
  load_state_dict(*served, ones());
  CHECK(bit_equal(served->W_query->weight, ones().at("W_query.weight")));
}

TEST_CASE("every dtype that converts is loaded as Python loads it", "[state_dict]") {
  const auto numbers = at::tensor({0.0f, 1.0f, 2.0f, 4.0f}).view({2, 2});
  for (const auto type :
       {at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kByte, at::kChar,
        at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32, at::kUInt64}) {
    INFO(c10::toString(type));
    auto module = make();
    auto state = ones();
    state["out_proj.weight"] = numbers.to(type);
    load_state_dict(*module, state);
    CHECK(bit_equal(module->out_proj->weight, numbers));
  }
}

TEST_CASE("the default dtype does not decide what a mask is", "[state_dict]") {
  const test::DefaultDtype wide(at::kDouble);
  auto module = make();
  auto state = ones();
  state["mask"] = at::ones({4, 4}, at::kFloat).triu(1);
  load_state_dict(*module, state);
  CHECK(module->W_query->weight.scalar_type() == at::kDouble);
  CHECK(state_dict(*module, {.causal_mask_buffers = true}).at("mask").scalar_type() == at::kDouble);
  const MaskAlone without_parameters;
  CHECK(state_dict(without_parameters, {.causal_mask_buffers = true}).at("mask").scalar_type() == at::kFloat);
}

TEST_CASE("names of Hugging Face's GPT-2 are told from others, and long lists are cut",
          "[state_dict][errors]") {
  auto module = make();
  StateDict state;
  for (int64_t n = 0; n < 12; ++n) {
    for (const std::string name : {"attn.c_attn.weight", "attn.c_attn.bias", "mlp.c_fc.weight"})
      state["transformer.h." + std::to_string(n) + "." + name] = at::zeros({1});
  }
  const auto message = value_error([&] { load_state_dict(*module, state); });
  CHECK(message.starts_with(
      "load_state_dict: the state dict does not fit attentive::MultiHeadAttentionImpl; nothing was changed. "
      "These are "
      "the names of Hugging Face's GPT-2: attentive::from_python_names(\"gpt2\", state) translates them:\n"));
  CHECK_THAT(message, ContainsSubstring("\nunexpected transformer.h.0.attn.c_attn.bias\n"));
  CHECK(message.ends_with("\n... and 26 more unexpected"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 5 + 10 + 1);
  // The report is not abridged.
  const auto report = load_state_dict(*module, state, {.strict = false});
  CHECK(report.unexpected.size() == 36);
  const auto text = report.to_string();
  CHECK(std::count(text.begin(), text.end(), '\n') == 36 + 5 - 1);
  // Without GPT-2's names, there is no hint.
  CHECK_THAT(value_error([&] {
               load_state_dict(*module, {{"h.0.attn.weight", at::zeros({1})}});
             }),
             !ContainsSubstring("from_python_names"));
}
