// Mistakes in score and mask functions, one per number. score_mistakes_test.py compiles this source once for
// each and expects errors that are traced to its line and name the fix; with MISTAKE 0 it is correct.

#include <attentive/score/score_mod.h>

using namespace attentive;

void functions(const Captured& table, const CapturedIndices& documents) {
#if MISTAKE == 0
  score_mod([=](auto s, auto pair) { return where(s > 0, s, -s) + table(pair, 3) + table(pair.head, 0); });
  score_mod([=](auto s, auto pair) {
    return s + table(pair, 0, 1, 2, 3) + table(0, pair.key, pair.head, 2) + table(pair);
  });
  mask_mod([=](auto pair) { return (documents(pair.query) == documents(pair.key)) | (pair.key / 16 == 0); });
#elif MISTAKE == 1  // a condition of one pair
  score_mod([](auto s, auto) {
    if (s > 0) return s;
    return -s;
  });
#elif MISTAKE == 2
  score_mod([](auto s, auto) { return s > 0 ? s : -s; });
#elif MISTAKE == 3
  mask_mod([](auto pair) { return pair.query >= pair.key && pair.key > 3; });
#elif MISTAKE == 4
  mask_mod([](auto pair) { return pair.query >= pair.key || pair.key < 3; });
#elif MISTAKE == 5  // parameters of a score
  score_mod([](auto s) { return s; });
#elif MISTAKE == 6
  score_mod([n = 0](auto s, auto) mutable { return s + ++n; });
#elif MISTAKE == 7  // parameters of a mask
  mask_mod([](auto, auto pair) { return pair.query >= pair.key; });
#elif MISTAKE == 8  // the result of a score
  score_mod([](auto s, auto) { return s > 0; });
#elif MISTAKE == 9
  score_mod([](auto, auto) {});
#elif MISTAKE == 10  // the result of a mask
  mask_mod([](auto pair) { return pair.query - pair.key; });
#elif MISTAKE == 11
  mask_mod([](auto) { return 1; });
#elif MISTAKE == 12  // the arguments of a lookup
  score_mod([=](auto s, auto) { return s + table(3); });
#elif MISTAKE == 13
  score_mod([=](auto s, auto) { return s + table(); });
#elif MISTAKE == 14
  score_mod([=](auto s, auto pair) { return s + table(pair.batch, pair.head, pair.query, pair.key, 0); });
#elif MISTAKE == 15
  mask_mod([=](auto pair) { return documents(3) == pair.key; });
#elif MISTAKE == 16  // a divisor
  score_mod([=](auto s, auto pair) { return s + pair.query / pair.key; });
#elif MISTAKE == 17
  mask_mod([=](auto pair) { return pair.key % documents(pair.key) == 0; });
#elif MISTAKE == 18  // a score as an index
  score_mod([=](auto s, auto pair) { return s + table(pair.head, s); });
#elif MISTAKE == 19
  score_mod([=](auto s, auto pair) { return s + table(pair.head, 0.5f); });
#endif
}
