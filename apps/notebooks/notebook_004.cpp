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

}  // namespace

void fused_self_attention(Walkthrough& nb) {
  const Tensor tokens = six_tokens().to(nb.device());
  Tensor x;
  attentive::FusedSelfAttention small{nullptr};

  nb.cell("004-1", "The formula softmax(QK^T / sqrt(d_k)) V",
          [&] { nb.say("attentive::attention(q, k, v) is this formula; with the six tokens of 001-02:"); });

  nb.cell("C-1", "Scaled dot-product attention", [&] {
    const auto result = attention(tokens, tokens, tokens, {}, {.weights = Weights::Clean});
    nb.check("weights", result.weights);
    nb.check("output", result.output);
  });

  nb.cell("004-2", "\"The cat sat on the mat\": the weights of \"sat\"", [&] {
    const Tensor weights = torch::tensor({0.1, 0.4, 0.1, 0.1, 0.1, 0.2});
    for (int64_t i = 0; i < weights.numel(); ++i) {
      nb.say("sat -> {:<4} {:.1f} {:*<{}}", nb.labels()[static_cast<size_t>(i)], weights[i].item<float>(), "",
             static_cast<int>(20 * weights[i].item<float>()));
    }
    nb.check("weights", weights);
    nb.check("sum", weights.sum());
    nb.check("index of the largest", weights.argmax());
  });

  nb.cell("004-3", "Class SelfAttention(embed_dim, num_heads)", [&] {
    torch::manual_seed(4);
    x = torch::randn({2, 5, 16}).to(nb.device());
    small = attentive::FusedSelfAttention(/*embed_dim=*/16, /*num_heads=*/4);
    small->to(nb.device());
    const auto [output, weights] = small->forward_with_weights(x);
    nb.check("output", output);
    nb.check("weights", weights);
  });

  nb.cell("004-4", "Reshaping inside the forward", [&] {
    // (B, N, 3 C) -> (B, N, 3, H, d) -> (3, B, H, N, d): views, nothing is copied
    const Tensor packed = small->qkv(x).view({2, 5, 3, 4, 4}).permute({2, 0, 3, 1, 4});
    nb.check_shape("shape of packed q, k, v for the input of 004-3", packed.sizes());
    nb.check_shape("shape of the output", small->forward(x).sizes());
  });

  nb.cell("004-5", "Using it on 14 by 14 patches", [&] {
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
  });

  nb.cell("004-6", "Several heads, concatenated, then W^O",
          [&] { nb.say("Run them with attentive-notebook-001 --cell 39 and --cell 40."); });

  nb.cell("004-7", "Cost O(N^2 d)", [&] {
    // A product of (m, k) and (k, n) takes 2 m k n operations.
    const double batch = 32, length = 196, width = 768;
    const double pairs = 2 * batch * length * length * width / 1e9;
    nb.check("GFLOP of QK^T at 004-5", pairs);
    nb.check("GFLOP of weights times V at 004-5", pairs);
    nb.check("GFLOP of qkv at 004-5", 2 * batch * length * width * 3 * width / 1e9);
    nb.check("GFLOP of proj at 004-5", 2 * batch * length * width * width / 1e9);
    nb.say("Only the first two grow with the square of the number of tokens.");
  });

  nb.cell("004-8", "Remedies: flash, window, linear",
          [&] { nb.say("Flash, window and linear attention of the same six tokens:"); });

  // The same numbers from a kernel that never holds all the weights.
  nb.cell("C-11", "Flash attention: the same numbers as C-1",
          [&] { nb.check("output", attention(tokens, tokens, tokens, {.backend = Backend::Torch})); });

  nb.cell("C-12", "Window attention", [&] {
    const auto near = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 1}},
                                {.weights = Weights::Clean});
    nb.check("weights for |i-j| <= 1", near.weights);
    nb.check("output for |i-j| <= 1", near.output);
    const auto last_two = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 0}},
                                    {.weights = Weights::Clean});
    nb.check("weights, causal, itself and one before", last_two.weights);
    nb.check("output, causal, itself and one before", last_two.output);
  });

  nb.cell("C-13", "Linear attention with elu(x)+1, neither scaled nor stabilised", [&] {
    nb.check("feature map", torch::elu(tokens) + 1);
    nb.check("not causal", linear_attention(tokens, tokens, tokens));
    nb.check("causal", linear_attention(tokens, tokens, tokens, {.causal = Causal::BottomRight}));
    nb.say(
        "Other numbers than softmax attention: an approximation in O(N). The last rows are equal, because "
        "the last token sees all.");
  });

  // PyTorch's own function takes (B, H, N, D), drops out even in eval mode, and is top-left causal.
  // attentive::attention chooses among PyTorch's kernels and others, and explains its choice.
  nb.cell("004-9", "scaled_dot_product_attention of PyTorch", [&] {
    nb.check("output for the six tokens as q, k and v", attention(tokens, tokens, tokens));
    nb.say("explain() says that this call takes the backend \"{}\".",
           attentive::to_string(attentive::explain(tokens, tokens, tokens).chosen));
  });

  nb.cell("004-10", "Related: cross-attention, positional encoding, layer normalization",
          [&] { nb.say("Cross-attention: attentive-notebook-002 --cell 14. The other two:"); });

  // Pairs of sine and cosine, each pair slower than the one before.
  nb.cell("C-14", "Sinusoidal positions, 6 positions of width 4, base 10000", [&] {
    const Tensor position = torch::arange(6, torch::kDouble).unsqueeze(1);                  // (6, 1)
    const Tensor speed = torch::pow(10000.0, -torch::arange(0, 4, 2, torch::kDouble) / 4);  // (2)
    const Tensor angle = position * speed;
    nb.check("encoding", torch::stack({angle.sin(), angle.cos()}, /*dim=*/-1).view({6, 4}));
  });

  nb.cell("C-15", "Layer normalization, eps 1e-5, no affine part",
          [&] { nb.check("normalised inputs", torch::layer_norm(tokens, {3})); });
}

}  // namespace notebooks
