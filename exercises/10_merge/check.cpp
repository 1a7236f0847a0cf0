#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/merge_attention.h>

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

void check(const AttentionResult& got, const std::vector<AttentionResult>& parts, int hint,
           const std::string& what) {
  const auto expected = attentive::merge_attention(parts);
  want_close(got.output, expected.output, hint, "the output of " + what);
  want_close(got.logsumexp, expected.logsumexp, hint, "the logsumexp of " + what);
}

void check_halves(const Call& call, int64_t first, int64_t length, int hint, const std::string& what) {
  const auto a = call.part(0, first, length), b = call.part(first, 8 - first, length);
  check(merge_halves(a, b), {a, b}, hint, what);
}

}  // namespace
}  // namespace exercises

EXERCISE(10) {
  using namespace exercises;
  const Call call(1.0);
  check_halves(call, 4, 8, 1, "two halves of 4 keys");
  check_halves(call, 1, 8, 1, "1 key and 7 others");
  const auto a = call.part(0, 3), b = call.part(3, 2), c = call.part(5, 3);
  check(merge_halves(merge_halves(a, b), c), {a, b, c}, 2, "three parts, merged one after another");
  check_halves(Call(400.0), 4, 8, 2, "two halves with scores of some hundreds");
  check_halves(call, 4, 3, 3, "two halves, one of them without any key");
  check_halves(call, 4, 0, 3, "two halves without any key");
}
