#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/parity/case.h>
#include <attentive/parity/draws.h>

#include "parity/changed_case.h"
#include "support/compare.h"

using namespace attentive;
using attentive::test::changed;
using attentive::test::different;
using attentive::test::kCases;
using attentive::test::kMha;
using attentive::test::kSdpa;
using attentive::test::refusal;
using attentive::test::refused;
using attentive::test::row_of;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a case passes and every tensor of it is compared", "[case]") {
  const auto report = run_case(read_case(kMha));
  CHECK(report.passed());
  CHECK(report.module == "MultiHeadAttention");
  CHECK(report.dtype == at::kFloat);
  CHECK(report.tensors.size() ==
        5 + 1 + 1 + 5);  // drawn weights, output, gradient of x, gradients of the weights
  CHECK(row_of(report, "init.out_proj.bias").tolerance == 0.0);
  CHECK(row_of(report, "expected.output").shape == std::vector<int64_t>{2, 6, 2});
  // The largest gradient of the case determines the tolerance of all of its gradients.
  double largest = 0.0;
  const auto file = load_safetensors(kMha);
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind("grad.", 0) == 0) largest = std::max(largest, tensor.abs().max().item<double>());
  }
  for (const auto& row : report.tensors) {
    if (row.name.rfind("grad.", 0) == 0) CHECK(std::abs(row.tolerance - (5e-6 + 1e-5 * largest)) < 1e-15);
  }
}

TEST_CASE("a wrong number anywhere is a difference in that tensor", "[case]") {
  const auto file = load_safetensors(kMha);
  for (const auto& item : file.tensors) {
    const auto& name = item.first;
    if (name.rfind("expected.", 0) != 0 && name.rfind("grad.", 0) != 0) continue;
    INFO(name);
    const auto report = changed(kMha, [&](SafetensorsFile& f) { f.tensors[name].flatten()[0] += 1e-3; });
    CHECK(different(report) == std::vector<std::string>{name});
    CHECK_FALSE(report.passed());
    CHECK(std::abs(row_of(report, name).difference - 1e-3) < 1e-5);
  }
}

TEST_CASE("a wrong weight differs from the seed's and in the results", "[case]") {
  const auto report = changed(kMha, [](SafetensorsFile& f) {
    auto weight = f.tensors["state.W_value.weight"].flatten();
    const auto drawn = weight[0].item<float>();
    weight[0] = draw_kernels_of_this_cpu().uniform ? std::nextafter(drawn, 10.0f) : drawn + 0x1p-21f;
  });
  CHECK(different(report) == std::vector<std::string>{"init.W_value.weight"});
  const auto other_seed = changed(kMha, [](SafetensorsFile& f) { f.metadata["init_seed"] = "124"; });
  CHECK(different(other_seed).size() == 5);
}

TEST_CASE("NaN is a difference on either side", "[case]") {
  const double nan = std::nan("");
  auto report = changed(kMha, [&](SafetensorsFile& f) { f.tensors["expected.output"][0][0][0] = nan; });
  CHECK(different(report) == std::vector<std::string>{"expected.output"});
  CHECK(row_of(report, "expected.output").note == "PyTorch's values hold NaN");
  report = changed(kSdpa, [&](SafetensorsFile& f) { f.tensors["input.V"].fill_(nan); });
  CHECK(row_of(report, "expected.output").note == "our values hold NaN");
  CHECK_FALSE(report.passed());
  report = changed(kMha, [&](SafetensorsFile& f) { f.tensors["grad.input.x"][0][0][0] = nan; });
  CHECK(different(report) == std::vector<std::string>{"grad.input.x"});
}

TEST_CASE("another shape is a difference, not a crash", "[case]") {
  const auto report = changed(kSdpa, [](SafetensorsFile& f) {
    f.tensors["expected.output"] = at::zeros({2, 5, 1});
  });
  CHECK(row_of(report, "expected.output").note == "expected shape (2, 5, 1), got (2, 5, 3)");
  CHECK_FALSE(report.passed());
}

TEST_CASE("tolerances can be set", "[case]") {
  const auto off = [](SafetensorsFile& f) { f.tensors["expected.output"] += 1e-3; };
  CHECK_FALSE(changed(kSdpa, off).passed());
  CHECK(changed(kSdpa, off, {.atol = 2e-3}).passed());
  CHECK(changed(kSdpa, off, {.rtol = 1e-2}).passed());
  CHECK_FALSE(changed(kSdpa, off, {.atol = 0.0, .rtol = 0.0}).passed());
  CHECK(row_of(changed(kSdpa, off, {.atol = 2e-3}), "grad.input.Q").tolerance > 2e-3);
}

TEST_CASE("wider results than the arithmetic are compared in float64", "[case]") {
  const auto report = changed(kSdpa, [](SafetensorsFile& f) {
    for (auto& [name, tensor] : f.tensors) {
      if (name.rfind("input.", 0) != 0) tensor = tensor.to(at::kDouble);
    }
  });
  CHECK(report.dtype == at::kFloat);
  CHECK(report.passed());
}

TEST_CASE("files that are no case are refused with the reason", "[case][errors]") {
  CHECK_THAT(refused(kMha, [](auto& f) { f.metadata.erase("module"); }),
             ContainsSubstring("case: no metadata \"module\""));
  CHECK(refused(kMha, [](auto& f) { f.tensors.erase("expected.output"); }) ==
        "case: missing tensor expected.output");
  CHECK(refused(kMha, [](auto& f) { f.tensors["extra"] = at::ones({1}); }) ==
        "case: unknown tensor \"extra\"");
  CHECK(refused(kMha, [](auto& f) { f.tensors["input."] = at::ones({1}); }) ==
        "case: unknown tensor \"input.\"");
  CHECK(refused(kMha, [](auto& f) { f.metadata["train"] = "yes"; }) ==
        "case: expected metadata train to be \"true\" or \"false\", got \"yes\"");
  for (const std::string seed : {"", "-", "x", "1.5", "1 ", "99999999999999999999"}) {
    CHECK(refused(kMha, [&](auto& f) { f.metadata["init_seed"] = seed; }) ==
          "case: expected metadata init_seed to be an integer, got \"" + seed + "\"");
  }
  CHECK_THROWS_AS(read_case(kCases + "README.md"), SafetensorsError);
}

TEST_CASE("unknown modules, options, arguments and inputs are refused by name", "[case][errors]") {
  CHECK_THAT(
      refused(kMha, [](auto& f) { f.metadata["module"] = "Mha"; }),
      ContainsSubstring("case: unknown module Mha; known: ") && ContainsSubstring("MultiHeadAttention, "));
  CHECK_THAT(
      refused(kMha,
              [](auto& f) {
                f.metadata["options"] =
                    R"({"d_in":3,"d_out":2,"context_length":6,"dropout":0.0,"num_heads":2,"flash":true})";
              }),
      ContainsSubstring("case: unknown option flash of MultiHeadAttention; known: d_in, d_out"));
  CHECK(refused(kMha, [](auto& f) { f.metadata["call"] = R"({"mask":null})"; }) ==
        "case: unknown call argument mask of MultiHeadAttention; known: none");
  CHECK(refused(kMha, [](auto& f) { f.tensors["input.y"] = at::ones({1}); }) ==
        "case: unknown input y of MultiHeadAttention; known: x");
  CHECK(refused(kMha, [](auto& f) { f.tensors["expected.weights"] = at::ones({1}); }) ==
        "case: unknown tensor expected.weights: MultiHeadAttention returns none");
}

TEST_CASE("missing and mistyped options are refused by name", "[case][errors]") {
  const auto with = [](const std::string& options) {
    return refused(kMha, [&](auto& f) { f.metadata["options"] = options; });
  };
  CHECK(with(R"({"d_in":3,"context_length":6,"dropout":0.0,"num_heads":2})") == "case: missing option d_out");
  CHECK(with(R"({"d_in":null,"d_out":2,"context_length":6,"dropout":0.0,"num_heads":2})") ==
        "case: missing option d_in");
  CHECK(with(R"({"d_in":"3","d_out":2,"context_length":6,"dropout":0.0,"num_heads":2})") ==
        "case: expected option d_in to be an integer, got \"3\"");
  CHECK(with(R"({"d_in":3.0,"d_out":2,"context_length":6,"dropout":0.0,"num_heads":2})") ==
        "case: expected option d_in to be an integer, got 3.0");
  CHECK(with(R"({"d_in":3,"d_out":2,"context_length":6,"dropout":true,"num_heads":2})") ==
        "case: expected option dropout to be a number, got true");
  CHECK(with(R"({"d_in":3,"d_out":2,"context_length":6,"dropout":0,"num_heads":2,"qkv_bias":1})") ==
        "case: expected option qkv_bias to be true or false, got 1");
  CHECK(with(R"({"d_in":[[3]],"d_out":2,"context_length":6,"dropout":0,"num_heads":2})") ==
        "case: expected option d_in to be an integer, got a JSON array");
  CHECK(with(R"({"d_in":3,"d_in":4})") == "case: option d_in comes twice");
  CHECK_THAT(with("[1]"), ContainsSubstring("case: the options are not a JSON object"));
  CHECK_THAT(with("{"), ContainsSubstring("case: the options are not a JSON object"));
  CHECK_THAT(with(std::string(1'000'000, '[')), ContainsSubstring("case: the options are not a JSON object"));
  CHECK_THAT(with(R"({"d_in":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
             ContainsSubstring("case: "));
  CHECK_THAT(with(R"({"d_in":3,"d_out":3,"context_length":6,"dropout":0.0,"num_heads":2})"),
             ContainsSubstring("case: MultiHeadAttention: expected"));
}

TEST_CASE("missing and misfitting tensors are refused by name", "[case][errors]") {
  CHECK(refused(kMha, [](auto& f) {
          f.tensors.erase("input.x");
          f.tensors.erase("grad.input.x");
        }) == "case: missing tensor input.x");
  CHECK(refused(kMha, [](auto& f) { f.tensors.erase("input.x"); }) ==
        "case: grad.input.x: missing tensor input.x");
  CHECK_THAT(refused(kMha, [](auto& f) { f.tensors.erase("state.W_key.weight"); }),
             ContainsSubstring("case: ") && ContainsSubstring("missing W_key.weight"));
  CHECK_THAT(refused(kMha, [](auto& f) { f.tensors["state.extra"] = at::ones({1}); }),
             ContainsSubstring("unexpected extra"));
  CHECK_THAT(refused(kMha,
                     [](auto& f) {
                       f.tensors["state.mask"] = at::ones({6, 6});
                     }),
             ContainsSubstring("misshapen mask: expected a causal mask"));
  CHECK_THAT(refused(kMha,
                     [](auto& f) {
                       f.tensors["state.mask"] = at::ones({5, 5}).triu(1);
                     }),
             ContainsSubstring("misshapen mask: expected a causal mask of shape (6, 6)"));
  CHECK(refused(kMha, [](auto& f) {
          f.tensors["grad.state.mask"] = at::ones({6, 6});
        }) == "case: grad.state.mask: MultiHeadAttention has no such parameter");
  CHECK(refused(kMha, [](auto& f) { f.tensors["input.grad_output"] = at::ones({2}); }) ==
        "case: input.grad_output has another shape than the output");
  CHECK_THAT(refused(kMha,
                     [](auto& f) {
                       f.tensors["input.x"] = at::ones({2, 6, 4});
                     }),
             ContainsSubstring("case: MultiHeadAttention: expected x of shape"));
  CHECK(refused(kSdpa, [](auto& f) { f.tensors["state.W"] = at::ones({1}); }) ==
        "case: scaled_dot_product_attention has no state");
  CHECK_THAT(refused(kMha,
                     [](auto& f) {
                       f.tensors["state.W_key.weight"] = at::zeros({2, 3}, at::kDouble);
                     }),
             ContainsSubstring("case: expected one floating dtype"));
  CHECK_THAT(refused(kSdpa,
                     [](auto& f) {
                       f.tensors["input.Q"] = at::zeros({2, 5, 4}, at::kLong);
                     }),
             ContainsSubstring("grad.input.Q: input.Q is not floating"));
}

TEST_CASE("dropout without a forward seed is refused", "[case][errors]") {
  const auto with_dropout = [](auto& f) {
    f.metadata["options"] = R"({"d_in":3,"d_out":2,"context_length":6,"dropout":0.5,"num_heads":2})";
  };
  CHECK(refused(kMha, with_dropout) ==
        "case: missing metadata forward_seed: the call draws random numbers (dropout)");
  const auto eval = changed(kMha, [&](auto& f) {
    with_dropout(f);
    f.metadata["train"] = "false";
  });
  CHECK(eval.passed());
}

TEST_CASE("dropout of the other random stream is skipped, of this machine's own it passes", "[case]") {
  int ran = 0;
  for (const std::string stream : {"default", "intel_mkl"}) {
    const auto report =
        run_case(read_case(kCases + "dropout/MultiHeadAttention-notebook-" + stream + ".safetensors"));
    if (report.skipped.empty()) {
      ++ran;
      CHECK(report.passed());
    } else {
      CHECK_FALSE(report.passed());
      CHECK_THAT(report.skipped, ContainsSubstring("stream \"" + stream + "\""));
    }
  }
  CHECK(ran == 1);
  const auto none = changed(kCases + "dropout/MultiHeadAttention-notebook-default.safetensors",
                            [](auto& f) { f.metadata["dropout_path"] = "another"; });
  CHECK_FALSE(none.skipped.empty());
}

TEST_CASE("running a case leaves the random state and the case as they were", "[case]") {
  const auto test_case = read_case(kMha);
  const auto before = test_case.inputs.at("x").clone();
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  run_case(test_case);
  CHECK(bit_equal(at::rand({4}), expected));
  CHECK(bit_equal(test_case.inputs.at("x"), before));
  CHECK_FALSE(test_case.inputs.at("x").requires_grad());
}

TEST_CASE("gradients are checked even where the caller switched them off", "[case]") {
  const at::NoGradGuard no_grad;
  CHECK(run_case(read_case(kMha)).passed());
}

TEST_CASE("a forced backend that cannot express the call is an error", "[case]") {
  CHECK(run_case(read_case(kMha), {.backend = Backend::Reference}).passed());
  const auto dropped = read_case(kCases + "dropout/MultiHeadAttention-notebook-default.safetensors");
  const auto other = read_case(kCases + "dropout/MultiHeadAttention-notebook-intel_mkl.safetensors");
  const auto& runnable = run_case(dropped).skipped.empty() ? dropped : other;
  CHECK_THAT(refusal([&] { run_case(runnable, {.backend = Backend::Native}); }),
             ContainsSubstring("MultiHeadAttention-notebook"));
}

TEST_CASE("NaN of PyTorch passes for a query without keys, where ours is zero", "[case]") {
  const auto report =
      run_case(read_case(kCases + "notebooks/ScaledDotProductAttention-mask_empty_row.safetensors"));
  CHECK(report.passed());
  CHECK_THAT(row_of(report, "expected.output").note,
             ContainsSubstring("1 row without keys: NaN in PyTorch, zero here"));
  CHECK_THAT(row_of(report, "expected.weights").note, ContainsSubstring("1 row without keys"));
  // NaN is still a difference if every query has a key.
  const auto full = changed(kCases + "notebooks/ScaledDotProductAttention-mask_empty_row.safetensors",
                            [](auto& f) { f.tensors["input.mask"].fill_(true); });
  CHECK(different(full).size() == 2);
}

TEST_CASE("NaN of PyTorch passes where ours is the output projection's bias", "[case]") {
  const auto report = run_case(read_case(kCases + "notebooks/SharedHeadAttention-empty_row.safetensors"));
  CHECK(report.passed());
  CHECK_THAT(row_of(report, "expected.output").note, ContainsSubstring("the output projection's bias here"));
}

TEST_CASE("a case runs on CUDA", "[case][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  CHECK(run_case(read_case(kMha), {.device = at::kCUDA}).passed());
}
