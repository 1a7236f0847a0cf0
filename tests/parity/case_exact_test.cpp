// Determines which side's error a difference is, by the distances of both sides to float64 arithmetic.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/attention.h>
#include <attentive/parity/case.h>

#include "parity/case_compare.h"
#include "parity/changed_case.h"

using namespace attentive;
using attentive::test::changed;
using attentive::test::kCases;
using attentive::test::kSdpa;
using attentive::test::row_of;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kDouble = kCases + "notebooks/scaled_dot_product_attention-fp64.safetensors";

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
    const auto report = shifted(kCases + "dropout/MultiHeadAttention-bias-" + stream + ".safetensors",
                                "expected.output", 0.1);
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
