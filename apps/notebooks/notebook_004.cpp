// Document 004: self-attention with one projection for queries, keys and values, at the size of a vision
// transformer; its cost and the remedies.

#include <torch/types.h>
#include <torch/utils.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/notebooks/vision_transformer.h>

#include "notebooks.h"

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
  const auto words = six_words();
  Tensor x;
  attentive::FusedSelfAttention small{nullptr};

  // Every query is compared with every key; the scaled scores become weights, and the weights mix the values.
  nb.cell("004-1", "The formula softmax(QK^T / sqrt(d_k)) V",
          [&] { nb.say("attentive::attention(q, k, v) is this formula; with the six tokens of 001-02:"); });

  // The formula in one call: six tokens are query, key and value at once.
  nb.cell("C-1", "Scaled dot-product attention", [&] {
    const auto result = attention(tokens, tokens, tokens, {}, {.weights = Weights::Clean});
    nb.check("weights", result.weights);
    nb.picture("weights", result.weights, {.queries = words, .keys = words});
    nb.check("output", result.output);
  });

  // How to read a row of weights, with numbers that the page made up: "sat" attends most to "cat".
  nb.cell("004-2", "\"The cat sat on the mat\": the weights of \"sat\"", [&] {
    const Tensor weights = torch::tensor({0.1, 0.4, 0.1, 0.1, 0.1, 0.2});
    for (int64_t i = 0; i < weights.numel(); ++i) {
      nb.say("sat -> {:<4} {:.1f} {:*<{}}", nb.labels()[static_cast<size_t>(i)], weights[i].item<float>(), "",
             static_cast<int>(20 * weights[i].item<float>()));
    }
    nb.check("weights", weights);
    nb.check("sum", weights.sum());
    nb.check("index of the largest", weights.argmax());
    nb.picture("weights", weights, {.queries = {"sat"}, .keys = nb.labels()});
  });

  // One Linear layer makes queries, keys and values together, a single product in place of three. Vision
  // transformers are written like this.
  nb.cell("004-3", "Class SelfAttention(embed_dim, num_heads)", [&] {
    torch::manual_seed(4);
    x = torch::randn({2, 5, 16}).to(nb.device());
    small = attentive::FusedSelfAttention(/*embed_dim=*/16, /*num_heads=*/4);
    small->to(nb.device());
    const auto [output, weights] = small->forward_with_weights(x);
    nb.check("output", output);
    nb.check("weights", weights);
    nb.picture("weights of sequence 0", weights[0]);
  });

  // The result is split into q, k and v, and each of these into heads, only by reshaping.
  nb.cell("004-4", "Reshaping inside the forward", [&] {
    // (B, N, 3 C) -> (B, N, 3, H, d) -> (3, B, H, N, d): views, nothing is copied
    const Tensor packed = small->qkv(x).view({2, 5, 3, 4, 4}).permute({2, 0, 3, 1, 4});
    nb.check_shape("shape of packed q, k, v for the input of 004-3", packed.sizes());
    nb.check_shape("shape of the output", small->forward(x).sizes());
  });

  // An image of 224 by 224 pixels has 14 by 14 patches of 16 by 16, and every patch is a token. Here random
  // numbers stand in for an image, so the weights show nothing yet: all patches count about the same.
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
    nb.picture("where the first patch looks, head 0", weights[0][0][0].view({14, 14}));
    nb.say("These weights take {:.1f} MB. forward() alone need not hold them: see C-11.",
           static_cast<double>(weights.numel()) * 4 / 1e6);
  });

  // Each head works on a slice of the features. The outputs are concatenated, and W^O mixes them.
  nb.cell("004-6", "Several heads, concatenated, then W^O",
          [&] { nb.say("Run them with attentive-notebook-001 --cell 39 and --cell 40."); });

  // The cost of products over all pairs of tokens grows with the square of their number; that of projections
  // grows linearly. At 196 tokens, the projections still cost more.
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

  // Three remedies: the same result in less memory, attention to neighbours only, or no softmax.
  nb.cell("004-8", "Remedies: flash, window, linear",
          [&] { nb.say("Flash, window and linear attention of the same six tokens:"); });

  // A kernel that never stores all the weights computes the same numbers.
  nb.cell("C-11", "Flash attention: the same numbers as C-1", [&] {
    // On a GPU, PyTorch's kernels want rows of 16 bytes, which these are not.
    const auto backend = tokens.is_cuda() ? Backend::Auto : Backend::Torch;
    nb.check("output", attention(tokens, tokens, tokens, {.backend = backend}));
  });

  // Each token sees its neighbours only, so the cost grows with the window and not with the square of the
  // length. The second window looks back alone, as a language model must.
  nb.cell("C-12", "Window attention", [&] {
    const auto near = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 1}},
                                {.weights = Weights::Clean});
    nb.check("weights for |i-j| <= 1", near.weights);
    nb.picture("weights for |i-j| <= 1", near.weights,
               {.queries = words, .keys = words, .visible = near.weights.gt(0)});
    nb.check("output for |i-j| <= 1", near.output);
    const auto last_two = attention(tokens, tokens, tokens, {.window = Window{.left = 1, .right = 0}},
                                    {.weights = Weights::Clean});
    nb.check("weights, causal, itself and one before", last_two.weights);
    nb.picture("weights, causal, itself and one before", last_two.weights,
               {.queries = words, .keys = words, .visible = last_two.weights.gt(0)});
    nb.check("output, causal, itself and one before", last_two.output);
  });

  // With a positive feature map in place of the softmax, keys and values are summed once for all queries, at
  // a cost that is linear in the number of tokens.
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

  // Other parts of a transformer. Two of the three follow.
  nb.cell("004-10", "Related: cross-attention, positional encoding, layer normalization",
          [&] { nb.say("Cross-attention: attentive-notebook-002 --cell 14. The other two:"); });

  // Attention does not know the order of its tokens; positions are added to them. Pairs of sine and cosine,
  // each pair slower than the one before.
  nb.cell("C-14", "Sinusoidal positions, 6 positions of width 4, base 10000", [&] {
    const Tensor position = torch::arange(6, torch::kDouble).unsqueeze(1);                  // (6, 1)
    const Tensor speed = torch::pow(10000.0, -torch::arange(0, 4, 2, torch::kDouble) / 4);  // (2)
    const Tensor angle = position * speed;
    nb.check("encoding", torch::stack({angle.sin(), angle.cos()}, /*dim=*/-1).view({6, 4}));
  });

  // Over its features, each token gets mean zero and variance one, which keeps numbers of one size from layer
  // to layer.
  nb.cell("C-15", "Layer normalization, eps 1e-5, no affine part",
          [&] { nb.check("normalised inputs", torch::layer_norm(tokens, {3})); });
}

}  // namespace notebooks
