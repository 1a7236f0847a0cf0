#include "kernels/dropout_counter.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

namespace attentive::kernels {

uint64_t draw_dropout_key(const std::optional<at::Generator>& generator) {
  auto* source =
      at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(source->mutex_);
  return source->random64();
}

at::Tensor counter_keep_mask(uint64_t key, double p, int64_t batch_offset, int64_t batch, int64_t head_offset,
                             int64_t heads, uint32_t row0, int64_t rows, int64_t col0, int64_t cols) {
  auto mask = at::empty({batch, heads, rows, cols}, at::kBool);
  const uint32_t threshold = keep_threshold(p);
  bool* out = mask.mutable_data_ptr<bool>();
  at::parallel_for(0, batch * heads * rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / (heads * rows) + batch_offset, h = row / rows % heads + head_offset;
      const uint32_t i = row0 + static_cast<uint32_t>(row % rows);
      bool* line = out + row * cols;
      // The loop runs over whole blocks of 128 columns: one Philox call decides 8 columns at distances of 16.
      for (int64_t block = col0 / 128; block * 128 < col0 + cols; ++block) {
        for (int64_t lane = 0; lane < 16; ++lane) {
          const auto words = dropout_words(key, b, h, i, block * 128 + lane);
          for (int half = 0; half < 8; ++half) {
            const int64_t j = block * 128 + half * 16 + lane - col0;
            if (j >= 0 && j < cols) line[j] = words.survives(half, threshold);
          }
        }
      }
    }
  });
  return mask;
}

}  // namespace attentive::kernels
