#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/case_attention.h>

#include "parity/changed_case.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("a case's recorded attention has the weights that Python returned", "[case]") {
  for (const auto* name : {"MultiHeadSelfAttention-padding_bool", "MultiHeadSelfAttention-causal_float",
                           "MultiHeadSelfAttention-padding_fp64", "MultiHeadSelfAttention-dropout_in_eval",
                           "ScaledDotProductAttention-cross", "scaled_dot_product_attention-seed_3"}) {
    INFO(name);
    const auto test_case = read_case(kCases + "notebooks/" + name + ".safetensors");
    const auto calls = case_attention(test_case);
    REQUIRE(calls.size() == 1);
    CHECK_CLOSE(calls[0].weights().view_as(test_case.expected_weights), test_case.expected_weights);
  }
}

TEST_CASE("a case's calls have the paths of its modules, and the recorder's options choose among them",
          "[case]") {
  CHECK(case_attention(read_case(kMha)).at(0).path.empty());
  CHECK(case_attention(read_case(kCases + "notebooks/scaled_dot_product_attention-seed_3.safetensors"))
            .at(0)
            .path == "call 0");
  const auto encoder = read_case(kCases + "encoders/bert-hidden.safetensors");
  const auto calls = case_attention(encoder);
  REQUIRE(calls.size() > 1);
  const auto chosen = case_attention(encoder, {.layers = "blocks.1"});
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0].path == calls[1].path);
}

TEST_CASE("a case's attention is recorded without dropout, gradients and draws", "[case]") {
  const auto test_case = read_case(kCases + "notebooks/MultiHeadAttention-dropout_in_eval.safetensors");
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
