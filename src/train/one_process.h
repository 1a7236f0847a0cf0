#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <attentive/train/training_group.h>

namespace attentive {

// The group of a process that trains alone: nothing is sent.
class OneProcess final : public TrainingGroup {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override { return {tensor}; }
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module&) override {
    return std::make_unique<OwnGradients>();
  }

 private:
  class OwnGradients final : public GradientAverage {
   public:
    void backward(const at::Tensor& loss, bool) override { loss.backward(); }
  };
};

// The group that a caller gave, or that of one process.
inline std::shared_ptr<TrainingGroup> group_or_alone(std::shared_ptr<TrainingGroup> group) {
  return group ? std::move(group) : std::make_shared<OneProcess>();
}

}  // namespace attentive
