#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/models/model_folder.h>
#include <attentive/modules/print_options.h>
#include <attentive/parity/compare.h>

#include "base/files.h"
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

ModelFolder gpt2_folder() {
  return read_model_folder(kModelData / "gpt2");
}

ModelFolder llama_folder() {
  return read_model_folder(kModelData / "llama");
}

template <class Model>
double difference_of_folder(const std::filesystem::path& folder) {
  auto model = load_pretrained<Model>(folder);
  CHECK_FALSE(model->is_training());
  return difference_from_python(model, expected_of(folder));
}

double difference_of(const std::filesystem::path& folder) {
  const auto family = read_model_folder(folder, {.weights = false}).family;
  if (family == "gpt2") return difference_of_folder<GPT>(folder);
  if (family == "vit" || family == "deit") return difference_of_folder<ViT>(folder);
  if (find_family(family)->model == BertImpl::kName) return difference_of_folder<Bert>(folder);
  return difference_of_folder<Llama>(folder);
}

// The addresses at which a folder's files are mapped.
std::vector<std::pair<uintptr_t, uintptr_t>> mappings_in(const std::filesystem::path& folder) {
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(std::filesystem::canonical(folder).string()) == std::string::npos) continue;
    std::istringstream text(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    text >> std::hex >> begin >> dash >> end;
    found.emplace_back(begin, end);
  }
  return found;
}

}  // namespace

TEST_CASE("names that torch.compile, FSDP and DataParallel lengthened are read without it", "[pretrained]") {
  const auto plain = read_state_dict(kModelData / "llama");
  StateDict wrapped;
  for (const auto& [key, tensor] : plain) {
    auto name = "module." + key;
    for (const auto& [part, wrapper] : {std::pair{".self_attn.", "._checkpoint_wrapped_module._orig_mod"},
                                        std::pair{".mlp.", "._fsdp_wrapped_module"}}) {
      if (const auto place = name.find(part); place != std::string::npos) name.insert(place, wrapper);
    }
    wrapped[name] = tensor;
  }
  CHECK(from_python_names("llama", wrapped).size() == from_python_names("llama", plain).size());
  const TemporaryFolder folder;
  write_file(folder / "config.json", read_file(kModelData / "llama" / "config.json"));
  save_safetensors(folder / "model.safetensors", wrapped);
  auto model = load_pretrained<Llama>(folder.path()), same = load_pretrained<Llama>(kModelData / "llama");
  for (const auto& [name, tensor] : state_dict(*same)) CHECK(state_dict(*model).at(name).equal(tensor));
  wrapped.insert(*plain.begin());
  save_safetensors(folder / "model.safetensors", wrapped);
  CHECK_THAT(value_error([&] { read_model_folder(folder.path()); }),
             ContainsSubstring("model.safetensors: \"module.lm_head.weight\" is there twice, under several"));
}

TEST_CASE("committed folders give Python's logits", "[pretrained]") {
  CHECK(difference_of(kModelData / "gpt2") < 2e-6);
  CHECK(difference_of(kModelData / "llama") < 2e-6);
}

TEST_CASE("folders of every family that Python writes now give its outputs", "[pretrained][python]") {
  NEEDS_PYTHON("transformers, torch");
  const TemporaryFolder folder;
  const auto path = folder.path().string();
  make_model_folders("'" + path + "/new'");
  make_model_folders("--old '" + path +
                     "/old' gpt2 llama llama3 llama_biases llama_yarn gemma3_text bert vit");
  const auto names = names_in(folder / "new");
  CHECK(families_in(folder / "new") == known_families());
  for (const auto& name : names) {
    const auto difference = difference_of(folder / "new" / name);
    UNSCOPED_INFO(name << " " << difference);
    CHECK(difference < 1e-5);
  }
  for (const auto* name :
       {"gpt2", "llama", "llama3", "llama_biases", "llama_yarn", "gemma3_text", "bert", "vit"}) {
    const auto difference = difference_of(folder / "old" / name);
    UNSCOPED_INFO("old " << name << " " << difference);
    CHECK(difference < 1e-5);
  }
  const auto tokens = read_model_folder(folder / "new" / "llama3", {.weights = false}).stop_tokens;
  CHECK(tokens == std::vector<int64_t>{2, 3});
}

TEST_CASE("folders of configurations that Python draws give its outputs", "[pretrained][python]") {
  NEEDS_PYTHON("transformers, torch");
  const char* const named = std::getenv("ATTENTIVE_MODEL_SEED");
  const std::string seed = named ? named : "1";
  CAPTURE(seed);
  const TemporaryFolder folder;
  make_model_folders("--seed " + seed + " '" + folder.path().string() + "'");
  const auto names = names_in(folder.path());
  CHECK(families_in(folder.path()) == known_families());
  for (const auto& model : names) {
    INFO(model);
    double magnitude = 0;
    for (const auto& [name, tensor] : expected_of(folder / model)) {
      if (name.starts_with("output.")) magnitude = std::max(magnitude, largest_magnitude(tensor));
    }
    CHECK(difference_of(folder / model) <= tolerance_of(at::kFloat).allowed(magnitude));
  }
}

TEST_CASE("every parameter lies in the mapped file", "[pretrained]") {
  auto folder = llama_folder();
  const auto mappings = mappings_in(kModelData / "llama");
  REQUIRE(!mappings.empty());
  const auto model = load_pretrained<Llama>(std::move(folder));
  CHECK(folder.weights.empty());
  CHECK(folder.family == "llama");
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    const auto begin = reinterpret_cast<uintptr_t>(item.value().const_data_ptr());
    CHECK(std::any_of(mappings.begin(), mappings.end(), [&](const auto& mapping) {
      return mapping.first <= begin && begin + item.value().nbytes() <= mapping.second;
    }));
    CHECK(item.value().requires_grad());
  }
}

TEST_CASE("models of one folder share nothing", "[pretrained]") {
  const auto folder = llama_folder();
  const auto first = load_pretrained<Llama>(folder);
  const auto second = load_pretrained<Llama>(folder);
  const auto before = second->tok_emb->weight.detach().clone();
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : first->parameters()) parameter.zero_();
  }
  CHECK(second->tok_emb->weight.equal(before));
  CHECK(folder.weights.at("model.embed_tokens.weight").equal(before));
  CHECK(load_pretrained<Llama>(kModelData / "llama")
            ->tok_emb->weight.equal(before));  // the files do not change either
  // A tensor that something else refers to is copied.
  auto taken = llama_folder();
  const auto held = taken.weights.at("model.embed_tokens.weight");
  const auto third = load_pretrained<Llama>(std::move(taken));
  CHECK(third->tok_emb->weight.const_data_ptr() != held.const_data_ptr());
}

TEST_CASE("a loaded model can be trained, under InferenceMode too", "[pretrained]") {
  const auto load = [] {
    const c10::InferenceMode mode;
    return load_pretrained<GPT>(gpt2_folder());
  };
  auto model = load();
  const auto ids = at::arange(8).view({1, 8});
  model->loss(ids, ids).backward();
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    CHECK(item.value().grad().defined());
  }
}

TEST_CASE("no first weights are drawn", "[pretrained]") {
  at::manual_seed(3);
  const auto expected = at::randn({4});
  at::manual_seed(3);
  load_pretrained<Llama>(llama_folder());
  CHECK(at::randn({4}).equal(expected));
}

TEST_CASE("the dtype is the weights', or that of the options", "[pretrained]") {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  auto half = llama_folder();
  for (auto& [name, tensor] : half.weights) tensor = tensor.to(type);
  const auto narrow = load_pretrained<Llama>(std::as_const(half));
  for (const auto& parameter : narrow->parameters()) CHECK(parameter.scalar_type() == type);
  const auto widened = load_pretrained<Llama>(std::as_const(half), {.dtype = at::kDouble});
  CHECK(widened->final_norm->weight.scalar_type() == at::kDouble);
  CHECK(widened->final_norm->weight.equal(narrow->final_norm->weight.to(at::kDouble)));
  // If the weights have several dtypes, config.json decides.
  half.weights.at("lm_head.weight") = half.weights.at("lm_head.weight").to(at::kFloat);
  CHECK(load_pretrained<Llama>(std::as_const(half))->out_head->weight.scalar_type() == at::kFloat);
  const auto named = with(half, "dtype", type == at::kHalf ? "float16" : "bfloat16");
  CHECK(load_pretrained<Llama>(named)->out_head->weight.scalar_type() == type);
}

TEST_CASE("weights that do not fit are listed together", "[pretrained][errors]") {
  auto folder = llama_folder();
  auto& weights = folder.weights;
  const auto key = weights.extract("model.layers.1.self_attn.k_proj.weight").mapped();
  weights["model.layers.1.self_attn.k_prj.weight"] = key;
  weights.erase("lm_head.weight");
  weights["model.layers.0.mlp.up_proj.weight"] = at::ones({20, 15});
  weights["model.layers.2.mlp.up_proj.weight"] = at::ones({20, 16});
  weights["model.norm.weight"] = at::ones({16}).to_sparse();
  CHECK(value_error([&] { load_pretrained<Llama>(std::as_const(folder)); }) ==
        "load_pretrained: " + folder.path.string() +
            ": the weights do not fit the llama of config.json:\n"
            "missing \"model.layers.1.self_attn.k_proj.weight\" (the nearest name given is "
            "model.layers.1.self_attn.k_prj.weight)\n"
            "missing \"lm_head.weight\"\n"
            "unexpected \"model.layers.1.self_attn.k_prj.weight\" (the nearest known name is "
            "model.layers.1.self_attn.k_proj.weight)\n"
            "unexpected \"model.layers.2.mlp.up_proj.weight\": the model has no blocks.2.ff.layers.0.weight\n"
            "misshapen \"model.norm.weight\": expected a dense tensor, got a sparse one\n"
            "misshapen \"model.layers.0.mlp.up_proj.weight\", here blocks.0.ff.layers.0.weight: expected "
            "shape (20, 16), got (20, 15)\n"
            "PretrainedOptions::ignore leaves out weights by their names");
}

TEST_CASE("weights without a place can be ignored", "[pretrained]") {
  auto folder = gpt2_folder();
  folder.weights["score.weight"] = at::ones({2});
  CHECK_THAT(value_error([&] { load_pretrained<GPT>(std::as_const(folder)); }),
             ContainsSubstring("unexpected \"score.weight\""));
  load_pretrained<GPT>(folder, {.ignore = {"score.*"}});
}

TEST_CASE("a classifier is read if Python's class has one and it is not ignored", "[pretrained]") {
  const TemporaryFolder temporary;
  const auto saved = [&](const auto& model, const std::string& family = "") {
    save_model_folder(temporary / "model", *model, {.family = family});
    return read_model_folder(temporary / "model", {.map = false});
  };
  const auto base = BertOptions(11, 8, 12, 3, 2).num_labels(5);
  const auto texts = saved(Bert(BertOptions(base).head(BertHead::Sequence)));
  const auto tokens = saved(Bert(BertOptions(base).head(BertHead::Tokens).pooler(false)));
  const Bert first_token(BertOptions(base).head(BertHead::Sequence).pooler(false).padding_id(1));
  const auto roberta = saved(first_token);
  CHECK(bert_options(texts).head() == BertHead::Sequence);
  CHECK(bert_options(texts).num_labels() == 5);
  CHECK(bert_options(tokens).head() == BertHead::Tokens);
  // Without the name of a Python class, the weights decide.
  const auto unnamed = [](const ModelFolder& folder) {
    return bert_options(with(folder, "architectures", FileValue())).head();
  };
  CHECK(unnamed(texts) == BertHead::Sequence);
  CHECK(unnamed(tokens) == BertHead::Tokens);
  CHECK(unnamed(roberta) == BertHead::Sequence);
  // Without weights, the name of the class decides.
  for (const auto& folder :
       {texts, tokens, roberta, saved(first_token, "xlm-roberta"), saved(first_token, "camembert")}) {
    auto described = folder;
    described.weights.clear();
    CHECK(bert_options(described).head() == bert_options(folder).head());
    CHECK(bert_options(described).pooler() == bert_options(folder).pooler());
  }
  const PretrainedOptions ignored{.ignore = {"classifier.*"}};
  CHECK(load_pretrained<Bert>(texts, ignored)->classifier.is_empty());
  CHECK(load_pretrained<Bert>(texts, {.dropout = 0.25})->options.head_dropout() == 0.25);
  auto other = with(texts, "architectures", FileValue::List{{"BertForMultipleChoice"}});
  CHECK_THAT(value_error([&] { load_pretrained<Bert>(other); }),
             ContainsSubstring("unexpected \"classifier.weight\""));
  auto without = texts;
  without.weights.erase("classifier.weight");
  CHECK_THAT(value_error([&] { load_pretrained<Bert>(std::as_const(without)); }),
             ContainsSubstring("missing \"classifier.weight\""));

  const auto images = saved(ViT(ViTOptions(8, 4, 2, 5)));
  CHECK(vit_options(images).num_classes() == 5);
  CHECK(load_pretrained<ViT>(images, ignored)->head.is_empty());
  const auto hidden = saved(ViT(ViTOptions(8, 4, 2, 0).qkv_bias(false)));
  CHECK(vit_options(hidden).num_classes() == 0);
  CHECK(vit_options(with(hidden, "architectures", FileValue())).num_classes() == 0);
  without = images;
  without.weights.erase("classifier.weight");
  without.weights.erase("classifier.bias");
  CHECK_THAT(value_error([&] { load_pretrained<ViT>(std::as_const(without)); }),
             ContainsSubstring("missing \"vit.classifier.weight\"") ||
                 ContainsSubstring("missing \"classifier.weight\""));
}

TEST_CASE("the head of a tied model holds the embedding's numbers", "[pretrained][errors]") {
  auto folder = gpt2_folder();
  folder.weights["lm_head.weight"] = folder.weights.at("transformer.wte.weight").clone();
  CHECK(load_pretrained<GPT>(std::as_const(folder))->out_head.is_empty());
  folder.weights["lm_head.weight"].add_(1);
  CHECK_THAT(value_error([&] { load_pretrained<GPT>(std::as_const(folder)); }),
             ContainsSubstring("misshapen \"lm_head.weight\": expected the numbers of transformer.wte.weight "
                               "(tie_word_embeddings), got other ones"));
  CHECK_FALSE(load_pretrained<GPT>(with(folder, "tie_word_embeddings", false))->out_head.is_empty());
}

TEST_CASE("a folder of another family names the model that reads it", "[pretrained][errors]") {
  const auto path = (kModelData / "gpt2").string();
  CHECK(value_error([&] { load_pretrained<Llama>(path); }) ==
        "llama_options: " + path +
            ": expected a folder that attentive::Llama reads, got a gpt2, which attentive::GPT reads");
}

TEST_CASE("mapped weights take memory when they are used, once", "[pretrained][memory]") {
  if (const auto why = why_no_peak_memory()) SKIP(*why);
  const TemporaryFolder folder;
  size_t bytes = 0;
  {
    const Llama model(LlamaOptions(10000, 512, 4, 4));
    for (const auto& parameter : model->parameters()) bytes += parameter.nbytes();
    save_model_folder(folder / "model", *model);
  }
  const auto loaded = peak_memory([&] { load_pretrained<Llama>(folder / "model"); });
  CHECK(loaded < bytes / 20);
  const auto used = peak_memory([&] {
    const auto model = load_pretrained<Llama>(folder / "model");
    for (const auto& parameter : model->parameters()) parameter.sum();
  });
  CHECK(used < bytes + bytes / 20);
  CHECK(used > bytes / 2);
}
