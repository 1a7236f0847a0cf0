// Document 003: scaled dot-product attention and a multi-head class, as they were meant and as published.

#include <torch/types.h>
#include <torch/utils.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/notebooks/attention_blog.h>

#include "notebooks.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Mask;
using attentive::Weights;
using torch::Tensor;

// Computes what the published code does when it runs: it never transposes (B, T, H, d) to (B, H, T, d), so
// the heads of one token attend to each other, and no token sees another one. For comparison only.
attentive::AttentionResult as_published(attentive::SharedHeadAttention& blog, const Tensor& x,
                                        int64_t heads) {
  const Tensor split = x.view({x.size(0), x.size(1), heads, -1});  // (B, T, H, d)
  auto result = attention(blog->queries(split), blog->keys(split), blog->values(split), {},
                          {.weights = Weights::Clean});
  result.output = blog->fc_out(result.output.reshape(x.sizes()));
  return result;
}

}  // namespace

void blog_multi_head(Walkthrough& nb) {
  attentive::SharedHeadAttention module{nullptr};
  Tensor values, keys, query;

  // The formula as a function. There may be more keys than queries, and values may have a width of their own.
  nb.cell("003-1", "Function scaled_dot_product_attention", [&] {
    torch::manual_seed(3);
    const Tensor q = torch::randn({2, 5, 4}).to(nb.device());
    const Tensor k = torch::randn({2, 6, 4}).to(nb.device());
    const Tensor v = torch::randn({2, 6, 3}).to(nb.device());
    const auto result = attention(q, k, v, {}, {.weights = Weights::Clean});
    nb.check("output", result.output);
    nb.check("weights", result.weights);
    nb.picture("weights", result.weights, {.each = "sequence"});
  });

  // Most classes project all features at once. This one applies the same small matrices to every head.
  nb.cell("003-2", "Class MultiHeadAttention(embed_size, heads)", [&] {
    const attentive::SharedHeadAttention fresh(/*embed_size=*/8, /*heads=*/2);
    int64_t count = 0;
    for (const auto& parameter : fresh->parameters()) count += parameter.numel();
    nb.check("number of parameters for embed_size 8 and 2 heads", static_cast<double>(count));
    nb.say("All heads share three projections of head_dim x head_dim; fc_out mixes the heads.");
  });

  // The corrected class: heads are split first, tokens attend to tokens, the mask holds, lengths may differ.
  // Mind the order of the arguments: values, keys, query.
  nb.cell("003-3", "forward(values, keys, query, mask)", [&] {
    torch::manual_seed(3);
    values = torch::randn({2, 6, 8}).to(nb.device());
    keys = torch::randn({2, 6, 8}).to(nb.device());
    query = torch::randn({2, 4, 8}).to(nb.device());
    module = attentive::SharedHeadAttention(/*embed_size=*/8, /*heads=*/2);
    module->to(nb.device());
    const auto [output, weights] = module->forward_with_weights(values, keys, query);
    nb.check_shape("shape of the weights of 003-4", weights.sizes());
  });

  // Four queries attend to six keys, first to all of them, then without those that a mask calls padding.
  nb.cell("003-4", "The class as it was meant", [&] {
    const auto [output, weights] = module->forward_with_weights(values, keys, query);
    nb.check("output", output);
    nb.check("weights", weights);
    nb.picture("weights of sequence 0", weights[0]);

    const auto& kept = nb.mask();  // (2, 6): which keys are real tokens
    Tensor keep = torch::empty({2, 6}, torch::kBool);
    for (int64_t i = 0; i < keep.numel(); ++i)
      keep.view(-1)[i] = static_cast<bool>(kept[static_cast<size_t>(i)]);
    const auto [masked, masked_weights] =
        module->forward_with_weights(values, keys, query, Mask::key_keep(keep.to(nb.device())));
    nb.check("output with a mask", masked);
    nb.check("weights with a mask", masked_weights);
    nb.picture("weights of sequence 0 with a mask", masked_weights[0], {.visible = keep[0]});
    nb.picture("weights of sequence 1 with a mask", masked_weights[1], {.visible = keep[1]});
  });

  // In the published code the heads of a token attend to each other. A single head has nothing to choose
  // from: its weight is one, and no token sees another.
  nb.cell("003-5", "Literally as published, one head", [&] {
    torch::manual_seed(3);
    const Tensor x = torch::randn({2, 4, 8}).to(nb.device());
    attentive::SharedHeadAttention blog(/*embed_size=*/8, /*heads=*/1);
    blog->to(nb.device());
    nb.check("output", as_published(blog, x, 1).output);
  });

  // With two heads, each token mixes its own two, still without a look at other tokens. The shapes are right
  // and the numbers are wrong, which is why this package compares numbers.
  nb.cell("003-6", "Literally as published, two heads", [&] {
    torch::manual_seed(3);
    const Tensor x = torch::randn({2, 4, 8}).to(nb.device());
    attentive::SharedHeadAttention blog(/*embed_size=*/8, /*heads=*/2);
    blog->to(nb.device());
    const auto published = as_published(blog, x, 2);
    nb.check("output", published.output);
    nb.check("weights", published.weights);
    nb.picture("weights between heads, sequence 0", published.weights[0], {.each = "token"});
    nb.say("The corrected class, on the same x and weights, differs by up to {:.2f}.",
           (published.output - blog->forward(x, x, x)).abs().max().item<double>());
  });
}

}  // namespace notebooks
