#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

// What must be the same in every process.
struct Agreed {
  std::string name;  // for the message
  std::string text;
  bool quoted = false;  // whether the message quotes the first line that differs
};

// Collective. Throws c10::ValueError in every process unless each of these texts is the same in all of them.
void check_agreement(const char* who, TrainingGroup& group, const std::vector<Agreed>& texts);

// The first line in which a text differs from the first one, in words: "rank 0 has width 8, rank 2 has width 16"; nothing
// if all are alike.
std::optional<std::string> first_difference(const std::vector<std::string>& texts);

// The options of every module of a model, as it prints them, a line each.
std::string printed_options(const torch::nn::Module& model);

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
