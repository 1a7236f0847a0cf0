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
#include "models/model_folders.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;

namespace {

const std::filesystem::path kAdapters = kModelData / "lora";
constexpr Tolerance kFloat32{1e-5, 5e-6};

std::filesystem::path base_folder(const std::string& name) {
  const auto own = kAdapters / name / "base";
  return is_folder(own) ? own : kModelData / name;
}

at::Tensor output_of(Bert& model, const at::Tensor& ids) {
  const auto output = model->forward(ids);
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
  size_t gradients = 0;
  for (const auto& item : expected) gradients += item.first.starts_with("grad.") ? 1 : 0;
  CHECK(parameters.size() == gradients);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto key = "grad.base_model.model." + layers[i];
    INFO(key);
    CHECK(difference(parameters[2 * i].grad(), expected.at(key + ".lora_A.weight"), kFloat32).empty());
    CHECK(difference(parameters[2 * i + 1].grad(), expected.at(key + ".lora_B.weight"), kFloat32).empty());
  }

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
}

// The error for a copy of the Llama's adapter with other text in place of `from`.
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
  CHECK(model->parameters().front().requires_grad());
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
  NEEDS_PYTHON("peft, transformers");
  const auto output =
      run_python("tools/generators/make_adapters.py",
                 "--check " + kAdapters.string() + " " + folder.path().string() + " 2> /dev/null");
  CHECK(output == "gpt2 0 12\nllama 0 16\nbert 0 32\nvit 0 18\n");
}

TEST_CASE("a peft folder with other features is refused by name", "[lora]") {
  const auto prefix = std::string("load_lora: F/adapter_config.json: field ");
  CHECK(config_error("\"use_dora\": false", "\"use_dora\": true") ==
        prefix + "\"use_dora\": expected null, false or an empty value, got true");
  CHECK(config_error("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}") ==
        prefix + "\"rank_pattern\": expected null, false or an empty value, got a dict");
  CHECK(config_error("\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]") ==
        prefix + "\"modules_to_save\": expected null, false or an empty value, got a list");
  CHECK(config_error("\"bias\": \"none\"", "\"bias\": \"all\"") ==
        prefix + "\"bias\": expected \"none\", got \"all\"");
  CHECK(config_error("\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"") ==
        prefix + "\"peft_type\": expected \"LORA\", got \"IA3\"");
  CHECK(config_error("\"peft_type\": \"LORA\"", "\"peft\": 1") ==
        prefix + "\"peft_type\": expected \"LORA\", got none");
  CHECK(config_error("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"")
            .find(prefix + "\"init_lora_weights\": expected true, false") == 0);
  CHECK(config_error("\"r\": 4", "\"r\": 0").find(prefix + "\"r\": expected a positive integer") == 0);
  CHECK(config_error("\"lora_alpha\": 5", "\"lora_alpha\": -5") ==
        prefix + "\"lora_alpha\": expected a number > 0, got -5");
  CHECK(config_error("\"lora_dropout\": 0.0", "\"lora_dropout\": 2") ==
        prefix + "\"lora_dropout\": expected a number in [0, 1], got 2");
  CHECK(config_error("{", "[").find("load_lora: F/adapter_config.json: ") == 0);
  CHECK(config_error("\"r\": 4", "\"r\": 5")
            .find("expected model.layers.0.self_attn.q_proj.lora_A.weight as a "
                  "floating tensor of shape (5, 16), got a Float tensor") != std::string::npos);
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
