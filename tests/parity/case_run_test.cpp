// Runs cases: their arithmetic, what a report says, whose error a difference is, transformer layers.

#include <cmath>

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

#include "parity/case_compare.h"
#include "parity/changed_case.h"
#include "support/compare.h"

using namespace attentive;
using attentive::compare_tensors;
using attentive::test::case_contents;
using attentive::test::changed;
using attentive::test::different;
using attentive::test::kCases;
using attentive::test::kMha;
using attentive::test::kNaN;
using attentive::test::kSdpa;
using attentive::test::refusal;
using attentive::test::refused;
using attentive::test::row_of;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kNoGrads = kCases + "notebooks.safetensors#scaled_dot_product_attention-no_grads";
const std::string kHalfNoGrads = kCases + "notebooks.safetensors#scaled_dot_product_attention-no_grads-bf16";

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
    const auto path = kCases + "torch.safetensors#autocast-" + name;
    const auto report = run_case(read_case(path));
    CHECK(report.passed());
    CHECK(report.autocast);
    CHECK(report.dtype == at::kBFloat16);
  }
  const auto without = [](SafetensorsFile& file) { file.metadata.erase("autocast"); };
  const auto plain = changed(kCases + "torch.safetensors#autocast-mha", without);
  CHECK_FALSE(plain.passed());
  CHECK_FALSE(plain.autocast);
  CHECK(plain.dtype == at::kFloat);
  CHECK_THAT(refused(kCases + "torch.safetensors#autocast-sdpa-mixed", without),
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
  CHECK(run_case(read_case(kCases + "torch.safetensors#autocast-sdpa")).passed());
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

TEST_CASE("a row of a report passes up to its tolerance", "[case_compare]") {
  const auto want = at::tensor({1.0f, 2.0f});
  const auto row = compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.5);
  CHECK(row.passed);
  CHECK(row.name == "x");
  CHECK(row.difference == 0.5);
  CHECK(row.tolerance == 0.5);
  CHECK(row.shape == std::vector<int64_t>{2});
  CHECK(row.note.empty());
  CHECK_FALSE(compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.49).passed);
}

TEST_CASE("a row of a report says what no number says", "[case_compare]") {
  const auto shapes = compare_tensors("x", at::zeros({1, 2}), at::zeros({3, 2}), 1.0);
  CHECK_FALSE(shapes.passed);
  CHECK(shapes.note == "expected shape (3, 2), got (1, 2)");
  const auto one = at::tensor({1.0f, 0.0f}), nan = at::tensor({1.0, kNaN}, at::kFloat);
  CHECK(compare_tensors("x", one, nan, 1e30).note == "PyTorch's values hold NaN");
  CHECK(compare_tensors("x", nan, one, 1e30).note == "our values hold NaN");
  CHECK_FALSE(compare_tensors("x", nan, one, 1e30).passed);
}

TEST_CASE("NaN is replaced in rows without keys only", "[case_compare]") {
  const auto want = at::tensor({kNaN, kNaN, kNaN, 1.0, 5.0, 6.0}, at::kFloat).view({3, 2});
  int64_t rows = 0;
  const auto empty = at::tensor({1, 0, 1}).to(at::kBool);
  const auto result = attentive::replace_empty_rows(want, empty, at::tensor({7.0f, 8.0f}), rows);
  CHECK(rows == 1);
  CHECK(result[0].equal(at::tensor({7.0, 8.0})));
  CHECK(std::isnan(result[1][0].item<double>()));
  CHECK(result[2].equal(at::tensor({5.0, 6.0})));
}

namespace {

const std::string kDouble = kCases + "notebooks.safetensors#scaled_dot_product_attention-fp64";

CaseReport shifted(const std::string& path, const std::string& name, double by) {
  return changed(path, [&](SafetensorsFile& f) { f.tensors.at(name).flatten()[0] += by; });
}

}  // namespace

TEST_CASE("a difference says how far each side is from float64", "[case][exact]") {
  const auto report = shifted(kSdpa, "expected.output", 3e-4);
  CHECK_FALSE(report.passed());
  const auto& row = row_of(report, "expected.output");
  REQUIRE(row.exact);
  CHECK(std::abs(row.exact->expected - 3e-4) < 1e-6);
  CHECK(row.exact->actual > 0.0);
  CHECK(row.exact->actual < 1e-6);
  CHECK_THAT(row.note, ContainsSubstring("PyTorch's error is ") && ContainsSubstring(" times ours"));
  CHECK(row_of(shifted(kSdpa, "expected.output", 0.1), "expected.output").note ==
        "PyTorch is off our float64 by more than rounding");
}

TEST_CASE("every tensor of a case that differs has its distances, gradients too", "[case][exact]") {
  const auto report = shifted(kSdpa, "grad.input.K", 1e-2);
  for (const auto& row : report.tensors) {
    INFO(row.name);
    REQUIRE(row.exact);
    CHECK(row.exact->actual < 1e-5);
    const bool wrong = row.name == "grad.input.K";
    CHECK(row.passed != wrong);
    CHECK((row.exact->expected > 9e-3) == wrong);
    CHECK(row.note.empty() != wrong);
  }
}

TEST_CASE("an error of ours is called ours", "[case][exact]") {
  // The float64 results for the case's inputs, with tolerances that no float32 result meets.
  const auto report =
      changed(kSdpa,
              [](SafetensorsFile& f) {
                const auto wide = [&](const char* name) { return f.tensors.at(name).to(at::kDouble); };
                f.tensors["expected.output"] = attention(wide("input.Q"), wide("input.K"), wide("input.V"),
                                                         {.backend = Backend::Reference});
              },
              {.atol = 0.0, .rtol = 0.0});
  const auto& row = row_of(report, "expected.output");
  CHECK_FALSE(row.passed);
  REQUIRE(row.exact);
  CHECK(row.exact->expected < 1e-12);
  CHECK(row.exact->actual > 1e-9);
  CHECK_THAT(row.note, ContainsSubstring("our error is ") || ContainsSubstring("the error is ours"));
}

TEST_CASE("dropout drops the same in float64", "[case][exact]") {
  int ran = 0;
  for (const std::string stream : {"default", "intel_mkl"}) {
    const auto report =
        shifted(kCases + "dropout.safetensors#MultiHeadAttention-bias-" + stream, "expected.output", 0.1);
    if (!report.skipped.empty()) continue;
    ++ran;
    CHECK(row_of(report, "expected.output").exact.value().actual < 1e-5);
    CHECK(row_of(report, "grad.input.x").exact.value().actual < 1e-4);
  }
  CHECK(ran == 1);
}

TEST_CASE("without a difference, and in float64, there is nothing to say", "[case][exact]") {
  const auto says_nothing = [](const CaseReport& report) {
    for (const auto& row : report.tensors) {
      if (row.exact || row.note.find("error") != std::string::npos) return false;
    }
    return true;
  };
  CHECK(says_nothing(run_case(read_case(kSdpa))));
  const auto wide = shifted(kDouble, "expected.output", 0.1);
  CHECK_FALSE(wide.passed());
  CHECK(says_nothing(wide));
}

TEST_CASE("another shape or NaN is a difference without distances", "[case][exact]") {
  const auto report = changed(kSdpa, [](SafetensorsFile& f) {
    auto& output = f.tensors.at("expected.output");
    output = output.slice(-1, 0, 1).clone();
  });
  CHECK_FALSE(row_of(report, "expected.output").exact);
  const auto nan = shifted(kSdpa, "expected.output", std::nan(""));
  CHECK(row_of(nan, "expected.output").note == "PyTorch's values hold NaN");
}

TEST_CASE("whose error it is, in words", "[case][exact]") {
  const auto words = [](double ours, double expected) {
    return whose_error({ours, expected}, at::kFloat, /*gradient=*/false, /*scale=*/1.0);
  };
  CHECK(words(1e-6, 4.1e-6) == "PyTorch's error is 4.1 times ours");
  CHECK(words(3e-5, 1e-5) == "our error is 3.0 times PyTorch's");
  CHECK(words(1e-7, 1.1e-3) == "PyTorch's error is 11000 times ours");
  CHECK(words(1e-7, 2e-3) == "PyTorch is off our float64 by more than rounding");
  CHECK(words(2e-3, 1e-3) == "ours is off our float64 by more than rounding");
  CHECK(words(0.0, 1e-5) == "the error is PyTorch's");
  CHECK(words(1e-5, 0.0) == "the error is ours");
  CHECK(words(std::nan(""), 1e-5).empty());
  CHECK(words(1e-5, INFINITY).empty());
  CHECK(whose_error({1e-3, 2e-3}, at::kBFloat16, true, 1.0) == "PyTorch's error is 2.0 times ours");
}

namespace {

const std::string kEncoder = kCases + "torch.safetensors#encoder-options_read";
const std::string kDecoder = kCases + "torch.safetensors#decoder-options_read";

template <class File>
void set_option(File& file, const std::string& name, const std::string& value) {
  auto& options = file.metadata["options"];
  const auto from = options.find("\"" + name + "\": ");
  REQUIRE(from != std::string::npos);
  const auto begin = from + name.size() + 4, end = options.find_first_of(",}", begin);
  options.replace(begin, end - begin, value);
}

}  // namespace

TEST_CASE("a transformer layer's case passes and every number of it counts", "[case][layers]") {
  for (const auto& path : {kEncoder, kDecoder}) {
    const auto file = case_contents(path);
    for (const auto& [name, tensor] : file.tensors) {
      INFO(path << " " << name);
      const auto& key = name;
      const auto report = changed(path, [&](SafetensorsFile& f) {
        auto& number = f.tensors.at(key);
        if (number.is_floating_point()) number.flatten()[0] += 0.5;
      });
      CHECK(report.passed() == !tensor.is_floating_point());
      if (name.rfind("expected.", 0) == 0 || name.rfind("grad.", 0) == 0)
        CHECK(different(report) == std::vector<std::string>{name});
    }
  }
}

TEST_CASE("a transformer layer's options mean what Python's do", "[case][layers]") {
  for (const auto& path : {kEncoder, kDecoder}) {
    INFO(path);
    for (const auto& [name, other] : {std::pair<std::string, std::string>("activation", "\"gelu\""),
                                      {"activation", "\"silu\""},
                                      {"activation", "\"tanh\""},
                                      {"layer_norm_eps", "0.5"},
                                      {"norm_first", "true"},
                                      {"nhead", "1"}}) {
      INFO(name << " " << other);
      const auto set = [key = name, value = other](auto& f) { set_option(f, key, value); };
      CHECK_FALSE(changed(path, set).passed());
    }
    // null selects Python's default.
    CHECK(changed(path, [](auto& f) { set_option(f, "activation", "null"); }).passed());
  }
}

TEST_CASE("mistakes in a transformer layer's case are named", "[case][layers][errors]") {
  CHECK(refused(kEncoder, [](auto& f) { set_option(f, "activation", "\"swish\""); }) ==
        "case: expected option activation to be one of relu, gelu, silu, tanh, got \"swish\"");
  CHECK(refused(kEncoder, [](auto& f) { set_option(f, "activation", "1"); }) ==
        "case: expected option activation to be one of relu, gelu, silu, tanh, got 1");
  CHECK_THAT(refused(kEncoder, [](auto& f) { set_option(f, "nhead", "3"); }),
             ContainsSubstring("case: compat::TransformerEncoderLayer: expected nhead to divide"));
  CHECK(refused(kEncoder, [](auto& f) { f.metadata["call"] = R"({"is_causal": true})"; }) ==
        "case: compat::TransformerEncoderLayer: expected a src_mask with is_causal, which is a hint about "
        "it, "
        "got none");
  CHECK_THAT(
      refused(kEncoder, [](auto& f) { f.metadata["call"] = R"({"tgt_is_causal": true})"; }),
      ContainsSubstring("case: unknown call argument tgt_is_causal of torch.nn.TransformerEncoderLayer"));
  CHECK_THAT(refused(kEncoder, [](auto& f) { f.tensors["input.memory"] = at::ones({1}); }),
             ContainsSubstring(
                 "case: unknown input memory of torch.nn.TransformerEncoderLayer; known: src, src_mask"));
  CHECK_THAT(refused(kDecoder, [](auto& f) { f.tensors.erase("state.norm3.weight"); }),
             ContainsSubstring("missing norm3.weight"));
  CHECK_THAT(refused(kDecoder,
                     [](auto& f) {
                       f.tensors.erase("input.memory");
                       f.tensors.erase("grad.input.memory");
                     }),
             ContainsSubstring("case: missing tensor input.memory"));
}

TEST_CASE("NaN in a layer's expected output never passes", "[case][layers]") {
  const auto report =
      changed(kEncoder, [](auto& f) { f.tensors["expected.output"][0][0][0] = std::nan(""); });
  CHECK(different(report) == std::vector<std::string>{"expected.output"});
}
