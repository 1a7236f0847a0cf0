// Compares the bounds of causality and windows with their definition, pair by pair.

#include <cstdint>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/core/options.h>

#include "kernels/call.h"

using namespace attentive;
using kernels::Band;

namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// The definition in docs/conventions.md: query i is aligned with key i + S - L, or with key i for TopLeft.
bool may_see(const AttentionOptions& options, int64_t L, int64_t S, int64_t i, int64_t j) {
  const int64_t aligned = i + S - L;
  if (options.causal == Causal::BottomRight && j > aligned) return false;
  if (options.causal == Causal::TopLeft && j > i) return false;
  if (options.window.left >= 0 && aligned - j > options.window.left) return false;
  return options.window.right < 0 || j - aligned <= options.window.right;
}

}  // namespace

TEST_CASE("a band sees the pairs that causality and window allow", "[band][short]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const auto left = GENERATE(-1, 0, 1, 3, kHuge), right = GENERATE(-1, 0, 1, 3, kHuge);
  const AttentionOptions options{.causal = causal, .window = {left, right}};
  int64_t wrong = 0, unbounded = 0;
  for (int64_t L = 0; L < 7; ++L) {
    for (int64_t S = 0; S < 7; ++S) {
      const Band band = kernels::band_of(options, L, S);
      wrong += band.origin != S - L;
      int64_t hidden_left = 0, hidden_right = 0;
      for (int64_t i = 0; i < L; ++i) {
        for (int64_t j = 0; j < S; ++j) {
          const bool expected = may_see(options, L, S, i, j);
          wrong += (band.key_lo(i, S) <= j && j < band.key_hi(i, S)) != expected;
          wrong += (band.query_lo(j, L) <= i && i < band.query_hi(j, L)) != expected;
          hidden_left += j < band.key_lo(i, S);
          hidden_right += j >= band.key_hi(i, S);
        }
        wrong +=
            band.key_lo(i, S) < 0 || band.key_lo(i, S) > S || band.key_hi(i, S) < 0 || band.key_hi(i, S) > S;
      }
      int64_t seen = 0;
      for (int64_t j = 0; j < S; ++j) seen += band.query_lo(j, L) < band.query_hi(j, L);
      wrong += L > 0 && band.shows_every_key(L, S) != (seen == S);
      // The band has a bound exactly if that bound hides a pair.
      wrong += L > 0 && S > 0 && (band.has_lo() != (hidden_left > 0) || band.has_hi() != (hidden_right > 0));
      unbounded += band.unbounded();
    }
  }
  CHECK(wrong == 0);
  CHECK(unbounded > 0);
}
