#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/models/model_folder.h>

#include "models/model_folders.h"
#include "models/python_names.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;
using Catch::Matchers::ContainsSubstring;

namespace {

ModelFolder gpt2_settings() {
  return read_model_folder(kModelData / "gpt2", {.weights = false});
}

ModelFolder described(const std::string& family, std::vector<std::pair<FileValue, FileValue>> fields) {
  ModelFolder folder;
  folder.path = "somewhere";
  folder.family = family;
  folder.config = FileValue::Dict{std::move(fields)};
  return folder;
}

const std::vector<std::pair<FileValue, FileValue>> kDecoder{{"vocab_size", 31},
                                                            {"hidden_size", 24},
                                                            {"intermediate_size", 40},
                                                            {"num_hidden_layers", 3},
                                                            {"num_attention_heads", 4}};

ModelFolder decoder(const std::string& family, std::vector<std::pair<FileValue, FileValue>> more = {}) {
  auto fields = kDecoder;
  fields.insert(fields.end(), more.begin(), more.end());
  return described(family, fields);
}

}  // namespace

TEST_CASE("options of another family's model are refused", "[pretrained][errors]") {
  CHECK_THAT(value_error([] { vit_options(decoder("roberta")); }),
             ContainsSubstring("attentive::Bert reads"));
  CHECK_THAT(value_error([] { bert_options(decoder("t5")); }),
             ContainsSubstring("expected one of the families gpt2, llama"));
}

TEST_CASE("config.json decides the options", "[pretrained]") {
  const auto llama = llama_options(read_model_folder(kModelData / "llama", {.weights = false}));
  CHECK(llama.rotary().scaling() == RotaryScaling::Llama3);
  CHECK(llama.rotary().base() == 500000.0);
  CHECK(llama.rotary().original_context() == 16);
  CHECK(llama.num_kv_heads() == 2);
  CHECK(llama.windows().empty());
  CHECK_FALSE(llama.tied());
  const auto mistral = llama_options(decoder("mistral", {{"sliding_window", 7}}));
  CHECK(mistral.windows() == std::vector<int64_t>{7, 7, 7});
  CHECK(mistral.num_kv_heads() == 8);
  CHECK(llama_options(decoder("mistral")).windows() == std::vector<int64_t>{4096, 4096, 4096});
  CHECK(llama_options(decoder("mistral", {{"sliding_window", FileValue()}})).windows().empty());
  const auto qwen = llama_options(decoder("qwen2", {{"sliding_window", 7}, {"max_window_layers", 0}}));
  CHECK(qwen.windows().empty());  // use_sliding_window is false
  CHECK(qwen.qkv_bias());
  CHECK_FALSE(qwen.out_bias());
  const auto windows = llama_options(
      decoder("qwen3", {{"sliding_window", 7}, {"use_sliding_window", true}, {"max_window_layers", 2}}));
  CHECK(windows.windows() == std::vector<int64_t>{0, 0, 7});
  CHECK(windows.qk_norm());
  CHECK(windows.head_dim() == 128);
  const auto gemma = llama_options(decoder("gemma2"));
  CHECK(gemma.windows() == std::vector<int64_t>{4096, 0, 4096});
  CHECK(gemma.softcap() == 50.0);
  CHECK(gemma.logit_softcap() == 30.0);
  CHECK(gemma.scale() == 1.0 / 16);
  CHECK(gemma.tied());
  CHECK(gemma.unit_offset());
  CHECK(gemma.norm_after());
  CHECK(gemma.scaled_embedding());
  CHECK(gemma.activation() == Activation::GeluTanh);
  CHECK_FALSE(llama_options(decoder("gemma2", {{"attn_logit_softcapping", FileValue()}})).softcap());
  const auto gemma3 = llama_options(decoder("gemma3_text", {{"sliding_window_pattern", 3}}));
  CHECK(gemma3.windows() == std::vector<int64_t>{4096, 4096, 0});
  CHECK(gemma3.rotary().base() == 1e6);
  CHECK(gemma3.window_rotary()->base() == 1e4);
  CHECK_FALSE(gemma3.softcap());
  // Python's Gemma 3 ignores this field.
  CHECK_FALSE(llama_options(decoder("gemma3_text", {{"attn_logit_softcapping", 2.0}})).softcap());
  const auto old = llama_options(
      decoder("llama",
              {{"rope_theta", 5e5}, {"rope_scaling", FileValue::Dict{{{"type", "linear"}, {"factor", 4}}}}}));
  CHECK(old.rotary().base() == 5e5);
  CHECK(old.rotary().scaling() == RotaryScaling::Linear);
  CHECK(old.rotary().factor() == 4);
  CHECK(old.rotary().pairing() == RotaryPairing::Halves);
  CHECK(gpt_options(gpt2_settings(), {.dropout = 0.25}).dropout() == 0.25);
  CHECK(gpt_options(with(gpt2_settings(), "n_inner", 64)).hidden_dim() == 0);
  CHECK(gpt_options(with(gpt2_settings(), "n_inner", 65)).hidden_dim() == 65);
  CHECK(gpt_options(with(gpt2_settings(), "layer_norm_epsilon", 1e-6)).eps() == 1e-6);
  CHECK(gpt_options(with(gpt2_settings(), "activation_function", "quick_gelu")).activation() ==
        Activation::QuickGelu);
}

TEST_CASE("a field that is missing, mistyped or not supported is refused by name", "[pretrained][errors]") {
  const auto refused = [](const std::string& family, std::string_view field, FileValue value,
                          const std::string& reason) {
    INFO(family << ' ' << field);
    auto folder = family == "gpt2" ? gpt2_settings() : decoder(family);
    folder = with(std::move(folder), field, std::move(value));
    const auto message = value_error([&] {
      if (family == "gpt2") {
        gpt_options(folder);
      } else if (family == "vit") {
        vit_options(folder);
      } else if (find_family(family)->model == BertImpl::kName) {
        bert_options(folder);
      } else {
        llama_options(folder);
      }
    });
    CHECK_THAT(message, ContainsSubstring("/config.json: field \"" + std::string(field)));
    CHECK_THAT(message, ContainsSubstring(reason));
  };
  const auto rope = [](std::vector<std::pair<FileValue, FileValue>> fields) {
    return FileValue::Dict{std::move(fields)};
  };
  refused("llama", "hidden_size", FileValue(), "expected a positive integer below 2^31, got null");
  refused("llama", "hidden_size", "24", "got \"24\"");
  refused("llama", "hidden_size", -1, "got -1");
  refused("llama", "hidden_size", int64_t{1} << 40, "got 1099511627776");
  refused("llama", "num_hidden_layers", 2.5, "got 2.5");
  refused("llama", "rms_norm_eps", "x", "expected a number");
  refused("llama", "tie_word_embeddings", 1, "expected true or false, got 1");
  refused("llama", "hidden_act", "tanh", "expected one of gelu,");
  refused("llama", "hidden_act", 3, "expected a string");
  refused("llama", "partial_rotary_factor", 0.5, "expected 1, the rotation of all features, got 0.5");
  refused("llama", "quantization_config", rope({}), "expected weights that are not quantized");
  refused("llama", "rope_scaling", 3, "expected an object");
  for (const auto* kind : {"dynamic", "yarn", "longrope", "mrope"}) {
    refused("llama", "rope_scaling", rope({{"rope_type", kind}, {"factor", 2.0}}),
            ".rope_type\": expected \"default\", \"linear\" or \"llama3\", got \"" + std::string(kind));
  }
  refused("llama", "rope_scaling", rope({{"rope_type", "llama3"}, {"factor", 2.0}}), ".low_freq_factor");
  refused("llama", "rope_parameters", rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "got 0.5");
  refused("qwen3", "layer_types", FileValue::List{{"full_attention"}}, "expected 3 kinds");
  refused("gemma2", "layer_types", FileValue::List{{"full_attention", "chunked_attention", "full_attention"}},
          "for layer 1");
  refused("gemma3_text", "use_bidirectional_attention", true, "expected false");
  refused("gpt2", "activation_function", "tanh", "expected one of gelu,");
  refused("gpt2", "n_inner", 0, "expected a positive integer below 2^31, got 0");
  refused("gpt2", "scale_attn_by_inverse_layer_idx", true, "expected false");
  for (const auto* name :
       {"max_position_embeddings", "hidden_size", "num_attention_heads", "num_hidden_layers"}) {
    refused("gpt2", name, 1, "got 1");
  }
  refused("gpt2", "attn_pdrop", 0.0, "set PretrainedOptions::dropout");
  refused("bert", "position_embedding_type", "relative_key", "expected \"absolute\"");
  refused("bert", "is_decoder", true, "expected false");
  for (const auto* family : {"roberta", "xlm-roberta", "camembert"}) {
    refused(family, "pad_token_id", FileValue(), "from which positions count");
  }
  refused("albert", "num_hidden_groups", 2, "expected 1, got 2");
  refused("albert", "inner_group_num", 2, "expected 1, got 2");
  refused("vit", "image_size", FileValue::List{{8, 16}}, "expected the side of a square");
}
