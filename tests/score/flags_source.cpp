// Scores and masks in a source that is compiled several times with other flags (tests/CMakeLists.txt).

#include "score/drawn_scores.h"

namespace attentive::test {

DrawnFunctions ATTENTIVE_TEST_FUNCTION(const DrawnTensors& tensors) {
  const DrawnCaptures c(tensors);
  return {
      score_mod([=](auto s, auto pair) {
        const auto distance = pair.query - pair.key;
        return where(s > 0.3f, tanh(s) + c.pairs(pair.query, pair.key), softplus(s) - c.heads(pair.head)) +
               exp(-s * s) * c.distances(distance + pair.keys) + pow(s * s + 0.5f, c.number(pair)) +
               0.01f * abs(distance);
      }),
      mask_mod([=](auto pair) {
        return (c.documents(pair.query) != c.documents(pair.key)) | (pair.key / 4 % 3 == 1) | (pair.key == 0);
      }),
      "flags_source.cpp"};
}

}  // namespace attentive::test
