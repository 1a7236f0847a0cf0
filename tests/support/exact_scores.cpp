#include <cmath>

#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "support/naive_attention.h"

namespace attentive::test {

OptionCall exact_scores(double base, int64_t L, int64_t S, bool negative) {
  const double root = std::sqrt(base);
  const auto one = [&](int64_t heads, int64_t rows, double first) {
    auto x = at::randint(-2, 3, {1, heads, rows, 4}).to(at::kDouble);
    x.select(3, 0).fill_(first);
    return x;
  };
  at::manual_seed(11);
  OptionCall call;
  call.q = one(4, L, root);
  call.k = one(2, S, negative ? -root : root);
  call.v = at::randn({1, 2, S, 4}, at::kDouble).to(at::kBFloat16).to(at::kDouble);
  call.options.scale = 1.0;
  return call;
}

const std::vector<ExactVariant>& exact_variants() {
  static const std::vector<ExactVariant> variants = {
      {"plain", [](OptionCall&) {}},
      {"causal and masked",
       [](OptionCall& c) {
         c.options.causal = Causal::BottomRight;
         c.extras.mask = Mask::keep(at::rand({1, 4, c.q.size(2), c.k.size(2)}).gt(0.2));
       }},
      {"bias",
       [](OptionCall& c) {
         c.extras.mask = Mask::bias(at::randint(-3, 4, {c.q.size(2), c.k.size(2)}).to(at::kDouble));
       }},
      {"negative scale",
       [](OptionCall& c) {
         c.q = -c.q;
         c.options.scale = -1.0;
       }},
      {"ALiBi",
       [](OptionCall& c) {
         c.extras.alibi_slopes = at::tensor({0.0, 0.25, 0.5, 0.125}, at::kDouble);
       }},
      {"sinks",
       [](OptionCall& c) {
         const double score = (c.q[0][0][0][0] * c.k[0][0][0][0]).item<double>();
         c.extras.sinks = at::tensor({score, score + 3, score - 2, score + 40}, at::kDouble);
       }},
      {"softmax plus one", [](OptionCall& c) { c.options.softmax_plus_one = true; }},
      {"dropout",
       [](OptionCall& c) {
         c.options.dropout_p = 0.25;
         c.options.dropout_stream = DropoutStream::Counter;
       }},
  };
  return variants;
}

}  // namespace attentive::test
