#include "files/torch/torch_dtypes.h"

namespace attentive {

bool are_bools(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  unsigned char all = 0;
  for (size_t i = 0; i < size; ++i) all |= bytes[i];
  return all <= 1;
}

}  // namespace attentive
