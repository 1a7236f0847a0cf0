#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/models/gpt2_names.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

GPTOptions small_gpt2(bool tied) {
  return GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).tied(tied);
}

}  // namespace

TEST_CASE("GPT-2's names hold the same model", "[gpt2_names]") {
  for (const bool tied : {true, false}) {
    at::manual_seed(4);
    GPT model(small_gpt2(tied));
    const auto gpt2 = to_gpt2(*model);
    CHECK(gpt2.size() == 2 + 2 * 12 + 2 + 1);
    CHECK(gpt2.at("transformer.h.1.attn.c_attn.weight").sizes() == at::IntArrayRef({12, 36}));
    CHECK(gpt2.at("transformer.h.0.mlp.c_fc.weight").sizes() == at::IntArrayRef({12, 48}));
    CHECK(gpt2.contains("lm_head.weight"));
    GPT other(small_gpt2(tied));
    load_state_dict(*other, from_gpt2(gpt2, other->options));
    for (const auto& item : model->named_parameters()) {
      CHECK(bit_equal(item.value(), other->named_parameters()[item.key()]));
    }
    const auto ids = at::arange(8).view({1, 8});
    CHECK(bit_equal(model->forward(ids), other->forward(ids)));
  }
}

TEST_CASE("GPT-2's fused projection means x W + b with columns query, key, value", "[gpt2_names]") {
  at::manual_seed(4);
  GPT model(small_gpt2(true));
  const auto gpt2 = to_gpt2(*model);
  const auto x = at::randn({5, 12});
  // Computes as Hugging Face's Conv1D: addmm(bias, x, weight), then a split into query, key and value.
  const auto fused = at::addmm(gpt2.at("transformer.h.0.attn.c_attn.bias"), x,
                               gpt2.at("transformer.h.0.attn.c_attn.weight"));
  const auto& att = model->trf_blocks->at<TransformerBlockImpl>(0).att;
  const auto expected = at::cat({at::linear(x, att->W_query->weight, att->W_query->bias),
                                 at::linear(x, att->W_key->weight, att->W_key->bias),
                                 at::linear(x, att->W_value->weight, att->W_value->bias)},
                                1);
  CHECK_WITHIN(fused, expected, {1e-5, 2e-6});
}

TEST_CASE("from_gpt2 reads names with and without prefix, buffers and a missing head", "[gpt2_names]") {
  GPT model(small_gpt2(true));
  std::map<std::string, at::Tensor> plain;
  for (const auto& [name, tensor] : to_gpt2(*model)) {
    if (name != "lm_head.weight") plain[name.substr(12)] = tensor;
  }
  plain["h.0.attn.bias"] = at::ones({1, 1, 8, 8}).tril();
  plain["h.0.attn.masked_bias"] = at::ones({});
  const auto tied = from_gpt2(plain, small_gpt2(true));
  CHECK_FALSE(tied.contains("out_head.weight"));
  CHECK(bit_equal(from_gpt2(plain, small_gpt2(false)).at("out_head.weight"), model->tok_emb->weight));

  auto wrong = plain;
  wrong.erase("h.1.ln_2.bias");
  CHECK(value_error([&] { return from_gpt2(wrong, small_gpt2(true)); }) ==
        "from_gpt2: expected a tensor \"h.1.ln_2.bias\", got none");
  wrong = plain;
  wrong["h.2.ln_1.weight"] = at::ones({12});
  CHECK(value_error([&] { return from_gpt2(wrong, small_gpt2(true)); }) ==
        "from_gpt2: expected no tensor \"h.2.ln_1.weight\"");
  wrong = plain;
  wrong["lm_head.weight"] = at::ones({11, 12});
  CHECK(value_error([&] { return from_gpt2(wrong, small_gpt2(true)); }) ==
        "from_gpt2: expected lm_head.weight equal to wte.weight for a tied model, got another one");
  wrong = plain;
  wrong["h.0.attn.c_attn.weight"] = at::ones({12, 35});
  CHECK(value_error([&] { return from_gpt2(wrong, small_gpt2(true)); }) ==
        "from_gpt2: expected \"h.0.attn.c_attn.weight\" with a last size of 36, got Float tensor of shape "
        "(12, 35)");
  CHECK(value_error([] { return to_gpt2(*GPT(small_gpt2(true).positions(GPTPositions::Rotary))); }) ==
        "to_gpt2: expected learned positions, got rotary ones, which GPT-2 has not");
}
