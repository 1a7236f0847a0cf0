#include "viz/batch_item.h"

#include "core/check.h"

namespace attentive::viz {

RecordedAttention batch_item(const char* who, const RecordedAttention& call, int64_t batch) {
  for (const auto& [name, tensor] : {std::pair("q", call.q), std::pair("k", call.k)}) {
    check_defined(who, name, tensor);
    TORCH_CHECK_VALUE(tensor.dim() == 4, who, ": ", call.path, ": expected ", name, " of rank 4, got ",
                      describe(tensor));
  }
  const auto batches = call.q.size(0);
  TORCH_CHECK_VALUE(batch >= 0 && batch < batches, who, ": ", call.path, ": expected a batch item in [0, ",
                    batches, "), got ", batch);
  auto item = call;
  for (auto* part :
       {&item.q, &item.k, &item.keep, &item.bias, &item.key_keep, &item.key_lengths, &item.alibi_slopes}) {
    if (part->defined() && part->size(0) > 1) *part = part->narrow(0, batch, 1);
  }
  return item;
}

}  // namespace attentive::viz
