#include <vector>

#include <ATen/ops/randn.h>

#include <attentive/functional/attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

struct Sequence {
  at::Tensor q, k, v, y;  // y: the output of attention over the whole sequence

  explicit Sequence(int64_t T, int64_t heads)
      : q(at::randn({2, heads, T, 4})), k(at::randn({2, heads, T, 4})), v(at::randn({2, heads, T, 4})) {
    y = attentive::attention(q, k, v, {.causal = attentive::Causal::BottomRight});
  }

  // Passes the next `count` tokens through the cache and compares the result with the same rows of the whole.
  void advance(Cache& cache, int64_t first, int64_t count, int hint, const std::string& what) const {
    const auto part = [&](const at::Tensor& x) { return x.narrow(2, first, count); };
    const auto got = step(cache, part(q), part(k), part(v));
    want(cache.k.defined() && cache.k.size(2) == first + count, 1,
         "after " + std::to_string(first + count) + " tokens the cache does not hold as many keys");
    want_close(got, part(y), hint, what);
  }
};

void check_one_by_one() {
  const Sequence sequence(5, 2);
  Cache cache;
  sequence.advance(cache, 0, 1, 1, "the first token sees something else than itself");
  for (int64_t t = 1; t < 5; ++t)
    sequence.advance(cache, t, 1, 2,
                     "token " + std::to_string(t) + ", alone, does not see all tokens before it");
}

void check_chunks() {
  const Sequence sequence(7, 3);
  Cache cache;
  sequence.advance(cache, 0, 3, 3, "the prompt of 3 tokens differs from attention over the whole");
  sequence.advance(cache, 3, 1, 2, "the token after a prompt differs from attention over the whole");
  sequence.advance(cache, 4, 3, 3, "3 tokens after 4 others differ from attention over the whole");
}

void check_two_caches() {
  const Sequence one(4, 1), other(4, 1);
  Cache a, b;
  one.advance(a, 0, 2, 2, "a prompt of 2 tokens differs from attention over the whole");
  const auto k = a.k.clone();
  other.advance(b, 0, 3, 2, "a second cache sees the tokens of the first");
  want_close(a.k, k, 2, "a second cache changes the first");
  one.advance(a, 2, 2, 2, "a cache sees the tokens of another one");
}

}  // namespace
}  // namespace exercises

EXERCISE(6) {
  exercises::check_one_by_one();
  exercises::check_chunks();
  exercises::check_two_caches();
}
