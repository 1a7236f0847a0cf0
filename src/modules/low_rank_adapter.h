#pragma once

// The module that holds an adapter's parameters, so that optimizers, checkpoints, `to` and `train` reach
// them.

#include <memory>
#include <ostream>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "functional/adapters.h"

namespace attentive {

struct LowRankShape {
  int64_t rank = 0, features = 0, outputs = 0;
  double scale = 1.0, dropout = 0.0;
  bool magnitude = false;
};

/// Parameters "A" (rank, features), drawn as `torch::nn::Linear` draws its weight, and "B" (outputs, rank),
/// zero; and "magnitude" (outputs), if the shape says so, which `put_on` sets to the norms of the rows. They have the device of `like` and its dtype, or float32 if that is a half type.
class LowRankAdapterImpl : public torch::nn::Module {
 public:
  LowRankAdapterImpl(const LowRankShape& shape, const at::Tensor& like);
  /// Removes the adapter from its weights.
  ~LowRankAdapterImpl() override;
  LowRankAdapterImpl(const LowRankAdapterImpl&) = delete;
  LowRankAdapterImpl& operator=(const LowRankAdapterImpl&) = delete;

  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

  /// From now on, projections by these rows of a weight use the adapter.
  void put_on(const at::Tensor& weight, int64_t first, int64_t first_of_b, int64_t count);

  /// A tensor that stands for this weight with the adapter in a layer of torch::nn.
  at::Tensor sum_with(const at::Tensor& weight) const;

  LowRank& low_rank() const { return *low_rank_; }

 private:
  std::shared_ptr<LowRank> low_rank_;
};

}  // namespace attentive
