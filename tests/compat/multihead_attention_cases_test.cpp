// Every case of tests/parity that real PyTorch wrote for torch.nn.MultiheadAttention, run through ours.

#include <algorithm>
#include <glob.h>

#include <ATen/ops/isnan.h>
#include <ATen/ops/ones_like.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/compat/multihead_attention.h>
#include <attentive/core/guards.h>
#include <attentive/io/safetensors.h>
#include <attentive/io/state_dict.h>

#include "support/compare.h"

using namespace attentive;
using nlohmann::json;

namespace {

// Not std::filesystem: libtorch exports directory iterators of an older libstdc++.
std::vector<std::string> files(const std::string& pattern) {
  glob_t found{};
  ::glob((std::string(ATTENTIVE_SOURCE_DIR "/tests/parity/") + pattern).c_str(), 0, nullptr, &found);
  std::vector<std::string> result(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return result;
}

template <class T>
T value_or(const json& object, const char* key, T otherwise) {
  return object.contains(key) && !object[key].is_null() ? object[key].get<T>() : otherwise;
}

compat::MultiheadAttentionOptions module_options(const json& o) {
  compat::MultiheadAttentionOptions options(o.at("embed_dim"), o.at("num_heads"));
  options.dropout(value_or(o, "dropout", 0.0))
      .bias(value_or(o, "bias", true))
      .add_bias_kv(value_or(o, "add_bias_kv", false))
      .add_zero_attn(value_or(o, "add_zero_attn", false))
      .batch_first(value_or(o, "batch_first", false));
  if (value_or<int64_t>(o, "kdim", 0) > 0) options.kdim(o["kdim"].get<int64_t>());
  if (value_or<int64_t>(o, "vdim", 0) > 0) options.vdim(o["vdim"].get<int64_t>());
  return options;
}

struct Case {
  explicit Case(const std::string& path) : file(load_safetensors(path)) {
    options = json::parse(file.metadata.at("options"));
    call = json::parse(file.metadata.count("call") ? file.metadata.at("call") : "{}");
    for (const auto& [name, tensor] : file.tensors) {
      if (name.rfind("state.", 0) == 0) state[name.substr(6)] = tensor;
    }
  }
  at::Tensor tensor(const std::string& name) const {
    const auto found = file.tensors.find(name);
    return found == file.tensors.end() ? at::Tensor() : found->second;
  }

  SafetensorsFile file;
  json options, call;
  StateDict state;
};

// Empty, or what differs. A NaN of PyTorch stands for a query without keys: there ours is checked for being
// finite, and elsewhere for the number.
std::string differs(const at::Tensor& got, const at::Tensor& want, test::Tolerance tolerance) {
  if (!at::isnan(want).any().item<bool>()) return test::difference(got, want, tolerance);
  const auto undefined = at::isnan(want);
  if (at::isnan(got).any().item<bool>()) return "NaN";
  return test::difference(got.masked_fill(undefined, 0.0), want.masked_fill(undefined, 0.0), tolerance);
}

std::string run(const Case& c) {
  const auto& metadata = c.file.metadata;
  compat::MultiheadAttention module(module_options(c.options));
  if (metadata.count("init_seed")) {
    at::manual_seed(std::stoull(metadata.at("init_seed")));
    module = compat::MultiheadAttention(module_options(c.options));
    for (const auto& [key, tensor] : state_dict(*module)) {
      if (!test::bit_equal(tensor.to(c.state.at(key).scalar_type()), c.state.at(key)))
        return "initial " + key;
    }
  }
  const auto type = c.state.at("out_proj.weight").scalar_type();
  module->to(type);
  load_state_dict(*module, c.state);
  module->train(metadata.count("train") == 0 || metadata.at("train") == "true");

  std::map<std::string, at::Tensor> leaves;
  const auto leaf = [&](const std::string& name, const at::Tensor& otherwise) {
    auto tensor = c.tensor("input." + name);
    if (!tensor.defined()) return otherwise;
    tensor = tensor.clone();
    if (c.tensor("grad.input." + name).defined()) tensor.requires_grad_(true);
    return leaves[name] = tensor;
  };
  const auto query = leaf("query", {});
  const auto key = leaf("key", query);
  const auto value = leaf("value", query);
  const auto padding = leaf("key_padding_mask", {});
  const auto mask = leaf("attn_mask", {});

  const DropoutStreamGuard stream(DropoutStream::Aten);
  if (metadata.count("forward_seed")) at::manual_seed(std::stoull(metadata.at("forward_seed")));
  const auto [output, weights] =
      module->forward(query, key, value, padding, value_or(c.call, "need_weights", true), mask,
                      value_or(c.call, "average_attn_weights", true), value_or(c.call, "is_causal", false));

  auto tolerance = test::default_tolerance(type);
  if (const auto why = differs(output, c.tensor("expected.output"), tolerance); !why.empty())
    return "output: " + why;
  if (weights.defined() != c.tensor("expected.weights").defined()) return "weights: one side has none";
  if (weights.defined()) {
    if (const auto why = differs(weights, c.tensor("expected.weights"), tolerance); !why.empty())
      return "weights: " + why;
  }

  double largest = 0.0;
  for (const auto& [name, tensor] : c.file.tensors) {
    if (name.rfind("grad.", 0) == 0 && tensor.numel() > 0)
      largest = std::max(largest, tensor.abs().max().item<double>());
  }
  const auto gradient = test::default_tolerance(type, /*gradient=*/true);
  const test::Tolerance absolute = {0.0, gradient.atol + gradient.rtol * largest};
  auto direction = c.tensor("input.grad_output");
  if (!direction.defined()) direction = at::ones_like(output);
  output.backward(direction.to(type));
  const auto parameters = module->named_parameters();
  for (const auto& [name, want] : c.file.tensors) {
    at::Tensor got;
    if (name.rfind("grad.input.", 0) == 0)
      got = leaves.at(name.substr(11)).grad();
    else if (name.rfind("grad.state.", 0) == 0)
      got = parameters[name.substr(11)].grad();
    else
      continue;
    if (!got.defined()) return name + ": no gradient";
    if (const auto why = differs(got, want, absolute); !why.empty()) return name + ": " + why;
  }
  return "";
}

}  // namespace

TEST_CASE("MultiheadAttention equals PyTorch on every recorded case", "[compat][multihead_attention]") {
  const auto paths = files("torch/mha-*.safetensors");
  REQUIRE(paths.size() >= 150);
  for (const auto& path : paths) {
    INFO(path);
    CHECK(run(Case(path)) == "");
  }
}

TEST_CASE("MultiheadAttention drops what PyTorch drops for a seed", "[compat][multihead_attention]") {
  // PyTorch has two CPU streams, by vendor and build: this machine's is one of them.
  const auto paths = files("dropout/torch.nn.MultiheadAttention-*.safetensors");
  REQUIRE(paths.size() == 2);
  CHECK((run(Case(paths[0])).empty() != run(Case(paths[1])).empty()));
}

TEST_CASE("a recorded case that is changed fails", "[compat][multihead_attention]") {
  Case c(files("torch/mha-defaults.safetensors").at(0));
  REQUIRE(run(c) == "");
  auto broken = c;
  broken.call["average_attn_weights"] = false;
  CHECK(run(broken).rfind("weights", 0) == 0);
  broken = c;
  broken.state["in_proj_weight"] = c.state.at("in_proj_weight") * 1.0001;
  CHECK(run(broken).rfind("output", 0) == 0);
}
