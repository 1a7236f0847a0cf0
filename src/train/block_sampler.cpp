#include <limits>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <c10/util/Exception.h>

#include <attentive/train/block_sampler.h>

#include "core/check.h"
#include "train/generator_state.h"

namespace attentive {
namespace {

constexpr const char* kBlockSampler = "BlockSampler";

}  // namespace

BlockSampler::BlockSampler(at::Tensor tokens, BlockSamplerOptions options)
    : options_(options), generator_(at::detail::createCPUGenerator(options.seed)) {
  check_defined(kBlockSampler, "tokens", tokens);
  TORCH_CHECK_VALUE(options.block > 0 && options.batch > 0, kBlockSampler,
                    ": expected block > 0 and batch > 0, got ", options.block, " and ", options.batch);
  TORCH_CHECK_VALUE(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size,
                    kBlockSampler, ": expected 0 <= rank < world_size, got rank ", options.rank, " of ",
                    options.world_size);
  TORCH_CHECK_VALUE(options.batch % options.world_size == 0, kBlockSampler,
                    ": expected batch to be a multiple of world_size, got ", options.batch, " and ",
                    options.world_size);
  TORCH_CHECK_VALUE(options.batch <= std::numeric_limits<int32_t>::max(), kBlockSampler,
                    ": expected batch below 2^31, got ", options.batch);
  TORCH_CHECK_VALUE(
      tokens.dim() == 1 && at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false) && tokens.is_cpu(),
      kBlockSampler, ": expected tokens as integers of shape (N,) on the CPU, got ", describe(tokens));
  TORCH_CHECK_VALUE(tokens.size(0) > options.block, kBlockSampler,
                    ": expected more than block = ", options.block, " tokens, got ", tokens.size(0));
  windows_ = tokens.unfold(0, options.block + 1, 1);
}

at::Tensor BlockSampler::draw() {
  ++position_;
  return at::randint(windows_.size(0), {options_.batch}, generator_, at::TensorOptions(at::kLong));
}

std::pair<at::Tensor, at::Tensor> BlockSampler::next() {
  const auto rows_per_process = options_.batch / options_.world_size;
  const auto rows =
      windows_.index_select(0, draw().narrow(0, options_.rank * rows_per_process, rows_per_process))
          .to(at::kLong);
  return {rows.narrow(1, 0, options_.block), rows.narrow(1, 1, options_.block)};
}

void BlockSampler::skip(int64_t batches) {
  TORCH_CHECK_VALUE(batches >= 0, kBlockSampler, ": expected batches >= 0 to skip, got ", batches);
  for (int64_t i = 0; i < batches; ++i) draw();
}

at::Tensor BlockSampler::state() const {
  return generator_state(generator_);
}

void BlockSampler::check(int64_t position, const at::Tensor& state) const {
  TORCH_CHECK_VALUE(position >= 0, kBlockSampler, ": expected position >= 0, got ", position);
  check_generator_state(kBlockSampler, generator_, state);
}

void BlockSampler::restore(int64_t position, const at::Tensor& state) {
  check(position, state);
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  generator_.set_state(state.contiguous());
  position_ = position;
}

}  // namespace attentive
