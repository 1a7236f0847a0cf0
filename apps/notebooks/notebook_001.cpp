// Document 001: chapter 3 of "Build a Large Language Model (From Scratch)", from dot products to multi-head
// attention.

#include <cmath>
#include <limits>

#include <torch/nn/modules/dropout.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <attentive/core/guards.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/causal_attention.h>
#include <attentive/modules/matrix_self_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/multi_head_attention_wrapper.h>
#include <attentive/modules/self_attention_v1.h>
#include <attentive/modules/self_attention_v2.h>

#include "notebooks.h"
#include "support/six_tokens.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Causal;
using attentive::DropoutStream;
using attentive::DropoutStreamGuard;
using attentive::Weights;
using torch::Tensor;

class Chapter3 {
 public:
  explicit Chapter3(Walkthrough& walkthrough) : nb(walkthrough) {}

  // Attention without trainable weights

  void version() {
    nb.check_shape("version", {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH});
  }

  void six_inputs() {
    inputs = six_tokens().to(nb.device());  // (6, 3)
    nb.check("inputs", inputs);
  }

  void scores_of_token_2() {
    nb.say("The dot product measures how alike two vectors are: the more alike, the higher the score.");
    const Tensor query = inputs[1];
    attn_scores_2 = torch::empty({inputs.size(0)}, inputs.options());
    for (int64_t i = 0; i < inputs.size(0); ++i) attn_scores_2[i] = torch::dot(inputs[i], query);
    nb.check("attn_scores_2", attn_scores_2);
  }

  void one_score_by_hand() {
    double score = 0;
    for (int64_t i = 0; i < inputs.size(1); ++i) score += (inputs[0][i] * inputs[1][i]).item<double>();
    nb.check("by hand", score);
    nb.check("by dot", torch::dot(inputs[0], inputs[1]));
  }

  void divide_by_the_sum() {
    nb.say("Not a softmax: with negative scores such weights are no probabilities.");
    const Tensor attn_weights_2_tmp = attn_scores_2 / attn_scores_2.sum();
    nb.check("attn_weights_2_tmp", attn_weights_2_tmp);
    nb.check("sum", attn_weights_2_tmp.sum());
  }

  static Tensor softmax_naive(const Tensor& x) { return torch::exp(x) / torch::exp(x).sum(0); }

  void naive_softmax() {
    const Tensor attn_weights_2_naive = softmax_naive(attn_scores_2);
    nb.check("attn_weights_2_naive", attn_weights_2_naive);
    nb.check("sum", attn_weights_2_naive.sum());
    nb.say(
        "exp overflows float32 above 88.7, and inf / inf is not a number. The stable one subtracts the "
        "largest score first:");
    const Tensor large = torch::tensor({100.0, 0.0}).to(nb.device());
    nb.check("naive softmax of (100, 0) overflows", softmax_naive(large));
    nb.check("stable softmax of (100, 0)", torch::softmax(large, 0));
  }

  void stable_softmax() {
    attn_weights_2 = torch::softmax(attn_scores_2, 0);
    nb.check("attn_weights_2", attn_weights_2);
    nb.check("sum", attn_weights_2.sum());
  }

  void both_softmaxes() {
    nb.check("naive", softmax_naive(attn_scores_2));
    nb.check("stable", torch::softmax(attn_scores_2, 0));
  }

  void context_of_token_2() {
    context_vec_2 = torch::zeros_like(inputs[1]);
    for (int64_t i = 0; i < inputs.size(0); ++i) context_vec_2 += attn_weights_2[i] * inputs[i];
    nb.check("context_vec_2", context_vec_2);
  }

  void all_scores_by_loop() {
    attn_scores = torch::empty({6, 6}, inputs.options());
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 6; ++j) attn_scores[i][j] = torch::dot(inputs[i], inputs[j]);
    }
    nb.check("attn_scores", attn_scores);
  }

  void all_scores() {
    attn_scores = torch::matmul(inputs, inputs.t());
    nb.check("attn_scores", attn_scores);
  }

  void all_weights() {
    attn_weights = torch::softmax(attn_scores, -1);  // dim 0 would make the columns sum to one
    nb.check("attn_weights", attn_weights);
  }

  void row_sums() {
    nb.check("sum of the six printed weights of row 2", 0.1385 + 0.2379 + 0.2333 + 0.1240 + 0.1082 + 0.1581);
    nb.check("row sums", attn_weights.sum(-1));
  }

  void all_contexts() { nb.check("all_context_vecs", torch::matmul(attn_weights, inputs)); }

  // The same in one call: every token is query, key and value, and nothing is scaled.
  void attention_without_weights() { nb.check("output", attention(inputs, inputs, inputs, {.scale = 1.0})); }

  void earlier_context() { nb.check("context_vec_2", context_vec_2); }

  // Attention with trainable weights

  void why_three_matrices() {
    nb.say("A query asks, a key says what a token offers, a value is what it hands over.");
  }

  void widths() {
    x_2 = inputs[1];
    nb.check("x_2", x_2);
    nb.check_shape("d_in and d_out", {d_in, d_out});
    nb.say("A GPT takes d_in = d_out, so that x + attention(x), the residual connection, fits.");
  }

  void head_width() { nb.check("head width for d_model 512 and 8 heads", 512 / 8); }

  void three_matrices() {
    torch::manual_seed(123);
    W_query = torch::rand({d_in, d_out}).to(nb.device());
    W_key = torch::rand({d_in, d_out}).to(nb.device());
    W_value = torch::rand({d_in, d_out}).to(nb.device());
    nb.check("W_query", W_query);
    nb.check("W_key", W_key);
    nb.check("W_value", W_value);
  }

  void project_token_2() {
    query_2 = torch::matmul(x_2, W_query);
    nb.check("query_2", query_2);
    nb.check_shape("shape of x_2", x_2.sizes());
    nb.check_shape("shape of W_query", W_query.sizes());
    nb.check_shape("shape of query_2", query_2.sizes());
    nb.check("key_2", torch::matmul(x_2, W_key));
    nb.check("value_2", torch::matmul(x_2, W_value));
  }

  void project_all_tokens() {
    keys = torch::matmul(inputs, W_key);
    values = torch::matmul(inputs, W_value);
    nb.check_shape("shape of keys", keys.sizes());
    nb.check_shape("shape of values", values.sizes());
    nb.check("keys", keys);
    nb.check("values", values);
  }

  void one_projected_score() { nb.check("attn_score_22", torch::dot(query_2, keys[1])); }

  void scores_of_query_2() {
    attn_scores_2 = torch::matmul(query_2, keys.t());
    nb.check("attn_scores_2", attn_scores_2);
  }

  void scaled_softmax() {
    nb.say("The variance of a dot product grows with d_k; 1/sqrt(d_k) takes it back to one.");
    const auto d_k = static_cast<double>(keys.size(-1));
    attn_weights_2 = torch::softmax(attn_scores_2 / std::sqrt(d_k), -1);
    nb.check("d_k", d_k);
    nb.check("attn_weights_2", attn_weights_2);
  }

  void context_of_query_2() { nb.check("context_vec_2", torch::matmul(attn_weights_2, values)); }

  void self_attention_v1() {
    torch::manual_seed(123);
    attentive::SelfAttentionV1 sa_v1(d_in, d_out);
    sa_v1->to(nb.device());
    nb.check("sa_v1(inputs)", sa_v1->forward(inputs));
    nb.say(
        "Row 2 is the context vector of 001-24. A batch works too: keys are turned by transpose(-2, -1), "
        "not by .T, which turns all axes.");
  }

  void matrix_self_attention() {
    torch::manual_seed(123);
    attentive::MatrixSelfAttention sa(/*d_model=*/d_in, /*d_k=*/d_out);
    sa->to(nb.device());
    nb.check("SelfAttention(3, 2)(inputs)", sa->forward(inputs));
  }

  void self_attention_v2() {
    nb.say(
        "The notebook says that Linear draws Xavier weights; it draws kaiming_uniform(a = sqrt(5)), that is "
        "U(-1/sqrt(d_in), 1/sqrt(d_in)).");
    torch::manual_seed(789);
    sa_v2 = attentive::SelfAttentionV2(d_in, d_out);
    sa_v2->to(nb.device());
    nb.check("sa_v2(inputs)", sa_v2->forward(inputs));
  }

  // Hiding the future

  void weights_of_v2() {
    const torch::NoGradGuard no_grad;
    queries = sa_v2->W_query(inputs);
    keys = sa_v2->W_key(inputs);
    values = sa_v2->W_value(inputs);
    attn_scores = torch::matmul(queries, keys.t());
    attn_weights = torch::softmax(attn_scores / std::sqrt(keys.size(-1)), -1);
    nb.check("attn_weights", attn_weights);
  }

  void lower_triangle() {
    mask_simple = torch::tril(torch::ones({6, 6}, inputs.options()));
    nb.check("mask_simple", mask_simple);
  }

  void mask_after_softmax() {
    masked_simple = attn_weights * mask_simple;
    nb.check("masked_simple", masked_simple);
  }

  void renormalise() {
    nb.say(
        "keepdim leaves (6, 1), which broadcasts over the columns. This equals a softmax over the kept "
        "keys, so it is 001-33 again.");
    nb.check("masked_simple_norm", masked_simple / masked_simple.sum(-1, /*keepdim=*/true));
  }

  void mask_before_softmax() {
    nb.say("Scaling before or after the mask makes no difference: -inf stays -inf.");
    const Tensor mask = torch::triu(torch::ones({6, 6}, inputs.options()), /*diagonal=*/1);
    masked = attn_scores.masked_fill(mask.to(torch::kBool), -std::numeric_limits<float>::infinity());
    nb.check("masked", masked);
  }

  void causal_weights() {
    attn_weights = torch::softmax(masked / std::sqrt(keys.size(-1)), -1);
    nb.check("attn_weights", attn_weights);
  }

  // The same in one call.
  void causal_attention_weights() {
    const auto result =
        attention(queries, keys, values, {.causal = Causal::BottomRight}, {.weights = Weights::Clean});
    nb.check("weights", result.weights);
  }

  // Dropout

  void order_of_steps() { nb.say("attentive::attention keeps this order."); }

  void dropout_of_ones() {
    torch::manual_seed(123);
    torch::nn::Dropout dropout(0.5);
    nb.check_random("dropout(example)", dropout(torch::ones({6, 6}, inputs.options())));
    inverted_dropout("mean of 2, 3, 5, 7", "mean when 3 and 7 are dropped",
                     "the same mean with inverted dropout");
  }

  // What is kept grows by 1/(1 - p), so that the mean stays about the same in training and inference.
  void inverted_dropout(const char* before, const char* dropped, const char* rescaled) {
    const double p = 0.5;
    const Tensor numbers = torch::tensor({2.0, 3.0, 5.0, 7.0});
    const Tensor kept = torch::tensor({1.0, 0.0, 1.0, 0.0});
    nb.check(before, numbers.mean());
    nb.check(dropped, (numbers * kept).mean());
    nb.check(rescaled, (numbers * kept / (1 - p)).mean());
  }

  void inverted_dropout_again() {
    inverted_dropout("mean before", "mean without rescaling", "mean with rescaling");
  }

  void dropout_of_weights() {
    torch::manual_seed(123);
    torch::nn::Dropout dropout(0.5);
    nb.check_random("dropout(attn_weights)", dropout(attn_weights));
  }

  // Causal attention on batches

  void batch_of_two() {
    batch = torch::stack({inputs, inputs});
    nb.check_shape("shape of batch", batch.sizes());
  }

  // A module with dropout, from the seed, in training. A seed repeats the notebook's draws only on the stream
  // that softmax followed by Dropout would draw from.
  template <class Module, class... Arguments>
  void check_training(Arguments... arguments) {
    torch::manual_seed(123);
    Module module(arguments...);
    module->to(nb.device());
    module->train();
    const DropoutStreamGuard guard(DropoutStream::Aten);
    nb.check_random("trained with dropout 0.5", module->forward(batch));
  }

  void causal_attention() {
    torch::manual_seed(123);
    attentive::CausalAttention ca(d_in, d_out, context_length, /*dropout=*/0.0);
    ca->to(nb.device());
    const auto [context_vecs, weights] = ca->forward_with_weights(batch);
    nb.check("context_vecs", context_vecs);
    nb.check_shape("shape of context_vecs", context_vecs.sizes());
    nb.check("weights", weights);
    check_training<attentive::CausalAttention>(d_in, d_out, context_length, 0.5);
  }

  void multi_head_wrapper() {
    torch::manual_seed(123);
    attentive::MultiHeadAttentionWrapper mha(d_in, d_out, context_length, /*dropout=*/0.0, /*num_heads=*/2);
    mha->to(nb.device());
    const auto [context_vecs, weights] = mha->forward_with_weights(batch);
    nb.check("context_vecs", context_vecs);
    nb.check_shape("shape of context_vecs", context_vecs.sizes());
    nb.check("weights", weights);
    check_training<attentive::MultiHeadAttentionWrapper>(d_in, d_out, context_length, 0.5, 2);
  }

  void multi_head_attention() {
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
    check_training<attentive::MultiHeadAttention>(d_in, d_out, context_length, 0.5, 2);
  }

  // Heads are an axis: matmul multiplies the last two axes and carries the others along.
  void batched_product() {
    a = torch::tensor({{{{0.2745, 0.6584, 0.2775, 0.8573},
                         {0.8993, 0.0390, 0.9268, 0.7388},
                         {0.7179, 0.7058, 0.9156, 0.4340}},
                        {{0.0772, 0.3565, 0.1479, 0.5331},
                         {0.4066, 0.2318, 0.4545, 0.9737},
                         {0.4606, 0.5159, 0.4220, 0.5786}}}})
            .to(nb.device());
    nb.check("a @ a.transpose(2, 3)", torch::matmul(a, a.transpose(2, 3)));
  }

  void batched_matmul() {
    batched_product();
    nb.check_shape("shape of a", a.sizes());
  }

  void head_by_head() {
    const Tensor first_head = a[0][0], second_head = a[0][1];
    nb.check("first head", torch::matmul(first_head, first_head.t()));
    nb.check("second head", torch::matmul(second_head, second_head.t()));
  }

 private:
  Walkthrough& nb;
  const int64_t d_in = 3, d_out = 2, context_length = 6;
  Tensor inputs, batch, x_2, a;
  Tensor attn_scores_2, attn_weights_2, context_vec_2, attn_scores, attn_weights;
  Tensor W_query, W_key, W_value, query_2, queries, keys, values;
  Tensor mask_simple, masked_simple, masked;
  attentive::SelfAttentionV2 sa_v2{nullptr};
};

}  // namespace

Tally chapter_3(Walkthrough& walkthrough) {
  Chapter3 chapter(walkthrough);
  return walkthrough.walk(chapter, "001", "Large language model from scratch, chapter 3",
                          {{"001-01", &Chapter3::version},
                           {"001-02", &Chapter3::six_inputs},
                           {"001-03", &Chapter3::scores_of_token_2},
                           {"001-04", &Chapter3::one_score_by_hand},
                           {"001-05", &Chapter3::divide_by_the_sum},
                           {"001-06", &Chapter3::naive_softmax},
                           {"001-07", &Chapter3::stable_softmax},
                           {"C-19", &Chapter3::both_softmaxes},
                           {"001-08", &Chapter3::context_of_token_2},
                           {"001-09", &Chapter3::all_scores_by_loop},
                           {"001-10", &Chapter3::all_scores},
                           {"001-11", &Chapter3::all_weights},
                           {"001-12", &Chapter3::row_sums},
                           {"001-13", &Chapter3::all_contexts},
                           {"C-2", &Chapter3::attention_without_weights},
                           {"001-14", &Chapter3::earlier_context},
                           {"001-15", &Chapter3::why_three_matrices},
                           {"001-16", &Chapter3::widths},
                           {"001-N", &Chapter3::head_width},
                           {"001-17", &Chapter3::three_matrices},
                           {"001-18", &Chapter3::project_token_2},
                           {"001-19", &Chapter3::project_all_tokens},
                           {"001-20", &Chapter3::one_projected_score},
                           {"001-21", &Chapter3::one_projected_score},
                           {"001-22", &Chapter3::scores_of_query_2},
                           {"001-23", &Chapter3::scaled_softmax},
                           {"001-24", &Chapter3::context_of_query_2},
                           {"001-25", &Chapter3::self_attention_v1},
                           {"001-26", &Chapter3::matrix_self_attention},
                           {"001-27", &Chapter3::self_attention_v2},
                           {"001-28", &Chapter3::weights_of_v2},
                           {"001-29", &Chapter3::lower_triangle},
                           {"001-30", &Chapter3::mask_after_softmax},
                           {"001-31", &Chapter3::renormalise},
                           {"001-32", &Chapter3::mask_before_softmax},
                           {"001-33", &Chapter3::causal_weights},
                           {"C-4", &Chapter3::causal_attention_weights},
                           {"001-34", &Chapter3::order_of_steps},
                           {"001-35", &Chapter3::dropout_of_ones},
                           {"C-20", &Chapter3::inverted_dropout_again},
                           {"001-36", &Chapter3::dropout_of_weights},
                           {"001-37", &Chapter3::batch_of_two},
                           {"001-38", &Chapter3::causal_attention},
                           {"001-39", &Chapter3::multi_head_wrapper},
                           {"001-40", &Chapter3::multi_head_attention},
                           {"001-41", &Chapter3::batched_matmul},
                           {"C-24", &Chapter3::batched_product},
                           {"001-42", &Chapter3::head_by_head}});
}

}  // namespace notebooks
