// Tests the executable attentive-parity as a user runs it: its exit status and its output.

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/wait.h>

#include <ATen/Context.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <attentive/files/safetensors.h>

#include "support/files.h"
#include "support/parity_cases.h"

using Catch::Matchers::ContainsSubstring;

namespace {

struct Result {
  int status;
  std::string text;  // standard output and standard error
};

Result run(const std::string& arguments) {
  FILE* pipe = ::popen((std::string(ATTENTIVE_PARITY_APP) + " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  Result result{0, {}};
  std::array<char, 4096> buffer{};
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

const std::string kSource = attentive::test::source_folder();
const std::string kMha = kSource + "/tests/parity/notebooks.safetensors#MultiHeadAttention-notebook";
const std::string kSdpa =
    kSource + "/tests/parity/notebooks.safetensors#scaled_dot_product_attention-weighted_loss";

// A copy of the case with one wrong value.
std::string wrong(const TemporaryFolder& folder, double error = 1.0) {
  auto file = attentive::test::case_contents(kMha);
  file.tensors["expected.output"] += error;
  attentive::save_safetensors(folder / "wrong.safetensors", file.tensors, file.metadata);
  return (folder / "wrong.safetensors").string();
}

}  // namespace

TEST_CASE("a case that agrees ends with 0 and prints every tensor", "[parity_app]") {
  const auto result = run(kMha);
  INFO(result.text);
  CHECK(result.status == 0);
  for (const std::string part :
       {"MultiHeadAttention, Float", "expected.output", "(2, 6, 2)", "grad.input.x",
        "grad.state.out_proj.bias", "init.W_query.weight", "6.86e-06", "  passed\n"}) {
    CHECK_THAT(result.text, ContainsSubstring(part));
  }
}

TEST_CASE("a difference ends with 1 and is named", "[parity_app]") {
  const TemporaryFolder folder;
  const auto result = run(kSdpa + " " + wrong(folder));
  INFO(result.text);
  CHECK(result.status == 1);
  CHECK_THAT(result.text, ContainsSubstring("1.00e+00") && ContainsSubstring("DIFFERENT"));
  CHECK_THAT(result.text, ContainsSubstring("2 cases: 1 passed, 1 different, 0 skipped, 0 unusable"));
  CHECK(run("--atol 2 " + wrong(folder)).status == 0);
  CHECK(run("--rtol 10 " + wrong(folder)).status == 0);
  CHECK(run("--atol 0 --rtol 0 " + wrong(folder, 1e-6)).status == 1);
}

TEST_CASE("a difference says whose error it is", "[parity_app]") {
  const TemporaryFolder folder;
  const std::string columns = "tolerance  actual-float64  expected-float64";
  const auto result = run(wrong(folder));
  INFO(result.text);
  CHECK_THAT(result.text, ContainsSubstring(columns));
  CHECK_THAT(result.text,
             ContainsSubstring("1.00e+00  DIFFERENT (PyTorch is off our float64 by more than rounding)"));
  CHECK_THAT(run(wrong(folder, 1e-4)).text,
             ContainsSubstring("DIFFERENT (PyTorch's error is ") && ContainsSubstring(" times ours)"));
  CHECK_THAT(result.text, ContainsSubstring("0.00e+00             -                 -  ok\n"));  // init.*
  CHECK_THAT(result.text, ContainsSubstring("  different\n"));
  CHECK_THAT(run(kMha).text, !ContainsSubstring("float64"));

  const auto rows = nlohmann::json::parse(run("--json " + wrong(folder)).text)["cases"][0]["tensors"];
  CHECK_FALSE(rows[0].contains("actual_float64"));
  CHECK(rows[5]["actual_float64"].get<double>() < 1e-6);
  CHECK(std::abs(rows[5]["expected_float64"].get<double>() - 1.0) < 1e-6);
  CHECK_FALSE(
      nlohmann::json::parse(run("--json " + kMha).text)["cases"][0]["tensors"][5].contains("actual_float64"));
}

TEST_CASE("a case of autocast is called one", "[parity_app]") {
  const auto path = kSource + "/tests/parity/torch.safetensors#autocast-encoder";
  CHECK_THAT(run(path).text, ContainsSubstring("torch.nn.TransformerEncoderLayer, autocast BFloat16\n"));
  CHECK(nlohmann::json::parse(run("--json " + path).text)["cases"][0]["autocast"] == true);
  CHECK(nlohmann::json::parse(run("--json " + kMha).text)["cases"][0]["autocast"] == false);
}

TEST_CASE("what cannot be run ends with 2 and the reason, and the other cases still run", "[parity_app]") {
  const TemporaryFolder folder;
  const auto bad = (folder / "bad.safetensors").string();
  std::ofstream(bad) << "no safetensors";
  const auto result = run(bad + " " + (folder / "none").string() + " " + wrong(folder) + " " + kMha);
  INFO(result.text);
  CHECK(result.status == 2);
  CHECK_THAT(result.text, ContainsSubstring("unusable: load_safetensors: " + bad + ": a header of "));
  CHECK_THAT(result.text, ContainsSubstring("cannot open it: No such file"));
  CHECK_THAT(result.text, ContainsSubstring("4 cases: 1 passed, 1 different, 0 skipped, 2 unusable"));

  auto file = attentive::test::case_contents(kMha);
  file.metadata["module"] = "Unknown";
  attentive::save_safetensors(folder / "unknown", file.tensors, file.metadata);
  const auto unknown = run((folder / "unknown").string());
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.text, ContainsSubstring("unknown module Unknown; known: "));
  CHECK_THAT(unknown.text, !ContainsSubstring("frame #"));
}

TEST_CASE("dropout of another machine is skipped, and an error unless allowed", "[parity_app]") {
  const auto folder = kSource + "/tests/parity/dropout.safetensors#MultiHeadAttention-notebook-";
  const auto both = folder + "default " + folder + "intel_mkl";
  const auto result = run(both);
  INFO(result.text);
  CHECK(result.status == 2);
  CHECK_THAT(result.text, ContainsSubstring("skipped: its dropout was drawn from PyTorch's stream"));
  CHECK_THAT(result.text, ContainsSubstring("2 cases: 1 passed, 0 different, 1 skipped, 0 unusable"));
  CHECK(run("--allow-skipped " + both).status == 0);
}

TEST_CASE("a bundle is all of its cases, each by its name", "[parity_app]") {
  const auto bundle = kSource + "/tests/parity/dropout.safetensors";
  const auto all = run("--allow-skipped " + bundle);
  INFO(all.text);
  CHECK(all.status == 0);
  CHECK_THAT(all.text, ContainsSubstring("30 cases: 15 passed, 0 different, 15 skipped, 0 unusable"));
  CHECK_THAT(all.text, ContainsSubstring(bundle + "#sdpa-plain-default\n"));
  const auto one = run("-q --allow-skipped --json " + bundle + "#sdpa-plain-default");
  const auto json = nlohmann::json::parse(one.text);
  REQUIRE(json["cases"].size() == 1);
  CHECK(json["cases"][0]["path"] == bundle + "#sdpa-plain-default");
  const auto unknown = run(bundle + "#sdpa");
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.text,
             ContainsSubstring("unusable: " + bundle + ": expected the name of one of its 30 cases (") &&
                 ContainsSubstring(", got \"sdpa\""));
}

TEST_CASE("a bundle's case that cannot be run or differs leaves the others", "[parity_app]") {
  const TemporaryFolder folder;
  attentive::SafetensorsFile bundle;
  const auto single = attentive::test::case_contents(kMha);
  for (const std::string name : {"good", "unknown", "wrong"}) {
    for (const auto& [key, text] : single.metadata) bundle.metadata[name + "/" + key] = text;
    for (const auto& [key, tensor] : single.tensors) bundle.tensors[name + "/" + key] = tensor.clone();
  }
  bundle.metadata["unknown/module"] = "Unknown";
  bundle.tensors["wrong/expected.output"] += 1.0;
  const auto path = (folder / "bundle").string();
  attentive::save_safetensors(path, bundle.tensors, bundle.metadata);
  const auto result = run("-q " + path);
  INFO(result.text);
  CHECK(result.status == 2);
  CHECK_THAT(result.text,
             ContainsSubstring(path + "#unknown\n  unusable: " + path + "#unknown: unknown module Unknown"));
  CHECK_THAT(result.text, ContainsSubstring(path + "#wrong\n") && !ContainsSubstring("#good"));
  CHECK_THAT(result.text, ContainsSubstring("3 cases: 1 passed, 1 different, 0 skipped, 1 unusable"));
  CHECK(run(path + "#wrong").status == 1);
  CHECK(run(path + "#good").status == 0);
}

TEST_CASE("--json prints one document", "[parity_app]") {
  const TemporaryFolder folder;
  auto file = attentive::test::case_contents(kMha);
  file.tensors["expected.output"].fill_(std::numeric_limits<double>::quiet_NaN());
  attentive::save_safetensors(folder / "nan", file.tensors, file.metadata);
  const auto result =
      run("--json " + kMha + " " + (folder / "nan").string() + " " + (folder / "none").string());
  CHECK(result.status == 2);
  const auto json = nlohmann::json::parse(result.text);
  CHECK(json["summary"] == "3 cases: 1 passed, 1 different, 0 skipped, 1 unusable");
  const auto& cases = json["cases"];
  CHECK(cases[0]["status"] == "passed");
  CHECK(cases[0]["module"] == "MultiHeadAttention");
  CHECK(cases[0]["tensors"][5]["name"] == "expected.output");
  CHECK(cases[0]["tensors"][5]["shape"] == std::vector<int>{2, 6, 2});
  CHECK(cases[0]["tensors"][5]["passed"] == true);
  CHECK(cases[1]["status"] == "different");
  CHECK(cases[1]["tensors"][5]["difference"] == "nan");
  CHECK(cases[2]["status"] == "unusable");
  CHECK_THAT(cases[2]["reason"].get<std::string>(), ContainsSubstring("cannot open it"));
}

TEST_CASE("--quiet prints what does not pass", "[parity_app]") {
  CHECK(run("-q " + kMha).text.empty());
  CHECK(run("-q " + kMha + " " + kSdpa).text == "2 cases: 2 passed, 0 different, 0 skipped, 0 unusable\n");
}

TEST_CASE("bad usage ends with 2, help with 0", "[parity_app]") {
  CHECK(run("").status == 2);
  CHECK(run("--device tpu " + kMha).status == 2);
  CHECK(run("--backend magic " + kMha).status == 2);
  CHECK(run("--atol x " + kMha).status == 2);
  const auto help = run("--help");
  CHECK(help.status == 0);
  CHECK_THAT(help.text, ContainsSubstring("--backend") && ContainsSubstring("Exit status"));
}

TEST_CASE("devices and backends are chosen by name", "[parity_app]") {
  CHECK(run("--device auto " + kMha).status == 0);
  CHECK(run("--device cpu --backend reference " + kMha).status == 0);
  if (!at::hasCUDA()) {
    const auto result = run("--device cuda " + kMha);
    CHECK(result.status == 2);
    CHECK_THAT(result.text, ContainsSubstring("no CUDA device"));
  }
}

TEST_CASE("the README of the app shows what the app prints", "[parity_app]") {
  std::ifstream in(kSource + "/apps/parity/README.md");
  const std::string readme{std::istreambuf_iterator<char>(in), {}};
  const std::string command =
      "attentive-parity tests/parity/notebooks.safetensors#MultiHeadAttention-notebook";
  CHECK_THAT(readme, ContainsSubstring(command));
  // Differences depend on the processor; names, shapes and tolerances do not.
  for (const std::string part :
       {"expected.output             (2, 6, 2)", "6.86e-06  ok", "init.out_proj.bias          (2,) ",
        "grad.state.W_value.weight   (2, 3)", "1.25e-04  ok"}) {
    CHECK_THAT(readme, ContainsSubstring(part));
    CHECK_THAT(run(kMha).text, ContainsSubstring(part));
  }
}
