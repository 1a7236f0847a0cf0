// Document 001: chapter 3 of "Build a Large Language Model (From Scratch)", from dot products to multi-head
// attention.

#include <cmath>
#include <limits>

#include <torch/nn/modules/dropout.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/chapter_3.h>

#include "notebooks.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Causal;
using attentive::DropoutStream;
using attentive::DropoutStreamGuard;
using attentive::Weights;
using torch::Tensor;

Tensor softmax_naive(const Tensor& x) {
  return torch::exp(x) / torch::exp(x).sum(0);
}

// A module with dropout, from the seed, in training. A seed repeats the notebook's draws only on the stream
// that softmax followed by Dropout would draw from.
template <class Module, class... Arguments>
void check_training(Walkthrough& nb, const Tensor& batch, Arguments... arguments) {
  torch::manual_seed(123);
  Module module(arguments...);
  module->to(nb.device());
  module->train();
  const DropoutStreamGuard guard(DropoutStream::Aten);
  nb.check_random("trained with dropout 0.5", module->forward(batch));
}

}  // namespace

void chapter_3(Walkthrough& nb) {
  // Attention without trainable weights

  const auto words = six_words();
  Tensor inputs, attn_scores_2, attn_weights_2, context_vec_2, attn_scores, attn_weights;

  // The notebook prints its version of PyTorch. A seed draws the same numbers in every release that this
  // package supports.
  nb.cell("001-01", "The version of PyTorch", [&] {
    nb.check_shape("version", {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH});
  });

  // A sentence of six tokens, each embedded in three numbers. Real models take hundreds; three can be read.
  nb.cell("001-02", "Six tokens of three features", [&] {
    inputs = six_tokens().to(nb.device());  // (6, 3)
    nb.check("inputs", inputs);
  });

  // "journey" is the query: it is compared with every token, itself included, and each comparison is one
  // score.
  nb.cell("001-03", "Attention scores of token 2, one dot product at a time", [&] {
    nb.say("The dot product measures how alike two vectors are: the more alike, the higher the score.");
    const Tensor query = inputs[1];
    attn_scores_2 = torch::empty({inputs.size(0)}, inputs.options());
    for (int64_t i = 0; i < inputs.size(0); ++i) attn_scores_2[i] = torch::dot(inputs[i], query);
    nb.check("attn_scores_2", attn_scores_2);
    nb.picture("attn_scores_2", attn_scores_2, {.queries = {"journey"}, .keys = words});
  });

  // A dot product multiplies two vectors number by number and adds up.
  nb.cell("001-04", "One score by hand and by dot", [&] {
    double score = 0;
    for (int64_t i = 0; i < inputs.size(1); ++i) score += (inputs[0][i] * inputs[1][i]).item<double>();
    nb.check("by hand", score);
    nb.check("by dot", torch::dot(inputs[0], inputs[1]));
  });

  // Scores become weights when they are positive and sum to one. The simplest way is to divide by their sum.
  nb.cell("001-05", "Weights by dividing by the sum", [&] {
    nb.say("Not a softmax: with negative scores such weights are no probabilities.");
    const Tensor attn_weights_2_tmp = attn_scores_2 / attn_scores_2.sum();
    nb.check("attn_weights_2_tmp", attn_weights_2_tmp);
    nb.check("sum", attn_weights_2_tmp.sum());
  });

  // Softmax exponentiates each score and divides by the sum, so weights are positive whatever the scores are.
  // Written like this, it overflows for large ones.
  nb.cell("001-06", "A naive softmax", [&] {
    const Tensor attn_weights_2_naive = softmax_naive(attn_scores_2);
    nb.check("attn_weights_2_naive", attn_weights_2_naive);
    nb.check("sum", attn_weights_2_naive.sum());
    nb.picture("attn_weights_2_naive", attn_weights_2_naive, {.queries = {"journey"}, .keys = words});
    nb.say(
        "exp overflows float32 above 88.7, and inf / inf is not a number. The stable one subtracts the "
        "largest score first:");
    const Tensor large = torch::tensor({100.0, 0.0}).to(nb.device());
    nb.check("naive softmax of (100, 0) overflows", softmax_naive(large));
    nb.check("stable softmax of (100, 0)", torch::softmax(large, 0));
  });

  // torch::softmax subtracts the largest score before it exponentiates. The weights are the same, and nothing
  // overflows.
  nb.cell("001-07", "The stable softmax", [&] {
    attn_weights_2 = torch::softmax(attn_scores_2, 0);
    nb.check("attn_weights_2", attn_weights_2);
    nb.check("sum", attn_weights_2.sum());
  });

  // For small scores, both versions agree.
  nb.cell("C-19", "Naive and stable softmax", [&] {
    nb.check("naive", softmax_naive(attn_scores_2));
    nb.check("stable", torch::softmax(attn_scores_2, 0));
  });

  // The context vector is the mean of all tokens, weighted by how much "journey" attends to each. It is what
  // attention returns for that token.
  nb.cell("001-08", "Context vector of token 2", [&] {
    context_vec_2 = torch::zeros_like(inputs[1]);
    for (int64_t i = 0; i < inputs.size(0); ++i) context_vec_2 += attn_weights_2[i] * inputs[i];
    nb.check("context_vec_2", context_vec_2);
  });

  // Every token may ask: six queries against six keys make a table of 36 scores. Two loops show what is
  // computed.
  nb.cell("001-09", "All scores by a double loop", [&] {
    attn_scores = torch::empty({6, 6}, inputs.options());
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 6; ++j) attn_scores[i][j] = torch::dot(inputs[i], inputs[j]);
    }
    nb.check("attn_scores", attn_scores);
  });

  // One product gives this table: the inputs times their transpose, one matrix product in place of 36 dot
  // products.
  nb.cell("001-10", "All scores by one matrix product", [&] {
    attn_scores = torch::matmul(inputs, inputs.t());
    nb.check("attn_scores", attn_scores);
    nb.picture("attn_scores", attn_scores, {.queries = words, .keys = words});
  });

  // A softmax over each row turns scores into weights. Row i shows which tokens token i attends to.
  nb.cell("001-11", "All attention weights", [&] {
    attn_weights = torch::softmax(attn_scores, -1);  // dim 0 would make the columns sum to one
    nb.check("attn_weights", attn_weights);
    nb.picture("attn_weights", attn_weights, {.queries = words, .keys = words});
  });

  // The weights of a row are shares of one. Even the rounded ones of row 2 add up to it.
  nb.cell("001-12", "Rows sum to one", [&] {
    nb.check("sum of the six printed weights of row 2", 0.1385 + 0.2379 + 0.2333 + 0.1240 + 0.1082 + 0.1581);
    nb.check("row sums", attn_weights.sum(-1));
  });

  // The weights times the inputs: the context vectors of all tokens at once. Row 2 is the vector of 001-08.
  nb.cell("001-13", "All context vectors",
          [&] { nb.check("all_context_vecs", torch::matmul(attn_weights, inputs)); });

  // Self-attention in one call: every token is query, key and value, and nothing is scaled.
  nb.cell("C-2", "Self-attention without weights, not scaled",
          [&] { nb.check("output", attention(inputs, inputs, inputs, {.scale = 1.0})); });

  // A look back at 001-08: the vector equals row 2 of the table in 001-13.
  nb.cell("001-14", "The earlier context vector again", [&] { nb.check("context_vec_2", context_vec_2); });

  // Attention with trainable weights

  const int64_t d_in = 3, d_out = 2, context_length = 6;
  Tensor x_2, W_query, W_key, W_value, query_2, keys, values;
  attentive::SelfAttentionV2 sa_v2{nullptr};

  // So far each token was compared as it is. Three trainable matrices let a model learn what to compare and
  // what to pass on.
  nb.cell("001-15", "Why three trainable matrices",
          [&] { nb.say("A query asks, a key says what a token offers, a value is what it hands over."); });

  // The projections may change the width. Here three features become two, which makes the shapes easy to tell
  // apart.
  nb.cell("001-16", "Token 2 and the two widths", [&] {
    x_2 = inputs[1];
    nb.check("x_2", x_2);
    nb.check_shape("d_in and d_out", {d_in, d_out});
    nb.say("A GPT takes d_in = d_out, so that x + attention(x), the residual connection, fits.");
  });

  // Heads share the width of the model: 512 features and 8 heads leave 64 for each.
  nb.cell("001-N", "Widths of model and heads",
          [&] { nb.check("head width for d_model 512 and 8 heads", 512 / 8); });

  // The weights are random numbers from a seed, so that everybody sees the same ones. Training would change
  // them.
  nb.cell("001-17", "Three weight matrices from one seed", [&] {
    torch::manual_seed(123);
    W_query = torch::rand({d_in, d_out}).to(nb.device());
    W_key = torch::rand({d_in, d_out}).to(nb.device());
    W_value = torch::rand({d_in, d_out}).to(nb.device());
    nb.check("W_query", W_query);
    nb.check("W_key", W_key);
    nb.check("W_value", W_value);
  });

  // Token 2 times each of the three matrices gives its query, its key and its value.
  nb.cell("001-18", "Query, key and value of token 2", [&] {
    query_2 = torch::matmul(x_2, W_query);
    nb.check("query_2", query_2);
    nb.check_shape("shape of x_2", x_2.sizes());
    nb.check_shape("shape of W_query", W_query.sizes());
    nb.check_shape("shape of query_2", query_2.sizes());
    nb.check("key_2", torch::matmul(x_2, W_key));
    nb.check("value_2", torch::matmul(x_2, W_value));
  });

  // Every token may be attended to, so each one needs a key and a value. One product makes all six of them.
  nb.cell("001-19", "Keys and values of all tokens", [&] {
    keys = torch::matmul(inputs, W_key);
    values = torch::matmul(inputs, W_value);
    nb.check_shape("shape of keys", keys.sizes());
    nb.check_shape("shape of values", values.sizes());
    nb.check("keys", keys);
    nb.check("values", values);
  });

  // The score of token 2 for itself is now its query times its key, not the token times itself.
  nb.cell("001-20", "One score of the projected tokens",
          [&] { nb.check("attn_score_22", torch::dot(query_2, keys[1])); });

  // For a matrix, .T is the transpose. On a batch it would reverse all axes, so code for batches names the
  // two axes.
  nb.cell("001-21", "The same score by .T (stale output)",
          [&] { nb.check("attn_score_22", torch::dot(query_2, keys[1])); });

  // The query of token 2 against all six keys: a vector times the transposed keys.
  nb.cell("001-22", "All scores of token 2", [&] {
    attn_scores_2 = torch::matmul(query_2, keys.t());
    nb.check("attn_scores_2", attn_scores_2);
  });

  // Scores are divided by the square root of the width before the softmax. Otherwise wide keys make large
  // scores, and a softmax of large scores looks at one token alone.
  nb.cell("001-23", "Scaled softmax", [&] {
    nb.say("The variance of a dot product grows with d_k; 1/sqrt(d_k) takes it back to one.");
    const auto d_k = static_cast<double>(keys.size(-1));
    attn_weights_2 = torch::softmax(attn_scores_2 / std::sqrt(d_k), -1);
    nb.check("d_k", d_k);
    nb.check("attn_weights_2", attn_weights_2);
    nb.picture("attn_weights_2", attn_weights_2, {.queries = {"journey"}, .keys = words});
  });

  // The weights of token 2 mix the six values. This is the output of attention for one query.
  nb.cell("001-24", "Context vector of token 2",
          [&] { nb.check("context_vec_2", torch::matmul(attn_weights_2, values)); });

  // The steps so far as a class: three parameters drawn by rand, and a forward that projects, scores, scales,
  // weighs and mixes.
  nb.cell("001-25", "Class SelfAttention_v1", [&] {
    torch::manual_seed(123);
    attentive::SelfAttentionV1 sa_v1(d_in, d_out);
    sa_v1->to(nb.device());
    nb.check("sa_v1(inputs)", sa_v1->forward(inputs));
    nb.say(
        "Row 2 is the context vector of 001-24. A batch works too: keys are transposed by transpose(-2, -1), "
        "not by .T, which reverses all axes.");
  });

  // A variant that the notebook keeps in a string. Its matrices are drawn from a normal distribution.
  nb.cell("001-26", "Class SelfAttention with normal weights (a string in the notebook)", [&] {
    torch::manual_seed(123);
    attentive::MatrixSelfAttention sa(/*d_model=*/d_in, /*d_k=*/d_out);
    sa->to(nb.device());
    nb.check("SelfAttention(3, 2)(inputs)", sa->forward(inputs));
  });

  // This version has Linear layers in place of bare matrices. Their initial weights differ, and so do the
  // outputs.
  nb.cell("001-27", "Class SelfAttention_v2", [&] {
    nb.say(
        "The notebook says that Linear draws Xavier weights; it draws kaiming_uniform(a = sqrt(5)), that is "
        "U(-1/sqrt(d_in), 1/sqrt(d_in)).");
    torch::manual_seed(789);
    sa_v2 = attentive::SelfAttentionV2(d_in, d_out);
    sa_v2->to(nb.device());
    nb.check("sa_v2(inputs)", sa_v2->forward(inputs));
  });

  // Hiding the future

  Tensor queries, mask_simple, masked_simple, masked;

  // A language model must not look ahead. These are the weights before anything is hidden, from the
  // projections of sa_v2.
  nb.cell("001-28", "Attention weights of sa_v2", [&] {
    const torch::NoGradGuard no_grad;
    queries = sa_v2->W_query(inputs);
    keys = sa_v2->W_key(inputs);
    values = sa_v2->W_value(inputs);
    attn_scores = torch::matmul(queries, keys.t());
    attn_weights = torch::softmax(attn_scores / std::sqrt(keys.size(-1)), -1);
    nb.check("attn_weights", attn_weights);
    nb.picture("attn_weights", attn_weights, {.queries = words, .keys = words});
  });

  // One on and below the diagonal, zero above it: token i may see the tokens up to itself.
  nb.cell("001-29", "A lower triangle of ones", [&] {
    mask_simple = torch::tril(torch::ones({6, 6}, inputs.options()));
    nb.check("mask_simple", mask_simple);
    nb.picture("mask_simple", mask_simple, {.queries = words, .keys = words});
  });

  // The weights times the mask: the future is gone, but the rows no longer sum to one.
  nb.cell("001-30", "Masking after the softmax", [&] {
    masked_simple = attn_weights * mask_simple;
    nb.check("masked_simple", masked_simple);
    nb.picture("masked_simple", masked_simple, {.queries = words, .keys = words});
  });

  // Each row divided by its sum is a distribution again.
  nb.cell("001-31", "Rows renormalised", [&] {
    nb.say(
        "keepdim leaves (6, 1), which broadcasts over the columns. This equals a softmax over the kept "
        "keys, so it is 001-33 again.");
    const Tensor masked_simple_norm = masked_simple / masked_simple.sum(-1, /*keepdim=*/true);
    nb.check("masked_simple_norm", masked_simple_norm);
    nb.picture("masked_simple_norm", masked_simple_norm, {.queries = words, .keys = words});
  });

  // The usual way masks the scores, before the softmax: exp(-inf) is zero, so a hidden key gets no weight.
  nb.cell("001-32", "Minus infinity above the diagonal", [&] {
    nb.say("Scaling before or after the mask makes no difference: -inf stays -inf.");
    const Tensor mask = torch::triu(torch::ones({6, 6}, inputs.options()), /*diagonal=*/1);
    masked = attn_scores.masked_fill(mask.to(torch::kBool), -std::numeric_limits<float>::infinity());
    nb.check("masked", masked);
    nb.picture("masked", masked, {.queries = words, .keys = words, .visible = masked.isfinite()});
  });

  // One softmax hides and normalises at once. These are the weights of 001-31.
  nb.cell("001-33", "Softmax of the masked scores", [&] {
    attn_weights = torch::softmax(masked / std::sqrt(keys.size(-1)), -1);
    nb.check("attn_weights", attn_weights);
    nb.picture("attn_weights", attn_weights, {.queries = words, .keys = words, .visible = masked.isfinite()});
  });

  // Causal weights in one call: the causal mask is an option of attention().
  nb.cell("C-4", "Causal weights", [&] {
    const auto result =
        attention(queries, keys, values, {.causal = Causal::BottomRight}, {.weights = Weights::Clean});
    nb.check("weights", result.weights);
    nb.picture("weights", result.weights, {.queries = words, .keys = words, .visible = masked.isfinite()});
  });

  // Dropout

  const double p = 0.5;
  const Tensor numbers = torch::tensor({2.0, 3.0, 5.0, 7.0}), kept = torch::tensor({1.0, 0.0, 1.0, 0.0});

  // Dropout removes random weights in training, so that a model does not rely on a few of them. It comes
  // after the softmax and before the values.
  nb.cell("001-34", "Where dropout stands", [&] { nb.say("attentive::attention keeps this order."); });

  // Each number is dropped with a probability of one half. What is kept grows by 1/(1 - p), so that the mean
  // stays about the same in training and inference.
  nb.cell("001-35", "Dropout of one half on a matrix of ones", [&] {
    torch::manual_seed(123);
    torch::nn::Dropout dropout(0.5);
    const Tensor example = torch::ones({6, 6}, inputs.options());
    const Tensor dropped = dropout(example);
    nb.check_random("dropout(example)", dropped);
    nb.picture("dropout(example)", dropped);
    nb.check("mean of 2, 3, 5, 7", numbers.mean());
    nb.check("mean when 3 and 7 are dropped", (numbers * kept).mean());
    nb.check("the same mean with inverted dropout", (numbers * kept / (1 - p)).mean());
  });

  // An example without chance: 3 and 7 are dropped, the others doubled. Over all possible choices, the mean
  // is that of all four numbers.
  nb.cell("C-20", "Inverted dropout", [&] {
    nb.check("mean before", numbers.mean());
    nb.check("mean without rescaling", (numbers * kept).mean());
    nb.check("mean with rescaling", (numbers * kept / (1 - p)).mean());
  });

  // Zeros appear at random, and the remaining weights are doubled. A row sums to one only on average.
  nb.cell("001-36", "Dropout on the causal weights", [&] {
    torch::manual_seed(123);
    torch::nn::Dropout dropout(0.5);
    const Tensor dropped = dropout(attn_weights);
    nb.check_random("dropout(attn_weights)", dropped);
    nb.picture("dropout(attn_weights)", dropped,
               {.queries = words, .keys = words, .visible = masked.isfinite()});
  });

  // Causal attention on batches

  Tensor batch;

  // A model sees several sequences at once. Two copies of the sentence make a batch; each is attended to on
  // its own.
  nb.cell("001-37", "A batch of two equal sequences", [&] {
    batch = torch::stack({inputs, inputs});
    nb.check_shape("shape of batch", batch.sizes());
  });

  // Projections, scores, causal mask, softmax and dropout as one class, for batches.
  nb.cell("001-38", "Class CausalAttention", [&] {
    torch::manual_seed(123);
    attentive::CausalAttention ca(d_in, d_out, context_length, /*dropout=*/0.0);
    ca->to(nb.device());
    const auto [context_vecs, weights] = ca->forward_with_weights(batch);
    nb.check("context_vecs", context_vecs);
    nb.check_shape("shape of context_vecs", context_vecs.sizes());
    nb.check("weights", weights);
    nb.picture("weights of sequence 0", weights[0],
               {.queries = words, .keys = words, .visible = weights[0].gt(0)});
    check_training<attentive::CausalAttention>(nb, batch, d_in, d_out, context_length, 0.5);
  });

  // Several heads can look for different things. The wrapper runs two modules like the one in 001-38 and
  // concatenates their outputs, which doubles the width.
  nb.cell("001-39", "Class MultiHeadAttentionWrapper", [&] {
    torch::manual_seed(123);
    attentive::MultiHeadAttentionWrapper mha(d_in, d_out, context_length, /*dropout=*/0.0, /*num_heads=*/2);
    mha->to(nb.device());
    const auto [context_vecs, weights] = mha->forward_with_weights(batch);
    nb.check("context_vecs", context_vecs);
    nb.check_shape("shape of context_vecs", context_vecs.sizes());
    nb.check("weights", weights);
    nb.picture("weights of sequence 0", weights[0],
               {.queries = words, .keys = words, .visible = weights[0].gt(0)});
    check_training<attentive::MultiHeadAttentionWrapper>(nb, batch, d_in, d_out, context_length, 0.5, 2);
  });

  // The goal of the chapter: all heads in one module.
  nb.cell("001-40", "Class MultiHeadAttention", [&] {
    nb.say(
        "One matrix for all heads, split by a view: half the matrix products of the wrapper. The heads' "
        "outputs are concatenated and mixed by out_proj.");
    torch::manual_seed(123);
    attentive::MultiHeadAttention mha(d_in, d_out, context_length, /*dropout=*/0.0, /*num_heads=*/2);
    mha->to(nb.device());
    const auto [context_vecs, weights] = mha->forward_with_weights(batch);
    nb.check("context_vecs", context_vecs);
    nb.check_shape("shape of context_vecs", context_vecs.sizes());
    nb.check("weights", weights);
    nb.picture("weights of sequence 0", weights[0],
               {.queries = words, .keys = words, .visible = weights[0].gt(0)});
    check_training<attentive::MultiHeadAttention>(nb, batch, d_in, d_out, context_length, 0.5, 2);
  });

  Tensor a;

  // Heads are an axis: matmul multiplies the last two axes and carries the others along.
  nb.cell("001-41", "A batched matrix product", [&] {
    a = torch::tensor({{{{0.2745, 0.6584, 0.2775, 0.8573},
                         {0.8993, 0.0390, 0.9268, 0.7388},
                         {0.7179, 0.7058, 0.9156, 0.4340}},
                        {{0.0772, 0.3565, 0.1479, 0.5331},
                         {0.4066, 0.2318, 0.4545, 0.9737},
                         {0.4606, 0.5159, 0.4220, 0.5786}}}})
            .to(nb.device());
    nb.check("a @ a.transpose(2, 3)", torch::matmul(a, a.transpose(2, 3)));
    nb.check_shape("shape of a", a.sizes());
  });

  // The product of 001-41 again. No transposed copy is needed, only a view with two axes exchanged.
  nb.cell("C-24", "Batched product over the last two axes",
          [&] { nb.check("a @ a.transpose(2, 3)", torch::matmul(a, a.transpose(2, 3))); });

  // Taking the heads one at a time gives the same two matrices.
  nb.cell("001-42", "The same product, head by head", [&] {
    const Tensor first_head = a[0][0], second_head = a[0][1];
    nb.check("first head", torch::matmul(first_head, first_head.t()));
    nb.check("second head", torch::matmul(second_head, second_head.t()));
  });
}

}  // namespace notebooks
