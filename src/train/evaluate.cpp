#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <attentive/train/evaluate.h>

#include "core/check.h"
#include "models/decoder_only.h"
#include "train/agreement.h"
#include "train/run_state.h"

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

namespace {

constexpr const char* kEvaluate = "evaluate";

struct Batch {
  int64_t begin, rows, width;
};

// Batches that cover every target once, in order: whole blocks, then the rest as one shorter row.
std::vector<Batch> batches_of(int64_t targets, const EvaluateOptions& options) {
  std::vector<Batch> batches;
  int64_t offset = 0;
  while (targets - offset >= options.block) {
    const auto rows = std::min(options.batch, (targets - offset) / options.block);
    batches.push_back({offset, rows, options.block});
    offset += rows * options.block;
  }
  if (offset < targets) batches.push_back({offset, 1, targets - offset});
  return batches;
}

void check_evaluation(const BatchLoss& loss, const at::Tensor& tokens, const EvaluateOptions& options) {
  check_defined(kEvaluate, "tokens", tokens);
  TORCH_CHECK_VALUE(tokens.dim() == 1 && tokens.size(0) >= 2, kEvaluate,
                    ": expected tokens of shape (N,) with N >= 2, got ", shape_string(tokens.sizes()));
  TORCH_CHECK_TYPE(at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false) && !tokens.is_meta(),
                   kEvaluate, ": expected tokens as integers with data, got ", describe(tokens), " on ",
                   tokens.device());
  TORCH_CHECK_VALUE(options.block > 0 && options.batch > 0, kEvaluate,
                    ": expected block > 0 and batch > 0, got ", options.block, " and ", options.batch);
  TORCH_CHECK_VALUE(loss, kEvaluate, ": expected a loss function, got none");
}

double mean_of_batch(const BatchLoss& loss, const at::Tensor& tokens, const Batch& batch, at::Device device) {
  const auto cut = [&](int64_t from) {
    return tokens.narrow(0, from, batch.rows * batch.width)
        .to(at::kLong)
        .view({batch.rows, batch.width})
        .to(device);
  };
  const auto mean = loss(cut(batch.begin), cut(batch.begin + 1));
  check_loss(kEvaluate, mean);
  return mean.item<double>();
}

}  // namespace

double evaluate(torch::nn::Module& module, const BatchLoss& loss, const at::Tensor& tokens,
                const EvaluateOptions& options) {
  check_evaluation(loss, tokens, options);
  const EvaluationMode evaluation(module);
  const at::NoGradGuard no_grad;
  const auto group = group_or_alone(options.group);
  const auto rank = static_cast<size_t>(group->rank()), size = static_cast<size_t>(group->size());
  const auto targets = tokens.size(0) - 1;
  const auto batches = batches_of(targets, options);
  // Every process has the same number of places, so the last ones may stay unused.
  auto local_means = at::zeros({static_cast<int64_t>((batches.size() + size - 1) / size)}, at::kDouble);
  for (size_t i = rank; i < batches.size(); i += size) {
    local_means.mutable_data_ptr<double>()[i / size] =
        mean_of_batch(loss, tokens, batches[i], options.device);
  }
  const auto means = group->gather(local_means);
  double sum = 0.0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto mean = means[i % size].const_data_ptr<double>()[i / size];
    sum += mean * static_cast<double>(batches[i].rows * batches[i].width);
  }
  return sum / static_cast<double>(targets);
}

}  // namespace attentive
