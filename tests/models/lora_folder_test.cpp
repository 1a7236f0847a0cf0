// Adapters in folders of Python's peft: tools/generators/make_adapters.py wrote tests/models/data/lora.

#include <set>
#include <type_traits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/lora.h>
#include <attentive/models/vit.h>

#include "base/files.h"
#include "models/adapter_sites.h"
#include "models/model_folders.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;

namespace {

const std::filesystem::path kAdapters = kModelData / "lora";
constexpr Tolerance kFloat32{1e-5, 5e-6};

// Adapters of one base differ in what follows its name.
std::filesystem::path base_folder(std::string name) {
  if (is_folder(kAdapters / name / "base")) return kAdapters / name / "base";
  name.resize(std::min(name.find('_'), name.size()));
  return is_folder(kAdapters / name / "base") ? kAdapters / name / "base" : kModelData / name;
}

at::Tensor output_of(Bert& model, const at::Tensor& ids) {
  const auto output = model->forward(ids);
  if (model->options.head() == BertHead::Sequence) return model->label_logits(output);
  return at::cat({output.hidden, output.pooled.unsqueeze(1)}, 1);
}
template <class Model>
at::Tensor output_of(Model& model, const at::Tensor& input) {
  return model->forward(input);
}

// The loss that the generator takes: of the next tokens, or of any output.
at::Tensor loss_of(const at::Tensor& output, const at::Tensor& input, bool is_language_model) {
  return is_language_model ? at::cross_entropy_loss(output.flatten(0, 1), input.flip(1).flatten())
                           : output.square().mean();
}

template <class Model>
void check_peft(const std::string& name) {
  INFO(name);
  auto model = load_pretrained<Model>(base_folder(name));
  model->eval();
  auto lora = load_lora(kAdapters / name, model);
  const auto expected = load_safetensors(kAdapters / name / "expected.safetensors").tensors;
  const auto& input = expected.at("input");
  const auto output = output_of(model, input);
  CHECK(difference(output.detach(), expected.at("output"), kFloat32).empty());
  const auto loss = loss_of(output, input, std::is_same_v<Model, GPT> || std::is_same_v<Model, Llama>);
  CHECK(difference(loss.detach(), expected.at("output.loss"), kFloat32).empty());
  loss.backward();
  const auto layers = lora.layers();
  const auto parameters = lora.parameters();
  size_t gradients = 0, compared = 2 * layers.size();
  for (const auto& item : expected) gradients += item.first.starts_with("grad.") ? 1 : 0;
  CHECK(parameters.size() == gradients);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto key = "grad.base_model.model." + layers[i];
    INFO(key);
    CHECK(difference(parameters[2 * i].grad(), expected.at(key + ".lora_A.weight"), kFloat32).empty());
    CHECK(difference(parameters[2 * i + 1].grad(), expected.at(key + ".lora_B.weight"), kFloat32).empty());
    if (!lora.options().dora) continue;
    CHECK(difference(parameters[2 * layers.size() + i].grad(),
                     expected.at(key + ".lora_magnitude_vector.weight"), kFloat32)
              .empty());
    ++compared;
  }
  for (const auto& one : python_parameters(*model)) {  // of modules_to_save
    if (!one.tensor.requires_grad() || one.python_names.empty()) continue;
    INFO(one.name);
    const auto want = expected.at("grad.base_model.model." + one.python_names.at(0));
    CHECK(difference(one.tensor.grad(), want, kFloat32).empty());
    ++compared;
  }
  CHECK(compared == gradients);

  const TemporaryFolder folder;
  lora.save(folder / "adapter");
  CHECK(names_in(folder / "adapter") ==
        std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"});
  const auto theirs = load_safetensors(kAdapters / name / "adapter_model.safetensors").tensors,
             ours = load_safetensors(folder / "adapter" / "adapter_model.safetensors").tensors;
  REQUIRE(ours.size() == theirs.size());
  for (const auto& [key, tensor] : theirs) {
    REQUIRE(ours.contains(key));
    CHECK(ours.at(key).equal(tensor));
  }
  const auto config = parse_lora_config(read_file(folder / "adapter" / "adapter_config.json"));
  const auto read = parse_lora_config(read_file(kAdapters / name / "adapter_config.json"));
  CHECK(config.rank == read.rank);
  CHECK(config.alpha == read.alpha);
  CHECK(config.dora == read.dora);
  CHECK(config.modules_to_save.empty() == read.modules_to_save.empty());
  CHECK(config.dropout == read.dropout);
  CHECK(config.rslora == read.rslora);
  CHECK(config.base_model == name);
  CHECK(std::set(config.targets.begin(), config.targets.end()) ==
        std::set(read.targets.begin(), read.targets.end()));

  lora.merge();
  CHECK(difference(output_of(model, input).detach(), expected.at("output.merged"), kFloat32).empty());
  lora.save(folder / "merged");
  CHECK(read_file(folder / "merged" / "adapter_model.safetensors") ==
        read_file(folder / "adapter" / "adapter_model.safetensors"));

  // What was written here loads here, and the base returns in every bit.
  auto again = load_pretrained<Model>(base_folder(name));
  const auto before = output_of(again, input).detach();
  auto second = load_lora(folder / "adapter", again);
  CHECK(output_of(again, input).detach().equal(output.detach()));
  second.detach();
  CHECK(output_of(again, input).detach().equal(before));
}

// The error for a copy of the Llama's adapter with other text in place of `from`, which changes nothing.
std::string config_error(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  auto text = read_file(kAdapters / "llama" / "adapter_config.json");
  const auto offset = text.find(from);
  REQUIRE(offset != std::string::npos);
  text.replace(offset, from.size(), to);
  write_file(folder / "adapter_config.json", text);
  write_file(folder / "adapter_model.safetensors",
             read_file(kAdapters / "llama" / "adapter_model.safetensors"));
  auto model = load_pretrained<Llama>(kModelData / "llama");
  auto message = value_error([&] { load_lora(folder.path(), model); });
  CHECK(model->parameters().front().requires_grad() == (message != "no error"));
  const auto path = folder.path().string();
  for (auto found = message.find(path); found != std::string::npos; found = message.find(path))
    message.replace(found, path.size(), "F");
  return message;
}

std::string tensors_error(StateDict tensors) {
  const TemporaryFolder folder;
  write_file(folder / "adapter_config.json", read_file(kAdapters / "llama" / "adapter_config.json"));
  save_safetensors(folder / "adapter_model.safetensors", tensors);
  auto model = load_pretrained<Llama>(kModelData / "llama");
  const auto message = value_error([&] { load_lora(folder.path(), model); });
  return message.substr(std::min(message.size(), message.find("safetensors: ")));
}

}  // namespace

TEST_CASE("adapters from peft compute what peft computes, and return unchanged", "[lora]") {
  check_peft<GPT>("gpt2");
  check_peft<Llama>("llama");
  check_peft<Bert>("bert");
  check_peft<ViT>("vit");
  check_peft<GPT>("gpt2_dora");
  check_peft<Llama>("llama_patterns");
  check_peft<Bert>("bert_texts");
  check_peft<ViT>("vit_dora");
}

TEST_CASE("peft reads adapters that are written here", "[lora][python]") {
  const TemporaryFolder folder;
  const auto copy = [&](auto model, const std::string& name) {
    load_lora(kAdapters / name, model).save(folder / name);
  };
  copy(load_pretrained<GPT>(base_folder("gpt2")), "gpt2");
  copy(load_pretrained<Llama>(base_folder("llama")), "llama");
  copy(load_pretrained<Bert>(base_folder("bert")), "bert");
  copy(load_pretrained<ViT>(base_folder("vit")), "vit");
  copy(load_pretrained<GPT>(base_folder("gpt2_dora")), "gpt2_dora");
  copy(load_pretrained<Llama>(base_folder("llama_patterns")), "llama_patterns");
  copy(load_pretrained<Bert>(base_folder("bert_texts")), "bert_texts");
  copy(load_pretrained<ViT>(base_folder("vit_dora")), "vit_dora");
  NEEDS_PYTHON("peft, transformers");
  const auto output =
      run_python("tools/generators/make_adapters.py",
                 "--check " + kAdapters.string() + " " + folder.path().string() + " 2> /dev/null");
  CHECK(output ==
        "gpt2 0 12\nllama 0 16\nbert 0 32\nvit 0 18\n"
        "gpt2_dora 0 12\nllama_patterns 0 14\nbert_texts 0 8\nvit_dora 0 35\n");
}

TEST_CASE("a peft folder with other features is refused by name", "[lora]") {
  const auto prefix = std::string("load_lora: F/adapter_config.json: field ");
  const auto tensors = std::string("load_lora: F/adapter_model.safetensors: ");
  CHECK(config_error("\"use_dora\": false", "\"use_dora\": true") ==
        tensors + "expected model.layers.0.self_attn.q_proj.lora_magnitude_vector, got none");
  CHECK(config_error("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}")
            .find(tensors + "expected model.layers.0.self_attn.q_proj.lora_A.weight as a floating tensor of "
                            "shape (2, 16)") == 0);
  CHECK(config_error("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 0}")
            .find(prefix + "\"rank_pattern.q_proj\": expected a positive integer") == 0);
  CHECK(config_error("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"1\"}") ==
        prefix + "\"alpha_pattern.q_proj\": expected a number, got \"1\"");
  CHECK(config_error("\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]") ==
        tensors + "expected lm_head.weight of modules_to_save, got none");
  CHECK(config_error("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"(q_proj\": 1}")
            .find("Lora: expected a regular expression, got \"(q_proj\": ") == 0);
  CHECK(config_error("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"(a{9}){9}\": 1}") ==
        "Lora: expected a layer's name or a regular expression without counted repetitions and other rare "
        "parts, got \"(a{9}){9}\"");
  CHECK(config_error("\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"") ==
        prefix + "\"peft_type\": expected \"LORA\", got \"IA3\"");
  CHECK(config_error("\"peft_type\": \"LORA\"", "\"peft\": 1") ==
        prefix + "\"peft_type\": expected \"LORA\", got none");
  CHECK(config_error("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"")
            .find(prefix + "\"init_lora_weights\": expected true, false") == 0);
  CHECK(config_error("\"r\": 4", "\"r\": 0").find(prefix + "\"r\": expected a positive integer") == 0);
  CHECK(config_error("\"lora_alpha\": 5", "\"lora_alpha\": \"5\"") ==
        prefix + "\"lora_alpha\": expected a number, got \"5\"");
  CHECK(config_error("\"lora_dropout\": 0.0", "\"lora_dropout\": 2") ==
        prefix + "\"lora_dropout\": expected a number in [0, 1], got 2");
  CHECK(config_error("{", "[").find("load_lora: F/adapter_config.json: ") == 0);
  CHECK(config_error("\"r\": 4", "\"r\": 5")
            .find("expected model.layers.0.self_attn.q_proj.lora_A.weight as a "
                  "floating tensor of shape (5, 16), got a Float tensor") != std::string::npos);
}

TEST_CASE("fields of a peft folder that its tensors' names answer are not asked", "[lora]") {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"layers_to_transform\": null", "\"layers_to_transform\": 0"},
           {"\"layers_to_transform\": null", "\"layers_to_transform\": [0, 1]"},
           {"\"layers_pattern\": null", "\"layers_pattern\": \"layers\""},
           {"\"exclude_modules\": null", "\"exclude_modules\": [\"up_proj\"]"},
           {"\"rank_pattern\": {}", "\"rank_pattern\": {\"no_such\": 2}"},
           {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"proj\": 2}"},
           {"\"bias\": \"none\"", "\"bias\": \"all\""},
           {"\"modules_to_save\": null", "\"modules_to_save\": [\"score\"]"},  // peft adds it by itself
           {"\"lora_alpha\": 5", "\"lora_alpha\": -5"}}) {
    INFO(to);
    CHECK(config_error(from, to) == "no error");
  }
  // Without tensors, they are.
  auto text = read_file(kAdapters / "llama" / "adapter_config.json");
  const std::string from = "\"layers_to_transform\": null";
  text.replace(text.find(from), from.size(), "\"layers_to_transform\": 0");
  CHECK(value_error([&] { parse_lora_config(text); }) ==
        "parse_lora_config: field \"layers_to_transform\": expected null, false or an empty value, got 0");
}

TEST_CASE("an adapter_model.bin, and names that wrappers lengthened", "[lora]") {
  const auto good = load_safetensors(kAdapters / "llama_patterns" / "adapter_model.safetensors").tensors;
  StateDict wrapped;
  for (const auto& [key, tensor] : good) {
    auto name = key;
    if (const auto place = name.find(".self_attn."); place != std::string::npos)
      name.insert(place, "._checkpoint_wrapped_module._orig_mod");
    wrapped["_fsdp_wrapped_module." + name] = tensor;
  }
  const TemporaryFolder folder;
  write_file(folder / "adapter_config.json", read_file(kAdapters / "llama_patterns" / "adapter_config.json"));
  save_torch(folder / "adapter_model.bin", wrapped);
  auto model = load_pretrained<Llama>(kModelData / "llama");
  const auto lora = load_lora(folder.path(), model);
  const auto expected = load_safetensors(kAdapters / "llama_patterns" / "expected.safetensors").tensors;
  CHECK(difference(model->forward(expected.at("input")).detach(), expected.at("output"), kFloat32).empty());
  CHECK(lora.options().alpha_pattern.size() == 3);
  CHECK(lora.options().rank_pattern ==
        std::vector<std::pair<std::string, int64_t>>{{"^model.layers.0.self_attn.v_proj", 2},
                                                     {"^model.layers.1.self_attn.v_proj", 3}});
}

TEST_CASE("patterns are read by the names that the file's tensors have", "[lora]") {
  StateDict old;  // of transformers 4
  for (const auto& [key, tensor] :
       load_safetensors(kAdapters / "vit" / "adapter_model.safetensors").tensors) {
    auto name = key;
    const std::string now = ".attention.q_proj.";
    if (const auto place = name.find(now); place != std::string::npos)
      name.replace(place, now.size(), ".attention.attention.query.");
    if (const auto place = name.find("vit.layers."); place != std::string::npos)
      name.replace(place, 11, "vit.encoder.layer.");
    if (name.find(".fc1.") == std::string::npos && name.find(".v_proj.") == std::string::npos)
      old[name] = tensor;
  }
  const TemporaryFolder folder;
  save_safetensors(folder / "adapter_model.safetensors", old);
  auto text = read_file(kAdapters / "vit" / "adapter_config.json");
  const std::string from = "\"alpha_pattern\": {}";
  text.replace(text.find(from), from.size(), "\"alpha_pattern\": {\"query\": 9, \"q_proj\": 7}");
  write_file(folder / "adapter_config.json", text);
  auto model = load_pretrained<ViT>(base_folder("vit"));
  const auto lora = load_lora(folder.path(), model);
  REQUIRE(lora.options().alpha_pattern.size() == 3);
  CHECK(lora.options().alpha_pattern[0] ==
        std::pair<std::string, double>("^vit.layers.0.attention.q_proj", 9));
}

TEST_CASE("keys of patterns keep the order of the text", "[lora]") {
  const auto options = parse_lora_config(R"({"peft_type": "LORA", "rank_pattern": {"z": 3, "y": 2},
    "alpha_pattern": {"v_proj": 9, "layers.1.self_attn.v_proj": 1, "a": -0.5}})");
  CHECK(options.rank_pattern == std::vector<std::pair<std::string, int64_t>>{{"z", 3}, {"y", 2}});
  CHECK(options.alpha_pattern == std::vector<std::pair<std::string, double>>{
                                     {"v_proj", 9}, {"layers.1.self_attn.v_proj", 1}, {"a", -0.5}});
}

TEST_CASE("keys of patterns match ends of layers' names, as in peft", "[lora]") {
  const std::string name = "model.layers.1.self_attn.q_proj";
  const auto matches = [&](const std::string& key) { return layer_patterns({key})[0](name); };
  for (const auto* key : {"q_proj", "layers.1.self_attn.q_proj", "q.proj", "model.layers.1.self_attn.q_proj",
                          "layers\\.[01].*q_proj", "q_proj$", ".*\\.1\\..*", "(q|k)_proj", "(?:q|k)_proj",
                          "^model.layers.1.self_attn.q_proj", "layers\\.\\d+\\.self_attn\\.q_proj"}) {
    INFO(key);
    CHECK(matches(key));
  }
  for (const auto* key : {"proj", "_proj", "self_attn", "layers.1", "^q_proj", "(k|v)_proj", "odel.*", "",
                          "base_model.model.model.layers.1.self_attn.q_proj", "layers\\.[02].*q_proj"}) {
    INFO(key);
    CHECK_FALSE(matches(key));
  }
  for (const auto* key : {"a{2}", "(?i)q", "[]a]", "a++", "\\Zq", "q\xc3\xa9", "(a", "\\1"}) {
    INFO(key);
    CHECK_THROWS_AS(layer_patterns({key}), c10::ValueError);
  }
  CHECK_THROWS_AS(layer_patterns({std::string(1025, '*')}), c10::ValueError);
  std::string hostile;  // exponential for an automaton that tracks back
  for (int i = 0; i < 30; ++i) hostile += "(.*)*";
  CHECK_FALSE(layer_patterns({hostile + "x"})[0](name));
}

TEST_CASE("tensors of a peft folder that do not fit are refused by name", "[lora]") {
  const auto good = load_safetensors(kAdapters / "llama" / "adapter_model.safetensors").tensors;
  const std::string layer = "base_model.model.model.layers.0.self_attn.q_proj";
  auto tensors = good;
  tensors.erase(layer + ".lora_B.weight");
  CHECK(tensors_error(tensors) ==
        "safetensors: expected model.layers.0.self_attn.q_proj.lora_B.weight, got none");
  tensors = good;
  tensors["base_model.model.lm_head.lora_A.weight"] = at::zeros({4, 16});
  CHECK(tensors_error(tensors) ==
        "safetensors: expected adapters of the model's linear layers, got "
        "\"base_model.model.lm_head.lora_A.weight\"");
  tensors = good;
  tensors["base_model.model.layers.0.self_attn.q_proj.lora_A.weight"] = at::zeros({4, 16});
  CHECK(tensors_error(tensors).find("is there twice, under several names") != std::string::npos);
  CHECK(tensors_error({}) == "safetensors: expected adapters, got no tensor");
  tensors = good;
  tensors[layer + ".lora_magnitude_vector"] = at::zeros({16});
  CHECK(tensors_error(tensors) ==
        "safetensors: model.layers.0.self_attn.q_proj: expected use_dora in adapter_config.json");
  tensors = good;
  tensors[layer + ".base_layer.weight"] = at::zeros({16, 16});
  CHECK(tensors_error(tensors).find("as its layer has an adapter, got other numbers") != std::string::npos);
  tensors = good;
  tensors["base_model.model.lm_head.weight"] = at::zeros({3, 16});
  CHECK(tensors_error(tensors).find("expected lm_head.weight as a floating tensor of shape (") !=
        std::string::npos);
  tensors = good;
  tensors["base_model.model.score.weight"] = at::zeros({2, 16});
  CHECK(tensors_error(tensors).find("got \"base_model.model.score.weight\"") != std::string::npos);
  // Without the prefix of the class they are known as well.
  StateDict plain;
  const std::string with = "base_model.model.model.";
  for (const auto& [name, tensor] : good) plain["base_model.model." + name.substr(with.size())] = tensor;
  CHECK(tensors_error(plain).empty());  // no error
  auto model = load_pretrained<Llama>(kModelData / "llama");
  CHECK(value_error([&] { load_lora("/nowhere", model); }).find("load_lora: /nowhere/adapter_config.json") ==
        0);
  auto lora = Lora({}).attach(model);
  const TemporaryFolder folder;
  write_file(folder / "file", "x");
  CHECK(value_error([&] { lora.save(folder / "file"); }).find("Lora: " + (folder / "file").string()) == 0);
  CHECK(value_error([] { Lora({}).save("/tmp/never-made"); }) ==
        "Lora: expected attach(model) before save()");
}
