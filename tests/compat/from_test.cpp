#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include <attentive/compat/from.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention_recorder.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::type_error;
using attentive::test::value_error;
namespace nn = torch::nn;

namespace {

// Five queries, seven keys, two batch items, eight features.
const int64_t kQueries = 5, kKeys = 7;

at::Tensor causal(int64_t tokens) {
  return nn::TransformerImpl::generate_square_subsequent_mask(tokens);
}

at::Tensor padding(int64_t tokens) {
  auto mask = at::zeros({2, tokens}, at::kBool);
  mask[1].slice(0, tokens - 2).fill_(true);
  return mask;
}

// Biases and norms begin as zeros and ones, which many mistakes would not change.
template <class Holder>
Holder drawn(Holder module) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) {
    if (parameter.dim() < 2 || parameter.size(0) == 1) parameter.normal_(0.5, 0.3);
  }
  return module;
}

// The names in their order, and the tensors themselves.
void check_shared(const nn::Module& ours, const nn::Module& theirs) {
  const auto mine = ours.named_parameters(), original = theirs.named_parameters();
  REQUIRE(mine.keys() == original.keys());
  REQUIRE(mine.size() > 0);
  for (const auto& item : original) {
    INFO(item.key());
    CHECK(mine[item.key()].is_same(item.value()));
    CHECK(mine[item.key()].data_ptr() == item->data_ptr());
  }
  CHECK(ours.named_buffers().is_empty());
}

void check_modes(const nn::Module& ours, const nn::Module& theirs) {
  const auto mine = ours.named_modules(), original = theirs.named_modules();
  REQUIRE(mine.keys() == original.keys());
  for (const auto& item : original) {
    INFO(item.key());
    CHECK(mine[item.key()]->is_training() == item.value()->is_training());
    CHECK(mine[item.key()] != item.value());
  }
}

// The output of a call and the gradients of the parameters and inputs.
std::vector<at::Tensor> with_gradients(const at::Tensor& y, const std::vector<at::Tensor>& leaves) {
  at::manual_seed(77);
  const auto loss = (y * at::randn_like(y)).sum();
  auto results = torch::autograd::grad({loss}, leaves);
  results.insert(results.begin(), y.detach());
  return results;
}

// `call` runs either module.
template <class Ours, class Theirs, class Call>
void check_same_numbers(Ours& ours, Theirs& theirs, const std::vector<at::Tensor>& inputs, const Call& call) {
  auto leaves = theirs->parameters();
  leaves.insert(leaves.end(), inputs.begin(), inputs.end());
  at::manual_seed(5);
  const auto want = with_gradients(call(theirs), leaves);
  at::manual_seed(5);
  const auto got = with_gradients(call(ours), leaves);
  CHECK_CLOSE(got[0], want[0]);
  for (size_t n = 1; n < want.size(); ++n) {
    INFO("gradient " << n - 1);
    CHECK(difference(got[n], want[n], tolerance_of(want[n].scalar_type(), /*gradient=*/true)) == "");
  }
}

nn::TransformerEncoderLayerOptions encoder_options(double dropout = 0.0) {
  return nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(dropout);
}

nn::TransformerDecoderLayerOptions decoder_options(double dropout = 0.0) {
  return nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12).dropout(dropout);
}

nn::AnyModule layer_norm(double eps = 1e-5) {
  return nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8}).eps(eps)));
}

nn::TransformerEncoder encoder_of(double dropout = 0.0) {
  return nn::TransformerEncoder(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayer(encoder_options(dropout)), 2)
          .norm(layer_norm()));
}

nn::TransformerDecoder decoder_of(double dropout = 0.0) {
  return nn::TransformerDecoder(
      nn::TransformerDecoderOptions(nn::TransformerDecoderLayer(decoder_options(dropout)), 2)
          .norm(layer_norm()));
}

nn::Transformer transformer_of(double dropout = 0.0) {
  return nn::Transformer(nn::TransformerOptions(8, 2, 2, 3).dim_feedforward(12).dropout(dropout));
}

// Calls `check` with a small module of each class that `from` takes.
template <class Check>
void for_each_class(const Check& check) {
  check(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true)));
  check(nn::TransformerEncoderLayer(encoder_options()));
  check(nn::TransformerDecoderLayer(decoder_options()));
  check(encoder_of());
  check(decoder_of());
  check(transformer_of());
}

// Calls of each class with both kinds of mask that C++ PyTorch understands, and without masks.
struct Inputs {
  at::Tensor x = at::randn({kQueries, 2, 8}).requires_grad_();
  at::Tensor memory = at::randn({kKeys, 2, 8}).requires_grad_();

  std::vector<at::Tensor> both() const { return {x, memory}; }
};

template <class Ours, class Theirs>
void check_encoder(Ours& ours, Theirs& theirs, const Inputs& in) {
  check_same_numbers(ours, theirs, {in.x}, [&](auto& module) { return module->forward(in.x); });
  check_same_numbers(ours, theirs, {in.x},
                     [&](auto& module) { return module->forward(in.x, causal(5), padding(5)); });
}

template <class Ours, class Theirs>
void check_decoder(Ours& ours, Theirs& theirs, const Inputs& in) {
  check_same_numbers(ours, theirs, in.both(), [&](auto& module) { return module->forward(in.x, in.memory); });
  const auto pairs = at::randn({kQueries, kKeys});
  check_same_numbers(ours, theirs, in.both(), [&](auto& module) {
    return module->forward(in.x, in.memory, causal(5), pairs, padding(5), padding(7));
  });
}

template <class Ours, class Theirs>
void check_transformer(Ours& ours, Theirs& theirs, const Inputs& in) {
  check_same_numbers(ours, theirs, in.both(), [&](auto& module) { return module->forward(in.memory, in.x); });
  const auto pairs = at::randn({kQueries, kKeys});
  check_same_numbers(ours, theirs, in.both(), [&](auto& module) {
    return module->forward(in.memory, in.x, causal(7), causal(5), pairs, padding(7), padding(5), padding(7));
  });
}

// A user's own classes, which have no counterpart.
struct ScaledAttentionImpl : nn::MultiheadAttentionImpl {
  using nn::MultiheadAttentionImpl::MultiheadAttentionImpl;
};

struct MeanEncoderImpl : nn::Cloneable<MeanEncoderImpl> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& src, const at::Tensor&, const at::Tensor&) { return src; }
};

}  // namespace

TEST_CASE("from: attention of the parameters of torch::nn::MultiheadAttention", "[compat][from]") {
  at::manual_seed(1);
  const Inputs in;
  const auto value = at::randn({kKeys, 2, 8}).requires_grad_();
  const auto bias = at::randn({kQueries, kKeys});
  using Options = nn::MultiheadAttentionOptions;
  for (const auto& options :
       {Options(8, 2), Options(8, 4).bias(false), Options(8, 2).add_bias_kv(true),
        Options(8, 2).add_zero_attn(true), Options(8, 1).bias(false).add_bias_kv(true).add_zero_attn(true)}) {
    for (const bool training : {true, false}) {
      auto theirs = drawn(nn::MultiheadAttention(options));
      theirs->train(training);
      auto ours = compat::from(theirs);
      check_shared(*ours, *theirs);
      check_modes(*ours, *theirs);
      CHECK(ours->options.num_heads() == options.num_heads());
      CHECK(ours->options.bias() == options.bias());
      CHECK(ours->options.add_bias_kv() == options.add_bias_kv());
      CHECK(ours->options.add_zero_attn() == options.add_zero_attn());
      CHECK_FALSE(ours->options.kdim().has_value());
      const std::vector<at::Tensor> leaves = {in.x, in.memory, value};
      for (const auto& mask : {at::Tensor(), bias}) {
        for (const auto& hidden : {at::Tensor(), padding(kKeys)}) {
          for (const bool weights : {true, false}) {
            check_same_numbers(ours, theirs, leaves, [&](auto& module) {
              return std::get<0>(module->forward(in.x, in.memory, value, hidden, weights, mask));
            });
          }
          for (const bool average : {true, false}) {
            check_same_numbers(ours, theirs, {in.x}, [&](auto& module) {
              const auto [y, weights] = module->forward(in.x, in.memory, value, hidden, true, mask, average);
              return at::cat({y.flatten(), weights.flatten()});
            });
          }
        }
      }
      check_same_numbers(ours, theirs, {in.x}, [&](auto& module) {
        return std::get<0>(module->forward(in.x, in.x, in.x, {}, false, causal(kQueries)));
      });
      CHECK_FALSE(std::get<1>(ours->forward(in.x, in.x, in.x, {}, false)).defined());
    }
  }
}

TEST_CASE("from: keys and values of other widths", "[compat][from]") {
  at::manual_seed(2);
  auto theirs = drawn(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6)));
  auto ours = compat::from(theirs);
  check_shared(*ours, *theirs);
  const auto x = at::randn({kQueries, 2, 8}).requires_grad_();
  const auto k = at::randn({kKeys, 2, 6}).requires_grad_(), v = at::randn({kKeys, 2, 6}).requires_grad_();
  check_same_numbers(ours, theirs, {x, k, v},
                     [&](auto& module) { return std::get<0>(module->forward(x, k, v, padding(kKeys))); });
  // PyTorch's own forward pass wants one width of keys and values; its parameters may have two.
  const nn::MultiheadAttention two(nn::MultiheadAttentionOptions(8, 2).kdim(4).vdim(6).bias(false));
  auto shared = compat::from(two);
  check_shared(*shared, *two);
  const auto keys = at::randn({3, 2, 4}), values = at::randn({3, 2, 6});
  CHECK(std::get<0>(shared->forward(x, keys, values)).size(0) == kQueries);
}

TEST_CASE("from: a bool attn_mask hides, as its numbers -inf do in PyTorch", "[compat][from]") {
  at::manual_seed(3);
  auto theirs = nn::MultiheadAttention(8, 2);
  auto ours = compat::from(theirs);
  const auto x = at::randn({kQueries, 2, 8});
  const auto hidden = at::ones({kQueries, kQueries}, at::kBool).triu(1);
  const auto want = std::get<0>(theirs->forward(x, x, x, {}, true, causal(kQueries)));
  CHECK_CLOSE(std::get<0>(ours->forward(x, x, x, {}, true, hidden)), want);
  CHECK_FALSE(std::get<0>(theirs->forward(x, x, x, {}, true, hidden)).allclose(want));
}

TEST_CASE("from: transformer layers of the parameters of torch::nn's", "[compat][from]") {
  at::manual_seed(4);
  const Inputs in;
  const std::function<at::Tensor(const at::Tensor&)> swish = [](const at::Tensor& x) {
    return x * at::sigmoid(x);
  };
  for (const auto& activation :
       {nn::activation_t(torch::kReLU), nn::activation_t(torch::kGELU), nn::activation_t(swish)}) {
    for (const bool training : {true, false}) {
      nn::TransformerEncoderLayer encoder(encoder_options().activation(activation));
      encoder->norm1->options.eps(0.1);
      encoder->norm2->options.eps(0.2);
      drawn(encoder)->train(training);
      auto ours = compat::from(encoder);
      check_shared(*ours, *encoder);
      check_modes(*ours, *encoder);
      check_encoder(ours, encoder, in);
      CHECK(ours->options.dim_feedforward() == 12);
      CHECK(ours->options.layer_norm_eps() == 0.1);
      CHECK_FALSE(ours->options.batch_first());

      nn::TransformerDecoderLayer decoder(decoder_options().activation(activation));
      decoder->norm3->options.eps(0.3);
      drawn(decoder)->train(training);
      auto our_decoder = compat::from(decoder);
      check_shared(*our_decoder, *decoder);
      check_modes(*our_decoder, *decoder);
      check_decoder(our_decoder, decoder, in);
    }
  }
}

TEST_CASE("from: stacks of layers, with and without a norm", "[compat][from]") {
  at::manual_seed(6);
  const Inputs in;
  for (const bool norm : {true, false}) {
    nn::TransformerEncoderOptions options(nn::TransformerEncoderLayer(encoder_options()), 3);
    nn::TransformerDecoderOptions decoder_stack(nn::TransformerDecoderLayer(decoder_options()), 2);
    if (norm) options.norm(layer_norm(0.1)), decoder_stack.norm(layer_norm(0.2));
    auto encoder = drawn(nn::TransformerEncoder(options));
    auto ours = compat::from(encoder);
    check_shared(*ours, *encoder);
    check_modes(*ours, *encoder);
    check_encoder(ours, encoder, in);
    CHECK(ours->options.num_layers() == 3);
    CHECK(ours->options.layer().d_model() == 8);
    CHECK(ours->options.norm().has_value() == norm);

    auto decoder = drawn(nn::TransformerDecoder(decoder_stack));
    auto our_decoder = compat::from(decoder);
    check_shared(*our_decoder, *decoder);
    check_modes(*our_decoder, *decoder);
    check_decoder(our_decoder, decoder, in);
    CHECK(our_decoder->options.num_layers() == 2);
    CHECK(our_decoder->norm.is_empty() != norm);
  }
}

TEST_CASE("from: a transformer, also of an encoder and a decoder of one's own", "[compat][from]") {
  at::manual_seed(7);
  const Inputs in;
  auto plain = drawn(transformer_of());
  auto ours = compat::from(plain);
  check_shared(*ours, *plain);
  check_modes(*ours, *plain);
  check_transformer(ours, plain, in);
  CHECK(ours->options.num_encoder_layers() == 2);
  CHECK(ours->options.num_decoder_layers() == 3);
  CHECK(ours->options.layer().nhead() == 2);

  // The options of the whole say nothing about parts that were given.
  const nn::TransformerEncoder encoder(
      nn::TransformerEncoderOptions(encoder_options().activation(torch::kGELU).dim_feedforward(20), 1));
  auto custom = drawn(nn::Transformer(nn::TransformerOptions(8, 4)
                                          .custom_encoder(nn::AnyModule(encoder))
                                          .custom_decoder(nn::AnyModule(decoder_of()))));
  custom->eval();
  auto shared = compat::from(custom);
  check_shared(*shared, *custom);
  check_modes(*shared, *custom);
  check_transformer(shared, custom, in);
  CHECK(shared->options.num_encoder_layers() == 1);
  CHECK(shared->encoder->norm.is_empty());
}

TEST_CASE("from: float64, and parts in modes of their own", "[compat][from]") {
  at::manual_seed(8);
  auto theirs = drawn(transformer_of(0.5));
  theirs->to(at::kDouble);
  auto& encoder = theirs->encoder.get<nn::TransformerEncoderImpl>();
  encoder.eval();
  encoder.layers->at<nn::TransformerEncoderLayerImpl>(1).norm2->train();
  encoder.layers->at<nn::TransformerEncoderLayerImpl>(0).linear1->train();
  theirs->decoder.ptr()->eval();
  auto ours = compat::from(theirs);
  check_modes(*ours, *theirs);
  CHECK(ours->is_training());
  Inputs in;
  in.x = in.x.detach().to(at::kDouble).requires_grad_();
  in.memory = in.memory.detach().to(at::kDouble).requires_grad_();
  check_transformer(ours, theirs, in);

  ours->train();
  CHECK_FALSE(theirs->decoder.ptr()->is_training());
  theirs->eval();
  CHECK(ours->encoder->layers->at<compat::TransformerEncoderLayerImpl>(0).linear1->is_training());
}

TEST_CASE("from: every class shares without a draw, and keeps requires_grad", "[compat][from]") {
  for_each_class([](auto theirs) {
    INFO(theirs->name());
    for (size_t n = 0; n < theirs->parameters().size(); n += 2) theirs->parameters()[n].requires_grad_(false);
    std::vector<bool> wanted;
    for (const auto& parameter : theirs->parameters()) wanted.push_back(parameter.requires_grad());
    at::manual_seed(9);
    at::randn({3});  // leaves a number over for the next normal draw
    const auto generator = at::detail::getDefaultCPUGenerator();
    const auto before = generator.get_state();
    auto ours = compat::from(theirs);
    CHECK(bit_equal(generator.get_state(), before));
    check_shared(*ours, *theirs);
    std::vector<bool> got;
    for (const auto& parameter : ours->parameters()) got.push_back(parameter.requires_grad());
    CHECK(got == wanted);
    check_shared(*compat::from(*theirs), *theirs);  // without its holder
  });
}

TEST_CASE("from: a step, a gradient and a conversion of one are those of the other", "[compat][from]") {
  at::manual_seed(10);
  auto theirs = drawn(nn::TransformerEncoderLayer(encoder_options()));
  torch::optim::SGD optimizer(theirs->parameters(), torch::optim::SGDOptions(0.1));
  auto ours = compat::from(theirs);
  const auto x = at::randn({kQueries, 2, 8});
  const auto before = theirs->self_attn->in_proj_weight.detach().clone();
  const auto first = ours->forward(x);
  first.square().sum().backward();
  const auto gradient = theirs->self_attn->in_proj_weight.grad();
  REQUIRE(gradient.defined());
  CHECK(ours->self_attn->in_proj_weight.grad().is_same(gradient));
  optimizer.step();  // PyTorch's optimizer of PyTorch's module
  CHECK_CLOSE(ours->self_attn->in_proj_weight.detach(), before - 0.1 * gradient);
  CHECK_FALSE(ours->forward(x).allclose(first));
  CHECK_CLOSE(ours->forward(x), theirs->forward(x));

  torch::optim::SGD other(ours->parameters(), torch::optim::SGDOptions(0.1));
  other.step();
  CHECK_CLOSE(theirs->self_attn->in_proj_weight.detach(), before - 0.2 * gradient);
  ours->zero_grad();
  CHECK_FALSE(theirs->linear1->weight.grad().defined());
  ours->to(at::kDouble);
  CHECK(theirs->norm1->weight.scalar_type() == at::kDouble);
  check_shared(*ours, *theirs);
}

TEST_CASE("from: the result outlives PyTorch's module, and its clone is a deep copy", "[compat][from]") {
  at::manual_seed(11);
  const Inputs in;
  at::Tensor want;
  const auto ours = [&] {
    nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(encoder_options(), 1));
    auto theirs = drawn(nn::Transformer(
        nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(12).custom_encoder(nn::AnyModule(encoder))));
    theirs->eval();
    want = theirs->forward(in.x, in.memory).detach();
    return compat::from(theirs);
  }();
  compat::Transformer copy(std::dynamic_pointer_cast<compat::TransformerImpl>(ours->clone()));
  const auto copied = copy->named_parameters();
  for (const auto& item : ours->named_parameters()) CHECK_FALSE(copied[item.key()].is_alias_of(item.value()));
  CHECK_CLOSE(compat::Transformer(ours)->forward(in.x, in.memory).detach(), want);
  CHECK_CLOSE(copy->forward(in.x, in.memory).detach(), want);
}

TEST_CASE("from: PyTorch's stream of dropout drops what PyTorch's modules drop", "[compat][from]") {
  const DropoutStreamGuard guard(DropoutStream::Aten);
  at::manual_seed(12);
  const Inputs in;
  auto attention = drawn(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(0.4)));
  auto ours = compat::from(attention);
  check_same_numbers(ours, attention, {in.x},
                     [&](auto& module) { return std::get<0>(module->forward(in.x, in.memory, in.memory)); });
  auto transformer = drawn(transformer_of(0.4));
  transformer->encoder.get<nn::TransformerEncoderImpl>()
      .layers->at<nn::TransformerEncoderLayerImpl>(0)
      .dropout1->options.p(0.1);
  auto our_transformer = compat::from(transformer);
  check_transformer(our_transformer, transformer, in);
}

TEST_CASE("from: dropout draws in training alone", "[compat][from]") {
  at::manual_seed(13);
  const nn::MultiheadAttention theirs(nn::MultiheadAttentionOptions(8, 2).dropout(0.4));
  auto ours = compat::from(theirs);
  const auto x = at::randn({kQueries, 2, 8});
  const auto call = [&] { return std::get<0>(ours->forward(x, x, x, {}, false)); };
  CHECK_FALSE(bit_equal(call(), call()));
  ours->eval();
  CHECK(bit_equal(call(), call()));
}

TEST_CASE("from: modules inside a program's own are found and replaced", "[compat][from]") {
  at::manual_seed(14);
  struct NetImpl : nn::Module {
    NetImpl() {
      attention = register_module("attention", nn::MultiheadAttention(8, 2));
      inner = register_module("inner", encoder_of());
    }
    nn::MultiheadAttention attention{nullptr};
    nn::TransformerEncoder inner{nullptr};
  };
  NetImpl net;
  const auto names = net.named_parameters().keys();
  const auto before = net.parameters();
  size_t found = 0;
  for (const auto& module : net.modules(/*include_self=*/false)) {
    const auto* attention = module->as<nn::MultiheadAttention>();
    if (attention == nullptr) continue;
    check_shared(*compat::from(*attention), *attention);
    ++found;
  }
  CHECK(found == 3);

  // In the place of PyTorch's module, the parent's names and tensors stay as they were.
  compat::MultiheadAttention ours(net.replace_module("attention", compat::from(net.attention)));
  net.replace_module("inner", compat::from(net.inner));
  CHECK(net.named_parameters().keys() == names);
  const auto after = net.parameters();
  for (size_t n = 0; n < before.size(); ++n) CHECK(after[n].is_same(before[n]));
  const AttentionRecorder recorder(net);
  const auto x = at::randn({kQueries, 2, 8});
  ours->forward(x, x, x);
  REQUIRE(recorder.calls().size() == 1);
  CHECK(recorder.calls()[0].path == "attention");
}

TEST_CASE("from: empty holders are refused by name", "[compat][from][errors]") {
  const auto refused = [](const std::string& name) {
    return "compat::from: expected a holder with a torch::nn::" + name + "Impl, got an empty one";
  };
  CHECK(value_error([] { compat::from(nn::MultiheadAttention(nullptr)); }) == refused("MultiheadAttention"));
  CHECK(value_error([] { compat::from(nn::TransformerEncoderLayer(nullptr)); }) ==
        refused("TransformerEncoderLayer"));
  CHECK(value_error([] { compat::from(nn::TransformerDecoderLayer(nullptr)); }) ==
        refused("TransformerDecoderLayer"));
  CHECK(value_error([] { compat::from(nn::TransformerEncoder(nullptr)); }) == refused("TransformerEncoder"));
  CHECK(value_error([] { compat::from(nn::TransformerDecoder(nullptr)); }) == refused("TransformerDecoder"));
  CHECK(value_error([] { compat::from(nn::Transformer(nullptr)); }) == refused("Transformer"));
}

TEST_CASE("from: classes without a counterpart are refused by name", "[compat][from][errors]") {
  const std::string caller = "compat::from: ";
  const std::shared_ptr<nn::MultiheadAttentionImpl> scaled = std::make_shared<ScaledAttentionImpl>(8, 2);
  const std::string no_attention =
      " to be a torch::nn::MultiheadAttentionImpl, got a (anonymous namespace)::ScaledAttentionImpl";
  CHECK(type_error([&] { compat::from(*scaled); }) == caller + "expected the module" + no_attention);
  CHECK(type_error([&] { compat::from(nn::MultiheadAttention(scaled)); }) ==
        caller + "expected the module" + no_attention);
  auto decoder = decoder_of();
  auto& layer = decoder->layers->at<nn::TransformerDecoderLayerImpl>(1);
  layer.multihead_attn = layer.replace_module("multihead_attn", nn::MultiheadAttention(scaled));
  CHECK(type_error([&] { compat::from(decoder); }) ==
        caller + "expected layers.1.multihead_attn" + no_attention);

  auto encoder = encoder_of();
  encoder->layers->push_back(nn::Linear(8, 8));
  CHECK(type_error([&] { compat::from(encoder); }) ==
        caller +
            "expected layers.2 to be a torch::nn::TransformerEncoderLayerImpl, got a "
            "torch::nn::LinearImpl");
  const nn::TransformerDecoder with_identity(
      nn::TransformerDecoderOptions(decoder_options(), 1).norm(nn::AnyModule(nn::Identity())));
  CHECK(type_error([&] { compat::from(with_identity); }) ==
        caller + "expected norm to be a torch::nn::LayerNormImpl, got a torch::nn::IdentityImpl");

  const nn::Transformer own_encoder(
      nn::TransformerOptions(8, 2, 1, 1).custom_encoder(nn::AnyModule(std::make_shared<MeanEncoderImpl>())));
  CHECK(type_error([&] { compat::from(own_encoder); }) ==
        caller +
            "expected encoder to be a torch::nn::TransformerEncoderImpl, got a "
            "(anonymous namespace)::MeanEncoderImpl");
  const nn::Transformer no_decoder(
      nn::TransformerOptions(8, 2, 1, 1).custom_decoder(nn::AnyModule(encoder_of())));
  CHECK(type_error([&] { compat::from(no_decoder); }) ==
        caller +
            "expected decoder to be a torch::nn::TransformerDecoderImpl, got a "
            "torch::nn::TransformerEncoderImpl");
}

TEST_CASE("from: norms and options without a counterpart are refused by name", "[compat][from][errors]") {
  const std::string caller = "compat::from: ";
  const auto with_norm = [](const nn::LayerNormOptions& norm) {
    compat::from(nn::TransformerEncoder(
        nn::TransformerEncoderOptions(encoder_options(), 1).norm(nn::AnyModule(nn::LayerNorm(norm)))));
  };
  const std::string one = "expected norm to normalise one dimension with elementwise_affine = true, got ";
  CHECK(value_error([&] { with_norm(nn::LayerNormOptions({8}).elementwise_affine(false)); }) ==
        caller + one + "normalized_shape (8,), elementwise_affine = false");
  CHECK(value_error([&] {
          with_norm(nn::LayerNormOptions({2, 8}));
        }) == caller + one + "normalized_shape (2, 8), elementwise_affine = true");
  auto transformer = transformer_of();
  transformer->decoder.get<nn::TransformerDecoderImpl>()
      .layers->at<nn::TransformerDecoderLayerImpl>(2)
      .norm3->options.elementwise_affine(false);
  CHECK(value_error([&] { compat::from(transformer); }) ==
        caller +
            "expected decoder.layers.2.norm3 to normalise one dimension with elementwise_affine = true, "
            "got normalized_shape (8,), elementwise_affine = false");

  CHECK(value_error([] {
          compat::from(nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder_options(), 0)));
        }) == caller + "expected layers to hold at least one layer, got none");
  CHECK(value_error([] { compat::from(nn::Transformer(nn::TransformerOptions(8, 2, 1, 0))); }) ==
        caller + "expected decoder.layers to hold at least one layer, got none");
  CHECK(value_error([] {
          compat::from(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(2)));
        }) == "compat::MultiheadAttention: expected dropout in [0, 1], got 2");
  const std::function<at::Tensor(const at::Tensor&)> nothing;
  CHECK(value_error([&] {
          compat::from(nn::TransformerEncoderLayer(encoder_options().activation(nothing)));
        }) == "compat::TransformerEncoderLayer: expected activation to be callable, got an empty function");
}

TEST_CASE("from: parameters that PyTorch's class does not use are refused by name",
          "[compat][from][errors]") {
  const std::string caller = "compat::from: expected only parameters that torch::nn::";
  nn::MultiheadAttention attention(8, 2);
  attention->register_parameter("scale", at::ones({2}));
  CHECK(value_error([&] { compat::from(attention); }) ==
        caller + "MultiheadAttentionImpl computes with, got scale");
  nn::TransformerEncoderLayer layer(encoder_options());
  layer->linear2 = nn::Linear(12, 8);  // not registered: an optimizer steps the former one
  CHECK(value_error([&] { compat::from(layer); }) ==
        caller + "TransformerEncoderLayerImpl computes with, got linear2.weight");
}
