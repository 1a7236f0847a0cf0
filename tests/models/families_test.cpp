#include "models/families.h"

#include <fstream>

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/nn/modules/linear.h>

#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>

#include "models/model_config.h"
#include "models/model_folders.h"
#include "models/python_names.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"

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

TEST_CASE("docs/real_models.md lists every family and the class that reads it", "[families]") {
  std::ifstream page(source_folder() + "/docs/real_models.md");
  REQUIRE(page);
  std::string line, listed;
  while (std::getline(page, line) && !line.starts_with("| `model_type` | model |")) continue;
  std::getline(page, line);  // the rule under the heads
  while (std::getline(page, line) && line.starts_with('|')) {
    const auto end = line.find('|', 1);
    const auto model = line.substr(end, line.find('|', end + 1) - end);
    for (size_t i = line.find('`'); i < end; i = line.find('`', i + 1)) {
      const auto close = line.find('`', i + 1);
      const auto name = line.substr(i + 1, close - i - 1);
      const auto* family = find_family(name);
      INFO(name);
      REQUIRE(family != nullptr);
      CHECK(model == "| `" + std::string(family->model) + "` ");
      listed += (listed.empty() ? "" : ", ") + name;
      i = close;
    }
  }
  CHECK(listed == known_families());
}

TEST_CASE("families are listed in one order, also those of some classes", "[families]") {
  CHECK(known_families() ==
        "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, bert, roberta, "
        "xlm-roberta, camembert, albert, vit, deit");
  CHECK(known_families({GPTImpl::kName, ViTImpl::kName}) == "gpt2, vit, deit");
  CHECK(known_families({"T5"}).empty());
}

TEST_CASE("the natural family of options is the first whose traits they have", "[families]") {
  const LlamaOptions plain(11, 16, 2, 3);
  CHECK(natural_family(plain).name == "llama");
  CHECK(natural_family(LlamaOptions(plain).qkv_bias(true).out_bias(true)).name == "llama");
  CHECK(natural_family(LlamaOptions(plain).windows({4, 4, 4})).name == "mistral");
  CHECK(natural_family(LlamaOptions(plain).windows({0, 0, 0})).name == "llama");
  CHECK(natural_family(LlamaOptions(plain).qkv_bias(true)).name == "qwen2");
  CHECK(natural_family(LlamaOptions(plain).qkv_bias(true).windows({4, 0, 0})).name == "qwen2");
  CHECK(natural_family(LlamaOptions(plain).qk_norm(true)).name == "qwen3");
  CHECK(natural_family(LlamaOptions(plain).norm_after(true)).name == "gemma2");
  CHECK(natural_family(LlamaOptions(plain).norm_after(true).qk_norm(true)).name == "gemma3_text");
  const BertOptions encoder(11, 8, 12, 3, 2);
  CHECK(natural_family(encoder).name == "bert");
  CHECK(natural_family(BertOptions(encoder).padding_id(1)).name == "roberta");
  CHECK(natural_family(BertOptions(encoder).shared_layers(true)).name == "albert");
  CHECK(natural_family(*ViT(ViTOptions(8, 4, 2, 5).distillation_token(true)))->name == "deit");
  CHECK(natural_family(*torch::nn::Linear(2, 2)) == nullptr);
}

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
  CHECK(llama_options(decoder("gemma3_text", {{"_sliding_window_pattern", 6}})).windows() ==
        std::vector<int64_t>{4096, 4096, 4096});
  const auto linear = FileValue::Dict{{{"rope_type", "linear"}, {"factor", 4}}};
  CHECK(llama_options(decoder("gemma3_text", {{"rope_scaling", linear}})).rotary().factor() == 4);
  // As in Python, rope_scaling replaces the other object, its rope_theta included.
  CHECK(llama_options(decoder("llama", {{"rope_scaling", linear},
                                        {"rope_parameters", FileValue::Dict{{{"rope_theta", 5e5}}}}}))
            .rotary()
            .base() == 1e4);
  // Python's Gemma 3 ignores this field.
  CHECK_FALSE(llama_options(decoder("gemma3_text", {{"attn_logit_softcapping", 2.0}})).softcap());
  const auto old = llama_options(
      decoder("llama",
              {{"rope_theta", 5e5}, {"rope_scaling", FileValue::Dict{{{"type", "linear"}, {"factor", 4}}}}}));
  CHECK(old.rotary().base() == 5e5);
  CHECK(old.rotary().scaling() == RotaryScaling::Linear);
  CHECK(old.rotary().factor() == 4);
  CHECK(old.rotary().pairing() == RotaryPairing::Halves);
  const auto yarn = [](std::vector<std::pair<FileValue, FileValue>> fields) {
    fields.insert(fields.begin(), {"rope_type", "yarn"});
    return std::pair<FileValue, FileValue>{"rope_parameters", FileValue::Dict{std::move(fields)}};
  };
  const auto rotary = [](std::vector<std::pair<FileValue, FileValue>> fields) {
    fields.emplace_back("max_position_embeddings", 64);
    return llama_options(decoder("llama", std::move(fields))).rotary();
  };
  const auto usual = rotary({yarn({{"factor", 4}})});
  CHECK(usual.scaling() == RotaryScaling::Yarn);
  CHECK((usual.factor() == 4 && usual.original_context() == 64 && usual.truncate()));
  CHECK((usual.beta_fast() == 32 && usual.beta_slow() == 1));
  CHECK((usual.mscale() == 0 && usual.mscale_all_dim() == 0 && !usual.attention_factor()));
  // As in Python, 0 is an absent beta and null a false truncate; the length beside the rotation wins, and
  // gives the factor if that is null.
  const auto odd = rotary({yarn({{"factor", FileValue()},
                                 {"beta_fast", 0},
                                 {"beta_slow", FileValue()},
                                 {"mscale", 0.5},
                                 {"mscale_all_dim", 2},
                                 {"attention_factor", 1.5},
                                 {"truncate", FileValue()},
                                 {"original_max_position_embeddings", 32}}),
                           {"original_max_position_embeddings", 16}});
  CHECK((odd.factor() == 4 && odd.original_context() == 16 && !odd.truncate()));
  const auto llama3 = FileValue::Dict{
      {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}}};
  CHECK(rotary({{"rope_scaling", llama3}}).original_context() == 64);
  CHECK(rotary({{"rope_scaling", llama3}, {"original_max_position_embeddings", 16}}).original_context() ==
        16);
  CHECK((odd.beta_fast() == 32 && odd.beta_slow() == 1));
  CHECK((odd.mscale() == 0.5 && odd.mscale_all_dim() == 2 && odd.attention_factor() == 1.5));
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
  for (const auto* kind : {"dynamic", "longrope", "mrope"}) {
    refused(
        "llama", "rope_scaling", rope({{"rope_type", kind}, {"factor", 2.0}}),
        ".rope_type\": expected \"default\", \"linear\", \"llama3\" or \"yarn\", got \"" + std::string(kind));
  }
  const auto yarn_refused = [&](const std::string& name, FileValue value, const std::string& reason) {
    std::vector<std::pair<FileValue, FileValue>> fields = {{"rope_type", "yarn"}, {name, std::move(value)}};
    if (name != "factor") fields.emplace_back("factor", 2.0);
    refused("llama", "rope_parameters", rope(std::move(fields)), '.' + name + "\": expected " + reason);
  };
  yarn_refused("factor", 0.5, "a number of at least 1, got 0.5");
  yarn_refused("factor", "2", "a number, got \"2\"");
  yarn_refused("beta_fast", 1.0, "a number above beta_slow, got 1");
  yarn_refused("beta_slow", 32.0, "a number above 0 and below beta_fast, got 32");
  yarn_refused("beta_slow", -1.0, "a number above 0 and below beta_fast, got -1");
  yarn_refused("original_max_position_embeddings", 0, "a number above 0, got 0");
  yarn_refused("mscale", -1.0, "a number of at least 0, got -1");
  yarn_refused("mscale_all_dim", -1.0, "a number of at least 0, got -1");
  yarn_refused("attention_factor", 0.0, "a number above 0, got 0");
  yarn_refused("truncate", 1, "true or false, got 1");
  yarn_refused("rope_theta", 1.0, "a number above 1, got 1");
  refused("llama", "rope_parameters", rope({{"rope_type", "yarn"}}),
          ".factor\": expected a number of at least 1, got none");
  // Python's Gemma 3 ignores the field.
  const auto whole_pairs = rope({{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", false}});
  refused("gemma3_text", "rope_scaling", whole_pairs, ".truncate\": expected true, got false");
  refused("gemma3_text", "rope_parameters", rope({{"full_attention", whole_pairs}}),
          "full_attention.truncate\": expected true, got false");
  refused("gemma3_text", "rope_parameters", rope({{"sliding_attention", whole_pairs}}),
          "sliding_attention.truncate\": expected true, got false");
  refused("llama", "rope_scaling", rope({{"rope_type", "llama3"}, {"factor", 2.0}}), ".low_freq_factor");
  refused("llama", "rope_parameters", rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "got 0.5");
  refused("llama", "rope_parameters", rope({{"full_attention", rope({{"rope_theta", 5e5}})}}),
          "expected one rotation for all layers");
  // Python's Gemma 3 reads these otherwise than they are written.
  refused("gemma3_text", "rope_scaling", rope({{"type", "linear"}, {"factor", 2.0}}),
          ".rope_type\": expected the kind of the rotation");
  refused("gemma3_text", "rope_parameters", rope({{"rope_type", "linear"}, {"factor", 2.0}}),
          "expected \"full_attention\" and \"sliding_attention\", a rotation each");
  refused("gemma3_text", "_sliding_window_pattern", 3, "expected layer_types beside it, or 6");
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

namespace {

constexpr int64_t kHuge = (int64_t{1} << 31) - 1;

template <class Model, class Options>
ModelFolder folder_of(const Options& options, const SaveFolderOptions& save_options = {}) {
  const TemporaryFolder folder;
  save_model_folder(folder / "model", *Model(options), save_options);
  return read_model_folder(folder / "model", {.map = false});
}

template <class Model>
std::string refusal(const ModelFolder& folder, std::string_view field, int64_t value) {
  return value_error([&] { load_pretrained<Model>(with(folder, field, value)); });
}

// Checks that each field is refused by name, whatever else the error says.
template <class Model>
void check_refused(const ModelFolder& folder, std::initializer_list<const char*> fields) {
  for (const auto* field : fields) {
    INFO(folder.family << ' ' << field);
    const auto message = refusal<Model>(folder, field, kHuge);
    CHECK_THAT(message, ContainsSubstring("/config.json: field"));
    CHECK_THAT(message, ContainsSubstring(field));
    // Image_size must be divisible by a patch_size of 4.
    const bool divided = std::string_view(field) == "image_size";
    CHECK_THAT(message, ContainsSubstring(divided ? "536870911" : "2147483647"));
    CHECK_THAT(message, ContainsSubstring("tensors"));
  }
}

}  // namespace

TEST_CASE("a config that asks for more than the folder holds is refused by its field",
          "[pretrained][errors]") {
  const auto sizes = {"num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"};
  const auto heads = {"num_attention_heads", "num_key_value_heads", "head_dim"};
  const auto decoder = [&](const std::string& family, const LlamaOptions& options) {
    const auto folder = folder_of<Llama>(options, {.family = family});
    check_refused<Llama>(folder, sizes);
    check_refused<Llama>(folder, heads);
  };
  const auto gemma =
      LlamaOptions(kLlama).unit_offset(true).norm_after(true).scaled_embedding(true).tied(true).activation(
          Activation::GeluTanh);
  decoder("llama", kLlama);
  decoder("mistral", LlamaOptions(kLlama).windows({4, 4, 4}));
  decoder("qwen2", LlamaOptions(kLlama).qkv_bias(true));
  decoder("qwen3", LlamaOptions(kLlama).qk_norm(true));
  decoder("gemma2", gemma);
  decoder("gemma3_text", LlamaOptions(gemma).qk_norm(true));
  check_refused<GPT>(folder_of<GPT>(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true)),
                     {"n_layer", "n_embd", "vocab_size", "n_positions"});
  const auto texts = {"hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings",
                      "type_vocab_size"};
  const auto bert = BertOptions(11, 8, 12, 3, 2);
  for (const auto& options : {bert, BertOptions(bert).padding_id(1)}) {
    const auto folder = folder_of<Bert>(options);
    check_refused<Bert>(folder, texts);
    check_refused<Bert>(folder, {"num_hidden_layers"});
  }
  const auto albert = folder_of<Bert>(BertOptions(bert).shared_layers(true).embedding_dim(6));
  check_refused<Bert>(albert, texts);
  check_refused<Bert>(albert, {"embedding_size"});
  CHECK_THAT(refusal<Bert>(albert, "num_hidden_layers", kHuge), ContainsSubstring("at most 2^20 layers"));
  const auto vit = ViTOptions(8, 4, 2, 5).emb_dim(12).num_heads(3).num_layers(2).activation(Activation::Gelu);
  for (const bool distilled : {false, true}) {
    check_refused<ViT>(
        folder_of<ViT>(ViTOptions(vit).distillation_token(distilled)),
        {"num_hidden_layers", "hidden_size", "intermediate_size", "image_size", "num_channels"});
  }
  // The number of patches of such an image is harmless, but one patch alone is too large.
  auto large = with(folder_of<ViT>(vit), "image_size", kHuge);
  CHECK_THAT(refusal<ViT>(large, "patch_size", kHuge),
             ContainsSubstring("num_channels * patch_size * patch_size"));
}

TEST_CASE("a refused config says what it asks for and what the folder holds", "[pretrained][errors]") {
  const auto folder = read_model_folder(kModelData / "llama");
  const auto path = folder.path.string() + "/config.json";
  CHECK(
      refusal<Llama>(folder, "vocab_size", kHuge) ==
      "load_pretrained: " + path +
          ": fields vocab_size * hidden_size: expected at most the 4080 numbers of the folder's 21 tensors, "
          "got 2147483647 * 16");
  CHECK(
      refusal<Llama>(folder, "num_hidden_layers", 22) ==
      "llama_options: " + path +
          ": field \"num_hidden_layers\": expected at most as many layers as the folder has tensors, 21, got "
          "22");
  // If the folder has no weights, nothing is built from it.
  const auto described = read_model_folder(kModelData / "llama", {.weights = false});
  CHECK(value_error([&] { llama_options(with(described, "num_hidden_layers", kHuge)); }) ==
        "llama_options: " + path +
            ": field \"num_hidden_layers\": expected at most 2^20 layers, got 2147483647");
  CHECK(llama_options(with(described, "num_hidden_layers", int64_t{1} << 20)).num_layers() == 1 << 20);
}

TEST_CASE("a demand is met by the numbers that are stored, and products do not overflow",
          "[pretrained][errors]") {
  const auto numbers = at::ones({100});
  const auto accepts = [](std::vector<MinimumSize::Factor> factors, const StateDict& weights) {
    try {
      check_demands("who", {{std::move(factors)}}, weights);
      return true;
    } catch (const c10::ValueError&) {
      return false;
    }
  };
  CHECK(accepts({{"a", 10}, {"b", 10}}, {{"x", numbers}}));
  CHECK_FALSE(accepts({{"a", 10}, {"b", 11}}, {{"x", numbers}}));
  CHECK(accepts({{"a", 10}, {"b", 11}}, {{"x", numbers}, {"y", numbers}}));
  CHECK_FALSE(accepts({{"a", 10}, {"b", 11}}, {{"x", numbers.slice(0, 0, 1).expand({1000})}}));
  const auto large = int64_t{1} << 32;
  CHECK_FALSE(accepts({{"a", large}, {"b", large}}, {{"x", numbers}}));  // 2^64 is 0 modulo 2^64
}

TEST_CASE("layers without weights take no memory", "[pretrained][memory]") {
  if (const auto why = why_no_peak_memory()) SKIP(*why);
  const auto mistral =
      with(folder_of<Llama>(LlamaOptions(kLlama).windows({4, 4, 4})), "num_hidden_layers", 1 << 29);
  std::string message;
  const auto peak = peak_memory([&] { message = value_error([&] { load_pretrained<Llama>(mistral); }); });
  CHECK_THAT(message, ContainsSubstring("num_hidden_layers"));
  CHECK(peak < 50 << 20);
}

using attentive::test::value_error;

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
