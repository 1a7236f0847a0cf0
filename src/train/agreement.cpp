#include "train/agreement.h"

#include <c10/util/Exception.h>

#include "train/sha256.h"
#include "train/tensor_bytes.h"

namespace attentive {

void check_agreement(const char* who, TrainingGroup& group,
                     const std::vector<std::pair<std::string, std::string>>& texts) {
  std::string own;
  for (const auto& [name, text] : texts) own += sha256(text);
  const auto all = group.gather(to_tensor(own));
  const auto first = bytes_of(all.front());
  const auto digits = own.size() / texts.size();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = bytes_of(all[rank]);
    for (size_t i = 0; i < texts.size(); ++i) {
      TORCH_CHECK_VALUE(first.compare(i * digits, digits, other, i * digits, digits) == 0, who,
                        ": expected the same ", texts[i].first, " in every process, but those of rank ", rank,
                        " differ from those of rank 0");
    }
  }
}

}  // namespace attentive
