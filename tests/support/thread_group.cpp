#include "support/thread_group.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "support/errors.h"

namespace attentive::test {
namespace {

// A barrier at which the threads of a group exchange tensors.
class Meeting {
 public:
  explicit Meeting(int64_t size) : brought_(static_cast<size_t>(size)) {}

  // Returns the tensors of all threads, after each has contributed one.
  std::vector<at::Tensor> exchange(int64_t rank, const at::Tensor& tensor) {
    std::unique_lock lock(mutex_);
    brought_[static_cast<size_t>(rank)] = tensor.detach().clone();
    const auto round = round_;
    if (++present_ == brought_.size()) {
      taken_ = brought_;
      present_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || missing_ >= 0; });
    TORCH_CHECK(round_ != round, "rank ", missing_, " is missing");
    // The next round, which replaces these tensors, cannot end before this thread has joined it.
    auto result = taken_;
    lock.unlock();
    for (const auto& other : result) {
      TORCH_CHECK(other.sizes() == tensor.sizes() && other.scalar_type() == tensor.scalar_type(),
                  "another tensor on another rank");
    }
    return result;
  }

  void leave(int64_t rank) {
    const std::lock_guard lock(mutex_);
    if (missing_ < 0) missing_ = rank;
    changed_.notify_all();
  }

  int64_t size() const { return static_cast<int64_t>(brought_.size()); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> brought_, taken_;
  int64_t missing_ = -1;  // the rank of the first thread that left
  size_t present_ = 0;
  int64_t round_ = 0;
};

class ThreadGroup : public TrainingGroup {
 public:
  ThreadGroup(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return meeting_.size(); }
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override {
    return meeting_.exchange(rank_, tensor);
  }
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) override;

 private:
  Meeting& meeting_;
  int64_t rank_;
};

class SummedGradients : public GradientAverage {
 public:
  SummedGradients(ThreadGroup group, torch::nn::Module& model)
      : group_(group), parameters_(model.parameters()) {
    const at::NoGradGuard no_grad;
    for (auto tensors : {parameters_, model.buffers()}) {
      for (auto& tensor : tensors) tensor.copy_(group_.gather(tensor).front());
    }
  }
  void backward(const at::Tensor& loss, bool last) override {
    loss.backward();
    if (!last) return;
    for (auto& parameter : parameters_) {
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined()) gradient = at::zeros_like(parameter);
      const auto all = group_.gather(gradient);
      auto sum = all.front();
      for (size_t rank = 1; rank < all.size(); ++rank) sum = sum + all[rank];
      gradient.copy_(sum / static_cast<double>(all.size()));
    }
  }

 private:
  ThreadGroup group_;
  std::vector<at::Tensor> parameters_;
};

std::unique_ptr<GradientAverage> ThreadGroup::average_gradients(torch::nn::Module& model) {
  return std::make_unique<SummedGradients>(*this, model);
}

}  // namespace

std::vector<std::string> run_threads(int64_t size,
                                     const std::function<void(std::shared_ptr<TrainingGroup>)>& work) {
  Meeting meeting(size);
  std::vector<std::string> messages(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      messages[static_cast<size_t>(rank)] =
          error_of<c10::Error>([&] { work(std::make_shared<ThreadGroup>(meeting, rank)); });
      meeting.leave(rank);
    });
  }
  for (auto& thread : threads) thread.join();
  return messages;
}

}  // namespace attentive::test
