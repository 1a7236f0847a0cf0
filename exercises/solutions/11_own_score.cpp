#include <attentive/score/score_mod.h>

#include "11_own_score/task.h"

namespace exercises {

attentive::AttentionExtras user_functions(const at::Tensor& table, const at::Tensor& documents) {
  const auto bias = attentive::captured(table);
  const auto document = attentive::captured_indices(documents);
  const int64_t last = table.size(1) - 1;
  const auto score = attentive::score_mod(
      [=](auto s, auto pair) { return s + bias(pair.head, min(abs(pair.query - pair.key), last)); });
  const auto mask =
      attentive::mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); });
  return {.score = score, .block_mask = mask};
}

}  // namespace exercises
