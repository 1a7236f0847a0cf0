#include <attentive/score/score_mod.h>

#include "task.h"

namespace exercises {

attentive::AttentionExtras user_functions(const at::Tensor& table, const at::Tensor& documents) {
  const auto bias = attentive::captured(table);
  const auto document = attentive::captured_indices(documents);
  // THE GAP: every score stays as it is, and every query sees every key.
  const auto score = attentive::score_mod([=](auto s, auto) { return s; });
  const auto mask = attentive::mask_mod([=](auto) { return true; });
  return {.score = score, .block_mask = mask};
}

}  // namespace exercises
