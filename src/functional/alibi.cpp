#include <cmath>
#include <vector>

#include <ATen/ops/tensor.h>

#include <attentive/functional/alibi.h>

namespace attentive {

at::Tensor alibi_slopes(int64_t num_heads, at::Device device) {
  TORCH_CHECK_VALUE(num_heads > 0, "alibi_slopes: expected num_heads > 0, got ", num_heads);
  std::vector<float> slopes(num_heads);
  for (int64_t h = 0; h < num_heads; ++h) {
    slopes[h] =
        static_cast<float>(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(num_heads)));
  }
  return at::tensor(slopes).to(device);
}

}  // namespace attentive
