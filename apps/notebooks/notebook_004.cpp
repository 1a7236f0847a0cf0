// Document 004: self-attention with one projection for queries, keys and values, at the size of a vision
// transformer; its cost and the remedies.

#include <torch/types.h>
#include <torch/utils.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/fused_self_attention.h>

#include "notebooks.h"
#include "support/six_tokens.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Backend;
using attentive::Causal;
using attentive::linear_attention;
using attentive::Weights;
using attentive::Window;
using torch::Tensor;

double number_of_parameters(const torch::nn::Module& module) {
  double count = 0;
  for (const auto& parameter : module.parameters()) count += static_cast<double>(parameter.numel());
  return count;
}

class VisionAttention {
 public:
  explicit VisionAttention(Walkthrough& walkthrough)
      : nb(walkthrough), tokens(six_tokens().to(walkthrough.device())) {}

  void formula() { nb.say("attentive::attention(q, k, v) is this formula; with the six tokens of 001-02:"); }

  void full_attention() {
    const auto result = attention(tokens, tokens, tokens, {}, {.weights = Weights::Clean});
    nb.check("weights", result.weights);
    nb.check("output", result.output);
  }

  void cat_sentence() {
    const Tensor weights = torch::tensor({0.1, 0.4, 0.1, 0.1, 0.1, 0.2});
    for (int64_t i = 0; i < weights.numel(); ++i) {
      nb.say("sat -> {:<4} {:.1f} {:*<{}}", nb.labels()[static_cast<size_t>(i)], weights[i].item<float>(), "",
             static_cast<int>(20 * weights[i].item<float>()));
    }
    nb.check("weights", weights);
    nb.check("sum", weights.sum());
    nb.check("index of the largest", weights.argmax());
  }

  void small_self_attention() {
    torch::manual_seed(4);
    x = torch::randn({2, 5, 16}).to(nb.device());
    small = attentive::FusedSelfAttention(/*embed_dim=*/16, /*num_heads=*/4);
    small->to(nb.device());
    const auto [output, weights] = small->forward_with_weights(x);
    nb.check("output", output);
    nb.check("weights", weights);
  }

  void reshaping() {
    // (B, N, 3 C) -> (B, N, 3, H, d) -> (3, B, H, N, d): views, nothing is copied
    const Tensor packed = small->qkv(x).view({2, 5, 3, 4, 4}).permute({2, 0, 3, 1, 4});
    nb.check_shape("shape of packed q, k, v for the input of 004-3", packed.sizes());
    nb.check_shape("shape of the output", small->forward(x).sizes());
  }

  void vision_transformer() {
    if (!nb.showing()) return;  // takes seconds, and no later cell needs it
    torch::manual_seed(0);
    const Tensor patches = torch::randn({32, 14 * 14, 768}).to(nb.device());
    attentive::FusedSelfAttention attn(/*embed_dim=*/768);
    attn->to(nb.device());
    const torch::NoGradGuard no_grad;
    const Tensor out = attn->forward(patches);
    nb.check_shape("shape of x", patches.sizes());
    nb.check_shape("shape of the output", out.sizes());
    nb.check_shape("shape of qkv(x)", attn->qkv(patches).sizes());
    nb.check("number of parameters of qkv", number_of_parameters(*attn->qkv));
    nb.check("number of parameters of proj", number_of_parameters(*attn->proj));
    nb.check("number of parameters", number_of_parameters(*attn));
    nb.check("first of x", patches.flatten().slice(0, 0, 1));
    nb.check("first four of the output", out.flatten().slice(0, 0, 4));
    nb.check("sum of the output", out.sum(torch::kDouble));
    nb.check("sum of |output|", out.abs().sum(torch::kDouble));

    const Tensor weights = attn->forward_with_weights(patches).second;
    nb.check_shape("shape of the weights", weights.sizes());
    nb.check("number of weights", static_cast<double>(weights.numel()));
    nb.check("sum of the weights", weights.sum(torch::kDouble));
    nb.say("These weights take {:.1f} MB. forward() alone need not hold them: see C-11.",
           static_cast<double>(weights.numel()) * 4 / 1e6);
  }

  void several_heads() { nb.say("Run them with attentive-notebook-001 --cell 39 and --cell 40."); }

  void cost() {
    // A product of (m, k) and (k, n) takes 2 m k n operations.
    const double batch = 32, length = 196, width = 768;
    const double pairs = 2 * batch * length * length * width / 1e9;
    nb.check("GFLOP of QK^T at 004-5", pairs);
    nb.check("GFLOP of weights times V at 004-5", pairs);
    nb.check("GFLOP of qkv at 004-5", 2 * batch * length * width * 3 * width / 1e9);
    nb.check("GFLOP of proj at 004-5", 2 * batch * length * width * width / 1e9);
    nb.say("Only the first two grow with the square of the number of tokens.");
  }

  void remedies() { nb.say("Flash, window and linear attention of the same six tokens:"); }

  // The same numbers from a kernel that never holds all the weights.
  void flash_attention() {
    nb.check("output", attention(tokens, tokens, tokens, {.backend = Backend::Torch}));
  }

  void window_attention() {
    const auto near = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 1}},
                                {.weights = Weights::Clean});
    nb.check("weights for |i-j| <= 1", near.weights);
    nb.check("output for |i-j| <= 1", near.output);
    const auto last_two = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 0}},
                                    {.weights = Weights::Clean});
    nb.check("weights, causal, itself and one before", last_two.weights);
    nb.check("output, causal, itself and one before", last_two.output);
  }

  void linear() {
    nb.check("feature map", torch::elu(tokens) + 1);
    nb.check("not causal", linear_attention(tokens, tokens, tokens));
    nb.check("causal", linear_attention(tokens, tokens, tokens, {.causal = Causal::BottomRight}));
    nb.say(
        "Other numbers than softmax attention: an approximation in O(N). The last rows are equal, because "
        "the last token sees all.");
  }

  // PyTorch's own function takes (B, H, N, D), drops out even in eval mode, and is top-left causal.
  // attentive::attention chooses among PyTorch's kernels and others, and explains its choice.
  void pytorchs_function() {
    nb.check("output for the six tokens as q, k and v", attention(tokens, tokens, tokens));
    nb.say("explain() says that this call takes the backend \"{}\".",
           attentive::to_string(attentive::explain(tokens, tokens, tokens).chosen));
  }

  void related() { nb.say("Cross-attention: attentive-notebook-002 --cell 14. The other two:"); }

  // Pairs of sine and cosine, each pair slower than the one before.
  void sinusoidal_positions() {
    const Tensor position = torch::arange(6, torch::kDouble).unsqueeze(1);                  // (6, 1)
    const Tensor speed = torch::pow(10000.0, -torch::arange(0, 4, 2, torch::kDouble) / 4);  // (2)
    const Tensor angle = position * speed;
    nb.check("encoding", torch::stack({angle.sin(), angle.cos()}, /*dim=*/-1).view({6, 4}));
  }

  void layer_normalization() { nb.check("normalised inputs", torch::layer_norm(tokens, {3})); }

 private:
  Walkthrough& nb;
  Tensor tokens, x;
  attentive::FusedSelfAttention small{nullptr};
};

}  // namespace

Tally fused_self_attention(Walkthrough& walkthrough) {
  VisionAttention document(walkthrough);
  return walkthrough.walk(document, "004", "Self-attention of a vision transformer",
                          {{"004-1", &VisionAttention::formula},
                           {"C-1", &VisionAttention::full_attention},
                           {"004-2", &VisionAttention::cat_sentence},
                           {"004-3", &VisionAttention::small_self_attention},
                           {"004-4", &VisionAttention::reshaping},
                           {"004-5", &VisionAttention::vision_transformer},
                           {"004-6", &VisionAttention::several_heads},
                           {"004-7", &VisionAttention::cost},
                           {"004-8", &VisionAttention::remedies},
                           {"C-11", &VisionAttention::flash_attention},
                           {"C-12", &VisionAttention::window_attention},
                           {"C-13", &VisionAttention::linear},
                           {"004-9", &VisionAttention::pytorchs_function},
                           {"004-10", &VisionAttention::related},
                           {"C-14", &VisionAttention::sinusoidal_positions},
                           {"C-15", &VisionAttention::layer_normalization}});
}

}  // namespace notebooks
