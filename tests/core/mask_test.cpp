#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/core/mask.h>

using attentive::Mask;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a bare bool tensor means keep", "[mask]") {
  const Mask mask = at::ones({2, 3}, at::kBool);
  CHECK(mask.keep_terms().size() == 1);
  CHECK_FALSE(mask.empty());
  CHECK(Mask().empty());
}

TEST_CASE("a bare floating tensor is refused and both readings are named", "[mask][errors]") {
  CHECK_THROWS_MATCHES(Mask(at::rand({2, 3})), c10::TypeError,
                       MessageMatches(ContainsSubstring("Mask::keep") && ContainsSubstring("Mask::bias")));
}
