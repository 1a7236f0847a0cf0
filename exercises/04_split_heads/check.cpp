#include <ATen/ops/rand.h>

#include <attentive/functional/heads_and_windows.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

void check(const at::Tensor& x, int64_t heads) {
  const auto where = with("T", x.size(1)) + ", " + with("heads", heads);
  const auto got = into_heads(x, heads);
  const auto expected = attentive::split_heads(x, heads);
  want(got.sizes() == expected.sizes(), 2,
       "into_heads gives another shape than (B, heads, T, d) (" + where + ")");
  want_close(got.select(2, 0), expected.select(2, 0), 1,
             "the heads of the first token hold features of other tokens (" + where + ")");
  want_close(got, expected, 2, "into_heads puts features into the wrong head (" + where + ")");
  want_close(from_heads(got), x, 3, "from_heads does not undo into_heads (" + where + ")");
  want_close(from_heads(expected), x, 3, "from_heads does not undo the library's split (" + where + ")");
}

}  // namespace
}  // namespace exercises

EXERCISE(4) {
  exercises::check(at::rand({2, 3, 8}), 2);
  exercises::check(at::rand({1, 5, 6}), 3);
  exercises::check(at::rand({3, 4, 4}), 1);
  exercises::check(at::rand({2, 6, 6}), 6);
  exercises::check(at::rand({2, 8, 5}).transpose(1, 2), 4);  // features that are not contiguous
}
