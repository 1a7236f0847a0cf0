// Tests of modules built without initial weights.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/arg.h>

#include <attentive/attentive.h>
#include <attentive/modules/gated_delta_net.h>
#include <attentive/modules/latent_attention.h>
#include <attentive/modules/module.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"

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

// Tests of the printed form of modules: their name and every option.

namespace {

// Returns the line of the module itself, without its children.
template <class Holder>
std::string printed(const Holder& module) {
  std::ostringstream out;
  module->pretty_print(out);
  return out.str();
}

template <class Options>
std::vector<std::string> names_of(const Options& options) {
  std::vector<std::string> names;
  each_option(options, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  return names;
}

// Returns the names of the options outside braces, in order.
std::vector<std::string> printed_names(const std::string& text) {
  std::vector<std::string> names;
  int depth = 0;
  std::string name;
  for (const char c : text.substr(text.find('(') + 1)) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (depth > 0) continue;
    if (c == '=') names.push_back(name);
    name = c == ' ' || c == '=' ? "" : name + c;
  }
  return names;
}

template <class Holder>
void check_printout(const Holder& module, const std::string& name) {
  const auto text = printed(module);
  INFO(text);
  CHECK(text.starts_with("attentive::" + name + "("));
  CHECK(text.ends_with(")"));
  CHECK(printed_names(text) == names_of(module->options));
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

}  // namespace

TEST_CASE("Every module prints all of its options by name", "[print_options]") {
  check_printout(CausalAttention(3, 2, 6, 0.1), "CausalAttention");
  check_printout(CrossAttention(4, 6, 8, 0.0, 2), "CrossAttention");
  check_printout(FeedForward(4), "FeedForward");
  check_printout(FusedSelfAttention(8, 2), "FusedSelfAttention");
  check_printout(GroupedQueryAttention(3, 8, 6, 0.0, 4, 2), "GroupedQueryAttention");
  check_printout(LayerNorm(4), "LayerNorm");
  check_printout(LinearAttention(4, 4, 2), "LinearAttention");
  check_printout(MatrixSelfAttention(4, 2), "MatrixSelfAttention");
  check_printout(MultiHeadAttention(3, 8, 6, 0.0, 4), "MultiHeadAttention");
  check_printout(MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2), "MultiHeadAttentionWrapper");
  check_printout(MultiHeadSelfAttention(8, 2), "MultiHeadSelfAttention");
  check_printout(SinusoidalPositions(4), "SinusoidalPositions");
  check_printout(LearnedPositions(6, 4), "LearnedPositions");
  check_printout(RotaryPositions(4), "RotaryPositions");
  check_printout(DistanceBias(4), "DistanceBias");
  check_printout(RelativePositionBias(4), "RelativePositionBias");
  check_printout(RelativePositionBias2d(2, 3, 4), "RelativePositionBias2d");
  check_printout(RMSNorm(4), "RMSNorm");
  check_printout(ScaledDotProductAttention(0.1), "ScaledDotProductAttention");
  check_printout(SelfAttentionV1(3, 2), "SelfAttentionV1");
  check_printout(SelfAttentionV2(3, 2), "SelfAttentionV2");
  check_printout(SharedHeadAttention(8, 2), "SharedHeadAttention");
  check_printout(LatentAttention(8, 2), "LatentAttention");
  check_printout(GatedDeltaNet(8, 2), "GatedDeltaNet");
  check_printout(TransformerAttention(8, 2), "TransformerAttention");
  check_printout(TransformerBlock(8, 2), "TransformerBlock");
  check_printout(DecoderBlock(8, 2), "DecoderBlock");
  check_printout(GPT(GPTOptions(7, 8, 8, 2, 1)), "GPT");
  check_printout(LlamaBlock(LlamaOptions(7, 8, 2, 1)), "LlamaBlock");
  check_printout(Llama(LlamaOptions(7, 8, 2, 1)), "Llama");
  check_printout(ViTBlock(ViTOptions(8, 4, 1, 3)), "ViTBlock");
  check_printout(ViT(ViTOptions(8, 4, 1, 3)), "ViT");
  check_printout(Bert(BertOptions(7, 8, 8, 2, 1)), "Bert");
  check_printout(compat::LayerNorm(4), "compat::LayerNorm");
  check_printout(compat::MultiheadAttention(8, 2), "compat::MultiheadAttention");
  check_printout(compat::TransformerEncoderLayer(8, 2), "compat::TransformerEncoderLayer");
  check_printout(compat::TransformerDecoderLayer(8, 2), "compat::TransformerDecoderLayer");
  const compat::TransformerLayerOptions layer(8, 2);
  check_printout(compat::TransformerEncoder(compat::TransformerEncoderOptions(layer, 2)),
                 "compat::TransformerEncoder");
  check_printout(compat::TransformerDecoder(compat::TransformerDecoderOptions(layer, 2)),
                 "compat::TransformerDecoder");
  check_printout(compat::Transformer(compat::TransformerOptions(layer).num_encoder_layers(1)),
                 "compat::Transformer");
}

TEST_CASE("Every option that a header declares is listed, in order", "[print_options]") {
  const std::regex declared(R"(TORCH_ARG\([^;]*?,\s*(\w+)\))"), list(R"(ATTENTIVE_OPTIONS\(([^)]*)\))");
  size_t seen = 0;
  for (const char* floor : {"notebooks", "modules", "compat", "models"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(test::source_folder() + "/include/attentive/" + floor)) {
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (auto offset = text.find("\nstruct "); offset != text.npos;
           offset = text.find("\nstruct ", offset + 1)) {
        const auto body = text.substr(offset + 8, text.find("\n};", offset) - offset);
        const auto options = matches(body, declared);
        if (options.empty()) continue;  // plain members, never printed
        INFO(entry.path() << ": " << body.substr(0, body.find(' ')));
        const auto lists = matches(body, list);
        REQUIRE(lists.size() == 1);
        CHECK(matches(lists[0], std::regex(R"((\w+)_(?:,|$))")) == options);
        ++seen;
      }
    }
  }
  CHECK(seen == 36);
  [[maybe_unused]] const auto& [causal, feature_map, chunk_size, eps] =
      LinearAttentionCall();  // every member
  CHECK(names_of(LinearAttentionCall()) ==
        std::vector<std::string>{"causal", "feature_map", "chunk_size", "eps"});
}

TEST_CASE("Options within options are printed in braces, where defaults are left out", "[print_options]") {
  CHECK(printed(MultiHeadAttention(3, 8, 6, 0.25, 4)) ==
        "attentive::MultiHeadAttention(d_in=3, d_out=8, context_length=6, dropout=0.25, num_heads=4, "
        "qkv_bias=false, alibi=false, sinks=false, position_bias=none, score=none, block_mask=none, "
        "attention={causal=bottom-right})");
  auto attention = AttentionOptions{.scale = 0.5, .window = {255, 0}, .softcap = 30};
  attention.softmax_plus_one = true;
  attention.dropout_stream = DropoutStream::Aten;
  attention.backend = Backend::Native;
  CHECK(printed(SelfAttentionV1(SelfAttentionV1Options(3, 2).attention(attention))) ==
        "attentive::SelfAttentionV1(d_in=3, d_out=2, init=uniform, attention={scale=0.5, window={left=255, "
        "right=0}, softcap=30, softmax_plus_one=true, dropout_stream=aten, backend=native})");
  CHECK(printed(SharedHeadAttention(8, 2)) ==
        "attentive::SharedHeadAttention(embed_size=8, heads=2, attention={})");
  auto linear = LinearAttentionOptions(4, 4, 2);
  CHECK(printed(LinearAttention(linear)) ==
        "attentive::LinearAttention(d_in=4, d_out=4, num_heads=2, qkv_bias=false, "
        "attention={causal=bottom-right})");
  linear.attention().feature_map = [](const at::Tensor& x) { return at::relu(x); };
  CHECK(printed(LinearAttention(linear)).ends_with("attention={causal=bottom-right, feature_map=function})"));
}

TEST_CASE("Deeper options, enumerations and absent ones are printed too", "[print_options]") {
  const auto rotary = RotaryPositionsOptions(0).base(500).scaling(RotaryScaling::Linear).factor(2);
  const auto attention = TransformerAttentionOptions(8, 2).rotary(rotary).num_kv_heads(1);
  CHECK(printed(encoder_block(TransformerBlockOptions(attention))) ==
        "attentive::TransformerBlock(attention={emb_dim=8, num_heads=2, num_kv_heads=1, rotary={base=500, "
        "scaling=linear, factor=2}}, hidden_dim=0, dropout=0, bias=true, norm_first=true, memory_dim=0, "
        "activation=gelu_tanh, gated=false, eps=1e-05, checkpoint=false)");
  CHECK(
      printed(TransformerAttention(8, 2)) ==
      "attentive::TransformerAttention(emb_dim=8, num_heads=2, num_kv_heads=0, head_dim=0, context_length=0, "
      "dropout=0, qkv_bias=false, out_bias=true, rotary=none, position_bias=none, qk_norm=false, "
      "head_norm={}, "
      "output_gate=false, score=none, block_mask=none, "
      "attention={causal=bottom-right})");
  CHECK(
      printed(GPT(GPTOptions(7, 8, 8, 2, 1).init(GPTInit::Gpt2))) ==
      "attentive::GPT(vocab_size=7, context_length=8, emb_dim=8, num_heads=2, num_layers=1, num_kv_heads=0, "
      "dropout=0, qkv_bias=false, bias=true, tied=false, positions=learned, rotary={}, window=0, init=gpt2, "
      "hidden_dim=0, "
      "activation=gelu_tanh, eps=1e-05, checkpoint=0)");
  CHECK(printed(RotaryPositions(RotaryPositionsOptions(4).pairing(RotaryPairing::Halves))) ==
        "attentive::RotaryPositions(head_dim=4, base=10000, pairing=halves, scaling=none, factor=1, "
        "low_freq_factor=1, high_freq_factor=4, original_context=8192, beta_fast=32, beta_slow=1, "
        "truncate=true, mscale=0, mscale_all_dim=0, attention_factor=none)");
  CHECK(
      printed(Llama(LlamaOptions(7, 8, 2, 2).windows({4, 0}).window_rotary(RotaryPositionsOptions(0))))
          .ends_with("dropout=0, rotary={pairing=halves}, windows=[4, 0], window_rotary={}, checkpoint=0)"));
  const auto line = RelativePositionBiasOptions(2).bidirectional(false);
  CHECK(printed(
            TransformerBlock(TransformerBlockOptions(TransformerAttentionOptions(8, 2).position_bias(line))))
            .starts_with("attentive::TransformerBlock(attention={emb_dim=8, num_heads=2, "
                         "position_bias=RelativePositionBias{num_heads=2, bidirectional=false}, "
                         "attention={causal=bottom-right}}, "));
  const auto window = RelativePositionBias2dOptions(3, 2, 2);
  CHECK(printed(MultiHeadAttention(MultiHeadAttentionOptions(8, 8, 0, 0, 2).position_bias(window)))
            .find("position_bias=RelativePositionBias2d{height=3, width=2, num_heads=2}, ") !=
        std::string::npos);
  CHECK(printed(MultiHeadAttention(
                    MultiHeadAttentionOptions(8, 8, 0, 0, 2).position_bias(DistanceBiasOptions(2))))
            .find("position_bias=DistanceBias{num_heads=2}, ") != std::string::npos);
  using compat::TransformerLayerOptions;
  CHECK(printed(compat::TransformerEncoderLayer(TransformerLayerOptions(8, 2).activation(torch::kGELU))) ==
        "attentive::compat::TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=2048, dropout=0.1, "
        "activation=kGELU, layer_norm_eps=1e-05, batch_first=false, norm_first=false, bias=true)");
  const auto relu = [](const at::Tensor& x) { return at::relu(x); };
  CHECK(printed(compat::TransformerDecoderLayer(TransformerLayerOptions(8, 2).activation(relu)))
            .find("activation=function,") != std::string::npos);
  const auto norm = compat::LayerNormOptions(8).eps(0.5);
  CHECK(
      printed(compat::TransformerEncoder(
          compat::TransformerEncoderOptions(TransformerLayerOptions(8, 2).norm_first(true), 3).norm(norm))) ==
      "attentive::compat::TransformerEncoder(layer={d_model=8, nhead=2, norm_first=true}, num_layers=3, "
      "norm={features=8, eps=0.5})");
  CHECK(printed(compat::TransformerDecoder(
            compat::TransformerDecoderOptions(TransformerLayerOptions(8, 2), 1))) ==
        "attentive::compat::TransformerDecoder(layer={d_model=8, nhead=2}, num_layers=1, norm=none)");
  CHECK(printed(compat::MultiheadAttention(compat::MultiheadAttentionOptions(8, 2).kdim(3))) ==
        "attentive::compat::MultiheadAttention(embed_dim=8, num_heads=2, dropout=0, bias=true, "
        "add_bias_kv=false, add_zero_attn=false, kdim=3, vdim=none, batch_first=false)");
}

TEST_CASE("A printout neither reads nor changes the format of its stream", "[print_options]") {
  std::ostringstream out;
  out << std::hex << std::setprecision(1);
  CausalAttention(30, 20, 60, 0.125)->pretty_print(out);
  CHECK(out.str() ==
        "attentive::CausalAttention(d_in=30, d_out=20, context_length=60, dropout=0.125, qkv_bias=false, "
        "attention={causal=bottom-right})");
  out << true << 255;
  CHECK(out.str().ends_with(")1ff"));
}
