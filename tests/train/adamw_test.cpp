#include <cmath>
#include <limits>
#include <memory>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <attentive/train/adamw.h>

#include "support/compare.h"
#include "support/errors.h"
#include "train/agreement.h"

using namespace attentive;
using attentive::test::type_error;
using attentive::test::value_error;

namespace {

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    first = register_module("first", torch::nn::Linear(5, 4));
    second = register_module("second", torch::nn::Linear(4, 3));
  }
  at::Tensor loss(const at::Tensor& x) { return second->forward(first->forward(x).tanh()).square().sum(); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

TwoLayers make() {
  at::manual_seed(1);
  TwoLayers model;
  model.to(at::kDouble);
  return model;
}

at::Tensor input(int64_t step) {
  at::manual_seed(100 + static_cast<uint64_t>(step));
  return at::randn({6, 5}, at::kDouble);
}

}  // namespace

TEST_CASE("AdamW equals torch::optim::AdamW with decay on the matrices alone", "[adamw][cuda]") {
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    auto model = make();
    auto twin = make();
    model.to(device);
    twin.to(device);
    AdamW optimizer(model,
                    {.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3});
    const auto groups = decay_groups(twin);
    CHECK(groups.decayed_names == std::vector<std::string>{"first.weight", "second.weight"});
    CHECK(groups.plain_names == std::vector<std::string>{"first.bias", "second.bias"});
    const auto options = [](double decay) {
      return std::make_unique<torch::optim::AdamWOptions>(
          torch::optim::AdamWOptions(0.05).betas({0.8, 0.95}).eps(1e-6).weight_decay(decay));
    };
    torch::optim::AdamW reference({torch::optim::OptimizerParamGroup(groups.decayed, options(0.3)),
                                   torch::optim::OptimizerParamGroup(groups.plain, options(0.0))});
    for (int64_t step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      model.loss(input(step).to(device)).backward();
      optimizer.step();
      reference.zero_grad();
      twin.loss(input(step).to(device)).backward();
      reference.step();
    }
    CHECK(optimizer.steps() == 8);
    for (const auto& item : model.named_parameters()) {
      CHECK_WITHIN(item.value(), twin.named_parameters()[item.key()], {1e-12, 1e-12});
    }
  }
}

TEST_CASE("AdamW clips the joint norm of the gradients", "[adamw]") {
  auto model = make();
  auto twin = make();
  AdamW optimizer(model, {.learning_rate = 0.1});
  AdamW by_hand(twin, {.learning_rate = 0.1});
  model.loss(input(0)).backward();
  twin.loss(input(0)).backward();
  double squares = 0;
  for (const auto& parameter : twin.parameters()) squares += parameter.grad().square().sum().item<double>();
  const double norm = std::sqrt(squares);
  const double limit = norm / 7;
  CHECK(std::abs(optimizer.clip(limit).item<double>() - norm) < 1e-5 * norm);
  for (auto& parameter : twin.parameters()) parameter.mutable_grad().div_(7);
  optimizer.step();
  by_hand.step();
  for (const auto& item : model.named_parameters()) {
    CHECK_WITHIN(item.value(), twin.named_parameters()[item.key()], {1e-6, 1e-7});
  }
  // A norm below the limit changes nothing, and the scale of one step does not affect the next one.
  auto third = make();
  AdamW loose(third, {.learning_rate = 0.1});
  third.loss(input(0)).backward();
  loose.clip(norm * 2);
  loose.step();
  auto fourth = make();
  AdamW none(fourth, {.learning_rate = 0.1});
  fourth.loss(input(0)).backward();
  none.step();
  CHECK(bit_equal(third.first->weight, fourth.first->weight));
  CHECK(value_error([&] { return none.clip(-1); }) == "AdamW: expected max_norm >= 0, got -1");
}

TEST_CASE("the norm of gradients of any dtype is float32, and clips them", "[adamw][cuda]") {
  struct Numbers : torch::nn::Module {
    Numbers(const at::Tensor& gradient, at::ScalarType type) {
      numbers = register_parameter("numbers", at::zeros(gradient.sizes(), gradient.options().dtype(type)));
      numbers.mutable_grad() = gradient.to(type, /*non_blocking=*/false, /*copy=*/true);
      other = register_parameter("other", at::zeros({3}, gradient.options().dtype(at::kDouble)));
    }
    at::Tensor numbers, other;
  };
  at::manual_seed(4);
  for (const auto& device : test::devices()) {
    for (const auto& given : {at::full({8, 8}, 60000.0).to(device), at::randn({40, 50}).to(device)}) {
      for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
        for (const double of_other : {0.0, 7.0}) {  // 0: it gets no gradient
          INFO(device << ", " << c10::toString(type) << ", gradient of another parameter " << of_other);
          Numbers model(given, type), twin(given.to(type), at::kFloat);
          if (of_other != 0) model.other.mutable_grad() = at::full({3}, of_other, model.other.options());
          const AdamWOptions options{.learning_rate = 0.5, .eps = 0.5};
          AdamW optimizer(model, options), by_hand(twin, options);
          const double norm = std::sqrt(twin.numbers.grad().to(at::kDouble).square().sum().item<double>() +
                                        3 * of_other * of_other);
          const auto sharded = ShardedAdamW(model, std::make_shared<OneProcess>(), options).clip(1.0);
          for (const auto& got : {sharded, optimizer.clip(1.0)}) {
            CHECK(got.scalar_type() == at::kFloat);
            CHECK(std::abs(got.item<double>() - norm) < 1e-6 * norm);
          }
          twin.numbers.mutable_grad().div_(norm);
          optimizer.step();
          by_hand.step();
          const auto moved = twin.numbers.abs().max().item<double>();
          CHECK(moved > 0.01);
          CHECK_WITHIN(model.numbers.to(at::kFloat), twin.numbers,
                       {0, 2 * test::unit_of(type) * moved + 1e-7});
        }
      }
    }
  }
}

TEST_CASE("the norm of gradients whose squares exceed float32 is finite, and clips them", "[adamw]") {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    torch::nn::Linear model(torch::nn::LinearOptions(20, 30).bias(false));
    model->to(type);
    const auto before = model->weight.detach().clone();
    model->weight.mutable_grad() = at::full({30, 20}, 1e19, type);
    AdamW optimizer(*model, {.learning_rate = 0.5});
    const double norm = model->weight.grad().to(at::kDouble).norm().item<double>();
    CHECK(std::abs(optimizer.clip(1.0).item<double>() - norm) < 1e-6 * norm);
    optimizer.step();
    CHECK((model->weight - before).abs().min().item<double>() > 0.4);
    model->weight.mutable_grad().fill_(std::numeric_limits<double>::infinity());
    CHECK(std::isinf(optimizer.clip(1.0).item<double>()));
  }
}

TEST_CASE("AdamW divides the gradients of a scaled loss while it clips them", "[adamw][loss_scaler]") {
  // Gradients of 2^12 times the loss, of which the limits clip none, some or all.
  constexpr double kScale = 4096;
  for (const double limit : {0.0, 1e-3, 1e3}) {
    INFO("limit " << limit);
    auto model = make();
    auto twin = make();
    AdamW scaled(model, {.learning_rate = 0.1});
    AdamW plain(twin, {.learning_rate = 0.1});
    for (int64_t step = 0; step < 3; ++step) {
      (model.loss(input(step)) * kScale).backward();
      twin.loss(input(step)).backward();
      CHECK(scaled.clip(limit, kScale).item<double>() == plain.clip(limit).item<double>());
      scaled.step();
      plain.step();
      for (const auto& item : model.named_parameters()) {
        const auto& other = twin.named_parameters()[item.key()];
        CHECK(bit_equal(item.value(), other));
        CHECK(bit_equal(item.value().grad(), other.grad()));
      }
      scaled.zero_grad();
      plain.zero_grad();
    }
  }
}

TEST_CASE("AdamW forgets the scale of a skipped step, and refuses scales by name", "[adamw][loss_scaler]") {
  auto model = make();
  auto twin = make();
  AdamW skips(model, {.learning_rate = 0.1});
  AdamW plain(twin, {.learning_rate = 0.1});
  model.loss(input(0)).backward();
  skips.clip(0, 1024);
  skips.zero_grad();
  model.loss(input(0)).backward();
  skips.step();
  twin.loss(input(0)).backward();
  plain.step();
  CHECK(bit_equal(model.first->weight, twin.first->weight));
  for (const auto& [scale, printed] :
       {std::pair{0.0, "0"}, {-1.0, "-1"}, {1e39, "1e+39"}, {double(NAN), "nan"}}) {
    CHECK(value_error([&, bad = scale] { return skips.clip(1, bad); }) ==
          std::string("AdamW: expected loss_scale to be a positive number of float32, got ") + printed);
  }
}

TEST_CASE("AdamW leaves a parameter without a gradient alone and lists tied ones once", "[adamw]") {
  auto model = make();
  model.second->weight = model.first->weight;  // not registered again: the registered tensor stays
  struct Tied : torch::nn::Module {
    Tied() {
      a = register_parameter("a", at::randn({2, 2}));
      b = register_parameter("b", a);
      frozen = register_parameter("frozen", at::randn({2, 2}), /*requires_grad=*/false);
      unused = register_parameter("unused", at::randn({2, 2}));
    }
    at::Tensor a, b, frozen, unused;
  } tied;
  CHECK(decay_groups(tied).decayed_names == std::vector<std::string>{"a", "unused"});
  AdamW optimizer(tied);
  const auto before = tied.unused.clone();
  (tied.a * tied.b).sum().backward();
  optimizer.step();
  CHECK(bit_equal(tied.unused, before));
  struct Empty : torch::nn::Module {
  } empty;
  CHECK(value_error([&] { return AdamW(empty); }) ==
        "AdamW: expected a module with trainable parameters, got none");
  CHECK(value_error([&] { return AdamW(tied, {.beta1 = 1.0}); }) ==
        "AdamW: expected beta1 and beta2 in [0, 1), got 1 and 0.99");
}

TEST_CASE("AdamW takes gradients with a pending change of sign", "[adamw][negative_bit]") {
  const auto step = [](bool pending) {
    auto model = make();
    AdamW optimizer(model, {.learning_rate = 0.05});
    model.loss(input(0)).backward();
    for (auto& parameter : model.parameters()) {
      auto& gradient = parameter.mutable_grad();
      if (pending) gradient = at::_neg_view(-gradient);
    }
    optimizer.clip(0.5);
    optimizer.step();
    return model.first->weight.detach().clone();
  };
  CHECK(bit_equal(step(true), step(false)));
}

TEST_CASE("AdamW goes on bit for bit from its state", "[adamw]") {
  auto model = make();
  AdamW optimizer(model);
  const auto train = [](TwoLayers& m, AdamW& o, int64_t step) {
    o.zero_grad();
    m.loss(input(step)).backward();
    o.step();
  };
  for (int64_t step = 0; step < 3; ++step) train(model, optimizer, step);
  StateDict saved;
  for (const auto& [name, tensor] : optimizer.state()) saved[name] = tensor.clone();
  CHECK(saved.size() == 9);
  auto other = make();
  load_state_dict(other, state_dict(model));
  AdamW resumed(other);
  resumed.load_state(saved);
  for (int64_t step = 3; step < 6; ++step) {
    train(model, optimizer, step);
    train(other, resumed, step);
  }
  CHECK(bit_equal(model.first->weight, other.first->weight));
  CHECK(bit_equal(model.second->bias, other.second->bias));

  auto missing = saved;
  missing.erase("exp_avg.first.bias");
  CHECK(value_error([&] {
          resumed.load_state(missing);
          return 0;
        }) == "AdamW: expected the state \"exp_avg.first.bias\", got none");
  auto misshapen = saved;
  misshapen["exp_avg.first.bias"] = at::randn({9}, at::kDouble);
  CHECK(value_error([&] {
          resumed.load_state(misshapen);
          return 0;
        }) == "AdamW: \"exp_avg.first.bias\": expected shape (4,), got (9,)");
  auto extra = saved;
  extra["other"] = at::randn({1});
  CHECK(value_error([&] {
          resumed.load_state(extra);
          return 0;
        }) == "AdamW: expected no state \"other\"");
}

TEST_CASE("AdamW refuses a gradient that it cannot use, before anything moves", "[adamw]") {
  struct Words : torch::nn::Module {
    Words() {
      words = register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
      out = register_module("out", torch::nn::Linear(3, 2));
    }
    torch::nn::Embedding words{nullptr};
    torch::nn::Linear out{nullptr};
  } model;
  AdamW optimizer(model);
  const auto before = model.out->weight.detach().clone();
  const auto refused = [&] {
    const auto stepped = value_error([&] { return optimizer.step(), 0; });
    CHECK(value_error([&] { return optimizer.clip(1.0); }) == stepped);
    CHECK(bit_equal(model.out->weight.detach(), before));
    CHECK(optimizer.steps() == 0);
    return stepped;
  };
  model.out->forward(model.words->forward(at::arange(2))).sum().backward();
  CHECK(refused() == "AdamW: expected a dense gradient of \"words.weight\", got a sparse one");
  model.words->weight.mutable_grad() = at::zeros({5, 3}, at::kDouble);
  CHECK(refused() ==
        "AdamW: expected a gradient of \"words.weight\" like the parameter, Float tensor of shape (5, 3), "
        "got Double "
        "tensor of shape (5, 3)");
  model.words->weight.mutable_grad() = at::zeros({3});
  CHECK(refused().ends_with("got Float tensor of shape (3,)"));
  model.words->weight.mutable_grad().reset();
  model.words->to(at::kDouble);
  CHECK(refused() ==
        "AdamW: expected \"words.weight\" as Float on cpu as when it was built, got Double on cpu; build it "
        "after "
        "to(device, dtype)");
}

TEST_CASE("AdamW made or clipped under InferenceMode trains outside it", "[adamw]") {
  auto plain = make(), served = make();
  AdamW reference(plain);
  auto optimizer = [&] {
    const c10::InferenceMode inference;
    return AdamW(served);
  }();
  for (const auto& item : optimizer.state()) CHECK_FALSE(item.second.is_inference());
  for (int64_t step = 0; step < 3; ++step) {
    for (auto* model : {&plain, &served}) model->loss(input(step)).backward();
    reference.clip(0.1);
    {
      const c10::InferenceMode inference;
      optimizer.clip(0.1);
    }
    reference.step();
    optimizer.step();
  }
  {
    const c10::InferenceMode inference;
    optimizer.step();
  }
  reference.step();
  CHECK(bit_equal(plain.first->weight, served.first->weight));
  CHECK(bit_equal(plain.second->bias, served.second->bias));
}

TEST_CASE("AdamW refuses a state that it cannot copy, and then changes nothing", "[adamw]") {
  auto model = make();
  AdamW optimizer(model);
  model.loss(input(0)).backward();
  optimizer.step();
  StateDict before;
  for (const auto& [name, tensor] : optimizer.state()) before[name] = tensor.clone();
  const auto refused = [&](const std::string& name, const at::Tensor& tensor) {
    auto state = before;
    for (auto& item : state) item.second = at::zeros_like(item.second);
    state[name] = tensor;
    const auto message = value_error([&] { return optimizer.load_state(state), 0; });
    for (const auto& [key, kept] : optimizer.state()) CHECK(bit_equal(kept, before.at(key)));
    return message;
  };
  const auto last = before.at("exp_avg_sq.second.weight");
  CHECK(refused("exp_avg_sq.second.weight", last.to(at::kMeta)) ==
        "AdamW: \"exp_avg_sq.second.weight\": expected a tensor with data, got one on the meta device");
  CHECK(refused("exp_avg_sq.second.weight", last.to_sparse()) ==
        "AdamW: \"exp_avg_sq.second.weight\": expected a dense tensor, got a sparse one");
  CHECK(refused("exp_avg_sq.second.weight", {}) ==
        "AdamW: expected \"exp_avg_sq.second.weight\" to be a tensor, got an undefined one");
  CHECK(refused("step", at::full({}, -1.0, at::kFloat)) == "AdamW: expected step >= 0, got -1");
  CHECK(refused("step", at::full({}, NAN, at::kFloat)).starts_with("AdamW: expected step >= 0, got "));
}

TEST_CASE("AdamW takes gradients in another order of memory, and refuses a parameter that is a part",
          "[adamw]") {
  const auto step = [](bool turned) {
    auto model = make();
    AdamW optimizer(model, {.learning_rate = 0.05});
    model.loss(input(0)).backward();
    auto& gradient = model.first->weight.mutable_grad();
    if (turned) gradient = gradient.t().clone(at::MemoryFormat::Contiguous).t();
    optimizer.clip(0.5);
    optimizer.step();
    return model.first->weight.detach().clone();
  };
  CHECK(bit_equal(step(true), step(false)));

  struct Part : torch::nn::Module {
    Part() { weight = register_parameter("weight", at::zeros({4, 6}).slice(1, 0, 3)); }
    at::Tensor weight;
  } part;
  CHECK(type_error([&] { AdamW{part}; }) ==
        "AdamW: expected dense parameters, got \"weight\", a Float tensor of shape (4, 3) with strides (6, "
        "1), a "
        "part of a larger tensor");
  part.weight.set_data(at::zeros({4, 3}));
  AdamW optimizer(part);
  part.weight.set_data(at::zeros({5, 3}));
  CHECK(value_error([&] { optimizer.step(); }) ==
        "AdamW: expected \"weight\" of shape (4, 3) and strides (3, 1) as when it was built, got (5, 3) and "
        "(3, "
        "1)");
}
