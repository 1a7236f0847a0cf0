#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <attentive/functional/attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

using attentive::AttentionResult;

struct Call {
  at::Tensor q, k, v;

  // Inputs in float64, with scores of about the given size.
  explicit Call(double size)
      : q(at::randn({2, 2, 3, 4}, at::kDouble) * size),
        k(at::randn({2, 2, 8, 4}, at::kDouble)),
        v(at::randn({2, 2, 8, 4}, at::kDouble)) {}

  // Attention over `count` keys beginning with `first`, of which sequence 1 sees those below `length`.
  AttentionResult part(int64_t first, int64_t count, int64_t length = 8) const {
    const auto seen = std::min(std::max<int64_t>(length - first, 0), count);
    const auto mask = attentive::Mask::key_lengths(at::tensor({count, seen}));
    return attentive::attention(q, k.narrow(2, first, count), v.narrow(2, first, count), {},
                                {.mask = mask, .logsumexp = true});
  }
};

void check(const AttentionResult& got, const AttentionResult& expected, int hint, const std::string& what) {
  want_close(got.output, expected.output, hint, "the output of " + what);
  want_close(got.logsumexp, expected.logsumexp, hint, "the logsumexp of " + what);
}

}  // namespace
}  // namespace exercises

EXERCISE(10) {
  using namespace exercises;
  const Call call(1.0);
  check(merge_halves(call.part(0, 4), call.part(4, 4)), call.part(0, 8), 1, "two halves of 4 keys");
  check(merge_halves(call.part(0, 1), call.part(1, 7)), call.part(0, 8), 1, "1 key and 7 others");
  check(merge_halves(merge_halves(call.part(0, 3), call.part(3, 2)), call.part(5, 3)), call.part(0, 8), 2,
        "three parts, merged one after another");
  const Call large(400.0);
  check(merge_halves(large.part(0, 4), large.part(4, 4)), large.part(0, 8), 2,
        "two halves with scores of some hundreds");
  check(merge_halves(call.part(0, 4, 3), call.part(4, 4, 3)), call.part(0, 8, 3), 3,
        "two halves, one of them without any key");
  check(merge_halves(call.part(0, 4, 0), call.part(4, 4, 0)), call.part(0, 8, 0), 3,
        "two halves without any key");
}
