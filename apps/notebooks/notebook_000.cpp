// Document 000: a toy notebook with multi-head self-attention, masks and dropout.

#include <torch/types.h>
#include <torch/utils.h>

#include <attentive/core/options.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/parity/compare.h>

#include "notebooks.h"

namespace notebooks {
namespace {

using attentive::DropoutStream;
using attentive::DropoutStreamGuard;
using attentive::Mask;
using torch::Tensor;

}  // namespace

void toy_self_attention(Walkthrough& nb) {
  attentive::MultiHeadSelfAttention mha{nullptr};
  const auto words = six_words();
  Tensor x, y, attn;

  // One seed at the top decides every random number of the notebook, so the order of the draws matters as
  // much as the seed.
  nb.cell("000-1", "Seed 42 once, and the choice of device", [&] {
    nb.say("torch::manual_seed(42); parameters and inputs are made on the CPU, then moved to {}.",
           nb.device().str());
  });

  // The softmax of the scaled scores gives weights; the output is the mean of the values under these weights.
  // The class returns both.
  nb.cell("000-2", "Class ScaledDotProductAttention", [&] {
    const Tensor tokens = six_tokens().to(nb.device());
    attentive::ScaledDotProductAttention sdpa(/*dropout=*/0.0);
    const auto [output, weights] = sdpa->forward(tokens, tokens, tokens);
    nb.check("output for the six tokens as Q, K and V", output);
    nb.check("weights", weights);
    nb.picture("weights", weights, {.queries = words, .keys = words});
  });

  // Projections for query, key, value and output, of 128 by 128 numbers each and without a bias. The number
  // of heads changes none of them.
  nb.cell("000-3", "Class MultiHeadSelfAttention", [&] {
    const attentive::MultiHeadSelfAttention module(/*d_model=*/128, /*num_heads=*/4);
    int64_t count = 0;
    for (const auto& parameter : module->parameters()) count += parameter.numel();
    nb.check("number of parameters for d_model 128", static_cast<double>(count));
  });

  // A head is a slice of the features. The axis of heads moves before that of the tokens, so that each head
  // is attended to on its own.
  nb.cell("000-3a", "Split heads: (B,T,d_model) to (B,H,T,head_dim)", [&] {
    x = torch::arange(12, torch::kFloat).view({1, 2, 6}).to(nb.device());
    const Tensor heads = attentive::split_heads(x, /*num_heads=*/3);
    nb.check_shape("shape", heads.sizes());
    nb.check("0..11 of shape (1,2,6) in 3 heads", heads);
  });

  // Merging puts the slices next to each other again; no number is lost or reordered.
  nb.cell("000-3b", "Merge heads: back to (B,T,d_model)", [&] {
    nb.check("split and merged", attentive::merge_heads(attentive::split_heads(x, /*num_heads=*/3)));
  });

  // For a matrix product, 2 sequences of 4 heads are a batch of 8.
  nb.cell("000-3c", "Heads folded into the batch", [&] {
    nb.say("attentive::attention takes (B, H, T, D) as it is; the notebook folds the heads into the batch.");
    const Tensor q = attentive::split_heads(torch::zeros({2, 5, 128}), /*num_heads=*/4);
    nb.check_shape("shape of folded Q for B 2, H 4, T 5, D 32", q.reshape({2 * 4, 5, 32}).sizes());
  });

  // A padding mask hides the filler behind a short sequence from every query; a general mask decides for each
  // pair. A mask says what its numbers mean: here non-zero keeps.
  nb.cell("000-3d", "Padding mask (B,1,1,T) and general mask (B,1,T,T)", [&] {
    torch::manual_seed(42);
    const Tensor input = torch::randn({2, 4, 8}).to(nb.device());
    attentive::MultiHeadSelfAttention small(/*d_model=*/8, /*num_heads=*/2);
    small->to(nb.device());

    const Tensor real = torch::tensor({{1, 1, 1, 0}, {1, 1, 0, 0}}).to(nb.device());  // (B, T), 0: padding
    const auto [padded, padded_weights] = small->forward(input, Mask::keep(real.view({2, 1, 1, 4})));
    nb.check("output with the padding mask", padded);
    nb.check("weights with the padding mask", padded_weights);
    nb.picture("weights with the padding mask, head 0", padded_weights.select(1, 0),
               {.visible = real.to(torch::kBool).unsqueeze(1), .each = "sequence"});

    const Tensor earlier = torch::ones({4, 4}, torch::kBool).tril().view({1, 1, 4, 4}).to(nb.device());
    const auto [causal, causal_weights] = small->forward(input, Mask::keep(earlier));
    nb.check("output with the causal mask", causal);
    nb.check("weights with the causal mask", causal_weights);
    nb.picture("weights with the causal mask, sequence 0", causal_weights[0], {.visible = earlier[0]});
  });

  // The module at a usual size, in training. The weights have a row for each query of each head of each
  // sequence.
  nb.cell("000-4", "Using it: B 2, T 5, d_model 128, 4 heads, dropout 0.1", [&] {
    torch::manual_seed(42);
    x = torch::randn({2, 5, 128}).to(nb.device());
    mha = attentive::MultiHeadSelfAttention(/*d_model=*/128, /*num_heads=*/4, /*dropout=*/0.1);
    mha->to(nb.device());

    // Dropout is active, as in the notebook; the guard makes it draw the very numbers that nn::Dropout draws.
    const DropoutStreamGuard guard(DropoutStream::Aten);
    std::tie(y, attn) = mha->forward(x);
    nb.check_shape("shape of x", x.sizes());
    nb.check_shape("shape of y", y.sizes());
    nb.check_shape("shape of attn", attn.sizes());
  });

  // A few numbers and a sum show that the seed drew the input of the notebook.
  nb.cell("000-4a", "The input", [&] {
    nb.check("x[0,0,:4]", x[0][0].slice(0, 0, 4));
    nb.check("sum of x", x.sum(torch::kDouble));
  });

  // The projections are drawn after the input, one after the other. One more draw before them would change
  // all of their numbers.
  nb.cell("000-4b", "The weights of the four projections", [&] {
    const auto show = [&](const std::string& name, const torch::nn::Linear& linear) {
      nb.check("first two of " + name, linear->weight[0].slice(0, 0, 2));
      nb.check("sum of " + name, linear->weight.sum(torch::kDouble));
    };
    show("W_q", mha->W_q);
    show("W_k", mha->W_k);
    show("W_v", mha->W_v);
    show("W_o", mha->W_o);
  });

  // In eval mode dropout does nothing, so these numbers depend on no random stream.
  nb.cell("000-4c", "Output and weights in eval mode", [&] {
    mha->eval();
    const auto [y_eval, attn_eval] = mha->forward(x);
    mha->train();
    nb.check("y[0,0,:4]", y_eval[0][0].slice(0, 0, 4));
    nb.check("sum of y", y_eval.sum(torch::kDouble));
    nb.check("sum of |y|", y_eval.abs().sum(torch::kDouble));
    nb.check("attn[0,0,0]", attn_eval[0][0][0]);
    nb.check("sum of attn", attn_eval.sum(torch::kDouble));
    nb.picture("attn[0] in eval mode", attn_eval[0]);
  });

  // In train mode dropout removes about a tenth of the weights and of the outputs. What stays grows by 1/0.9.
  nb.cell("000-4d", "Output and weights in train mode", [&] {
    nb.check_random("y[0,0,:4]", y[0][0].slice(0, 0, 4));
    nb.check_random("sum of y", y.sum(torch::kDouble));
    nb.check_random("sum of |y|", y.abs().sum(torch::kDouble));
    nb.check_random("attn[0,0,0]", attn[0][0][0]);
    nb.check_random("sum of attn", attn.sum(torch::kDouble));
    nb.check_random("row sums of attn[0,0]", attn[0][0].sum(-1));
    nb.check_random("zeros in attn", attn.eq(0).sum());
    nb.check_random("zeros in y", y.eq(0).sum());
    nb.picture("attn[0] in train mode", attn[0]);
  });

  // PyTorch draws dropout from one of two streams, depending on how it was built and on the processor.
  nb.cell("000-4e", "Train mode on the other dropout stream", [&] {
    nb.say("Dropout on this machine draws the {} stream; 000-4d shows the numbers of both.",
           attentive::dropout_stream_of_this_cpu() == "intel_mkl" ? "Intel + MKL" : "default");
  });
}

}  // namespace notebooks
