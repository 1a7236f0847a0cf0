#include <attentive/score/score_mod.h>

#include "11_own_score/task.h"

namespace exercises {

attentive::AttentionExtras own_functions(const at::Tensor& table, const at::Tensor& documents) {
  const auto bias = attentive::captured(table);
  const auto document = attentive::captured_indices(documents);
  const int64_t last = table.size(1) - 1;
  const auto score = attentive::score_mod(
      [=](auto s, auto at) { return s + bias(at.head, min(abs(at.query - at.key), last)); });
  const auto mask = attentive::mask_mod([=](auto at) { return document(at.query) == document(at.key); });
  return {.score = score, .block_mask = mask};
}

}  // namespace exercises
