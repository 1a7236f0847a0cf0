#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <attentive/functional/attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

std::string where_of(int64_t L, int64_t S) {
  return std::to_string(L) + " queries, " + std::to_string(S) + " keys";
}

void check_shape() {
  const auto bias = alibi_bias(attentive::alibi_slopes(2), 3, 5);
  want(bias.sizes() == at::IntArrayRef({2, 3, 5}), 1, "the bias does not have the shape (H, L, S)");
}

// One head with slope 0.5 and three tokens, with values computed by hand.
void check_numbers() {
  const auto bias = alibi_bias(at::tensor({0.5f}), 3, 3)[0];
  const auto expected = at::tensor({0.0f, -0.5f, -1.0f, -0.5f, 0.0f, -0.5f, -1.0f, -0.5f, 0.0f}).view({3, 3});
  want_close(bias.tril(), expected.tril(), 1, "a key that lies further back is not further away");
  want_close(bias, expected, 2, "a key ahead is not as far away as one behind");
}

// Compares with the library's ALiBi.
void check(int64_t heads, int64_t L, int64_t S, bool causal) {
  const auto q = at::randn({1, heads, L, 4}), k = at::randn({1, heads, S, 4}),
             v = at::randn({1, heads, S, 4});
  const attentive::AttentionOptions options{.causal = causal ? attentive::Causal::BottomRight
                                                             : attentive::Causal::None};
  const auto slopes = attentive::alibi_slopes(heads);
  const auto bias = attentive::Mask::per_head(attentive::Mask::bias(alibi_bias(slopes, L, S)));
  const auto expected = attentive::attention(q, k, v, options, {.alibi_slopes = slopes}).output;
  want_close(attentive::attention(q, k, v, options, bias), expected, L == S ? 2 : 3,
             "attention with this bias is not attention with ALiBi (" + where_of(L, S) + ", " +
                 with("heads", heads) + ")");
}

}  // namespace
}  // namespace exercises

EXERCISE(7) {
  exercises::check_numbers();
  exercises::check_shape();
  exercises::check(4, 6, 6, true);
  exercises::check(3, 6, 6, false);
  exercises::check(2, 1, 7, false);
  exercises::check(8, 3, 5, false);
  exercises::check(2, 5, 3, false);
}
