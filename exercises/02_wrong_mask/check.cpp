#include <ATen/ops/tensor.h>

#include <attentive/functional/explain.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

void check(const at::Tensor& lengths, const at::Tensor& documents) {
  const int64_t T = documents.size(0), B = lengths.size(0);
  const auto expected =
      attentive::Mask::key_lengths(lengths) & attentive::Mask::keep(documents.unsqueeze(1).eq(documents));
  const auto mask = training_mask(lengths, documents);
  for (int64_t b = 0; b < B; ++b) {
    const auto got = mask.describe(T, T, {.batch = b});
    const auto want_grid =
        attentive::describe_mask(expected, {.causal = attentive::Causal::BottomRight}, T, T, {.batch = b});
    want(got == want_grid, T == 4 ? 1 : 2,
         "the mask does not show each token itself and what came before. It is\n" + got + "and should be\n" +
             want_grid);
  }
}

}  // namespace
}  // namespace exercises

EXERCISE(2) {
  exercises::check(at::tensor({4, 2}), at::tensor({0, 0, 0, 0}));
  exercises::check(at::tensor({6, 4, 1}), at::tensor({0, 0, 0, 1, 1, 2}));
  exercises::check(at::tensor({3}), at::tensor({0, 1, 1}));
}
