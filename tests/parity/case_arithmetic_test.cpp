// The arithmetic in which a case runs: gradients off, autocast, masks of another dtype.

#include <ATen/autocast_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/attention.h>
#include <attentive/parity/case.h>

#include "parity/changed_case.h"

using namespace attentive;
using attentive::test::changed;
using attentive::test::kCases;
using attentive::test::kMha;
using attentive::test::refusal;
using attentive::test::refused;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kNoGrads = kCases + "notebooks/scaled_dot_product_attention-no_grads.safetensors";
const std::string kHalfNoGrads = kCases + "notebooks/scaled_dot_product_attention-no_grads-bf16.safetensors";

// Why the native kernel does not run here; empty if it does.
std::string native_refuses(at::ScalarType dtype) {
  const auto x = at::ones({2, 4}, dtype);
  try {
    attention(x, x, x, {.backend = Backend::Native});
    return {};
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

// Two keys whose scores are determined by a float32 mask: 256.5 and 256. In bfloat16, both are 256.
SafetensorsFile masked_by_float(at::ScalarType dtype, std::vector<double> output) {
  SafetensorsFile file;
  file.metadata = {{"module", "torch.nn.functional.scaled_dot_product_attention"}};
  file.tensors["input.query"] = at::zeros({1, 2}, dtype);
  file.tensors["input.key"] = at::zeros({2, 2}, dtype);
  file.tensors["input.value"] = at::eye(2, dtype);
  file.tensors["input.attn_mask"] = at::tensor({256.5, 256.0}, at::kFloat).view({1, 2});
  file.tensors["expected.output"] = at::tensor(output, at::kDouble).view({1, 2});
  return file;
}

}  // namespace

TEST_CASE("a case without gradients runs where they are switched off", "[case]") {
  const auto with_gradients = [](SafetensorsFile& file) { file.metadata.erase("grads"); };
  for (const auto& path : {kNoGrads, kHalfNoGrads}) {
    INFO(path);
    CHECK_FALSE(read_case(path).grads);
    CHECK(run_case(read_case(path)).passed());
    CHECK(changed(path, with_gradients).passed());
  }
}

TEST_CASE("a case without gradients reaches the native kernel's weights", "[case]") {
  for (const auto& path : {kNoGrads, kHalfNoGrads}) {
    INFO(path);
    const auto without_gradients = read_case(path);
    if (const auto why = native_refuses(without_gradients.inputs.at("Q").scalar_type()); !why.empty()) {
      WARN(why);
      continue;
    }
    const auto report = run_case(without_gradients, {.backend = Backend::Native});
    CHECK(report.passed());
    CHECK(report.tensors.back().name == "expected.weights");
  }
}

TEST_CASE("metadata grads is true or false, and false holds no gradients", "[case][errors]") {
  CHECK(refused(kMha, [](auto& f) { f.metadata["grads"] = "no"; }) ==
        "case: expected metadata grads to be \"true\" or \"false\", got \"no\"");
  CHECK(refused(kMha, [](auto& f) { f.metadata["grads"] = "false"; }) ==
        "case: metadata grads is \"false\", but the case holds gradients");
  CHECK(changed(kMha, [](auto& f) { f.metadata["grads"] = "true"; }).passed());
}

TEST_CASE("a case of autocast runs under autocast", "[case][autocast]") {
  for (const std::string name : {"sdpa", "sdpa-mixed", "mha", "encoder"}) {
    INFO(name);
    const auto path = kCases + "torch/autocast-" + name + ".safetensors";
    const auto report = run_case(read_case(path));
    CHECK(report.passed());
    CHECK(report.autocast);
    CHECK(report.dtype == at::kBFloat16);
  }
  const auto without = [](SafetensorsFile& file) { file.metadata.erase("autocast"); };
  const auto plain = changed(kCases + "torch/autocast-mha.safetensors", without);
  CHECK_FALSE(plain.passed());
  CHECK_FALSE(plain.autocast);
  CHECK(plain.dtype == at::kFloat);
  CHECK_THAT(refused(kCases + "torch/autocast-sdpa-mixed.safetensors", without),
             ContainsSubstring("case: expected one floating dtype"));
  CHECK(refused(kMha, [](auto& f) { f.metadata["autocast"] = "float8"; }) ==
        "case: expected metadata autocast to be \"bfloat16\" or \"float16\", got \"float8\"");
}

TEST_CASE("the caller's autocast neither reaches a case nor is changed by one", "[case][autocast]") {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const bool passed = run_case(read_case(kMha)).passed();
  const bool still = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(passed);
  CHECK(still);
  CHECK(run_case(read_case(kCases + "torch/autocast-sdpa.safetensors")).passed());
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("a float32 mask beside bfloat16 queries keeps its digits", "[case]") {
  // PyTorch adds the mask unrounded: the weights are sigmoid(0.5) and the rest.
  const auto report = run_case(make_case(masked_by_float(at::kBFloat16, {0.62246, 0.37754}), "case"));
  CHECK(report.passed());
  CHECK(report.dtype == at::kBFloat16);
  CHECK_FALSE(run_case(make_case(masked_by_float(at::kBFloat16, {0.5, 0.5}), "case")).passed());
}

TEST_CASE("under autocast a float32 mask is rounded like every argument", "[case][autocast]") {
  auto file = masked_by_float(at::kFloat, {0.5, 0.5});
  file.metadata["autocast"] = "bfloat16";
  CHECK(run_case(make_case(file, "case")).passed());
  file.tensors["expected.output"] = at::tensor({0.62246, 0.37754}, at::kDouble).view({1, 2});
  CHECK_FALSE(run_case(make_case(file, "case")).passed());
}

TEST_CASE("inputs other than masks have one dtype", "[case][errors]") {
  auto file = masked_by_float(at::kBFloat16, {0.62, 0.38});
  file.tensors["input.key"] = file.tensors["input.key"].to(at::kFloat);
  CHECK_THAT(refusal([&] { run_case(make_case(file, "case")); }),
             ContainsSubstring("case: expected one floating dtype, got Float and BFloat16 (input.query)"));
}
