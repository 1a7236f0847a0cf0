#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
#include <attentive/models/model_folder.h>
#include <attentive/modules/print_options.h>
#include <attentive/score/score_mod.h>

#include "base/files.h"
#include "models/model_folders.h"
#include "models/python_names.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using attentive::test::value_error;
using attentive::test::write_bytes;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const std::filesystem::path kData = test::source_folder() + "/tests/models/data";

}  // namespace

TEST_CASE("a folder that Python wrote is read", "[model_folder]") {
  const auto gpt2 = read_model_folder(kData / "gpt2");
  CHECK(gpt2.family == "gpt2");
  CHECK(gpt2.config.at("n_embd").as<int64_t>() == 16);
  CHECK(gpt2.weights.size() == 2 + 2 * 12 + 2);
  CHECK(gpt2.weights.at("transformer.h.1.attn.c_attn.weight").sizes() == at::IntArrayRef({16, 48}));
  CHECK(gpt2.stop_tokens == std::vector<int64_t>{2});
  CHECK(gpt2.tokenizer.empty());
  const auto llama = read_model_folder(kData / "llama");  // in shards
  CHECK(llama.family == "llama");
  CHECK(llama.weights.size() == 2 * 9 + 3);
  CHECK(llama.stop_tokens == std::vector<int64_t>{2});
  const auto owned = read_model_folder(kData / "llama", {.map = false});
  for (const auto& [name, tensor] : owned.weights) CHECK(tensor.equal(llama.weights.at(name)));
  CHECK(read_model_folder(kData / "llama", {.weights = false}).weights.empty());
}

TEST_CASE("weights are looked for in Python's order", "[model_folder]") {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", R"({"model_type": "x", "eos_token_id": null})");
  CHECK_THAT(value_error([&] { read_model_folder(folder.path()); }),
             ContainsSubstring("expected weights, model.safetensors, model.safetensors.index.json, "
                               "pytorch_model.bin, pytorch_model.bin.index.json; got none"));
  save_torch(folder / "pytorch_model.bin", {{"module.a", at::tensor({1.0})}});
  CHECK(read_model_folder(folder.path()).weights.at("a").item<double>() == 1);
  save_safetensors(folder / "model.safetensors", {{"a", at::tensor({2.0})}});
  CHECK(read_model_folder(folder.path()).weights.at("a").item<double>() == 2);
}

TEST_CASE("tokens that end a text", "[model_folder]") {
  const TemporaryFolder folder;
  const auto stops = [&](const std::string& config, const std::string& generation) {
    write_bytes(folder / "config.json", R"({"model_type": "x")" + config + "}");
    write_bytes(folder / "generation_config.json", "{" + generation + "}");
    return read_model_folder(folder.path(), {.weights = false}).stop_tokens;
  };
  CHECK(stops("", "") == std::vector<int64_t>{});
  CHECK(stops(R"(, "eos_token_id": 3)", "") == std::vector<int64_t>{3});
  CHECK(stops(R"(, "eos_token_id": 3)", R"("eos_token_id": [5, 6])") == std::vector<int64_t>{5, 6});
  CHECK(stops(R"(, "eos_token_id": 3)", R"("eos_token_id": null)") == std::vector<int64_t>{});
  for (const auto* bad : {"-1", "1.5", "\"2\"", "[1, null]", "{}", "18446744073709551615"}) {
    INFO(bad);
    CHECK_THAT(value_error([&] { stops(R"(, "eos_token_id": )" + std::string(bad), ""); }),
               ContainsSubstring("config.json: field \"eos_token_id\": expected a token, a list of tokens or "
                                 "null"));
  }
}

TEST_CASE("a folder names the file of its tokenizer and that of its vocabulary", "[model_folder]") {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", R"({"model_type": "x"})");
  write_bytes(folder / "tokenizer.json", "{}");
  CHECK(read_model_folder(folder.path(), {.weights = false}).tokenizer == folder / "tokenizer.json");
  CHECK(read_model_folder(folder.path(), {.weights = false}).vocabulary.empty());
  // They are added from the last name to the first, which counts.
  for (const auto* name :
       {"sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    write_bytes(folder / name, "x");
    CHECK(read_model_folder(folder.path(), {.weights = false}).vocabulary == folder / name);
  }
}

TEST_CASE("folders that are no models are refused by name", "[model_folder][errors]") {
  const TemporaryFolder folder;
  const auto refusal = [&] { return value_error([&] { read_model_folder(folder.path()); }); };
  const auto path = folder.path().string();
  CHECK(refusal() == "read_model_folder: " + path + ": expected config.json, got none");
  CHECK(value_error([&] { read_model_folder(folder / "absent"); }) ==
        "read_model_folder: " + path + "/absent: expected a folder, got none");
  const auto config = folder / "config.json";
  const auto says = [&](const std::string& text, const std::string& reason) {
    write_bytes(config, text);
    CHECK(refusal() == "read_model_folder: " + config.string() + ": " + reason);
  };
  says("", "the file is not JSON");
  says("[1]", "expected an object, got a list");
  says("{\"a\": 1, \"a\": 2}", "the file holds \"a\" twice");
  says("{\"a\": \"\xff\"}", "the file is not UTF-8");
  says("{\"a\": " + std::string(40, '[') + std::string(40, ']') + "}", "the file nests too deep");
  says("{}", "field \"model_type\": expected a string, got none");
  says("{\"model_type\": 3}", "field \"model_type\": expected a string, got int");
  ::remove(config.c_str());
  REQUIRE(::mkfifo(config.c_str(), 0600) == 0);
  CHECK(refusal() == "read_model_folder: " + config.string() + ": not a regular file");
}

using namespace attentive::test;

namespace {

// Draws every parameter, because initial weights of one and zero would hide a mistake.
template <class Model>
Model drawn(Model model) {
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  for (auto& parameter : model->parameters()) parameter.normal_(0.0, 0.3);
  model->eval();
  return model;
}

template <class Model>
Model check_round_trip(const Model& model, const std::string& family, const SaveFolderOptions& options = {}) {
  INFO(family);
  const TemporaryFolder folder;
  save_model_folder(folder / "saved", *model, options);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"saved"});
  const auto read = read_model_folder(folder / "saved");
  CHECK(read.family == family);
  auto again = load_pretrained<Model>(folder / "saved");
  const auto saved = state_dict(*model), loaded = state_dict(*again);
  for (const auto& [name, tensor] : saved) {
    INFO(name);
    REQUIRE(loaded.contains(name));
    CHECK(loaded.at(name).equal(tensor));
  }
  return again;
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <class Model>
void load_and_save(const std::filesystem::path& from, const std::filesystem::path& to) {
  auto folder = read_model_folder(from);
  const auto model = load_pretrained<Model>(std::move(folder));
  save_model_folder(to, *model, {.config = folder.config, .tokenizer = folder.path});
}

}  // namespace

TEST_CASE("what is saved loads again", "[save_model_folder]") {
  check_round_trip(drawn(GPT(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).tied(true).dropout(0.1))), "gpt2");
  check_round_trip(drawn(Llama(kLlama)), "llama");
  check_round_trip(drawn(Llama(LlamaOptions(kLlama).qkv_bias(true).out_bias(true).ff_bias(true).tied(true))),
                   "llama");
  check_round_trip(drawn(Llama(LlamaOptions(kLlama).rotary(RotaryPositionsOptions(0)
                                                               .pairing(RotaryPairing::Halves)
                                                               .base(5e5)
                                                               .scaling(RotaryScaling::Llama3)
                                                               .factor(8)
                                                               .original_context(16)))),
                   "llama");
  const auto yarn = RotaryPositionsOptions(0)
                        .pairing(RotaryPairing::Halves)
                        .scaling(RotaryScaling::Yarn)
                        .factor(8)
                        .original_context(16);
  const auto every_field = RotaryPositionsOptions(yarn)
                               .beta_fast(5.5)
                               .beta_slow(0.5)
                               .truncate(false)
                               .mscale(0.7)
                               .mscale_all_dim(1.25)
                               .attention_factor(1.5);
  for (const auto& rotary : {yarn, every_field})
    check_round_trip(drawn(Llama(LlamaOptions(kLlama).rotary(rotary))), "llama");
  check_round_trip(drawn(Llama(LlamaOptions(kLlama).windows({4, 4, 4}))), "mistral");
  check_round_trip(drawn(Llama(LlamaOptions(kLlama).qkv_bias(true).windows({0, 0, 5}))), "qwen2");
  check_round_trip(drawn(Llama(LlamaOptions(kLlama).qk_norm(true).head_dim(10))), "qwen3");
  const auto gemma =
      LlamaOptions(kLlama).unit_offset(true).norm_after(true).scaled_embedding(true).tied(true).activation(
          Activation::GeluTanh);
  check_round_trip(drawn(Llama(LlamaOptions(gemma).softcap(4.0).scale(0.25).windows({4, 0, 4}))), "gemma2");
  check_round_trip(drawn(Llama(LlamaOptions(gemma).qk_norm(true).windows({4, 0, 4}).window_rotary(
                       RotaryPositionsOptions(0).pairing(RotaryPairing::Halves).base(100)))),
                   "gemma3_text");
  const auto bert = BertOptions(11, 8, 12, 3, 2).dropout(0.1);
  check_round_trip(drawn(Bert(bert)), "bert");
  check_round_trip(drawn(Bert(BertOptions(bert).masked_lm(true).frozen_id(0))), "bert");
  check_round_trip(drawn(Bert(BertOptions(bert).padding_id(1).masked_lm(true).pooler(false))), "roberta");
  check_round_trip(drawn(Bert(BertOptions(bert).shared_layers(true).embedding_dim(6))), "albert");
  for (const auto activation : {Activation::QuickGelu, Activation::Relu2}) {
    check_round_trip(drawn(Bert(BertOptions(bert).activation(activation))), "bert");
  }
  const auto labels = BertOptions(bert).num_labels(5).head_dropout(0.3);
  for (const auto head : {BertHead::Sequence, BertHead::Tokens}) {
    const auto one = BertOptions(labels).head(head);
    check_round_trip(drawn(Bert(one)), "bert");
    const auto roberta = drawn(Bert(BertOptions(one).padding_id(1).pooler(false)));
    check_round_trip(roberta, "roberta");
    for (const std::string family : {"xlm-roberta", "camembert"}) {
      check_round_trip(roberta, family, {.family = family});
      check_round_trip(roberta, family, {.config = FileValue::Dict{{{"model_type", family}}}});
    }
    check_round_trip(drawn(Bert(BertOptions(one).shared_layers(true).embedding_dim(6))), "albert");
  }
  check_round_trip(drawn(GPT(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).hidden_dim(20).eps(1e-3))), "gpt2");
  check_round_trip(drawn(GPT(GPTOptions(11, 8, 12, 3, 2).qkv_bias(true).activation(Activation::Relu))),
                   "gpt2");
  const auto vit = ViTOptions(8, 4, 2, 5).emb_dim(12).num_heads(3).num_layers(2).activation(Activation::Gelu);
  check_round_trip(drawn(ViT(vit)), "vit");
  check_round_trip(drawn(ViT(ViTOptions(vit).distillation_token(true).hidden_dim(20))), "deit");
  check_round_trip(drawn(ViT(ViTOptions(vit).num_classes(0).qkv_bias(false))), "vit");
  check_round_trip(drawn(ViT(ViTOptions(vit).num_classes(0).distillation_token(true))), "deit");
}

TEST_CASE("config.json names the class that Python loads", "[save_model_folder]") {
  const auto class_of = [](const BertOptions& options, const std::string& family) {
    const TemporaryFolder folder;
    save_model_folder(folder / "model", *Bert(options), {.family = family});
    const auto config = read_model_folder(folder / "model").config;
    return config.at("architectures").as<FileValue::List>().items.at(0).as<std::string>();
  };
  const BertOptions bert(11, 8, 12, 3, 2);
  const auto roberta = BertOptions(bert).padding_id(1).pooler(false);
  CHECK(class_of(bert, "bert") == "BertModel");
  CHECK(class_of(BertOptions(roberta).masked_lm(true), "roberta") == "RobertaForMaskedLM");
  CHECK(class_of(BertOptions(roberta).head(BertHead::Sequence).num_labels(3), "xlm-roberta") ==
        "XLMRobertaForSequenceClassification");
  CHECK(class_of(BertOptions(roberta).head(BertHead::Tokens).num_labels(3), "camembert") ==
        "CamembertForTokenClassification");
  CHECK(class_of(BertOptions(bert).shared_layers(true).embedding_dim(6), "albert") == "AlbertModel");
}

TEST_CASE("a Gemma without windows keeps the number that Python's class needs", "[save_model_folder]") {
  const TemporaryFolder folder;
  const auto gemma =
      LlamaOptions(kLlama).unit_offset(true).norm_after(true).scaled_embedding(true).tied(true).activation(
          Activation::GeluTanh);
  for (const auto& options : {gemma, LlamaOptions(gemma).qk_norm(true)}) {
    const auto model = drawn(Llama(options));
    const auto written = [&](const SaveFolderOptions& save_options) {
      save_model_folder(folder / "model", *model, save_options);
      const auto read = read_model_folder(folder / "model");
      CHECK(load_pretrained<Llama>(read)->options.windows().empty());
      return read.config.at("sliding_window");
    };
    CHECK(written({}).as<int64_t>() == 4096);
    const FileValue::Dict before{{{"sliding_window", 5}}};
    CHECK(written({.config = before}).as<int64_t>() == 5);
  }
  // Configs of other families state that there is none.
  const auto qwen = drawn(Llama(LlamaOptions(kLlama).qkv_bias(true)));
  save_model_folder(folder / "qwen", *qwen, {.config = FileValue::Dict{{{"sliding_window", 5}}}});
  CHECK(read_model_folder(folder / "qwen").config.at("sliding_window").is<FileValue::None>());
}

TEST_CASE("a model of the book gets the biases that GPT-2 has", "[save_model_folder]") {
  const auto model = drawn(GPT(GPTOptions(11, 8, 12, 3, 2).bias(false)));
  auto again = check_round_trip(model, "gpt2");
  const auto ids = at::arange(8).view({1, 8});
  CHECK((again->forward(ids) - model.ptr()->forward(ids)).abs().max().item<double>() < 2e-6);
}

TEST_CASE("half precision stays half precision", "[save_model_folder]") {
  const auto model = drawn(Llama(kLlama));
  model.ptr()->to(at::kBFloat16);
  CHECK(check_round_trip(model, "llama")->final_norm->weight.scalar_type() == at::kBFloat16);
}

TEST_CASE("a folder is replaced in one step, and its other files stay", "[save_model_folder]") {
  const TemporaryFolder folder;
  const auto path = folder / "model";
  make_folder(path / "original");
  for (const auto* name : {"README.md", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                           "pytorch_model.bin", "config.json", "original/params.json"}) {
    write_bytes(path / name, name);
  }
  REQUIRE(::symlink("README.md", (path / "link").c_str()) == 0);
  const auto model = drawn(Llama(kLlama));
  save_model_folder(path, *model);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"model"});
  CHECK(names_in(path) ==
        std::vector<std::string>{"README.md", "config.json", "link", "model.safetensors", "original"});
  CHECK(text_of_file(path / "README.md") == "README.md");
  CHECK(text_of_file(path / "original/params.json") == "original/params.json");
  CHECK(load_pretrained<Llama>(path)->tok_emb->weight.equal(model->tok_emb->weight));
}

TEST_CASE("a model may be saved over the folder that its parameters are mapped from", "[save_model_folder]") {
  const TemporaryFolder folder;
  load_and_save<Llama>(kModelData / "llama", folder / "model");
  const auto model = load_pretrained<Llama>(folder / "model");
  {
    const at::NoGradGuard no_grad;
    model->final_norm->weight.mul_(2);
  }
  const auto before = state_dict(*model);
  StateDict copies;
  for (const auto& [name, tensor] : before) copies[name] = tensor.clone();
  save_model_folder(folder / "model", *model);
  const auto again = state_dict(*load_pretrained<Llama>(folder / "model"));
  for (const auto& [name, tensor] : copies) {
    INFO(name);
    CHECK(before.at(name).equal(tensor));
    CHECK(again.at(name).equal(tensor));
  }
}

TEST_CASE("the tokenizer and unknown fields of config.json are kept", "[save_model_folder]") {
  const TemporaryFolder folder;
  load_and_save<GPT>(kModelData / "gpt2", folder / "model");
  write_bytes(folder / "model" / "tokenizer.json", "{\"a\": 1}");
  write_bytes(folder / "model" / "merges.txt", "a b");
  write_bytes(folder / "model" / "README.md", "not of the model");
  load_and_save<GPT>(folder / "model", folder / "again");
  CHECK(names_in(folder / "again") == std::vector<std::string>{"config.json", "generation_config.json",
                                                               "merges.txt", "model.safetensors",
                                                               "tokenizer.json"});
  const auto read = read_model_folder(folder / "again");
  CHECK(read.config.at("bos_token_id").as<int64_t>() == 1);
  CHECK(read.config.at("summary_type").as<std::string>() == "cls_index");
  CHECK(text_of_file(read.tokenizer) == "{\"a\": 1}");
  const GPT model = load_pretrained<GPT>(folder / "model");
  save_model_folder(folder / "third", *model, {.tokenizer = folder / "model" / "tokenizer.json"});
  CHECK(text_of_file(folder / "third" / "tokenizer.json") == "{\"a\": 1}");
}

TEST_CASE("what a family cannot describe is refused, and nothing changes", "[save_model_folder][errors]") {
  const TemporaryFolder folder;
  const auto path = folder / "model";
  const auto says = [&](const std::function<void()>& call, const std::string& reason) {
    const auto message = value_error(call);
    CHECK_THAT(message, ContainsSubstring("save_model_folder: " + path.string() + ": "));
    CHECK_THAT(message, ContainsSubstring(reason));
    CHECK(names_in(folder.path()).empty());
  };
  says([&] { save_model_folder(path, *GPT(GPTOptions(11, 8, 12, 3, 2).positions(GPTPositions::Rotary))); },
       "a gpt2 cannot have positions=rotary; config.json would say learned");
  says([&] { save_model_folder(path, *Llama(LlamaOptions(kLlama).softcap(2.0))); },
       "a llama cannot have softcap=2; config.json would say none");
  says([&] { save_model_folder(path, *Llama(LlamaOptions(kLlama).qk_norm(true)), {.family = "llama"}); },
       "a llama cannot have qk_norm=true");
  says([&] { save_model_folder(path, *Llama(LlamaOptions(kLlama).windows({4, 5, 4}))); }, "windows=");
  says(
      [&] { save_model_folder(path, *Llama(kLlama), {.family = "gpt2"}); },
      "expected one of the families " + known_families({LlamaImpl::kName}) + " for this model, got \"gpt2\"");
  says([&] { save_model_folder(path, *Llama(kLlama), {.tokenizer = folder / "absent.json"}); },
       "No such file or directory");
  write_bytes(folder / "file", "x");
  CHECK_THAT(value_error([&] { save_model_folder(folder / "file", *Llama(kLlama)); }),
             ContainsSubstring("cannot replace it: Not a directory"));
  CHECK(text_of_file(folder / "file") == "x");
}

TEST_CASE("Python loads what is saved, with the same outputs", "[save_model_folder][python]") {
  NEEDS_PYTHON("transformers, torch");
  const TemporaryFolder folder;
  const auto written = folder / "written", saved = folder / "saved";
  make_model_folders("'" + written.string() + "'");
  const auto names = names_in(written);
  CHECK(families_in(written) == known_families());
  for (const auto& name : names) {
    INFO(name);
    const auto family = read_model_folder(written / name, {.weights = false}).family;
    if (family == "gpt2") {
      load_and_save<GPT>(written / name, saved / name);
    } else if (family == "vit" || family == "deit") {
      load_and_save<ViT>(written / name, saved / name);
    } else if (find_family(family)->model == BertImpl::kName) {
      load_and_save<Bert>(written / name, saved / name);
    } else {
      load_and_save<Llama>(written / name, saved / name);
    }
  }
  std::istringstream report(
      make_model_folders("--check '" + written.string() + "' '" + saved.string() + "'"));
  std::string name, missing;
  double difference = 0;
  size_t count = 0;
  while (report >> name >> difference >> missing) {
    INFO(name << ' ' << difference << ' ' << missing);
    CHECK(difference <= 1e-5);
    CHECK(missing == "-");
    ++count;
  }
  CHECK(count == names.size());
}

TEST_CASE("a model whose layers have a score or mask function is not saved",
          "[model_folder][score][errors]") {
  const TemporaryFolder folder;
  GPT model(GPTOptions(7, 8, 8, 2, 2).qkv_bias(true));
  auto& layer = model->trf_blocks[1]->as<TransformerBlockImpl>()->att->options;
  const auto refused = [&] { return value_error([&] { save_model_folder(folder / "saved", *model); }); };
  const auto names = state_dict(*model).size();
  layer.score(score_mod([](auto s, auto) { return tanh(s); }, "squashed"));
  CHECK(state_dict(*model).size() == names);
  const auto path = (folder / "saved").string();
  CHECK(refused() ==
        "save_model_folder: " + path +
            ": expected no score in trf_blocks.1.att, got \"squashed\": a function cannot be written "
            "to a file");
  layer.score({}).block_mask(mask_mod([](auto pair) { return pair.query >= pair.key; }, "causal"));
  CHECK(refused() == "save_model_folder: " + path +
                         ": expected no block_mask in trf_blocks.1.att, got \"causal\": a function cannot be "
                         "written to a file");
  CHECK(names_in(folder.path()).empty());
  layer.block_mask({});
  CHECK_NOTHROW(save_model_folder(folder / "saved", *model));
}
