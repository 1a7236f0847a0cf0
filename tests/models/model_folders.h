#pragma once

// Folders for the tests: those that tools/generators/make_model_folders.py writes, and their expected
// numbers.

#include <filesystem>
#include <string>

#include <attentive/files/safetensors.h>
#include <attentive/models/model_folder.h>

#include "base/files.h"
#include "models/families.h"
#include "models/model_config.h"
#include "support/files.h"
#include "support/python.h"

namespace attentive::test {

inline const std::filesystem::path kModelData = source_folder() + "/tests/models/data";

// A small Llama, three of whose heads share one key and value head.
inline const LlamaOptions kLlama =
    LlamaOptions(11, 16, 2, 3).num_kv_heads(1).hidden_dim(20).context_length(32);

// Changes the value of one field of config.json.
inline ModelFolder with(ModelFolder folder, std::string_view field, FileValue value) {
  auto config = folder.config.as<FileValue::Dict>();
  set_field(config, field, std::move(value));
  folder.config = config;
  return folder;
}

// The families of all folders in a folder, in the order and form of known_families().
inline std::string families_in(const std::filesystem::path& path) {
  std::string families;
  for (const auto* model : {GPTImpl::kName, LlamaImpl::kName, BertImpl::kName, ViTImpl::kName}) {
    for (const auto family : families_of_model(model)) {
      for (const auto& name : names_in(path)) {
        if (read_model_folder(path / name, {.weights = false}).family != family) continue;
        families += (families.empty() ? "" : ", ") + std::string(family);
        break;
      }
    }
  }
  return families;
}

// The output of tools/generators/make_model_folders.py.
inline std::string make_model_folders(const std::string& arguments) {
  return run_python("tools/generators/make_model_folders.py", arguments + " 2> /dev/null");
}

// The largest difference between a model's outputs and those stored with its folder.
inline double difference_from_python(GPT& model, const StateDict& expected) {
  return (model->forward(expected.at("input.ids")) - expected.at("output.logits")).abs().max().item<double>();
}

inline double difference_from_python(Llama& model, const StateDict& expected) {
  return (model->forward(expected.at("input.ids")) - expected.at("output.logits")).abs().max().item<double>();
}

inline double difference_from_python(ViT& model, const StateDict& expected) {
  if (expected.contains("output.hidden")) {
    const auto hidden = model->hidden(expected.at("input.images"));
    return (hidden - expected.at("output.hidden")).abs().max().item<double>();
  }
  return (model->forward(expected.at("input.images")) - expected.at("output.logits"))
      .abs()
      .max()
      .item<double>();
}

// Positions beyond a text's length are left out, because they are computed from hidden tokens.
inline double difference_from_python(Bert& model, const StateDict& expected) {
  const auto& lengths = expected.at("input.lengths");
  const auto out =
      model->forward(expected.at("input.ids"), expected.at("input.types"), Mask::key_lengths(lengths));
  double largest = 0;
  const auto compare = [&](const at::Tensor& got, const at::Tensor& want) {
    for (int64_t i = 0; i < lengths.size(0); ++i) {
      const auto length = lengths[i].item<int64_t>();
      const auto rows = (got[i] - want[i]).narrow(0, 0, length);
      largest = std::max(largest, rows.abs().max().item<double>());
    }
  };
  compare(out.hidden, expected.at("output.hidden"));
  if (expected.contains("output.logits")) {
    compare(model->masked_lm_logits(out.hidden), expected.at("output.logits"));
  }
  if (expected.contains("output.labels")) {
    const auto labels = model->label_logits(out);
    const auto& want = expected.at("output.labels");
    if (want.dim() == 3)
      compare(labels, want);
    else
      largest = std::max(largest, (labels - want).abs().max().item<double>());
  }
  if (expected.contains("output.pooled")) {
    const auto pooled = (out.pooled - expected.at("output.pooled")).abs().max().item<double>();
    largest = std::max(largest, pooled);
  }
  return largest;
}

inline StateDict expected_of(const std::filesystem::path& folder) {
  return load_safetensors(folder / "expected.safetensors").tensors;
}

}  // namespace attentive::test
