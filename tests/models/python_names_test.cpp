#include "models/python_names.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::value_error;
using Catch::Matchers::ContainsSubstring;

namespace {

// Converts names to Python's and back, and returns the state in between.
StateDict check_inverse(const std::string& family, const torch::nn::Module& model,
                        const PythonNamesOptions& options = {}) {
  INFO(family);
  const auto state = state_dict(model);
  const auto python_state = to_python_names(family, state, options);
  const auto again = from_python_names(family, python_state);
  CHECK(again.size() == state.size());
  for (const auto& [name, tensor] : state) {
    INFO(name);
    REQUIRE(again.contains(name));
    CHECK(again.at(name).equal(tensor));
  }
  return python_state;
}

}  // namespace

TEST_CASE("names change there and back", "[python_names]") {
  at::manual_seed(1);
  const GPT gpt(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true));
  check_inverse("gpt2", *gpt);
  const auto plain = LlamaOptions(11, 12, 2, 3).num_kv_heads(1);
  for (const auto* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Llama llama(LlamaOptions(plain).qkv_bias(true).out_bias(true).ff_bias(true).qk_norm(true));
    const auto python_state = check_inverse(family, *llama);
    CHECK(python_state.contains("model.layers.2.self_attn.o_proj.bias"));
    CHECK(python_state.contains("lm_head.weight"));
  }
  for (const auto* family : {"gemma2", "gemma3_text"}) {
    const Llama gemma(LlamaOptions(plain).norm_after(true).qk_norm(true).tied(true));
    CHECK(check_inverse(family, *gemma).contains("model.layers.0.pre_feedforward_layernorm.weight"));
  }
  const auto encoder = BertOptions(11, 8, 12, 3, 2).masked_lm(true);
  CHECK(check_inverse("bert", *Bert(encoder)).contains("cls.predictions.bias"));
  for (const auto* family : {"roberta", "xlm-roberta", "camembert"}) {
    const auto python_state = check_inverse(family, *Bert(encoder));
    CHECK(python_state.contains("lm_head.layer_norm.bias"));
    CHECK(python_state.contains("roberta.encoder.layer.1.output.dense.weight"));
  }
  const Bert albert(BertOptions(encoder).embedding_dim(6).shared_layers(true));
  CHECK(check_inverse("albert", *albert).contains("albert.encoder.embedding_hidden_mapping_in.weight"));
  const auto bare = check_inverse("bert", *Bert(BertOptions(11, 8, 12, 3, 2)), {.prefix = false});
  CHECK(bare.contains("encoder.layer.1.output.LayerNorm.weight"));
  const auto images = ViTOptions(8, 4, 2, 5).emb_dim(12).num_heads(3).num_layers(2);
  const auto vit = check_inverse("vit", *ViT(images), {.channels = 2});
  CHECK(vit.at("vit.embeddings.patch_embeddings.projection.weight").sizes() ==
        at::IntArrayRef({12, 2, 4, 4}));
  CHECK(vit.at("vit.encoder.layer.1.attention.attention.key.bias").sizes() == at::IntArrayRef({12}));
  const auto deit = check_inverse("deit", *ViT(ViTOptions(images).distillation_token(true)), {.channels = 2});
  CHECK(deit.contains("deit.embeddings.distillation_token"));
}

TEST_CASE("GPT-2's fused projection means x W + b with columns query, key, value", "[python_names]") {
  at::manual_seed(4);
  const GPT model(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).tied(true));
  const auto gpt2 = to_python_names("gpt2", state_dict(*model));
  CHECK(gpt2.size() == 2 + 2 * 12 + 2);
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

TEST_CASE("GPT-2's names are read without their prefix, with buffers and a tied head", "[python_names]") {
  at::manual_seed(4);
  GPT model(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).tied(true));
  const auto state = state_dict(*model);
  auto plain = to_python_names("gpt2", state, {.prefix = false});
  plain["h.0.attn.bias"] = at::ones({1, 1, 8, 8});
  plain["h.1.attn.masked_bias"] = at::ones({1});
  plain["lm_head.weight"] = plain.at("wte.weight");
  auto again = from_python_names("gpt2", plain);
  CHECK(again.size() == state.size() + 1);
  CHECK(again.at("out_head.weight").equal(model->tok_emb->weight));
  again.erase("out_head.weight");
  GPT other(model->options);
  load_state_dict(*other, again);
  const auto ids = at::arange(8).view({1, 8});
  CHECK(bit_equal(model->forward(ids), other->forward(ids)));
}

TEST_CASE("q, k and v of GPT-2 and of vision transformers keep their order", "[python_names]") {
  const auto rows = [](double value) { return at::ones({2, 2}) * value; };
  const auto gpt = to_python_names("gpt2", {{"trf_blocks.0.att.W_query.weight", rows(1)},
                                            {"trf_blocks.0.att.W_key.weight", rows(2)},
                                            {"trf_blocks.0.att.W_value.weight", rows(3)}});
  const auto expected = at::cat({rows(1), rows(2), rows(3)}, 1);
  CHECK(gpt.at("transformer.h.0.attn.c_attn.weight").equal(expected));
  const StateDict vit{{"vit.encoder.layer.0.attention.attention.query.weight", rows(1)},
                      {"vit.encoder.layer.0.attention.attention.key.weight", rows(2)},
                      {"vit.encoder.layer.0.attention.attention.value.weight", rows(3)}};
  CHECK(from_python_names("vit", vit).at("blocks.0.attn.qkv.weight").equal(expected.t()));
  const StateDict newer{{"vit.layers.0.attention.q_proj.weight", rows(1)},
                        {"vit.layers.0.attention.k_proj.weight", rows(2)},
                        {"vit.layers.0.attention.v_proj.weight", rows(3)}};
  CHECK(from_python_names("vit", newer).at("blocks.0.attn.qkv.weight").equal(expected.t()));
}

TEST_CASE("what fits no name is listed with the nearest one", "[python_names][errors]") {
  const auto one = at::ones({2});
  CHECK_THAT(value_error([&] { from_python_names("t5", {}); }),
             ContainsSubstring("from_python_names: expected one of the families " + known_families() +
                               "; got \"t5\""));
  CHECK(value_error([&] {
          from_python_names("llama", {{"model.layers.1.self_attn.q_prj.weight", one}, {"what", one}});
        }) ==
        "from_python_names: the state dict does not fit the names of llama:\n"
        "unexpected \"model.layers.1.self_attn.q_prj.weight\" (the nearest known name is "
        "model.layers.1.self_attn.q_proj.weight)\n"
        "unexpected \"what\"");
  CHECK(value_error([&] {
          from_python_names("gpt2", {{"wte.weight", one}, {"transformer.wte.weight", one}});
        }) ==
        "from_python_names: the state dict does not fit the names of gpt2:\n"
        "unexpected \"wte.weight\": it is there twice, under several names");
  CHECK_THAT(value_error([&] {
               from_python_names("llama", {{"model.layers.01.mlp.up_proj.weight", one}});
             }),
             ContainsSubstring("unexpected"));
  CHECK(value_error([&] {
          from_python_names("gpt2", {{"h.0.mlp.c_fc.weight", at::ones({2, 2, 2})}});
        }) ==
        "from_python_names: the state dict does not fit the names of gpt2:\n"
        "misshapen \"h.0.mlp.c_fc.weight\": expected rank 1 or 2, got Float tensor of shape (2, 2, 2)");
  CHECK(value_error([&] {
          from_python_names("gpt2", {{"h.0.attn.c_attn.bias", at::ones({4})}});
        }) ==
        "from_python_names: the state dict does not fit the names of gpt2:\n"
        "misshapen \"h.0.attn.c_attn.bias\": expected a size that 3 divides, got 4");
  CHECK(value_error([&] {
          from_python_names("vit", {{"vit.encoder.layer.0.attention.attention.key.bias", one}});
        }) ==
        "from_python_names: the state dict does not fit the names of vit:\n"
        "missing \"encoder.layer.0.attention.attention.query.bias\"\n"
        "missing \"encoder.layer.0.attention.attention.value.bias\"");
  CHECK(value_error([] {
          from_python_names("gpt2", {{"wte.weight", at::Tensor()}});
        }) == "from_python_names: expected wte.weight to be a tensor, got an undefined one");
  CHECK_THAT(value_error([&] {
               from_python_names("gpt2", {{"wte.weight", at::ones({2, 2}).to_sparse()}});
             }),
             ContainsSubstring("misshapen \"wte.weight\": expected a dense tensor, got a sparse one"));
  StateDict many;
  for (int i = 0; i < 25; ++i) many["x" + std::to_string(i)] = one;
  CHECK_THAT(value_error([&] { from_python_names("bert", many); }),
             ContainsSubstring("... and 15 more unexpected"));
  CHECK(value_error([&] { from_python_names("bert", {{std::string(100'000, 'x'), one}}); }).size() < 1000);
}

TEST_CASE("a copy of a tied tensor holds the same numbers", "[python_names][errors]") {
  const auto one = at::ones({2});
  const StateDict same{{"bert.embeddings.word_embeddings.weight", one},
                       {"cls.predictions.decoder.weight", one.clone()}};
  CHECK(from_python_names("bert", same).size() == 1);
  auto other = same;
  other["cls.predictions.decoder.weight"] = one + 1;
  CHECK_THAT(value_error([&] { from_python_names("bert", other); }),
             ContainsSubstring("misshapen \"cls.predictions.decoder.weight\": expected the numbers of "
                               "bert.embeddings.word_embeddings.weight, got other ones"));
  other.erase("bert.embeddings.word_embeddings.weight");
  CHECK(from_python_names("bert", other).at("tok_emb.weight").equal(one + 1));
}

TEST_CASE("names of a module that a family lacks are not written", "[python_names][errors]") {
  CHECK(value_error([] {
          to_python_names("llama", {{"blocks.0.what", at::ones({1})}});
        }) ==
        "to_python_names: the state dict does not fit the names of llama:\nunexpected \"blocks.0.what\"");
  CHECK(value_error([] {
          to_python_names("gpt2", {{"trf_blocks.0.att.W_key.bias", at::ones({1})}});
        }) ==
        "to_python_names: the state dict does not fit the names of gpt2:\n"
        "missing \"transformer.h.0.attn.c_attn.bias\": some of its parts");
  CHECK_THAT(value_error([] {
               to_python_names("vit", {{"patch_embed.weight", at::ones({4, 10})}});
             }),
             ContainsSubstring("expected 3 * side^2 columns, got 10"));
}

TEST_CASE("edit distances", "[python_names]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(nearest_name("abcd", {"abce", "abcdx", "zzzz"}) == "abce");
  CHECK(nearest_name("abcd", {"wxyz"}).empty());
}
