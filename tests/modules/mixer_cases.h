#pragma once

// Cases that tools/generators/make_mixer_cases.py writes: modules of transformers, run on sequences that may
// begin with padding.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/modules/positions.h>
#include <attentive/parity/case.h>

#include "support/compare.h"
#include "support/files.h"
#include "support/python.h"

namespace attentive::test {

struct MixerCase {
  attentive::Case file;
  nlohmann::json options;
  at::Tensor x;        ///< (B, T, features); undefined for a function
  at::Tensor keep;     ///< (B, T) bool: false is padding, before the sequence's first token
  at::Tensor padding;  ///< (B) int64: how many tokens are

  at::Tensor without_padding(const at::Tensor& output) const { return output * keep.unsqueeze(-1); }
};

/// The rotation that transformers' rope_parameters describe.
inline RotaryPositionsOptions rotary_options(const nlohmann::json& rope) {
  auto rotary = RotaryPositionsOptions(0).base(rope.at("rope_theta").get<double>());
  if (rope.at("rope_type") == "default") return rotary;
  REQUIRE(rope.at("rope_type") == "yarn");
  rotary.scaling(RotaryScaling::Yarn)
      .factor(rope.at("factor").get<double>())
      .original_context(rope.at("original_max_position_embeddings").get<double>())
      .beta_fast(rope.value("beta_fast", rotary.beta_fast()))
      .beta_slow(rope.value("beta_slow", rotary.beta_slow()))
      .truncate(rope.value("truncate", true))
      .mscale(rope.value("mscale", 0.0))
      .mscale_all_dim(rope.value("mscale_all_dim", 0.0));
  if (rope.contains("attention_factor")) rotary.attention_factor(rope.at("attention_factor").get<double>());
  return rotary;
}

/// The cases of a bundle whose names begin with `kind`.
inline std::vector<MixerCase> mixer_cases(const std::filesystem::path& bundle, const std::string& kind) {
  std::vector<MixerCase> cases;
  for (auto& [place, content] : load_cases(bundle)) {
    if (place.find("#" + kind + "-") == std::string::npos) continue;
    MixerCase one;
    one.file = make_case(std::move(content), place);
    one.options = nlohmann::json::parse(one.file.options);
    cases.push_back(std::move(one));
    if (!cases.back().file.inputs.count("x")) continue;
    auto& added = cases.back();
    added.x = added.file.inputs.at("x");
    const auto keep = added.file.inputs.find("keep");
    added.keep = keep == added.file.inputs.end() ? at::ones({added.x.size(0), added.x.size(1)}, at::kBool)
                                                 : keep->second;
    added.padding = added.keep.logical_not().sum(1);
  }
  return cases;
}

inline std::vector<MixerCase> committed_mixers(const std::string& kind) {
  return mixer_cases(source_folder() + "/tests/modules/data/mixers.safetensors", kind);
}

/// Fifty configurations that Python draws now.
inline std::vector<MixerCase> drawn_mixers(const std::string& kind) {
  const TemporaryFolder folder;
  run_python("tools/generators/make_mixer_cases.py", "--seed 1 --out '" + folder.path().string() + "' 2>&1");
  return mixer_cases(folder / "mixers.safetensors", kind);
}

inline double largest_of(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.abs().max().item<double>();
}

/// The largest difference, relative to the largest number, or to `least` if that is larger.
inline double mixer_difference(const at::Tensor& got, const at::Tensor& want, double least = 1.0) {
  REQUIRE(got.sizes() == want.sizes());
  if (want.numel() == 0) return 0;
  const auto scale = std::max(least, largest_of(want));
  const auto difference = (got - want).abs().max().item<double>();
  return (std::isnan(difference) ? INFINITY : difference) / scale;
}

/// Checks the first weights if the case has them, the output and the gradients of `forward(x)`, relative to
/// the largest of all gradients.
inline void check_mixer(const MixerCase& one, torch::nn::Module& module,
                        const std::function<at::Tensor(const at::Tensor& x)>& forward) {
  if (one.options.contains("init_seed")) {
    for (const auto& [name, tensor] : state_dict(module)) {
      INFO(name);
      const auto& recorded = one.file.state.at(name);
      // The last bit of LibTorch's logarithm differs by processor.
      const bool logarithm = name.ends_with("A_log");
      CHECK((logarithm ? at::allclose(tensor, recorded, 0x1p-22, 0) : bit_equal(tensor, recorded)));
    }
  }
  load_state_dict(module, one.file.state);
  const auto x = one.x.clone().requires_grad_();
  const auto output = one.without_padding(forward(x));
  CHECK(mixer_difference(output, one.file.expected_output) <= 1e-5);
  (output * one.file.grad_output).sum().backward();
  auto largest = std::max(1.0, largest_of(one.file.input_gradients.at("x")));
  for (const auto& [name, gradient] : one.file.state_gradients)
    largest = std::max(largest, largest_of(gradient));
  CHECK(mixer_difference(x.grad(), one.file.input_gradients.at("x"), largest) <= 2e-5);
  const auto parameters = module.named_parameters();
  CHECK(one.file.state_gradients.size() == parameters.size());
  for (const auto& [name, gradient] : one.file.state_gradients) {
    INFO("gradient of " << name);
    CHECK(mixer_difference(parameters[name].grad(), gradient, largest) <= 2e-5);
  }
}

/// Checks the outputs of `step(tokens)`, called for chunks of x: of one token each, then of drawn lengths.
/// `begin` empties the cache.
inline void check_mixer_steps(const MixerCase& one, const std::function<void()>& begin,
                              const std::function<at::Tensor(const at::Tensor& tokens)>& step) {
  const at::NoGradGuard no_grad;
  const auto tokens = one.x.size(1);
  for (const int64_t longest : {int64_t{1}, int64_t{4}, tokens}) {
    INFO("chunks of up to " << longest);
    begin();
    std::vector<at::Tensor> outputs;
    for (int64_t first = 0; first < tokens;) {
      const auto length = std::min(tokens - first, at::randint(1, longest + 1, {1}).item<int64_t>());
      outputs.push_back(step(one.x.narrow(1, first, length)));
      first += length;
    }
    CHECK(mixer_difference(one.without_padding(at::cat(outputs, 1)), one.file.expected_output) <= 1e-5);
  }
}

}  // namespace attentive::test
