#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/files/state_dict.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/lora.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>
#include <attentive/modules/module.h>
#include <attentive/modules/multi_head_attention.h>

#include "functional/adapters.h"
#include "models/adapter_sites.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

const LlamaOptions kAdaptedLlama =
    LlamaOptions(11, 16, 2, 2).num_kv_heads(1).hidden_dim(20).context_length(32);
const GPTOptions kGPT = GPTOptions(11, 16, 12, 3, 2).qkv_bias(true);

// B is zero at first, which would hide everything.
void draw(const Lora& lora) {
  const at::NoGradGuard no_grad;
  for (auto parameter : lora.parameters()) parameter.normal_(0.0, 0.3);
}

at::Tensor some_ids() {
  return at::randint(11, {2, 7}, at::kLong);
}

std::map<std::string, at::Tensor> copies(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : state_dict(module)) found[name] = tensor.clone();
  return found;
}

// A model's logits with adapters equal those with the dense sums in the weights, and so do gradients.
template <class Model>
void check_model(Model model, const std::vector<std::string>& targets, bool dora = false) {
  const auto ids = some_ids();
  model->to(at::kDouble);
  model->eval();
  const auto before = model->forward(ids).detach();
  const auto weights = copies(*model);
  auto lora = Lora({.rank = 3, .alpha = -4, .targets = targets, .dora = dora}).attach(model);
  CHECK_WITHIN(model->forward(ids).detach(), before, {0, dora ? 1e-13 : 0.0});  // B is zero
  draw(lora);
  const auto with = model->forward(ids).detach();
  CHECK(!with.allclose(before, 1e-3, 1e-3));
  lora.merge();
  CHECK(lora.merged());
  CHECK_WITHIN(model->forward(ids).detach(), with, {1e-10, 1e-10});
  lora.unmerge();
  CHECK(model->forward(ids).detach().equal(with));
  lora.detach();
  CHECK(!lora.attached());
  CHECK(model->forward(ids).detach().equal(before));
  const auto after = copies(*model);
  REQUIRE(after.size() == weights.size());
  for (const auto& [name, tensor] : weights) CHECK(after.at(name).equal(tensor));
}

std::string attach_error(const std::shared_ptr<torch::nn::Module>& model, const LoraOptions& options) {
  return value_error([&] { Lora(options).attach(model); });
}

}  // namespace

TEST_CASE("Lora: models with adapters equal models with merged weights", "[lora]") {
  at::manual_seed(1);
  check_model(GPT(kGPT), {});
  check_model(GPT(kGPT), {"all-linear"});
  check_model(Llama(kAdaptedLlama), {});
  check_model(Llama(kAdaptedLlama), {"all-linear"});
  check_model(GPT(kGPT), {"all-linear"}, true);
  check_model(Llama(kAdaptedLlama), {"all-linear"}, true);
}

TEST_CASE("Lora: modules that are trained whole, and ranks by layer", "[lora]") {
  at::manual_seed(11);
  Llama model(kAdaptedLlama);
  auto lora = Lora({.rank = 3, .rank_pattern = {{"layers.1.*", 2}}, .modules_to_save = {"lm_head", "q_proj"}})
                  .attach(model);
  CHECK(lora.parameters().size() == 4 * 2 + 3);
  CHECK(lora.parameters()[0].size(0) == 3);
  CHECK(lora.parameters()[4].size(0) == 2);
  CHECK(lora.parameters().back().is_same(model->out_head->weight));
  const auto ids = some_ids();
  model->loss(ids, ids.flip(1)).backward();
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    const bool whole = item.key() == "out_head.weight" || item.key().ends_with("W_query.weight");
    CHECK(item.value().requires_grad() == (whole || item.key().find(".lora.") != std::string::npos));
    CHECK(item.value().grad().defined() == item.value().requires_grad());
  }
}

TEST_CASE("Lora: encoders", "[lora]") {
  at::manual_seed(2);
  const auto check = [](auto model, const auto& compute, const std::vector<std::string>& targets,
                        const std::string& first) {
    model->to(at::kDouble);
    model->eval();
    const auto before = compute();
    auto lora = Lora({.rank = 2, .targets = targets}).attach(model);
    CHECK(lora.layers().size() == 4);
    CHECK(lora.layers()[0] == first);
    draw(lora);
    const auto with = compute();
    CHECK(!with.allclose(before, 1e-3, 1e-3));
    lora.merge();
    CHECK_WITHIN(compute(), with, {1e-10, 1e-10});
    lora.detach();
    CHECK_WITHIN(compute(), with, {1e-10, 1e-10});
  };
  Bert bert(BertOptions(11, 16, 12, 3, 2));
  const auto ids = some_ids();
  check(
      bert, [&] { return bert->forward(ids).hidden.detach(); }, {}, "encoder.layer.0.attention.self.query");
  ViT vit(ViTOptions(8, 4, 2, 5).emb_dim(12).num_heads(3).num_layers(2));
  const auto images = at::randn({2, 2, 8, 8}, at::kDouble);
  const auto compute = [&] { return vit->forward(images).detach(); };
  check(vit, compute, {"q_proj", "v_proj"}, "vit.layers.0.attention.q_proj");
  check(vit, compute, {"o_proj", "fc1"}, "vit.layers.0.attention.o_proj");
  CHECK(site_name(*vit, "encoder.layer.0.attention.attention.value") == "vit.layers.0.attention.v_proj");
  CHECK(site_name(*vit, "layers.0.attention.v_proj") == "vit.layers.0.attention.v_proj");
  CHECK(site_name(*vit, "embeddings.position_embeddings").empty());
}

TEST_CASE("Lora: the layers of each family, as peft names them", "[lora]") {
  using Names = std::vector<std::string>;
  const auto layers = [](const auto& model, const Names& targets) {
    return Lora({.targets = targets}).attach(model).layers();
  };
  const auto gpt = GPTOptions(11, 16, 12, 3, 1);
  CHECK(layers(GPT(gpt), {}) == Names{"transformer.h.0.attn.c_attn"});
  CHECK(layers(GPT(gpt), {"all-linear"}) == Names{"transformer.h.0.attn.c_attn",
                                                  "transformer.h.0.attn.c_proj", "transformer.h.0.mlp.c_fc",
                                                  "transformer.h.0.mlp.c_proj"});
  CHECK(layers(Llama(kAdaptedLlama), {"v_proj"}) ==
        Names{"model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj"});
  CHECK(layers(Llama(kAdaptedLlama), {"layers.1.mlp.up_proj", "layers.1.self_attn.q_proj"}) ==
        Names{"model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"});
  const auto sizes = [](const auto& model) {
    std::vector<std::vector<int64_t>> found;
    for (const auto& p : Lora({.rank = 2}).attach(model).parameters()) found.push_back(p.sizes().vec());
    return found;
  };
  CHECK(sizes(GPT(gpt)) == std::vector<std::vector<int64_t>>{{2, 12}, {36, 2}});
  auto lora = Lora({.targets = {"q_proj", "layers.0.mlp.up_proj"}}).attach(Llama(kAdaptedLlama));
  CHECK(lora.options().targets == Names{"model.layers.0.mlp.up_proj", "q_proj"});
}

TEST_CASE("Lora: modules of this package in a user's module", "[lora]") {
  at::manual_seed(3);
  MultiHeadAttention attention(MultiHeadAttentionOptions(12, 12, 8, 0.0, 2));
  torch::nn::Sequential net(attention);
  net->eval();
  const auto x = at::randn({2, 5, 12});
  const auto before = net->forward(x).detach();
  auto lora = Lora({.rank = 2, .targets = {"W_query", "out_proj"}}).attach(net);
  CHECK(lora.layers() == std::vector<std::string>{"0.W_query", "0.out_proj"});
  draw(lora);
  const auto with = net->forward(x).detach();
  CHECK(!with.allclose(before, 1e-3, 1e-3));
  lora.merge();
  CHECK_WITHIN(net->forward(x).detach(), with, {1e-4, 1e-5});
}

TEST_CASE("Lora: only adapters have gradients, and former flags return", "[lora]") {
  at::manual_seed(4);
  GPT model(kGPT);
  model->tok_emb->weight.set_requires_grad(false);
  auto lora = Lora({.rank = 3, .targets = {"all-linear"}}).attach(model);
  draw(lora);
  const auto ids = some_ids();
  model->loss(ids, ids.flip(1)).backward();
  size_t with = 0;
  for (const auto& item : model->named_parameters()) {
    const bool adapter = item.key().find(".lora.") != std::string::npos;
    INFO(item.key());
    CHECK(item.value().requires_grad() == adapter);
    CHECK(item.value().grad().defined() == adapter);
    if (adapter) CHECK(item.value().grad().abs().max().item<double>() > 0);
    with += adapter ? 1 : 0;
  }
  CHECK(with == lora.parameters().size());
  CHECK(with == 16);
  lora.detach();
  for (const auto& item : model->named_parameters())
    CHECK(item.value().requires_grad() == (item.key() != "tok_emb.weight"));
}

TEST_CASE("Lora: checkpointed blocks with dropout have the same bits", "[lora]") {
  const bool gpt = GENERATE(true, false);
  const auto results = [&](int64_t every) {
    at::manual_seed(5);
    const auto run = [&](auto model) {
      auto lora = Lora({.rank = 3, .dropout = 0.3, .targets = {"all-linear"}}).attach(model);
      draw(lora);
      const auto ids = some_ids();
      const auto loss = model->loss(ids, ids.flip(1));
      model->eval();
      loss.backward();
      std::vector<at::Tensor> found{loss.detach(), at::rand({3})};
      for (const auto& parameter : lora.parameters()) found.push_back(parameter.grad());
      return found;
    };
    if (gpt) return run(GPT(GPTOptions(kGPT).dropout(0.1).checkpoint(every)));
    return run(Llama(LlamaOptions(kAdaptedLlama).checkpoint(every)));
  };
  const auto want = results(0), got = results(1);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(want[i]));
}

TEST_CASE("Lora: dropout is applied in training only", "[lora]") {
  at::manual_seed(6);
  Llama model(kAdaptedLlama);
  auto lora = Lora({.rank = 3, .dropout = 0.5}).attach(model);
  draw(lora);
  const auto ids = some_ids();
  model->eval();
  const auto quiet = model->forward(ids).detach();
  CHECK(model->forward(ids).detach().equal(quiet));
  model->train();
  CHECK(!model->forward(ids).detach().equal(quiet));
}

TEST_CASE("Lora: half models have float32 adapters, and decoding uses them", "[lora]") {
  at::manual_seed(7);
  Llama model(kAdaptedLlama);
  model->eval();
  auto lora = Lora({.rank = 3}).attach(model);
  draw(lora);
  const auto ids = some_ids();
  const at::NoGradGuard no_grad;
  const auto whole = model->forward(ids);
  auto cache = model->make_cache(2);
  const auto prompt = model->forward_cached(ids.narrow(1, 0, 6), *cache);
  CHECK_WITHIN(model->forward_cached(ids.narrow(1, 6, 1), *cache), whole.narrow(1, 6, 1), {1e-4, 1e-4});
  lora.detach();
  model->to(at::kBFloat16);
  auto half = Lora({.rank = 3}).attach(model);
  for (const auto& parameter : half.parameters()) CHECK(parameter.scalar_type() == at::kFloat);
  CHECK(model->forward(ids).scalar_type() == at::kBFloat16);
  draw(half);
  const auto with = model->forward(ids);
  model->to(at::kDouble);  // the adapters too, and they stay connected
  CHECK_WITHIN(model->forward(ids), with.to(at::kDouble), {0.1, 0.1});
}

TEST_CASE("Lora: adapters outlive the object and end with the model", "[lora]") {
  at::manual_seed(8);
  const auto ids = some_ids();
  {
    Llama model(kAdaptedLlama);
    { Lora({.rank = 2}).attach(model); }
    CHECK(model->named_parameters().contains("blocks.0.att.W_query.lora.A"));
    CHECK_THROWS_AS(model->clone(), c10::ValueError);
    CHECK(value_error([&] { model->clone(); }) ==
          "Llama: expected a module without adapters, got one with \"blocks.0.att.W_query.lora\"; "
          "Lora::detach() removes them");
    CHECK(value_error([&] { save_model_folder("/tmp/never-made", *model); }) ==
          "save_model_folder: expected a module without adapters, got one with "
          "\"blocks.0.att.W_query.lora\"; Lora::detach() removes them");
  }
  at::Tensor weight;
  {
    Llama model(kAdaptedLlama);
    Lora({.rank = 2}).attach(model);
    weight = model->blocks->at<LlamaBlockImpl>(0).att->W_query->weight;
    CHECK(adapters_of(weight).size() == 1);
  }
  CHECK(adapters_of(weight).empty());
}

namespace {

// A user's module of layers of torch::nn.
struct UserNetImpl : torch::nn::Module {
  UserNetImpl()
      : fc1(register_module("fc1", torch::nn::Linear(6, 8))),
        fc2(register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(8, 4).bias(false)))) {}
  at::Tensor forward(const at::Tensor& x) { return fc2->forward(fc1->forward(x).relu()); }
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(UserNet);

// A class that is derived from one of this package, and calls a layer's own function.
struct DerivedOptions {
  ATTENTIVE_OPTIONS(size_);
  int64_t size_ = 6;
};
struct DerivedNetImpl : Module<DerivedNetImpl> {
  static constexpr const char* kName = "DerivedNet";
  DerivedNetImpl() { reset(); }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(6, 8));
    twice = register_module("twice", fc);
  }
  at::Tensor forward(const at::Tensor& x) { return fc->forward(x) + twice->forward(x); }
  DerivedOptions options;
  torch::nn::Linear fc{nullptr}, twice{nullptr};
};

// The weight of a layer with its adapter; with magnitudes, they follow the two adapters.
at::Tensor dense_weight(const std::vector<at::Tensor>& base, const std::vector<at::Tensor>& adapters,
                        size_t i, double scale) {
  const auto sum = base[i] + at::mm(adapters[2 * i + 1], adapters[2 * i]) * scale;
  if (adapters.size() == 4) return sum;
  return sum * (adapters[4 + i] / sum.detach().square().sum(1).sqrt()).unsqueeze(1);
}

// The net's result by the dense weights, which autograd differentiates.
at::Tensor dense_forward(const std::vector<at::Tensor>& base, const std::vector<at::Tensor>& adapters,
                         const at::Tensor& x, double scale) {
  const auto hidden = at::linear(x, dense_weight(base, adapters, 0, scale), base[2]).relu();
  return at::linear(hidden, dense_weight(base, adapters, 1, scale));
}

}  // namespace

TEST_CASE("Lora: layers of torch::nn in a user's module", "[lora]") {
  at::manual_seed(9);
  UserNet net;
  net->to(at::kDouble);
  const std::vector<at::Tensor> base{net->fc1->weight, net->fc2->weight, net->fc1->bias};
  const auto before = copies(*net);
  const auto x = at::randn({3, 6}, at::kDouble), rows = at::randn({2, 3, 6}, at::kDouble);
  const auto plain = net->forward(x).detach();
  const auto dora = GENERATE(false, true);
  auto lora = Lora({.rank = 2, .alpha = 3, .targets = {"all-linear"}, .dora = dora}).attach(net);
  CHECK(lora.layers() == std::vector<std::string>{"fc1", "fc2"});
  draw(lora);
  for (const auto& [name, tensor] : before) CHECK(state_dict(*net).at(name).equal(tensor));

  SECTION("results and gradients are those of the dense sums, after every step") {
    const auto parameters = lora.parameters();
    for (int step = 0; step < 3; ++step) {
      for (const auto& in : {x, rows}) {
        const auto got = net->forward(in), want = dense_forward(base, parameters, in, 1.5);
        CHECK_WITHIN(got.detach(), want.detach(), {1e-12, 1e-12});
        const auto found = torch::autograd::grad({got.square().sum()}, parameters),
                   expected = torch::autograd::grad({want.square().sum()}, parameters);
        for (size_t i = 0; i < parameters.size(); ++i) CHECK_WITHIN(found[i], expected[i], {1e-12, 1e-12});
      }
      const at::NoGradGuard no_grad;
      for (auto parameter : parameters) parameter.add_(0.1);
    }
    for (const auto& tensor : base) CHECK(!tensor.requires_grad());
  }
  SECTION("whatever reads the weight reads the sum") {
    const auto want = dense_weight(base, lora.parameters(), 1, 1.5).detach();
    const auto y = at::randn({3, 8}, at::kDouble).requires_grad_(true);
    const auto& weight = net->fc2->weight;
    CHECK_WITHIN((weight + 0).detach(), want, {1e-12, 1e-12});
    CHECK_WITHIN(at::cat({weight, weight}).detach(), at::cat({want, want}), {1e-12, 1e-12});
    at::mm(y, weight.t()).sum().backward();
    CHECK_WITHIN(y.grad(), want.sum(0).expand({3, 8}), {1e-12, 1e-12});
    CHECK_WITHIN(weight.detach(), want, {1e-12, 1e-12});
    CHECK(weight.sizes() == want.sizes());
    CHECK(
        value_error([&] { at::Tensor(weight).mul_(2); }) ==
        "Lora: expected no change of a weight with an adapter by aten::mul_; change the module's parameter");
    CHECK_THROWS_AS(weight.data_ptr(), c10::Error);
    const auto kept = net->forward(x).detach();
    const c10::InferenceMode inference;
    CHECK(net->forward(x).equal(kept));
  }
  SECTION("checkpoints, other dtypes, autocast") {
    const auto kept = net->forward(x);
    kept.sum().backward();
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : lora.parameters()) gradients.push_back(parameter.grad().clone());
    net->zero_grad();
    const auto again =
        activation_checkpoint([net](const at::Tensor& in) { return net.ptr()->forward(in); }, x);
    CHECK(again.detach().equal(kept.detach()));
    again.sum().backward();
    for (size_t i = 0; i < gradients.size(); ++i) CHECK(lora.parameters()[i].grad().equal(gradients[i]));
    net->to(at::kFloat);
    const auto narrow = net->forward(x.to(at::kFloat));
    CHECK(narrow.scalar_type() == at::kFloat);
    CHECK_WITHIN(narrow.detach().to(at::kDouble), kept.detach(), {1e-5, 1e-5});
    const CpuAutocast scope(at::kBFloat16);
    const auto half = net->forward(x.to(at::kFloat));
    CHECK(half.scalar_type() == at::kBFloat16);
    CHECK_WITHIN(half.detach().to(at::kDouble), kept.detach(), {0.05, 0.05});
  }
  SECTION("merge, unmerge, detach") {
    const auto with = net->forward(x).detach();
    lora.merge();
    CHECK_WITHIN(net->forward(x).detach(), with, {1e-12, 1e-12});
    CHECK(net->fc1->weight.detach().equal(base[0]));
    lora.unmerge();
    CHECK(net->forward(x).detach().equal(with));
    lora.detach();
    CHECK(net->fc1->weight.is_same(base[0]));
    CHECK(net->fc1->weight.requires_grad());
    CHECK(net->forward(x).detach().equal(plain));
  }
}

TEST_CASE("Lora: a program's class over this package's base, and a layer of two names", "[lora]") {
  at::manual_seed(10);
  const auto net = std::make_shared<DerivedNetImpl>();
  const auto x = at::randn({3, 6}), before = net->forward(x).detach();
  auto lora = Lora({.rank = 2, .targets = {"all-linear"}}).attach(net);
  CHECK(lora.layers() == std::vector<std::string>{"fc"});
  draw(lora);
  const auto with = net->forward(x).detach();
  CHECK(!with.allclose(before, 1e-3, 1e-3));
  lora.merge();
  CHECK_WITHIN(net->forward(x).detach(), with, {1e-5, 1e-5});
}

TEST_CASE("Lora: bad input is refused by name", "[lora]") {
  const auto llama = Llama(kAdaptedLlama).ptr();
  CHECK(value_error([] { Lora({.rank = 0}); }) == "Lora: expected rank >= 1, got 0");
  CHECK(value_error([] { Lora({.alpha = HUGE_VAL}); }) == "Lora: expected a finite alpha, got inf");
  CHECK(value_error([] { Lora({.rank_pattern = {{"q_proj", 0}}}); }) == "Lora: expected rank >= 1, got 0");
  CHECK(attach_error(llama, {.modules_to_save = {"score"}}) ==
        "Lora: expected modules_to_save of the model, got score");
  CHECK(attach_error(Llama(LlamaOptions(kAdaptedLlama).tied(true)).ptr(),
                     {.modules_to_save = {"embed_tokens"}}) ==
        "Lora: expected modules_to_save without model.embed_tokens.weight, which the head shares");
  CHECK(value_error([] { Lora({.dropout = 1.5}); }).find("Lora: expected") == 0);
  CHECK(attach_error(nullptr, {}) == "Lora: expected a model, got none");
  CHECK(attach_error(llama, {.targets = {"q_proj", "qproj"}}) ==
        "Lora: expected targets of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj and "
        "all-linear, or names that end in them, got \"qproj\"");
  CHECK(attach_error(llama, {.targets = {"proj"}}).find("got \"proj\"") != std::string::npos);
  CHECK(attach_error(llama, {.targets = {"lm_head"}}).find("got \"lm_head\"") != std::string::npos);
  CHECK(llama->parameters().front().requires_grad());  // nothing has changed
  CHECK(llama->named_modules().size() == Llama(kAdaptedLlama)->named_modules().size());
  const auto foreign = torch::nn::Sequential(torch::nn::Linear(3, 4)).ptr();
  CHECK(attach_error(foreign, {}) ==
        "Lora: expected targets, which peft does not choose for this model, got none; known are 0 and "
        "all-linear");
  CHECK(attach_error(foreign, {.dropout = 0.1, .targets = {"all-linear"}}) ==
        "Lora: expected dropout 0 for \"0\", a layer of torch::nn whose input its adapter does not see, got "
        "0.1");
  const auto named = torch::nn::Linear(3, 4).ptr();
  named->register_module("lora", torch::nn::Linear(1, 1));
  CHECK(attach_error(torch::nn::Sequential(torch::nn::Linear(named)).ptr(), {.targets = {"0"}}) ==
        "Lora: expected no child \"lora\" of the layer \"0\", got one");
  CHECK(attach_error(torch::nn::Sequential().ptr(), {}) ==
        "Lora: expected a model with linear layers, got one without");
  Lora lora({});
  CHECK(value_error([&] { lora.merge(); }) == "Lora: expected attach(model) before merge()");
  CHECK(value_error([&] { lora.detach(); }) == "Lora: expected attach(model) before detach()");
  CHECK(value_error([&] { lora.unmerge(); }) ==
        "Lora: expected merged adapters, got ones that are not merged");
  lora.attach(llama);
  CHECK(value_error([&] { lora.attach(Llama(kAdaptedLlama)); }) ==
        "Lora: expected an object that is not attached, got one with a model");
  CHECK(attach_error(llama, {}).find("Lora: expected a module without adapters") == 0);
  lora.merge();
  CHECK(value_error([&] { lora.merge(); }) == "Lora: expected adapters that are not merged, got merged ones");
  llama->to(at::kDouble);
  CHECK(value_error([&] { lora.unmerge(); }) ==
        "Lora: expected weights of Float as before merge(), got Double");
}
