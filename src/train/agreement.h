#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

/// A text that must be the same in every process.
struct Agreed {
  std::string name;  // for messages
  std::string text;
  bool quoted = false;  // whether the message quotes the first line that differs
};

/// Collective. Throws c10::ValueError in every process unless each of these texts is the same in all of them.
void check_agreement(const char* caller, TrainingGroup& group, const std::vector<Agreed>& texts);

/// Describes the first line in which a text differs from the first text: "rank 0 has width 8, rank 2 has
/// width 16"; nothing if all texts are equal.
std::optional<std::string> first_difference(const std::vector<std::string>& texts);

/// The options of every module of a model as it prints them, one line for each module.
std::string printed_options(const torch::nn::Module& model);

/// A group of one process, which trains alone and sends nothing.
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

/// Returns the caller's group, or a group of one process if it is null.
inline std::shared_ptr<TrainingGroup> group_or_alone(std::shared_ptr<TrainingGroup> group) {
  return group ? std::move(group) : std::make_shared<OneProcess>();
}

}  // namespace attentive
