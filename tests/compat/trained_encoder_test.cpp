// Tests trained weights of torch.nn.TransformerEncoder, those of the wheel `sceptr`: they are read from its
// torch.save files, and the outputs for real receptors are compared layer by layer with those of Python.

#include <filesystem>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/compat/transformer.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>

#include "base/files.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/python.h"

using namespace attentive;
using namespace attentive::test;
using compat::TransformerEncoder;

namespace {

// The entries whose names begin with a prefix, under their names without it.
StateDict part_of(const StateDict& state, const std::string& prefix) {
  StateDict part;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
  }
  return part;
}

struct Trained {
  explicit Trained(const std::filesystem::path& path) : python(load_safetensors(path)) {
    const auto options = nlohmann::json::parse(python.metadata.at("layer"));
    REQUIRE(options.at("activation") == "relu");
    const auto layer = compat::TransformerLayerOptions(options.at("d_model").get<int64_t>(),
                                                       options.at("nhead").get<int64_t>())
                           .dim_feedforward(options.at("dim_feedforward").get<int64_t>())
                           .layer_norm_eps(options.at("layer_norm_eps").get<double>())
                           .norm_first(options.at("norm_first").get<bool>())
                           .batch_first(options.at("batch_first").get<bool>())
                           .bias(options.at("bias").get<bool>());
    encoder = TransformerEncoder(
        compat::TransformerEncoderOptions(layer, std::stoll(python.metadata.at("num_layers"))));
    weights = read_state_dict(python.metadata.at("weights"));
    load_state_dict(*encoder, part_of(weights, python.metadata.at("encoder")));
    encoder->eval();
  }

  const at::Tensor& number(const std::string& name) const { return python.tensors.at(name); }

  // The input of the encoder; wider variants project the embeddings first.
  at::Tensor input() const {
    const auto projection = weights.find("_self_attention_stack._initial_projector.weight");
    const auto& embeddings = number("input.embeddings");
    return projection == weights.end() ? embeddings : at::linear(embeddings, projection->second);
  }

  // The output of every layer, and the logits of the residues.
  std::vector<at::Tensor> outputs() {
    std::vector<at::Tensor> all{input()};
    for (size_t n = 0; n < encoder->layers->size(); ++n) {
      auto& layer = encoder->layers->at<compat::TransformerEncoderLayerImpl>(n);
      all.push_back(layer.forward(all.back(), {}, number("input.padding")));
    }
    const std::string head = "_mlm_token_prediction_projector.projector.";
    all.push_back(at::linear(all.back(), weights.at(head + "weight"), weights.at(head + "bias")));
    all.erase(all.begin());
    return all;
  }

  // Describes the differences from Python, layer by layer; empty if there are none.
  std::string differences() {
    std::string text;
    const auto got = outputs();
    for (size_t n = 0; n < got.size(); ++n) {
      const auto name = "expected." + (n + 1 < got.size() ? std::to_string(n) : "residues");
      if (const auto why = difference(got[n], number(name)); !why.empty()) text += name + ": " + why + "\n";
    }
    return text;
  }

  SafetensorsFile python;
  StateDict weights;
  TransformerEncoder encoder{nullptr};
};

// The files that Python writes for every variant, or for those named.
std::vector<std::filesystem::path> written_by_python(const TemporaryFolder& folder,
                                                     const std::string& variants = {}) {
  run_python("tools/generators/trained_encoders.py",
             "'" + folder.path().string() + "' " + variants + " 2> /dev/null");
  std::vector<std::filesystem::path> files;
  for (const auto& name : names_in(folder.path())) files.push_back(folder / name);
  return files;
}

}  // namespace

TEST_CASE("Trained encoders compute Python's numbers in every layer", "[compat][transformer][python]") {
  NEEDS_PYTHON("sceptr");
  const TemporaryFolder folder;
  const auto files = written_by_python(folder);
  REQUIRE(files.size() == 16);
  const at::NoGradGuard no_grad;
  for (const auto& file : files) {
    INFO(file.stem().string());
    Trained trained(file);
    CHECK(trained.differences() == "");
    const auto layers = trained.outputs();
    const auto whole = trained.encoder->forward(trained.input(), {}, trained.number("input.padding"));
    CHECK_CLOSE(whole, layers.at(layers.size() - 2));
  }
}

TEST_CASE("One changed number of a trained encoder is seen", "[compat][transformer][python]") {
  NEEDS_PYTHON("sceptr");
  const TemporaryFolder folder;
  Trained trained(written_by_python(folder, "SCEPTR_tiny").at(0));
  const at::NoGradGuard no_grad;
  for (const auto& item : trained.encoder->named_parameters()) {
    INFO(item.key());
    auto number = item.value().view(-1)[0];
    const auto before = number.clone();
    number += 0.1;
    CHECK(trained.differences() != "");
    number.copy_(before);
  }
  CHECK(trained.differences() == "");
}
