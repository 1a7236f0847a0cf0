// Cases and bundles of them: what is read, run and refused, and the attention calls of a case.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/parity/case.h>
#include <attentive/parity/compare.h>

#include "parity/changed_case.h"
#include "support/compare.h"
#include "support/files.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using namespace attentive::test;

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
  const auto file = case_contents(kMha);
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind("grad.", 0) == 0) largest = std::max(largest, tensor.abs().max().item<double>());
  }
  for (const auto& row : report.tensors) {
    if (row.name.rfind("grad.", 0) == 0) CHECK(std::abs(row.tolerance - (5e-6 + 1e-5 * largest)) < 1e-15);
  }
}

TEST_CASE("a wrong number anywhere is a difference in that tensor", "[case]") {
  const auto file = case_contents(kMha);
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
        run_case(read_case(kCases + "dropout.safetensors#MultiHeadAttention-notebook-" + stream));
    if (report.skipped.empty()) {
      ++ran;
      CHECK(report.passed());
    } else {
      CHECK_FALSE(report.passed());
      CHECK_THAT(report.skipped, ContainsSubstring("stream \"" + stream + "\""));
    }
  }
  CHECK(ran == 1);
  const auto none = changed(kCases + "dropout.safetensors#MultiHeadAttention-notebook-default",
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
  const auto dropped = read_case(kCases + "dropout.safetensors#MultiHeadAttention-notebook-default");
  const auto other = read_case(kCases + "dropout.safetensors#MultiHeadAttention-notebook-intel_mkl");
  const auto& runnable = run_case(dropped).skipped.empty() ? dropped : other;
  CHECK_THAT(refusal([&] { run_case(runnable, {.backend = Backend::Native}); }),
             ContainsSubstring("MultiHeadAttention-notebook"));
}

TEST_CASE("NaN of PyTorch passes for a query without keys, where ours is zero", "[case]") {
  const auto report =
      run_case(read_case(kCases + "notebooks.safetensors#ScaledDotProductAttention-mask_empty_row"));
  CHECK(report.passed());
  CHECK_THAT(row_of(report, "expected.output").note,
             ContainsSubstring("1 row without keys: NaN in PyTorch, zero here"));
  CHECK_THAT(row_of(report, "expected.weights").note, ContainsSubstring("1 row without keys"));
  // NaN is still a difference if every query has a key.
  const auto full = changed(kCases + "notebooks.safetensors#ScaledDotProductAttention-mask_empty_row",
                            [](auto& f) { f.tensors["input.mask"].fill_(true); });
  CHECK(different(full).size() == 2);
}

TEST_CASE("NaN of PyTorch passes where ours is the output projection's bias", "[case]") {
  const auto report = run_case(read_case(kCases + "notebooks.safetensors#SharedHeadAttention-empty_row"));
  CHECK(report.passed());
  CHECK_THAT(row_of(report, "expected.output").note, ContainsSubstring("the output projection's bias here"));
}

TEST_CASE("a case runs on CUDA", "[case][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  CHECK(run_case(read_case(kMha), {.device = at::kCUDA}).passed());
}

TEST_CASE("a case's recorded attention has the weights that Python returned", "[case]") {
  for (const auto* name : {"MultiHeadSelfAttention-padding_bool", "MultiHeadSelfAttention-causal_float",
                           "MultiHeadSelfAttention-padding_fp64", "MultiHeadSelfAttention-dropout_in_eval",
                           "ScaledDotProductAttention-cross", "scaled_dot_product_attention-seed_3"}) {
    INFO(name);
    const auto test_case = read_case(kCases + "notebooks.safetensors#" + name);
    const auto calls = case_attention(test_case);
    REQUIRE(calls.size() == 1);
    CHECK_CLOSE(calls[0].weights().view_as(test_case.expected_weights), test_case.expected_weights);
  }
}

TEST_CASE("a case's calls have the paths of its modules, and the recorder's options choose among them",
          "[case]") {
  CHECK(case_attention(read_case(kMha)).at(0).path.empty());
  CHECK(case_attention(read_case(kCases + "notebooks.safetensors#scaled_dot_product_attention-seed_3"))
            .at(0)
            .path == "call 0");
  const auto encoder = read_case(kCases + "encoders.safetensors#bert-hidden");
  const auto calls = case_attention(encoder);
  REQUIRE(calls.size() > 1);
  const auto chosen = case_attention(encoder, {.layers = "blocks.1"});
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0].path == calls[1].path);
}

TEST_CASE("a case's attention is recorded without dropout, gradients and draws", "[case]") {
  const auto test_case = read_case(kCases + "notebooks.safetensors#MultiHeadAttention-dropout_in_eval");
  at::manual_seed(11);
  const auto want = at::rand({2});
  at::manual_seed(11);
  auto training = test_case;
  training.train = true;
  const auto calls = case_attention(training);
  CHECK(at::rand({2}).equal(want));
  CHECK(calls.at(0).options.dropout_p == 0.0);
  CHECK_FALSE(calls.at(0).q.requires_grad());
}

TEST_CASE("a case that cannot be run is refused by its name", "[case]") {
  auto test_case = read_case(kMha);
  test_case.module = "Nobody";
  CHECK(refusal([&] { case_attention(test_case); }).find("Nobody") != std::string::npos);
  CHECK(refusal([&] { case_attention(read_case(kMha), {.layers = "none"}); }).find("none") !=
        std::string::npos);
}

namespace {

// Writes a bundle of the two small cases under these names.
std::string write_bundle(
    const TemporaryFolder& folder, const std::string& first, const std::string& second,
    const std::function<void(SafetensorsFile&)>& change = [](SafetensorsFile&) {}) {
  SafetensorsFile bundle;
  for (const auto& [name, place] : {std::pair(first, kMha), std::pair(second, kSdpa)}) {
    for (auto& [key, text] : case_contents(place).metadata) bundle.metadata[name + "/" + key] = text;
    for (auto& [key, tensor] : case_contents(place).tensors) bundle.tensors[name + "/" + key] = tensor;
  }
  change(bundle);
  const auto path = folder / "bundle.safetensors";
  save_safetensors(path, bundle.tensors, bundle.metadata);
  return path.string();
}

}  // namespace

TEST_CASE("a bundle's cases are those of single files", "[case][bundle]") {
  const TemporaryFolder folder;
  // Names that begin alike stay apart.
  const auto path = write_bundle(folder, "mha", "mha-2");
  auto cases = load_cases(path);
  REQUIRE(cases.size() == 2);
  CHECK(cases.begin()->first == path + "#mha");
  CHECK(cases.rbegin()->first == path + "#mha-2");
  for (const auto& [name, single] : {std::pair<std::string, std::string>("#mha", kMha), {"#mha-2", kSdpa}}) {
    INFO(name);
    const auto chosen = load_cases(path + name);
    REQUIRE(chosen.size() == 1);
    const auto want = case_contents(single);
    for (const auto& got : {chosen.at(path + name), cases.at(path + name)}) {
      CHECK(got.metadata == want.metadata);
      REQUIRE(got.tensors.size() == want.tensors.size());
      for (const auto& [key, tensor] : want.tensors) CHECK(bit_equal(got.tensors.at(key), tensor));
    }
    const auto report = run_case(read_case(path + name));
    CHECK(report.passed());
    CHECK(report.name == path + name);
  }
}

TEST_CASE("a file of one case is read by its path alone, even with a number sign in it", "[case][bundle]") {
  const TemporaryFolder folder;
  const auto single = case_contents(kMha);
  const auto path = (folder / "a#b.safetensors").string();
  save_safetensors(path, single.tensors, single.metadata);
  CHECK(load_cases(path).begin()->first == path);
  CHECK(run_case(read_case(path)).passed());
  // Metadata of its own with a slash in its name does not make it a bundle.
  auto with_slash = single.metadata;
  with_slash["my/note"] = "kept";
  save_safetensors(path, single.tensors, with_slash);
  CHECK(read_case(path).metadata.at("my/note") == "kept");
  CHECK(refusal([&] { read_case(path + "#c"); }) ==
        path + ": expected a bundle with the case \"c\", got a file without case names");
}

TEST_CASE("a case that a bundle lacks is refused, and so is a bundle where one case is asked for",
          "[case][bundle][errors]") {
  const TemporaryFolder folder;
  const auto path = write_bundle(folder, "mha", "sdpa");
  for (const std::string name : {"nobody", "", "mh", "mha/"}) {
    CHECK(refusal([&] { load_cases(path + "#" + name); }) ==
          path + ": expected the name of one of its 2 cases (mha, sdpa), got \"" + name + "\"");
  }
  CHECK(refusal([&] { read_case(path); }) ==
        path + ": expected one case, got a bundle of 2: name one, such as " + path + "#mha");
  CHECK_THAT(refusal([&] { load_cases(kCases + "notebooks.safetensors#nobody"); }),
             ContainsSubstring("its 161 cases (CausalAttention-bias, CausalAttention-bias-bf16, ") &&
                 ContainsSubstring(", ...), got \"nobody\""));
  CHECK_THAT(error_of<SafetensorsError>([&] { load_cases((folder / "none").string() + "#mha"); }),
             ContainsSubstring("/none: cannot open it"));
}

TEST_CASE("what is wrong with a bundle is named", "[case][bundle][errors]") {
  const TemporaryFolder folder;
  const auto path = (folder / "bundle.safetensors").string();
  const auto whole = [&](const std::function<void(SafetensorsFile&)>& change) {
    return refusal([&] { load_cases(write_bundle(folder, "mha", "sdpa", change)); });
  };
  CHECK(whole([](auto& f) { f.tensors["input.x"] = at::ones({1}); }) ==
        path + ": expected a tensor of a bundle to be named <case>/<name>, got \"input.x\"");
  CHECK(whole([](auto& f) { f.tensors["/input.x"] = at::ones({1}); }) ==
        path + ": expected a tensor of a bundle to be named <case>/<name>, got \"/input.x\"");
  CHECK(whole([](auto& f) { f.metadata["train"] = "true"; }) ==
        path + ": expected metadata of a bundle to be named <case>/<name>, got \"train\"");

  // A fault of one case leaves the others readable.
  const auto of_case = [&](const std::string& name, const std::function<void(SafetensorsFile&)>& change) {
    write_bundle(folder, "mha", "sdpa", change);
    CHECK(run_case(read_case(path + "#mha")).passed());
    return refusal([&] { read_case(path + "#" + name); });
  };
  CHECK(of_case("none", [](auto& f) { f.metadata["none/module"] = "MultiHeadAttention"; }) ==
        path + "#none: missing tensor expected.output");
  CHECK(of_case("none", [](auto& f) { f.tensors["none/expected.output"] = at::ones({1}); }) ==
        path + "#none: no metadata \"module\": this safetensors file is no parity case");
  CHECK(of_case("sdpa", [](auto& f) { f.tensors["sdpa/"] = at::ones({1}); }) ==
        path + "#sdpa: unknown tensor \"\"");
  // The case "sdpa" cannot hold a case "inner".
  CHECK(of_case("sdpa", [](auto& f) { f.tensors["sdpa/inner/expected.output"] = at::ones({1}); }) ==
        path + "#sdpa: unknown tensor \"inner/expected.output\"");
}
