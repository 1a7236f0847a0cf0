// Mistakes in score and mask functions, one per number. score_mistakes_test.py compiles this source once for
// each and expects errors that are traced to its line and name the fix; with MISTAKE 0 it is correct.

#include <attentive/score/score_mod.h>

using namespace attentive;

void functions(const Captured& table, const CapturedIndices& documents) {
#if MISTAKE == 0
  score_mod([=](auto s, auto at) { return where(s > 0, s, -s) + table(at, 3) + table(at.head, 0); });
  score_mod(
      [=](auto s, auto at) { return s + table(at, 0, 1, 2, 3) + table(0, at.key, at.head, 2) + table(at); });
  mask_mod([=](auto at) { return (documents(at.query) == documents(at.key)) | (at.key / 16 == 0); });
#elif MISTAKE == 1  // a condition of one pair
  score_mod([](auto s, auto) {
    if (s > 0) return s;
    return -s;
  });
#elif MISTAKE == 2
  score_mod([](auto s, auto) { return s > 0 ? s : -s; });
#elif MISTAKE == 3
  mask_mod([](auto at) { return at.query >= at.key && at.key > 3; });
#elif MISTAKE == 4
  mask_mod([](auto at) { return at.query >= at.key || at.key < 3; });
#elif MISTAKE == 5  // parameters of a score
  score_mod([](auto s) { return s; });
#elif MISTAKE == 6
  score_mod([n = 0](auto s, auto) mutable { return s + ++n; });
#elif MISTAKE == 7  // parameters of a mask
  mask_mod([](auto, auto at) { return at.query >= at.key; });
#elif MISTAKE == 8  // the result of a score
  score_mod([](auto s, auto) { return s > 0; });
#elif MISTAKE == 9
  score_mod([](auto, auto) {});
#elif MISTAKE == 10  // the result of a mask
  mask_mod([](auto at) { return at.query - at.key; });
#elif MISTAKE == 11
  mask_mod([](auto) { return 1; });
#elif MISTAKE == 12  // the arguments of a lookup
  score_mod([=](auto s, auto) { return s + table(3); });
#elif MISTAKE == 13
  score_mod([=](auto s, auto) { return s + table(); });
#elif MISTAKE == 14
  score_mod([=](auto s, auto at) { return s + table(at.batch, at.head, at.query, at.key, 0); });
#elif MISTAKE == 15
  mask_mod([=](auto at) { return documents(3) == at.key; });
#elif MISTAKE == 16  // a divisor
  score_mod([=](auto s, auto at) { return s + at.query / at.key; });
#elif MISTAKE == 17
  mask_mod([=](auto at) { return at.key % documents(at.key) == 0; });
#elif MISTAKE == 18  // a score as an index
  score_mod([=](auto s, auto at) { return s + table(at.head, s); });
#elif MISTAKE == 19
  score_mod([=](auto s, auto at) { return s + table(at.head, 0.5f); });
#endif
}
