// Sharded moments give the same bits as AdamW for any number of processes, which are simulated by threads.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/linear.h>

#include <attentive/train/adamw.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/memory_meter.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::equal_tensors;
using attentive::test::error_of;
using attentive::test::MemoryMeter;
using attentive::test::run_threads;
using attentive::test::type_error;
using attentive::test::value_error;

namespace {

constexpr AdamWOptions kOptions{.learning_rate = 0.03, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.2};

// A model whose sizes match no boundary of shares, with a parameter that is not contiguous, one without
// elements, one with a second name, a frozen one and one that gets no gradient.
struct Model : torch::nn::Module {
  explicit Model(at::ScalarType dtype) {
    at::manual_seed(5);
    const auto numbers = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(dtype); };
    first = register_parameter("first", numbers({37, 53}));
    again = register_parameter("again", first);
    bias = register_parameter("bias", numbers({131}));
    turned = register_parameter("turned", numbers({29, 47}).t());
    none = register_parameter("none", numbers({0, 3}));
    frozen = register_parameter("frozen", numbers({40, 5}), /*requires_grad=*/false);
    unused = register_parameter("unused", numbers({17, 11}));
    scale = register_parameter("scale", numbers({7}));
  }
  at::Tensor first, again, bias, turned, none, frozen, unused, scale;
};

// Float32 and bfloat16 parameters in one model.
struct Mixed : Model {
  Mixed() : Model(at::kFloat) {
    for (auto* parameter : {&bias, &turned}) parameter->set_data(parameter->detach().to(at::kBFloat16));
  }
};

// Sets the gradients of one step, equal in every process, on all parameters except `unused`.
void set_gradients(Model& model, int64_t step) {
  const at::NoGradGuard no_grad;
  double phase = static_cast<double>(step);
  for (auto* parameter : {&model.first, &model.bias, &model.turned, &model.none, &model.scale}) {
    const auto angles = at::arange(parameter->numel(), at::kDouble).mul(0.7).add(phase += 0.1);
    parameter->mutable_grad() = at::zeros_like(*parameter).copy_(angles.sin().view(parameter->sizes()));
  }
}

struct Result {
  std::vector<float> norms = {};
  StateDict parameters = {}, state = {};
};

bool operator==(const Result& a, const Result& b) {
  return a.norms == b.norms && equal_tensors(a.parameters, b.parameters) && equal_tensors(a.state, b.state);
}

// Runs the steps `from` to `to`, with clipping if there is a limit.
Result train(AdamWBase& optimizer, Model& model, int64_t from, int64_t to, double limit = -1) {
  Result result;
  for (int64_t step = from; step < to; ++step) {
    set_gradients(model, step);
    if (limit >= 0) result.norms.push_back(optimizer.clip(limit).item<float>());
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& item : model.named_parameters()) {
    result.parameters[item.key()] = item.value().detach().clone();
  }
  for (const auto& [name, tensor] : optimizer.state()) result.state[name] = tensor.clone();
  return result;
}

using Make = std::unique_ptr<Model> (*)();
template <at::ScalarType dtype>
std::unique_ptr<Model> of_dtype() {
  return std::make_unique<Model>(dtype);
}
std::unique_ptr<Model> mixed() {
  return std::make_unique<Mixed>();
}
// One model for each process; made in this thread, because initial weights come from a global generator.
std::vector<std::unique_ptr<Model>> models_of(int64_t size, Make make) {
  std::vector<std::unique_ptr<Model>> models;
  for (int64_t rank = 0; rank < size; ++rank) models.push_back(make());
  return models;
}

std::vector<std::string> none_failed(int64_t size) {
  return std::vector<std::string>(static_cast<size_t>(size), "no error");
}

// The results, by rank, of the steps `from` to `to`, continued from an earlier optimizer if there is one.
std::vector<Result> train_together(int64_t size, Make make, int64_t from, int64_t to, double limit = -1,
                                   const Result* earlier = nullptr) {
  const auto models = models_of(size, make);
  std::vector<Result> results(static_cast<size_t>(size));
  const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    auto& model = *models[rank];
    if (earlier) load_state_dict(model, earlier->parameters);
    ShardedAdamW optimizer(model, group, kOptions);
    if (earlier) optimizer.load_state(earlier->state);
    results[rank] = train(optimizer, model, from, to, limit);
  });
  CHECK(errors == none_failed(size));
  return results;
}

// A group that records what is sent in it.
class Watched : public TrainingGroup {
 public:
  explicit Watched(std::shared_ptr<TrainingGroup> group) : group_(std::move(group)) {}
  int64_t rank() const override { return group_->rank(); }
  int64_t size() const override { return group_->size(); }
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override {
    sent.emplace_back(tensor.scalar_type(), tensor.numel());
    return group_->gather(tensor);
  }
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) override {
    return group_->average_gradients(model);
  }
  std::vector<std::pair<at::ScalarType, int64_t>> sent;

 private:
  std::shared_ptr<TrainingGroup> group_;
};

}  // namespace

TEST_CASE("ShardedAdamW equals AdamW in every bit, in any number of processes", "[sharded_adamw]") {
  for (const Make make : {Make(of_dtype<at::kFloat>), Make(of_dtype<at::kDouble>),
                          Make(of_dtype<at::kBFloat16>), Make(mixed)}) {
    for (const double limit : {-1.0, 0.0, 0.5}) {
      const auto model = make();
      AdamW plain(*model, kOptions);
      const auto before = model->unused.detach().clone();
      const auto expected = train(plain, *model, 0, 20, limit);
      CHECK(expected.state.size() == 1 + 2 * 6);
      CHECK(plain.steps() == 20);
      CHECK(bit_equal(model->unused, before));
      for (const int64_t size : {1, 2, 3, 4}) {
        INFO(model->first.scalar_type() << ", limit " << limit << ", " << size << " processes");
        for (const auto& result : train_together(size, make, 0, 20, limit)) CHECK(result == expected);
      }
    }
  }
}

TEST_CASE("The state of ShardedAdamW goes on in any number of processes, and in AdamW", "[sharded_adamw]") {
  const Make make = of_dtype<at::kFloat>;
  const auto model = make();
  AdamW plain(*model, kOptions);
  const auto middle = train(plain, *model, 0, 5);
  const auto expected = train(plain, *model, 5, 12);
  for (const int64_t before : {1, 2, 3, 4}) {
    const auto stopped = train_together(before, make, 0, 5).back();
    CHECK(stopped == middle);
    for (const int64_t after : {1, 2, 3, 4}) {
      INFO(before << " processes, then " << after);
      for (const auto& result : train_together(after, make, 5, 12, -1, &stopped)) CHECK(result == expected);
    }
    const auto other = make();
    load_state_dict(*other, stopped.parameters);
    AdamW resumed(*other, kOptions);
    resumed.load_state(stopped.state);
    CHECK(train(resumed, *other, 5, 12) == expected);
  }
}

TEST_CASE("The state of ShardedAdamW is a copy in a group, and loads in another order of memory",
          "[sharded_adamw]") {
  const auto models = models_of(2, of_dtype<at::kFloat>);
  std::vector<int> wrong(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    ShardedAdamW optimizer(*models[rank], group, kOptions);
    const auto early = train(optimizer, *models[rank], 0, 2).state;
    const auto kept = optimizer.state();
    const auto late = train(optimizer, *models[rank], 2, 3).state;
    wrong[rank] += !equal_tensors(kept, early);
    StateDict turned;
    for (const auto& [name, tensor] : late) {
      turned[name] = tensor.dim() == 2 ? tensor.t().clone(at::MemoryFormat::Contiguous).t() : tensor;
    }
    optimizer.load_state(kept);
    wrong[rank] += !equal_tensors(optimizer.state(), early);
    optimizer.load_state(turned);
    wrong[rank] += !equal_tensors(optimizer.state(), late);
  });
  CHECK(errors == none_failed(2));
  CHECK(wrong == std::vector<int>{0, 0});
}

TEST_CASE("A process of ShardedAdamW keeps its share of the moments", "[sharded_adamw]") {
  // 9,041 elements in all.
  struct Small : torch::nn::Module {
    Small() {
      register_parameter("words", at::zeros({131, 61}));
      register_parameter("matrix", at::zeros({19, 50}));
      register_parameter("bias", at::zeros({100}));
    }
  };
  const Small model;
  const auto peak = [](const auto& make) {
    const MemoryMeter meter;
    make();
    return meter.peak();
  };
  const auto plain = peak([&] { const AdamW optimizer(model); });
  CHECK(plain >= 2 * 9041 * 4);
  for (const int64_t size : {1, 2, 3, 4}) {
    std::vector<int64_t> peaks(static_cast<size_t>(size));
    const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
      peaks[static_cast<size_t>(group->rank())] = peak([&] { const ShardedAdamW optimizer(model, group); });
    });
    CHECK(errors == none_failed(size));
    for (const auto bytes : peaks) {
      INFO(bytes << " of " << plain << " bytes in one of " << size << " processes");
      CHECK(static_cast<double>(bytes * size) <= 1.1 * static_cast<double>(plain));
    }
  }
}

TEST_CASE("A process that does not want the state takes part and gets none", "[sharded_adamw]") {
  const auto models = models_of(3, of_dtype<at::kFloat>);
  std::vector<StateDict> states(3);
  const auto errors = run_threads(3, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    ShardedAdamW optimizer(*models[rank], group, kOptions);
    train(optimizer, *models[rank], 0, 2);
    states[rank] = optimizer.state(/*wanted=*/rank == 1);
  });
  CHECK(errors == none_failed(3));
  const auto model = of_dtype<at::kFloat>();
  AdamW plain(*model, kOptions);
  CHECK(equal_tensors(states[1], train(plain, *model, 0, 2).state));
  CHECK(states[0].empty());
  CHECK(states[2].empty());
  CHECK(plain.state(false).empty());
}

TEST_CASE("A step of ShardedAdamW sends the longest share once for each dtype", "[sharded_adamw]") {
  const auto sent_by = [](int64_t size, const std::vector<std::unique_ptr<Model>>& models) {
    std::vector<std::vector<std::pair<at::ScalarType, int64_t>>> sent(static_cast<size_t>(size));
    const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto rank = static_cast<size_t>(group->rank());
      const auto watched = std::make_shared<Watched>(group);
      ShardedAdamW optimizer(*models[rank], watched, kOptions);
      watched->sent.clear();
      optimizer.clip(1.0);
      optimizer.step();
      sent[rank] = watched->sent;
      watched->sent.clear();
      optimizer.check_state(StateDict(optimizer.state()));
      if (watched->sent.size() != 2 * sent[rank].size()) throw std::runtime_error("not two moments");
    });
    CHECK(errors == none_failed(size));
    for (const auto& other : sent) CHECK(other == sent[0]);
    return sent[0];
  };
  using Sent = std::vector<std::pair<at::ScalarType, int64_t>>;
  // 3,649 elements: first 1,961, turned 1,363, unused 187, bias 131, scale 7. Half of them, 1,824, is between
  // the allowed cuts 1,792 and 1,856, of which the smaller one is used.
  CHECK(sent_by(2, models_of(2, of_dtype<at::kDouble>)) == Sent{{at::kDouble, 3649 - 1792}});
  // float32: first 1,961, unused 187, scale 7, cut at 1,088; bfloat16: turned 1,363, bias 131, cut at 768.
  CHECK(sent_by(2, models_of(2, mixed)) == Sent{{at::kFloat, 1088}, {at::kBFloat16, 768}});
  CHECK(sent_by(1, models_of(1, mixed)).empty());
}

TEST_CASE("ShardedAdamW sends at most 4 MiB at a time", "[sharded_adamw]") {
  struct Large : torch::nn::Module {
    Large() {
      weight = register_parameter("weight", at::arange(1000 * 2201, at::kFloat).sin().view({1000, 2201}));
    }
    at::Tensor weight;
  };
  Large plain_model;
  AdamW plain(plain_model, kOptions);
  plain_model.weight.mutable_grad() = plain_model.weight.detach().cos();
  plain.step();
  std::vector<std::unique_ptr<Large>> models;
  for (int64_t rank = 0; rank < 2; ++rank) models.push_back(std::make_unique<Large>());
  std::vector<int> equal(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    auto& weight = models[rank]->weight;
    const auto watched = std::make_shared<Watched>(group);
    ShardedAdamW optimizer(*models[rank], watched, kOptions);
    watched->sent.clear();
    weight.mutable_grad() = weight.detach().cos();
    optimizer.step();
    for (const auto& [dtype, elements] : watched->sent) {
      if (elements > 1 << 20) throw std::runtime_error("more than 4 MiB");
    }
    if (watched->sent.size() != 2) throw std::runtime_error("not two messages");
    equal[rank] = bit_equal(weight, plain_model.weight) && equal_tensors(optimizer.state(), plain.state());
  });
  CHECK(errors == none_failed(2));
  CHECK(equal == std::vector<int>{1, 1});
}

TEST_CASE("ShardedAdamW leaves a process without a share as it is", "[sharded_adamw]") {
  // 70 elements: the cuts of 4 processes are at 0, 64 and at the end.
  std::vector<std::unique_ptr<torch::nn::LinearImpl>> models;
  at::manual_seed(1);
  torch::nn::LinearImpl first(7, 10);
  for (int64_t rank = 0; rank < 4; ++rank) {
    models.push_back(std::make_unique<torch::nn::LinearImpl>(torch::nn::LinearOptions(7, 10).bias(false)));
    const at::NoGradGuard no_grad;
    models.back()->weight.copy_(first.weight);
    models.back()->weight.mutable_grad() = first.weight.detach().cos();
  }
  torch::nn::LinearImpl alone(torch::nn::LinearOptions(7, 10).bias(false));
  {
    const at::NoGradGuard no_grad;
    alone.weight.copy_(first.weight);
  }
  alone.weight.mutable_grad() = first.weight.detach().cos();
  AdamW(alone, kOptions).step();
  const auto errors = run_threads(4, [&](const std::shared_ptr<TrainingGroup>& group) {
    ShardedAdamW(*models[static_cast<size_t>(group->rank())], group, kOptions).step();
  });
  CHECK(errors == none_failed(4));
  for (const auto& model : models) CHECK(bit_equal(model->weight, alone.weight));
}

TEST_CASE("ShardedAdamW made, used and saved under InferenceMode trains outside it", "[sharded_adamw]") {
  const auto plain_model = of_dtype<at::kFloat>();
  AdamW plain(*plain_model, kOptions);
  const auto expected = train(plain, *plain_model, 0, 3, 0.1);
  const auto models = models_of(2, of_dtype<at::kFloat>);
  std::vector<int> equal(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    auto& model = *models[rank];
    auto optimizer = [&] {
      const c10::InferenceMode inference;
      return ShardedAdamW(model, group, kOptions);
    }();
    train(optimizer, model, 0, 1, 0.1);
    set_gradients(model, 1);
    StateDict state;
    {
      const c10::InferenceMode inference;
      optimizer.clip(0.1);
      optimizer.step();
      state = optimizer.state();
    }
    optimizer.zero_grad();
    for (const auto& item : state) {
      if (item.second.is_inference()) throw std::runtime_error("an inference tensor in the state");
    }
    const auto result = train(optimizer, model, 2, 3, 0.1);
    equal[rank] =
        equal_tensors(result.parameters, expected.parameters) && equal_tensors(result.state, expected.state);
  });
  CHECK(errors == none_failed(2));
  CHECK(equal == std::vector<int>{1, 1});
}

TEST_CASE("A backward through parameters that ShardedAdamW has updated since is refused", "[sharded_adamw]") {
  std::vector<torch::nn::Linear> models{torch::nn::Linear(40, 8), torch::nn::Linear(40, 8)};
  const auto x = at::randn({2, 40});
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    auto& model = models[static_cast<size_t>(group->rank())];
    ShardedAdamW optimizer(*model, group, kOptions);
    const auto y = model->weight.square().sum();
    model->weight.mutable_grad() = at::zeros_like(model->weight);
    optimizer.step();
    y.backward();
  });
  for (const auto& error : errors) {
    CHECK(error.find("modified by an inplace operation") != std::string::npos);
  }
}

TEST_CASE("ShardedAdamW refuses what AdamW refuses, by its own name", "[sharded_adamw]") {
  const auto models = models_of(2, of_dtype<at::kFloat>);
  std::vector<std::string> told(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    auto& model = *models[rank];
    auto& messages = told[rank];
    const auto note = [&](const std::string& message) { messages += message + "\n"; };
    ShardedAdamW optimizer(model, group, kOptions);
    const auto before = train(optimizer, model, 0, 1).state;
    note(value_error([&] { optimizer.clip(-1); }));
    model.turned.mutable_grad() = at::zeros({47, 29}, at::kDouble);
    note(value_error([&] { optimizer.step(); }));
    note(value_error([&] { optimizer.clip(1); }));
    optimizer.zero_grad();
    optimizer.options.beta1 = 1;
    note(value_error([&] { optimizer.step(); }));
    optimizer.options = kOptions;
    const auto refused = [&](const std::string& name, const at::Tensor& tensor) {
      auto state = before;
      for (auto& item : state) item.second = at::zeros_like(item.second);
      state[name] = tensor;
      note(value_error([&] { optimizer.load_state(state); }));
      note(value_error([&] { optimizer.check_state(state); }));
    };
    refused("exp_avg_sq.first", at::zeros({53, 37}));
    refused("exp_avg.bias", at::zeros({131}, at::kDouble));
    refused("more", at::zeros({1}));
    refused("step", at::zeros({}) - 1);
    auto missing = before;
    missing.erase("exp_avg.unused");
    note(value_error([&] { optimizer.load_state(missing); }));
    if (!equal_tensors(optimizer.state(), before)) note("changed");
    model.scale.set_data(model.scale.detach().to(at::kDouble));
    note(value_error([&] { optimizer.step(); }));
  });
  CHECK(errors == none_failed(2));
  const std::string shape = "ShardedAdamW: \"exp_avg_sq.first\": expected shape (37, 53), got (53, 37)\n";
  const std::string dtype = "ShardedAdamW: expected \"exp_avg.bias\" of dtype Float, got Double\n";
  const std::string more = "ShardedAdamW: expected no state \"more\"\n";
  const std::string step = "ShardedAdamW: expected step >= 0, got -1\n";
  const std::string gradient =
      "ShardedAdamW: expected a gradient of \"turned\" like the parameter, Float tensor of shape (47, 29), "
      "got "
      "Double tensor of shape (47, 29)\n";
  for (const auto& messages : told) {
    CHECK(messages ==
          "ShardedAdamW: expected max_norm >= 0, got -1\n" + gradient + gradient +
              "ShardedAdamW: expected beta1 and beta2 in [0, 1), got 1 and 0.95\n" + shape + shape + dtype +
              dtype + more + more + step + step +
              "ShardedAdamW: expected the state \"exp_avg.unused\", got none\n"
              "ShardedAdamW: expected \"scale\" as Float on cpu as when it was built, got Double on "
              "cpu; build it after to(device, dtype)\n");
  }
  struct Empty : torch::nn::Module {
  } empty;
  CHECK(value_error([&] { ShardedAdamW(empty, nullptr); }) ==
        "ShardedAdamW: expected a module with trainable parameters, got none");
  CHECK(value_error([&] { ShardedAdamW(*models[0], nullptr); }) ==
        "ShardedAdamW: expected a group, got none");
  struct Part : torch::nn::Module {
    Part() { register_parameter("part", at::zeros({4, 6}).slice(1, 0, 3)); }
  } part;
  CHECK(type_error([&] { ShardedAdamW(part, nullptr); }) ==
        "ShardedAdamW: expected dense parameters, got \"part\", a Float tensor of shape (4, 3) with strides "
        "(6, "
        "1), a part of a larger tensor");
}

TEST_CASE("ShardedAdamW refuses models and options that differ, on every rank", "[sharded_adamw]") {
  const auto differ = [](const std::function<void(torch::nn::Linear&, AdamWOptions&)>& change) {
    std::vector<torch::nn::Linear> models{torch::nn::Linear(4, 8), torch::nn::Linear(4, 8)};
    auto options = std::vector<AdamWOptions>(2);
    change(models[1], options[1]);
    const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto rank = static_cast<size_t>(group->rank());
      ShardedAdamW(*models[rank], group, options[rank]);
    });
    CHECK(errors[0] == errors[1]);
    return errors[0];
  };
  const std::string parameters =
      "ShardedAdamW: expected the same parameters in every process, but those of rank 1 differ from those of "
      "rank 0";
  CHECK(differ([](auto&, auto&) {}) == "no error");
  CHECK(differ([](auto& model, auto&) { model->bias.set_requires_grad(false); }) == parameters);
  CHECK(differ([](auto& model, auto&) { model->to(at::kDouble); }) == parameters);
  CHECK(differ([](auto& model, auto&) { model = torch::nn::Linear(5, 8); }) == parameters);
  CHECK(differ([](auto& model, auto&) { model->weight.set_data(at::zeros({4, 8}).t()); }) == parameters);
  const std::string options =
      "ShardedAdamW: expected the same options in every process, but those of rank 1 differ from those of "
      "rank "
      "0";
  CHECK(differ([](auto&, auto& other) { other.learning_rate = 0.1; }) == options);
  CHECK(differ([](auto&, auto& other) { other.beta1 = 0.1; }) == options);
  CHECK(differ([](auto&, auto& other) { other.beta2 = 0.1; }) == options);
  CHECK(differ([](auto&, auto& other) { other.eps = 0.1; }) == options);
  CHECK(differ([](auto&, auto& other) { other.weight_decay = 0.2; }) == options);
}

TEST_CASE("A process that is missing from a step of ShardedAdamW ends the others", "[sharded_adamw]") {
  const auto models = models_of(3, of_dtype<at::kFloat>);
  const auto errors = run_threads(3, [&](const std::shared_ptr<TrainingGroup>& group) {
    auto& model = *models[static_cast<size_t>(group->rank())];
    ShardedAdamW optimizer(model, group, kOptions);
    if (group->rank() == 1) return;
    optimizer.step();
  });
  CHECK(errors == std::vector<std::string>{"rank 1 is missing", "no error", "rank 1 is missing"});
}
