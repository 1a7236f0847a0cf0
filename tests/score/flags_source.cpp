// Scores and masks in a source that is compiled several times with other flags (tests/CMakeLists.txt).

#include "score/drawn_scores.h"

namespace attentive::test {

DrawnFunctions ATTENTIVE_TEST_FUNCTION(const DrawnTensors& tensors) {
  const DrawnCaptures c(tensors);
  return {score_mod([=](auto s, auto at) {
            const auto distance = at.query - at.key;
            return where(s > 0.3f, tanh(s) + c.pairs(at.query, at.key), softplus(s) - c.heads(at.head)) +
                   exp(-s * s) * c.distances(distance + at.keys) + pow(s * s + 0.5f, c.number(at)) +
                   0.01f * abs(distance);
          }),
          mask_mod([=](auto at) {
            return (c.documents(at.query) != c.documents(at.key)) | (at.key / 4 % 3 == 1) | (at.key == 0);
          }),
          "flags_source.cpp"};
}

}  // namespace attentive::test
