// One process of the tests of attentive::distributed: runs the scenario that its first argument names.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/train/adamw.h>

#include "distributed/call_scenarios.h"
#include "distributed/context_scenarios.h"

namespace {

using attentive::DataParallel;
using attentive::Group;

void expect(bool truth, const char* what) {
  if (!truth) throw std::runtime_error(std::string("wrong: ") + what);
}

// A network with two layers, a buffer, a shared weight and optionally a frozen one. Each layer may be a
// checkpoint, of which two then share a weight.
struct Network : torch::nn::Module {
  explicit Network(int64_t width = 6, bool frozen = false, bool checkpointed = false)
      : checkpoints(checkpointed) {
    first = register_module("first", torch::nn::Linear(width, 8));
    second = register_module("second", torch::nn::Linear(8, 8));
    again = register_module("again", second);
    offset = register_buffer("offset", at::rand({8}));
    if (frozen) first->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = run([this](const at::Tensor& y) { return first->forward(y).tanh() + offset; }, x);
    const auto deeper = run([this](const at::Tensor& y) { return second->forward(y).tanh(); }, hidden);
    return run([this](const at::Tensor& y) { return again->forward(y); }, deeper);
  }
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& layer, const at::Tensor& x) const {
    return checkpoints ? attentive::activation_checkpoint(layer, x) : layer(x);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, again{nullptr};
  at::Tensor offset;
  bool checkpoints;
};

at::Tensor loss_of(Network& network, const at::Tensor& x) {
  return at::mse_loss(network.forward(x), x.sum(1, true).expand({x.size(0), 8}));
}

int calls(const std::shared_ptr<Group>& group) {
  const int64_t rank = group->rank(), size = group->size();
  const at::TensorOptions on(group->device());
  const auto parts = group->gather(at::full({2, 3}, rank + 1, on.dtype(at::kBFloat16)));
  expect(static_cast<int64_t>(parts.size()) == size, "number of gathered tensors");
  for (int64_t i = 0; i < size; ++i) {
    expect(at::equal(parts[i], at::full({2, 3}, i + 1, on.dtype(at::kBFloat16))), "gathered tensor");
  }
  const auto numbers = at::arange(4, on.dtype(at::kDouble));
  auto sum = numbers + rank;
  group->sum(sum);
  expect(at::equal(sum, numbers * size + size * (size - 1) / 2), "sum");
  for (int64_t root = 0; root < size; ++root) {
    auto sent = at::full({3, 2}, rank == root, on.dtype(at::kBool)).t();  // not contiguous, bool
    group->broadcast(sent, root);
    expect(at::equal(sent, at::ones_like(sent)), "broadcast");
  }
  group->barrier();
  expect(group->local_rank() == rank, "local rank");
  if (size > 1) {
    std::string refusal;
    try {
      Group::join();
    } catch (const c10::ValueError& error) {
      refusal = error.what_without_backtrace();
    }
    expect(refusal.find("this process is in a group already; use that one") != std::string::npos,
           "second group");
  }
  return 0;
}

void print_bits(const at::Tensor& tensor) {
  const auto flat = tensor.detach().cpu().contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i)
    std::printf("%a ", static_cast<double>(flat.const_data_ptr<float>()[i]));
  std::printf("\n");
}

// Prints the losses and the parameters' bits after some steps. All ranks together give the same numbers as
// one process that accumulates.
struct How {
  int64_t steps = 3;
  int64_t parts = 4;     // parts of each step's batch, over all processes
  bool frozen = false;   // freezes one parameter
  int64_t thrower = -1;  // the rank that throws in its third step
  bool checkpoints = false;
};

int train(const std::shared_ptr<Group>& group, const How& training) {
  at::manual_seed(7 + group->rank());  // only rank 0's parameters matter
  Network network(6, training.frozen, training.checkpoints);
  network.to(group->device());
  DataParallel parallel(network, group, {.bucket_bytes = 300, .first_bucket_bytes = 200});
  attentive::AdamW optimizer(network);
  const int64_t size = group->size(), parts_per_process = training.parts / size;
  for (int64_t step = 0; step < training.steps; ++step) {
    at::manual_seed(100 + step);
    const auto batch = at::rand({training.parts, 5, 6}).to(group->device());
    auto total = at::zeros({size}, group->device());
    optimizer.zero_grad();
    for (int64_t part = 0; part < parts_per_process; ++part) {
      const auto loss = loss_of(network, batch[group->rank() * parts_per_process + part]);
      parallel.backward(loss / parts_per_process, part + 1 == parts_per_process);
      total[group->rank()] += loss.detach();
    }
    optimizer.step();
    group->sum(total);
    if (training.steps <= 100) std::printf("loss %a\n", total.sum().item<double>());
    if (step == 0) std::printf("started\n");
    std::fflush(stdout);
    if (step == 2 && training.thrower == group->rank()) throw std::runtime_error("the data are gone");
  }
  for (const auto& parameter : network.parameters()) print_bits(parameter);
  const auto statistics = parallel.statistics();
  if (group->rank() == 0) {
    std::printf("parameters %d buckets %d collectives %d overlap %d\n",
                static_cast<int>(statistics.parameters), static_cast<int>(statistics.buckets),
                static_cast<int>(statistics.collectives), statistics.overlap > 0);
  }
  return 0;
}

// Prints the bits of the parameters and moments after some steps.
int optimize(const std::shared_ptr<Group>& group, const std::string& optimizer_name) {
  at::manual_seed(7 + group->rank());  // only rank 0's parameters matter
  Network network(40);
  network.to(group->device());
  DataParallel parallel(network, group);
  std::unique_ptr<attentive::AdamWBase> optimizer;
  if (optimizer_name == "sharded") optimizer = std::make_unique<attentive::ShardedAdamW>(network, group);
  if (optimizer_name == "plain") optimizer = std::make_unique<attentive::AdamW>(network);
  expect(optimizer != nullptr, "optimizer");
  for (int64_t step = 0; step < 20; ++step) {
    at::manual_seed(100 + step);
    const auto batch = at::rand({group->size(), 5, 40}).to(group->device());
    optimizer->zero_grad();
    parallel.backward(loss_of(network, batch[group->rank()]));
    optimizer->clip(0.1);
    optimizer->step();
  }
  for (const auto& parameter : network.parameters()) print_bits(parameter);
  for (const auto& item : optimizer->state()) print_bits(item.second);
  return 0;
}

// The gradients of a batch in parts are the mean of the parts' gradients.
int mean(const std::shared_ptr<Group>& group) {
  at::manual_seed(3 + group->rank());
  Network network;
  network.to(group->device());
  DataParallel parallel(network, group);
  at::manual_seed(5);
  const auto batch = at::rand({group->size(), 5, 6}).to(group->device());
  std::vector<at::Tensor> means;
  for (int64_t part = 0; part < group->size(); ++part) loss_of(network, batch[part]).backward();
  for (const auto& parameter : network.parameters()) means.push_back(parameter.grad() / group->size());
  network.zero_grad();
  parallel.backward(loss_of(network, batch[group->rank()]));
  double worst = 0;
  for (size_t i = 0; i < means.size(); ++i) {
    worst = std::max(worst, (means[i] - network.parameters()[i].grad()).abs().max().item<double>());
  }
  std::printf("largest difference %g\n", worst);
  expect(worst <= 1e-6, "mean of gradients");
  return 0;
}

// From step `from` on, the loss of rank 1 does not reach one parameter.
int unused(const std::shared_ptr<Group>& group, int64_t from) {
  Network network;
  DataParallel parallel(network, group);
  for (int64_t step = 0; step < 5; ++step) {
    const auto x = at::rand({2, 6});
    network.zero_grad();
    const auto loss =
        step >= from && group->rank() == 1 ? network.first->forward(x).sum() : loss_of(network, x);
    parallel.backward(loss);
  }
  return 0;
}

// Rank 0 has one part of its batch before the last one, rank 1 has none; nothing may be sent for that part.
int first_part_alone(const std::shared_ptr<Group>& group) {
  Network network;
  DataParallel parallel(network, group);
  const auto x = at::rand({2, 6});
  parallel.backward(loss_of(network, x));
  if (group->rank() == 0) parallel.backward(loss_of(network, x), /*last=*/false);
  group->barrier();
  parallel.backward(loss_of(network, x));
  return 0;
}

// Rank 1's model differs.
int differ(const std::shared_ptr<Group>& group, const std::string& what) {
  const bool other = group->rank() == 1;
  Network network(other && what == "shape" ? 7 : 6, other && what == "frozen");
  if (other && what == "dtype") network.to(at::kDouble);
  if (what == "device") network.register_buffer("place", at::rand({2}, other ? at::kMeta : at::kCPU));
  if (what == "elsewhere") network.register_buffer("place", at::rand({2}, at::kMeta));
  if (other && what == "more") network.register_parameter("more", at::rand({2}));
  if (other && what == "name") network.register_buffer("other", at::rand({2}));
  const DataParallel parallel(network, group);
  return 0;
}

// Tensors of this process are on the device that the test requests.
at::Device device_of_test() {
  const char* name = std::getenv("ATTENTIVE_TEST_DEVICE");
  return at::Device(name != nullptr ? name : "cpu");
}

// Returns "at once" or "whole" in a test of how this process ends.
std::string exit_of_test() {
  const char* name = std::getenv("ATTENTIVE_TEST_EXIT");
  return name != nullptr ? name : "";
}

int check_calls(const std::shared_ptr<Group>& group, const std::string& what) {
  if (what == "differ") attentive::test::check_calls_that_differ(group);
  if (what == "differ_context") attentive::test::check_context_calls_that_differ(group);
  if (what == "sums") attentive::test::check_sums(group);
  if (what == "same_gradients") attentive::test::check_same_gradients(group);
  return 0;
}

// Every call after the first that fails throws the same error.
int call_those_who_left(Group& group) {
  std::string first;
  try {
    group.barrier();
  } catch (const attentive::PeerError& error) {
    first = error.what();
  }
  try {
    group.barrier();
  } catch (const attentive::PeerError& error) {
    expect(error.what() == first, "words of the second call");
    throw;
  }
  return 0;
}

int work(const std::string& what, const std::string& detail, const std::string& method) {
  const auto device = device_of_test();
  // Longer than any test, unless it is about a process that waits in vain.
  const bool in_vain = what == "join" || what == "train_for_ever" || what == "other_orders";
  const auto& timeout = what == "other_orders" ? method : detail;
  const int64_t seconds = in_vain && !timeout.empty() ? std::stoll(timeout) : 24 * 3600;
  const auto group = Group::join({.device = device,
                                  .timeout = std::chrono::seconds(seconds),
                                  .exit_at_once = exit_of_test() != "whole"});
  if (what == "calls") return calls(group);
  if (what == "mean") return mean(group);
  if (what == "check_calls") return check_calls(group, detail);
  if (what == "context") {
    attentive::test::context_scenario(group, detail, method);
    return 0;
  }
  if (what == "train") return train(group, {.steps = 50, .parts = std::stoll(detail)});
  if (what == "train_checkpointed")
    return train(group, {.steps = 50, .parts = std::stoll(detail), .checkpoints = true});
  if (what == "train_frozen") return train(group, {.parts = std::stoll(detail), .frozen = true});
  if (what == "train_for_ever") return train(group, {.steps = 1'000'000'000});
  if (what == "throw") return train(group, {.steps = 6, .thrower = std::stoll(detail)});
  if (what == "optimize") return optimize(group, detail);
  if (what == "other_orders") attentive::test::make_passes_in_other_orders(group, detail);
  if (what == "unused") return unused(group, std::stoll(detail));
  if (what == "first_part_alone") return first_part_alone(group);
  if (what == "differ") return differ(group, detail);
  if (what == "leave") return group->rank() == 1 ? 0 : call_those_who_left(*group);
  expect(what == "join" || what == "other_orders", "scenario");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (!exit_of_test().empty()) std::atexit([] { std::puts("handler of exit"); });
  try {
    return work(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
  } catch (const attentive::PeerError& error) {
    attentive::report_failure(error);
    std::printf("peer error, rank %d: %s\n", static_cast<int>(error.rank()), error.what());
    return 1;
  } catch (const std::exception& error) {
    attentive::report_failure(error);
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    std::printf("error: %s\n", torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
    return 1;
  }
}
