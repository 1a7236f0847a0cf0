// Errors of the operators name the argument, what was expected and what came.

#include "support/errors.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include "operators/operator_calls.h"

using namespace attentive;
using namespace attentive::test;

namespace {

std::string refusal(const Named& named) {
  const auto x = at::randn({1, 2, 3, 4});
  return value_error([&] { call_operator("attention", {x, x, x}, named); });
}

}  // namespace

TEST_CASE("an option that does not exist is refused by name", "[operators][errors]") {
  CHECK(refusal({{"causal", "yes"}}) ==
        "attention: expected causal to be \"none\", \"bottom_right\" or \"top_left\", got \"yes\"");
  CHECK(refusal({{"backend", "flash"}}) ==
        "attention: expected backend to be \"auto\", \"reference\", \"torch\" or \"native\", got \"flash\"");
  CHECK(refusal({{"weights", "all"}}) ==
        "attention: expected weights to be \"none\", \"clean\" or \"dropped\", got \"all\"");
  CHECK(refusal({{"dropout_stream", "mine"}}) ==
        "attention: expected dropout_stream to be \"any\", \"aten\" or \"counter\", got \"mine\"");
}

TEST_CASE("a dropout key of another kind is refused", "[operators][errors]") {
  CHECK(refusal({{"dropout_p", 0.5}, {"dropout_key", at::zeros({2}, at::kLong)}}) ==
        "attention: expected dropout_key to be one int64 number on the CPU, got Long tensor of shape (2,)");
  CHECK(refusal({{"dropout_p", 0.5}, {"dropout_key", at::zeros({})}}) ==
        "attention: expected dropout_key to be one int64 number on the CPU, got Float tensor of shape ()");
  CHECK(
      refusal({{"dropout_p", 0.5}, {"dropout_stream", "aten"}, {"dropout_key", at::zeros({}, at::kLong)}}) ==
      "attention: expected dropout_key to be the state of a CPU generator, got Long tensor of shape ()");
}

TEST_CASE("the operators refuse what the functions refuse", "[operators][errors]") {
  const auto x = at::randn({1, 2, 3, 4});
  CHECK(refusal({{"scale", 0.0}}) == "attention: expected scale to be finite and not 0, got 0");
  CHECK(refusal({{"keep", at::zeros({2, 3, 3}, at::kBool)}}).find("Mask::per_batch") != std::string::npos);
  CHECK(type_error([&] {
          call_operator("attention", {x, x, x.to(at::kDouble)});
        }).find("expected q, k and v of one dtype") != std::string::npos);
  CHECK(type_error([&] {
          call_operator("attention", {x, x, x}, {{"bias", at::zeros({3, 3}, at::kBool)}});
        }).find("bias") != std::string::npos);
  CHECK(value_error([&] {
          call_operator("attention", {x.to(at::kDouble), x.to(at::kDouble), x.to(at::kDouble)},
                        {{"backend", "native"}});
        }) ==
        "attention: backend native cannot express this call: it accepts only float32, bfloat16 and float16");
  const auto packed = at::randn({5, 2, 4});
  CHECK(value_error([&] {
          call_operator("attention_varlen", {packed, packed, packed, at::tensor({0, 4}), at::tensor({0, 5})});
        }).find("cu_seqlens_q") != std::string::npos);
  CHECK(value_error([&] {
          const auto meta = at::zeros({3}, at::kMeta);
          call_operator("attention", {meta, meta, meta});
        }) == "attention: expected q, k and v of one rank of at least 2, got 1, 1 and 1");
}
