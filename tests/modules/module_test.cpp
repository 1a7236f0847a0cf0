// Tests of modules built without initial weights.

#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/arg.h>

#include <attentive/attentive.h>
#include <attentive/modules/module.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;

namespace {

struct Kind {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> build;
};

std::vector<Kind> kinds() {
  const auto gated = FeedForwardOptions(8).gated(true);
  const auto attention = TransformerAttentionOptions(8, 2).qkv_bias(true).output_gate(true).qk_norm(true);
  const auto biased = TransformerAttentionOptions(8, 2).position_bias(RelativePositionBiasOptions(2));
  const auto llama = LlamaOptions(7, 8, 2, 2).qkv_bias(true).norm_after(true);
  return {
      {"CausalAttention", [] { return CausalAttention(3, 2, 6, 0.0).ptr(); }},
      {"CrossAttention", [] { return CrossAttention(4, 6, 8, 0.0, 2).ptr(); }},
      {"FeedForward", [=] { return FeedForward(gated).ptr(); }},
      {"FusedSelfAttention", [] { return FusedSelfAttention(8, 2).ptr(); }},
      {"GroupedQueryAttention", [] { return GroupedQueryAttention(3, 8, 6, 0.0, 4, 2).ptr(); }},
      {"LearnedPositions", [] { return LearnedPositions(6, 4).ptr(); }},
      {"LinearAttention", [] { return LinearAttention(4, 4, 2).ptr(); }},
      {"MatrixSelfAttention", [] { return MatrixSelfAttention(4, 2).ptr(); }},
      {"MultiHeadAttention", [] { return MultiHeadAttention(3, 8, 6, 0.0, 4).ptr(); }},
      {"MultiHeadAttentionWrapper", [] { return MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2).ptr(); }},
      {"MultiHeadSelfAttention", [] { return MultiHeadSelfAttention(8, 2).ptr(); }},
      {"RelativePositionBias", [] { return RelativePositionBias(3).ptr(); }},
      {"SelfAttentionV1", [] { return SelfAttentionV1(3, 2).ptr(); }},
      {"SelfAttentionV2", [] { return SelfAttentionV2(3, 2).ptr(); }},
      {"SharedHeadAttention", [] { return SharedHeadAttention(8, 2).ptr(); }},
      {"TransformerAttention", [=] { return TransformerAttention(attention).ptr(); }},
      {"TransformerBlock", [=] { return TransformerBlock(TransformerBlockOptions(biased)).ptr(); }},
      {"DecoderBlock", [] { return DecoderBlock(8, 2).ptr(); }},
      {"GPT", [] { return GPT(GPTOptions(7, 8, 8, 2, 2).init(GPTInit::Gpt2)).ptr(); }},
      {"Llama", [=] { return Llama(llama).ptr(); }},
      {"ViT", [] { return ViT(ViTOptions(8, 4, 1, 3)).ptr(); }},
  };
}

// Whether building draws from the default generator.
bool draws(const Kind& kind) {
  at::manual_seed(5);
  const auto expected = at::randn({3});
  at::manual_seed(5);
  kind.build();
  return !bit_equal(at::randn({3}), expected);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("Without first weights no random number is drawn and every shape is right", "[first_weights]") {
  for (const auto& kind : kinds()) {
    INFO(kind.name);
    CHECK(draws(kind));
    const auto drawn = kind.build();
    std::shared_ptr<torch::nn::Module> empty;
    {
      const NoFirstWeights guard;
      CHECK_FALSE(draws(kind));
      empty = kind.build();
    }
    CHECK(draws(kind));
    const auto want = drawn->named_parameters(), got = empty->named_parameters();
    REQUIRE(got.keys() == want.keys());
    for (const auto& item : want) {
      INFO(item.key());
      CHECK(got[item.key()].sizes() == item->sizes());
      CHECK(got[item.key()].scalar_type() == item->scalar_type());
      CHECK(got[item.key()].is_contiguous());
      CHECK(got[item.key()].requires_grad());
    }
    CHECK(empty->named_buffers().keys() == drawn->named_buffers().keys());
  }
}

TEST_CASE("A model without first weights equals the one whose weights it is given", "[first_weights]") {
  const auto options = LlamaOptions(11, 12, 3, 2).qkv_bias(true);
  const Llama drawn(options);
  Llama given = [&] {
    const NoFirstWeights guard;
    return Llama(options);
  }();
  load_state_dict(*given, state_dict(*drawn));
  const auto ids = at::arange(6).view({1, 6});
  CHECK(bit_equal(given->forward(ids), Llama(drawn)->forward(ids)));
  // The options of the layers, which printing and saving read, are those of the real sizes.
  CHECK(given->out_head->options.out_features() == 11);
  CHECK(given->tok_emb->options.num_embeddings() == 11);
  CHECK(bit_equal(Llama(std::dynamic_pointer_cast<LlamaImpl>(given->clone()))->forward(ids),
                  given->forward(ids)));
}

TEST_CASE("NoFirstWeights nests and belongs to its thread", "[first_weights]") {
  const Kind kind{"FeedForward", [] { return FeedForward(4).ptr(); }};
  const NoFirstWeights outer;
  { const NoFirstWeights inner; }
  CHECK_FALSE(draws(kind));
  bool elsewhere = false;
  std::thread([&] { elsewhere = draws(kind); }).join();
  CHECK(elsewhere);
}

TEST_CASE("A model without first weights occupies no memory", "[first_weights]") {
  const auto before = resident_bytes();
  if (before == 0) SKIP("no /proc/self/statm");
  const NoFirstWeights guard;
  const Llama llama(LlamaOptions(32000, 768, 12, 8).hidden_dim(2048));
  const GPT gpt(GPTOptions(20000, 1024, 768, 12, 4));
  int64_t bytes = 0;
  for (const auto& p : llama->parameters()) bytes += static_cast<int64_t>(p.nbytes());
  for (const auto& p : gpt->parameters()) bytes += static_cast<int64_t>(p.nbytes());
  CHECK(bytes > 400'000'000);
  CHECK(resident_bytes() - before < bytes / 10);
}

namespace {

struct GainOptions {
  explicit GainOptions(int64_t width) : width_(width) {}
  TORCH_ARG(int64_t, width);
  TORCH_ARG(double, factor) = 2;
  ATTENTIVE_OPTIONS(width_, factor_);
};

class GainImpl : public Module<GainImpl> {
 public:
  static constexpr const char* kName = "Gain";
  explicit GainImpl(int64_t width) : GainImpl(GainOptions(width)) {}
  explicit GainImpl(GainOptions options_) : options(options_) { build(); }

  void reset() override { weight = register_parameter("weight", at::randn({options.width()})); }
  at::Tensor forward(const at::Tensor& x) { return options.factor() * weight * x; }

  GainOptions options;
  at::Tensor weight;
};
using Gain = ModuleHolder<GainImpl>;

}  // namespace

TEST_CASE("RandomStateGuard puts the random state back", "[module]") {
  at::manual_seed(5);
  const auto want = at::randn({4});
  at::manual_seed(5);
  {
    const RandomStateGuard guard;
    CHECK(bit_equal(at::randn({4}), want));
  }
  CHECK(bit_equal(at::randn({4}), want));
}

TEST_CASE("a clone has the same numbers, memory of its own and draws nothing", "[module]") {
  const Gain module(4);
  at::manual_seed(5);
  const auto want = at::randn({4});
  at::manual_seed(5);
  const Gain copy(std::dynamic_pointer_cast<GainImpl>(module->clone()));
  CHECK(bit_equal(at::randn({4}), want));
  CHECK(bit_equal(copy->weight, module->weight));
  const at::NoGradGuard no_grad;
  copy->weight.add_(1);
  CHECK_FALSE(bit_equal(copy->weight, module->weight));
}

TEST_CASE("a module prints its name and every option", "[module]") {
  std::ostringstream stream;
  stream << *Gain(GainOptions(3).factor(0.5));
  CHECK(stream.str() == "attentive::Gain(width=3, factor=0.5)");
}

TEST_CASE("a module whose parameters find no memory says its name", "[module][errors]") {
  CHECK(test::error_of<c10::OutOfMemoryError>([] { Gain(int64_t{1} << 55); }).starts_with("Gain: "));
}

TEST_CASE("a holder makes, shares and calls its module", "[module]") {
  Gain module(3);
  const Gain same = module;
  CHECK(same.get() == module.get());
  CHECK(same.ptr() == module.ptr());
  const auto x = at::ones({3});
  CHECK(bit_equal(module(x), module->forward(x)));
}

TEST_CASE("an empty holder says by name that it is empty", "[module][errors]") {
  Gain empty(nullptr);
  const Gain& fixed = empty;
  const std::string message =
      "Gain: expected a holder with a module, got an empty one, made from nullptr; assign Gain(...) to it "
      "first";
  CHECK(empty.is_empty());
  CHECK(test::value_error([&] { empty->forward(at::ones({3})); }) == message);
  CHECK(test::value_error([&] { empty(at::ones({3})); }) == message);
  CHECK(test::value_error([&] { (void)*fixed; }) == message);
  CHECK(test::value_error([&] { (void)fixed.get(); }) == message);
  CHECK(test::value_error([&] { (void)fixed.ptr(); }) == message);
  empty = Gain(3);
  CHECK(fixed->weight.numel() == 3);
}
