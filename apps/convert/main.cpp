// attentive-convert: writes a model as a folder that Python's transformers loads, including its tokenizer.

#include <filesystem>
#include <map>
#include <optional>

#include <CLI/CLI.hpp>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/models/lora.h>
#include <attentive/models/model_folder.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>

#include "common/language.h"
#include "common/run_main.h"

namespace {

using namespace attentive;
namespace fs = std::filesystem;

struct Settings {
  fs::path in, out, adapter;
  std::string family;
  std::optional<std::string> dtype;
  bool no_tokenizer = false, force = false;
};

const std::map<std::string, at::ScalarType> kTypes{
    {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float64", at::kDouble}};

void declare(CLI::App& app, Settings& s) {
  app.add_option("in", s.in, "A run of attentive-train, one checkpoint in it, or a folder of a Python model")
      ->required();
  app.add_option("out", s.out, "The new folder, which transformers' AutoModel and AutoTokenizer load")
      ->required();
  app.add_option(
      "--family", s.family,
      "model_type of the new folder, where several describe the model: llama, mistral, ... [that of "
      "<in>, or gpt2 for a run]");
  app.add_option("--dtype", s.dtype, "Dtype of the weights [unchanged]")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
  app.add_option("--merge-adapter", s.adapter,
                 "A folder of adapters for the model, which become part of the weights");
  app.add_flag("--no-tokenizer", s.no_tokenizer, "Write the model alone");
  app.add_flag("--force", s.force, "Replace a model that is in <out>; other files there stay");
}

std::optional<at::ScalarType> dtype_of(const Settings& s) {
  return s.dtype ? std::optional(kTypes.at(*s.dtype)) : std::nullopt;
}

void check_paths(const Settings& s) {
  TORCH_CHECK_VALUE(fs::is_directory(s.in), "expected a folder, got ", s.in.string(),
                    fs::exists(s.in) ? ", a file: weights alone do not say what model they are of"
                                     : ", which is not there");
  TORCH_CHECK_VALUE(!fs::is_directory(s.out) || list_checkpoints(s.out).empty(),
                    "expected another folder than ", s.out.string(),
                    ", which holds a run of attentive-train");
  TORCH_CHECK_VALUE(!fs::exists(s.out) || s.force, "expected a new folder, got ", s.out.string(),
                    ", which is there already; --force replaces the model in it");
}

// The tokenizer.json of a folder that has other files of a tokenizer. Where they cannot be read here they are
// copied alone, and Python reads them.
std::map<std::string, std::string> converted_tokenizer(const ModelFolder& folder) {
  if (!folder.tokenizer.empty() || folder.vocabulary.empty()) return {};
  try {
    return {{"tokenizer.json", apps::read_tokenizer_of(folder)->to_python_json()}};
  } catch (const c10::ValueError& error) {
    apps::print_error(
        fmt::format("attentive-convert: no tokenizer.json: {}", error.what_without_backtrace()));
    return {};
  }
}

// Makes adapters part of the weights.
void merge(Lora lora) {
  lora.merge();
  lora.detach();
}

template <class Model>
void rewrite(ModelFolder&& folder, const Settings& s) {
  SaveFolderOptions save_options{.family = s.family, .config = folder.config};
  if (!s.no_tokenizer) {
    save_options.tokenizer = folder.path;
    save_options.files = converted_tokenizer(folder);
  }
  auto model = load_pretrained<Model>(std::move(folder), {.dtype = dtype_of(s)});
  if (!s.adapter.empty()) merge(load_lora(s.adapter, model));
  save_model_folder(s.out, *model, save_options);
}

void convert_python(const Settings& s) {
  auto folder = read_model_folder(s.in);
  const auto model = pretrained_model(folder);
  if (model == GPTImpl::kName) return rewrite<GPT>(std::move(folder), s);
  if (model == LlamaImpl::kName) return rewrite<Llama>(std::move(folder), s);
  if (model == BertImpl::kName) return rewrite<Bert>(std::move(folder), s);
  rewrite<ViT>(std::move(folder), s);
}

void convert_run(const Settings& s) {
  auto language = apps::load_language(s.in);
  if (language.lora) merge(*language.lora);
  if (!s.adapter.empty()) merge(load_lora(s.adapter, language.model));
  if (s.no_tokenizer) {
    language.tokenizer.reset();
    std::erase_if(language.python_files, [](const auto& file) { return file.first != "config.json"; });
  }
  if (const auto dtype = dtype_of(s)) language.model.module().to(*dtype);
  save_language_model(s.out, language, s.family);
}

void convert(const Settings& s) {
  check_paths(s);
  if (fs::exists(s.in / "config.json")) {
    convert_python(s);
  } else {
    convert_run(s);
  }
  const auto made = read_model_folder(s.out);
  fmt::print("{}: {}, {} tensors, {}\n", s.out.string(), made.family, made.weights.size(),
             made.tokenizer.empty() ? "no tokenizer.json" : "tokenizer.json");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a model as a folder that Python's transformers loads.", "attentive-convert");
  Settings settings;
  declare(app, settings);
  return apps::run_main(app, argc, argv, [&] {
    convert(settings);
    return 0;
  });
}
