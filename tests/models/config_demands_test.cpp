#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/models/model_folder.h>

#include "models/model_config.h"
#include "models/model_folders.h"
#include "support/errors.h"
#include "support/peak_memory.h"
#include "support/temporary_folder.h"

using namespace attentive;
using namespace attentive::test;
using Catch::Matchers::ContainsSubstring;

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
  const auto accepts = [](std::vector<Demand::Factor> factors, const StateDict& weights) {
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
