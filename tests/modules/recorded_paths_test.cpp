// Tests of the paths under which an AttentionRecorder records the calls of every class, and of calls whose
// modules are added, destroyed or throw.

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <set>
#include <stdexcept>
#include <thread>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/attentive.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/latent_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/modules/transformer_blocks.h>

#include "modules/bias_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;

namespace {

using Paths = std::vector<std::string>;
using Outputs = std::pair<at::Tensor, at::Tensor>;

struct Class {
  std::string name;  // kName
  std::shared_ptr<torch::nn::Module> module;
  // Returns the output, and the weights if the class returns them (without the head dimension for one head).
  std::function<Outputs()> run;
  Paths paths = {"it"};
};

// The names of the classes below include/attentive/modules and include/attentive/compat.
std::set<std::string> names_in_headers() {
  std::set<std::string> names;
  const std::regex line(R"re(kName = "([^"]+)")re");
  for (const auto* folder : {"modules", "compat"}) {
    const auto path = std::filesystem::path(source_folder()) / "include/attentive" / folder;
    for (const auto& header : std::filesystem::directory_iterator(path)) {
      std::ifstream file(header.path());
      std::string text;
      std::smatch match;
      while (std::getline(file, text)) {
        if (std::regex_search(text, match, line)) names.insert(match[1]);
      }
    }
  }
  return names;
}

// Classes that call attention only through other classes of the list, or not at all.
const std::set<std::string> kOthers = {"DistanceBias",
                                       "FeedForward",
                                       "GatedDeltaNet",
                                       "LayerNorm",
                                       "LearnedPositions",
                                       "RMSNorm",
                                       "RelativePositionBias",
                                       "RelativePositionBias2d",
                                       "RotaryPositions",
                                       "SinusoidalPositions",
                                       "compat::LayerNorm",
                                       "compat::TransformerEncoder",
                                       "compat::TransformerDecoder",
                                       "compat::Transformer"};

template <class Holder>
Class self(const char* name, Holder holder, const at::Tensor& x, Paths paths = {"it"}) {
  return {
      name, holder.ptr(),
      [holder, x]() mutable -> Outputs { return holder->forward_with_weights(x, Mask(), Weights::Clean); },
      std::move(paths)};
}

template <class Holder, class... Inputs>
Class plain(const char* name, Holder holder, Paths paths, const Inputs&... inputs) {
  return {name, holder.ptr(),
          [=]() mutable -> Outputs {
            return {holder->forward(inputs...), at::Tensor()};
          },
          std::move(paths)};
}

std::vector<Class> recorded_classes() {
  at::manual_seed(8);
  const auto x = at::randn({2, 5, 6}), memory = at::randn({2, 7, 6});
  const auto source = at::randn({7, 5, 6});  // compat: tokens first
  const auto wide = at::randn({2, 5, 8});
  SharedHeadAttention shared(6, 2);
  CrossAttention cross(6, 6, 4, 0.0, 2);
  ScaledDotProductAttention product;
  compat::MultiheadAttention torchs(6, 2);
  const auto grouped =
      GroupedQueryAttentionOptions(8, 8, 0, 0.0, 4, 2).alibi(true).sinks(true).attention({.softcap = 1.5});
  const TransformerBlockOptions block(6, 2);
  return {
      self("SelfAttentionV1", SelfAttentionV1(6, 4), x),
      self("SelfAttentionV2", SelfAttentionV2(6, 4), x),
      self("MatrixSelfAttention", MatrixSelfAttention(6, 4), x),
      self("CausalAttention", CausalAttention(6, 4, 9, 0.1), x),
      self("MultiHeadAttentionWrapper", MultiHeadAttentionWrapper(6, 4, 9, 0.1, 2), x,
           {"it.heads.0", "it.heads.1"}),
      self("MultiHeadAttention", MultiHeadAttention(6, 4, 9, 0.1, 2), x),
      self("MultiHeadSelfAttention", MultiHeadSelfAttention(6, 2, 0.1), x),
      self("FusedSelfAttention", FusedSelfAttention(6, 2), x),
      self("GroupedQueryAttention", GroupedQueryAttention(grouped), wide),
      {"ScaledDotProductAttention", product.ptr(),
       [=]() mutable { return product->forward_with_weights(x, memory, memory, Mask(), Weights::Clean); }},
      {"SharedHeadAttention", shared.ptr(),
       [=]() mutable { return shared->forward_with_weights(x, x, x, Mask(), Weights::Clean); }},
      {"CrossAttention", cross.ptr(),
       [=]() mutable { return cross->forward_with_weights(x, memory, Mask(), Weights::Clean); }},
      {"compat::MultiheadAttention", torchs.ptr(),
       [=]() mutable -> Outputs {
         const auto [y, w] = torchs->forward(x, source, source, {}, /*need_weights=*/true, {},
                                             /*average_attn_weights=*/false);
         return {y, w};
       }},
      plain("LatentAttention", LatentAttention(6, 2), {"it"}, x),
      plain("LinearAttention", LinearAttention(6, 6, 2), {"it"}, x),
      plain("TransformerAttention", TransformerAttention(6, 2), {"it"}, x),
      plain("TransformerBlock", TransformerBlock(6, 2), {"it.att"}, x),
      plain("TransformerBlock", encoder_block(block), {"it.att"}, x),
      plain("DecoderBlock", DecoderBlock(6, 2), {"it.att", "it.cross"}, x, memory),
      plain("compat::TransformerEncoderLayer", compat::TransformerEncoderLayer(6, 2), {"it.self_attn"}, x),
      plain("compat::TransformerDecoderLayer", compat::TransformerDecoderLayer(6, 2),
            {"it.self_attn", "it.multihead_attn"}, x, source),
  };
}

Paths paths_of(const AttentionRecorder& recorder) {
  Paths paths;
  for (const auto& call : recorder.calls()) paths.push_back(call.path);
  return paths;
}

// A user's module that passes itself to `attention` as the caller, with two modules of this package.
struct Chain : torch::nn::Module {
  Chain() {
    first = register_module("first", SelfAttentionV2(4, 4));
    second = register_module("second", SelfAttentionV2(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = first->forward(x);
    if (fails) throw std::runtime_error("between the layers");
    AttentionExtras extras;
    extras.caller = this;
    y = attention(y, y, y, {}, extras).output;
    return second->forward(attention(y, y, y));
  }
  SelfAttentionV2 first{nullptr}, second{nullptr};
  bool fails = false;
};

}  // namespace

TEST_CASE("every class is recorded under its path, with the weights it returns", "[recorder]") {
  std::set<std::string> tried = kOthers;
  for (auto& c : recorded_classes()) {
    INFO(c.name);
    tried.insert(c.name);
    c.module->eval();
    const auto root = std::make_shared<torch::nn::Module>();
    root->register_module("it", c.module);
    const auto [y, weights] = c.run();

    const AttentionRecorder recorder(*root);
    const auto recorded = c.run();
    CHECK(bit_equal(recorded.first, y));
    CHECK(paths_of(recorder) == c.paths);
    for (const auto& call : recorder.calls()) CHECK(call.linear == (c.name == "LinearAttention"));
    if (weights.defined()) {
      std::vector<at::Tensor> heads;
      for (const auto& call : recorder.calls()) heads.push_back(call.weights());
      CHECK_CLOSE(at::cat(heads, 1).reshape(weights.sizes()), weights);
    }
  }
  for (const auto& name : names_in_headers()) {
    INFO("a class that neither list of this file has: " << name);
    CHECK(tried.count(name) == 1);
  }
}

TEST_CASE("a module that is its own root has an empty path", "[recorder]") {
  MultiHeadAttention module(6, 4, 9, 0.0, 2);
  const AttentionRecorder recorder(*module);
  module->forward(at::randn({5, 6}));
  CHECK(paths_of(recorder) == Paths{""});
  // A module on the stack is not owned by a shared_ptr.
  Chain chain;
  const AttentionRecorder of_chain(chain);
  chain.forward(at::randn({3, 4}));
  CHECK(paths_of(of_chain) == Paths{"first", "", "call 2", "second"});
}

TEST_CASE("calls of other models are not recorded, those of nobody are", "[recorder]") {
  const auto chain = std::make_shared<Chain>();
  const auto x = at::randn({3, 4});
  const AttentionRecorder recorder(*chain);
  SelfAttentionV2 other(4, 4);
  other->forward(x);
  std::make_shared<Chain>()->first->forward(x);
  CHECK(recorder.seen() == 0);
  attention(x, x, x);
  chain->second->forward(x);
  CHECK(paths_of(recorder) == Paths{"call 0", "second"});
}

TEST_CASE("layers name a path, a pattern of paths, or a module with all inside it", "[recorder]") {
  const auto root = std::make_shared<torch::nn::Module>();
  const auto chain = root->register_module("chain", std::make_shared<Chain>());
  const auto more = root->register_module("chains", std::make_shared<Chain>());
  const auto chosen = [&](const char* layers) {
    const AttentionRecorder recorder(*root, {.layers = layers});
    chain->forward(at::randn({3, 4}));
    more->forward(at::randn({3, 4}));
    CHECK(recorder.seen() == 8);
    return paths_of(recorder);
  };
  CHECK(chosen("chain.first") == Paths{"chain.first"});
  CHECK(chosen("chain") == Paths{"chain.first", "chain", "chain.second"});
  CHECK(chosen("chain.*") == Paths{"chain.first", "chain.second"});
  CHECK(chosen("*.second") == Paths{"chain.second", "chains.second"});
  CHECK(chosen("chain?.f*") == Paths{"chains.first"});
  CHECK(chosen("*").size() == 8);
  CHECK(value_error([&] { AttentionRecorder recorder(*root, {.layers = "blocks.*"}); }) ==
        "AttentionRecorder: expected layers to choose a module, got \"blocks.*\"; the modules are \"chain\", "
        "\"chain.first\", \"chain.first.W_query\", \"chain.first.W_key\"");
  CHECK_FALSE(chosen("chain").empty());
  ScaledDotProductAttention product;
  CHECK(
      value_error([&] { AttentionRecorder recorder(*product, {.layers = "heads"}); }) ==
      "AttentionRecorder: expected layers to choose a module, got \"heads\"; the modules are the root alone, "
      "\"\"");
}

TEST_CASE("a module registered twice has the first of its names", "[recorder]") {
  const auto root = std::make_shared<torch::nn::Module>();
  SelfAttentionV2 shared(4, 4);
  root->register_module("layer0", shared);
  root->register_module("layer1", shared);
  const AttentionRecorder recorder(*root);
  shared->forward(at::randn({3, 4}));
  shared->forward(at::randn({3, 4}));
  CHECK(paths_of(recorder) == Paths{"layer0", "layer0"});
}

TEST_CASE("what ran before an exception stays recorded, and recording goes on", "[recorder]") {
  const auto chain = std::make_shared<Chain>();
  const auto x = at::randn({3, 4});
  const AttentionRecorder recorder(*chain);
  chain->fails = true;
  CHECK_THROWS_AS(chain->forward(x), std::runtime_error);
  CHECK(paths_of(recorder) == Paths{"first"});
  chain->fails = false;
  chain->forward(x);
  CHECK(paths_of(recorder) == Paths{"first", "first", "", "call 3", "second"});
}

TEST_CASE("a recorder outlives its model, and a model its recorder", "[recorder]") {
  const auto x = at::randn({3, 4});
  auto chain = std::make_shared<Chain>();
  auto recorder = std::make_unique<AttentionRecorder>(*chain);
  const auto before = chain->forward(x);
  recorder.reset();
  CHECK(bit_equal(chain->forward(x), before));

  recorder = std::make_unique<AttentionRecorder>(*chain);
  chain->forward(x);
  chain.reset();
  REQUIRE(recorder->calls().size() == 4);
  CHECK_CLOSE(recorder->calls()[3].weights().sum(-1), at::ones({1, 1, 3}));
}

TEST_CASE("a module at the address of one that is gone does not take its name", "[recorder]") {
  const auto root = std::make_shared<torch::nn::Module>();
  auto module = SelfAttentionV2(4, 4);
  const void* address = module.get();
  root->register_module("it", module);
  const AttentionRecorder recorder(*root);
  root->unregister_module("it");
  module = nullptr;
  for (int n = 0; n < 1000 && module.is_empty(); ++n) {
    SelfAttentionV2 candidate(4, 4);
    if (candidate.get() == address) module = candidate;
  }
  if (module.is_empty()) SKIP("the allocator did not give the address again");
  module->forward(at::randn({3, 4}));
  CHECK(recorder.seen() == 0);
}

TEST_CASE("a clone, and a replica on a thread of its own, are not the root's", "[recorder]") {
  const auto x = at::randn({5, 6});
  MultiHeadAttention module(6, 4, 9, 0.0, 2);
  const auto clone = std::dynamic_pointer_cast<MultiHeadAttentionImpl>(module->clone());
  const AttentionRecorder rooted(*module), everything, of_clone(*clone);
  const auto want = module->forward(x);
  CHECK(bit_equal(clone->forward(x), want));
  at::Tensor replicated;
  size_t there = 0;
  std::thread([&] {
    replicated = clone->forward(x);
    const AttentionRecorder recorder(*clone);
    clone->forward(x);
    there = recorder.calls().size();
  }).join();
  CHECK(bit_equal(replicated, want));
  CHECK(rooted.calls().size() == 1);
  CHECK(of_clone.calls().size() == 1);
  CHECK(paths_of(everything) == Paths{"call 0", "call 1"});
  CHECK(there == 1);
}

// A layer of transformers' Swin, built from the modules of this package.

namespace {

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct SwinLayer : torch::nn::Module {
  explicit SwinLayer(const BiasCase& c)
      : height(c.integer("height")),
        width(c.integer("width")),
        window(c.integer("window")),
        shift(c.integer("shift")) {
    const auto dim = c.integer("emb_dim"), heads = c.integer("num_heads");
    att = register_module(
        "att", TransformerAttention(TransformerAttentionOptions(dim, heads)
                                        .qkv_bias(c.flag("qkv_bias"))
                                        .position_bias(RelativePositionBias2dOptions(window, window, heads))
                                        .attention({})));
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions(dim).eps(c.number("eps"))));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions(dim).eps(c.number("eps"))));
    ff = register_module(
        "ff", FeedForward(
                  FeedForwardOptions(dim).hidden_dim(c.integer("hidden_dim")).activation(Activation::Gelu)));
  }

  // x (B, height * width, dim); zeros are appended to rows and columns that fill no window.
  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), rows = rounded_up(height, window), columns = rounded_up(width, window);
    const auto image = at::constant_pad_nd(norm1->forward(x).unflatten(1, {height, width}),
                                           {0, 0, 0, columns - width, 0, rows - height});
    Mask mask;
    if (shift > 0) {
      const auto keep = shifted_window_mask({rows, columns}, {window, window}, {shift, shift});
      mask = Mask::per_batch(Mask::keep(keep.repeat({batch, 1, 1})));
    }
    const auto windows = window_partition(image, {window, window}, {shift, shift});
    const auto attended =
        window_merge(att->forward(windows, mask), {rows, columns}, {window, window}, {shift, shift});
    const auto h = x + attended.narrow(1, 0, height).narrow(2, 0, width).flatten(1, 2);
    return h + ff->forward(norm2->forward(h));
  }

  int64_t height, width, window, shift;
  TransformerAttention att{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  FeedForward ff{nullptr};
};

}  // namespace

TEST_CASE("A layer of Swin equals transformers' in value and gradient, shifted and not",
          "[swin_layer][bias_cases]") {
  int shifted = 0, padded = 0;
  for (const auto& c : bias_cases("swin_layer", 8)) {
    SwinLayer layer(c);
    check_bias_case(c, layer, [&](const CaseTensors& in) { return layer.forward(in.at("hidden_states")); });
    shifted += layer.shift > 0 ? 1 : 0;
    padded += layer.height % layer.window + layer.width % layer.window > 0 ? 1 : 0;
  }
  CHECK(shifted == 4);
  CHECK(padded > 0);
}

namespace {

// A layer of T5's encoder, or of its decoder. The scores are not scaled, the projections have no bias, and
// the norms do not shift.
struct T5Layer : torch::nn::Module {
  T5Layer(const BiasCase& c, bool decoder) {
    const auto width = c.integer("emb_dim"), heads = c.integer("num_heads");
    const AttentionOptions call{.scale = 1.0, .causal = decoder ? Causal::BottomRight : Causal::None};
    att = register_module("att",
                          TransformerAttention(TransformerAttentionOptions(width, heads)
                                                   .head_dim(c.integer("head_dim"))
                                                   .out_bias(false)
                                                   .position_bias(RelativePositionBiasOptions(heads)
                                                                      .num_buckets(c.integer("num_buckets"))
                                                                      .max_distance(c.integer("max_distance"))
                                                                      .bidirectional(!decoder))
                                                   .attention(call)));
    const auto norm = RMSNormOptions(width).eps(c.number("eps"));
    norm1 = register_module("norm1", RMSNorm(norm));
    norm2 = register_module("norm2", RMSNorm(norm));
    if (decoder) {
      cross = register_module(
          "cross",
          CrossAttention(CrossAttentionOptions(width, width, width, 0.0, heads).attention({.scale = 1.0})));
      norm3 = register_module("norm3", RMSNorm(norm));
    }
    const bool gated = c.flag("gated");
    ff = register_module("ff", FeedForward(FeedForwardOptions(width)
                                               .hidden_dim(c.integer("hidden_dim"))
                                               .bias(false)
                                               .activation(gated ? Activation::GeluTanh : Activation::Relu)
                                               .gated(gated)));
  }

  at::Tensor encode(const at::Tensor& x, const Mask& padding) {
    const auto h = x + att->forward(norm1->forward(x), padding);
    return h + ff->forward(norm2->forward(h));
  }

  at::Tensor decode(const at::Tensor& x, const at::Tensor& memory, const Mask& memory_padding,
                    KVCache* cache = nullptr) {
    const auto y = norm1->forward(x);
    const auto h = x + (cache ? att->forward_cached(y, *cache, 0) : att->forward(y));
    const auto informed = h + cross->forward(norm2->forward(h), memory, memory_padding);
    return informed + ff->forward(norm3->forward(informed));
  }

  TransformerAttention att{nullptr};
  CrossAttention cross{nullptr};
  RMSNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  FeedForward ff{nullptr};
};

}  // namespace

TEST_CASE("A layer of T5's encoder equals transformers' in value and gradient", "[t5_layers][bias_cases]") {
  for (const auto& c : bias_cases("t5_encoder", 5)) {
    T5Layer layer(c, /*decoder=*/false);
    check_bias_case(c, layer, [&](const CaseTensors& in) {
      return layer.encode(in.at("hidden_states"), Mask::key_keep(in.at("attention_mask")));
    });
  }
}

TEST_CASE("A layer of T5's decoder equals transformers' in value and gradient, and token by token",
          "[t5_layers][bias_cases]") {
  for (const auto& c : bias_cases("t5_decoder", 5)) {
    T5Layer layer(c, /*decoder=*/true);
    const auto decode = [&](const CaseTensors& in) {
      return layer.decode(in.at("hidden_states"), in.at("encoder_hidden_states"),
                          Mask::key_keep(in.at("encoder_attention_mask")));
    };
    check_bias_case(c, layer, decode, {"cross.out_proj.bias"});

    // The generator has compared transformers' own layer with its cache.
    const at::NoGradGuard no_grad;
    const auto& x = c.file.inputs.at("hidden_states");
    DenseKVCache cache(
        {.batch = x.size(0), .num_kv_heads = c.integer("num_heads"), .head_dim = c.integer("head_dim")},
        x.size(1));
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < x.size(1); ++t) {
      rows.push_back(layer.decode(x.narrow(1, t, 1), c.file.inputs.at("encoder_hidden_states"),
                                  Mask::key_keep(c.file.inputs.at("encoder_attention_mask")), &cache));
    }
    INFO(c.file.name);
    CHECK_CLOSE(at::cat(rows, 1), c.file.expected_output);
  }
}
