#include <attentive/functional/explain.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

void check(int64_t L, int64_t S, int64_t left, int64_t right, int hint) {
  const auto keep = window_mask(L, S, left, right);
  const auto where = with("left", left) + ", " + with("right", right);
  want(keep.sizes() == at::IntArrayRef({L, S}), 1, "the mask does not have the shape (L, S)");
  const auto got = attentive::Mask::keep(keep).describe(L, S);
  const auto expected = attentive::describe_mask({}, {.window = {left, right}}, L, S);
  want(got == expected, hint,
       "the window of " + where + " lets queries see other keys than it should. It is\n" + got +
           "and should be\n" + expected);
}

}  // namespace
}  // namespace exercises

EXERCISE(8) {
  exercises::check(5, 5, 2, 1, 1);
  exercises::check(5, 5, 0, 0, 1);
  exercises::check(5, 5, 2, -1, 2);
  exercises::check(5, 5, -1, 0, 2);
  exercises::check(4, 4, -1, -1, 2);
  exercises::check(2, 6, 3, 0, 3);
  exercises::check(6, 2, 1, 2, 3);
  exercises::check(1, 8, 4, 9, 3);
}
