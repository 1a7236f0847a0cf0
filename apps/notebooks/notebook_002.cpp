// Document 002: the worked Q/K/V numbers, three inputs of four features.

#include <torch/types.h>

#include <attentive/functional/attention.h>

#include "notebooks.h"
#include "support/six_tokens.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Weights;
using torch::Tensor;

class Tutorial {
 public:
  explicit Tutorial(Walkthrough& walkthrough) : nb(walkthrough) {}

  void inputs_and_weights() {
    x = torch::tensor({{1., 0., 1., 0.},    // input 1
                       {0., 2., 0., 2.},    // input 2
                       {1., 1., 1., 1.}});  // input 3
    w_key = torch::tensor({{0., 0., 1.}, {1., 1., 0.}, {0., 1., 0.}, {1., 1., 0.}});
    w_query = torch::tensor({{1., 0., 1.}, {1., 0., 0.}, {0., 0., 1.}, {0., 1., 1.}});
    w_value = torch::tensor({{0., 2., 0.}, {0., 3., 0.}, {1., 0., 3.}, {1., 1., 0.}});
    for (Tensor* tensor : {&x, &w_key, &w_query, &w_value}) *tensor = tensor->to(nb.device());
    nb.check("x", x);
    nb.check("w_key", w_key);
    nb.check("w_query", w_query);
    nb.check("w_value", w_value);
  }

  void compute_keys() {
    keys = torch::matmul(x, w_key);
    nb.check("keys", keys);
  }

  void compute_queries() {
    queries = torch::matmul(x, w_query);
    nb.check("querys", queries);
  }

  void compute_values() {
    values = torch::matmul(x, w_value);
    nb.check("values", values);
  }

  void compute_scores() {
    scores = torch::matmul(queries, keys.t());
    nb.check("attn_scores", scores);
  }

  void softmax() {
    weights = torch::softmax(scores, -1);
    nb.check("attn_scores_softmax", weights);
  }

  void rounded_weights() {
    rounded = torch::tensor({{0.0, 0.5, 0.5}, {0.0, 1.0, 0.0}, {0.0, 0.9, 0.1}}).to(nb.device());
    nb.check("attn_scores_softmax", rounded);
  }

  // What each key contributes to each query: axes (key, query, feature).
  Tensor per_key(const Tensor& w) const { return values.unsqueeze(1) * w.t().unsqueeze(2); }

  void weighted_values() { nb.check("weighted_values", per_key(rounded)); }

  void rounded_outputs() {
    nb.say("Adding up over the keys is the matrix product weights @ values.");
    nb.check("outputs", per_key(rounded).sum(0));
  }

  // The tutorial does not scale its scores, so the call says scale 1.
  void exact_outputs() {
    const auto [output, clean, logsumexp] =
        attention(queries, keys, values, {.scale = 1.0}, {.weights = Weights::Clean});
    nb.check("outputs", output);
    nb.check("weighted_values", per_key(clean));
    nb.check("outputs in float64", attention(queries.to(torch::kDouble), keys.to(torch::kDouble),
                                             values.to(torch::kDouble), {.scale = 1.0}));
  }

  // Without options the scale is 1/sqrt(head_dim), here 1/sqrt(3): softer weights, other outputs.
  void scaled_outputs() {
    const auto [output, clean, logsumexp] = attention(queries, keys, values, {}, {.weights = Weights::Clean});
    nb.check("weights", clean);
    nb.check("outputs", output);
  }

  void figures() {
    nb.say("Causal masks: 001-29 to 001-38. Cross-attention: 002-14. Several heads: 002-15.");
  }

  void three_words() {
    nb.say("The same weights as 002-6, with the words that the author planned as names of the rows:");
    for (int64_t row = 0; row < 3; ++row) {
      nb.say("{:.2f} {:.2f} {:.2f}  {}", weights[row][0].item<float>(), weights[row][1].item<float>(),
             weights[row][2].item<float>(), nb.labels()[static_cast<size_t>(row)]);
    }
  }

  // A decoder's two tokens ask, an encoder's four answer: q comes from the one, k and v from the other.
  void cross_attention() {
    const auto tokens = six_tokens().to(nb.device());
    const auto decoder = tokens.slice(0, 0, 2);
    const auto encoder = tokens.slice(0, 2, 6);
    const auto [output, clean, logsumexp] =
        attention(decoder, encoder, encoder, {}, {.weights = Weights::Clean});
    nb.check("weights", clean);
    nb.check("output", output);
  }

  void several_heads() { nb.say("Run them with attentive-notebook-001 --cell 39 and --cell 40."); }

 private:
  Walkthrough& nb;
  Tensor x, w_key, w_query, w_value;
  Tensor keys, queries, values, scores, weights, rounded;
};

}  // namespace

Tally query_key_value_numbers(Walkthrough& walkthrough) {
  Tutorial tutorial(walkthrough);
  return walkthrough.walk(tutorial, "002", "Queries, keys and values in small numbers",
                          {{"002-1", &Tutorial::inputs_and_weights},
                           {"002-2", &Tutorial::compute_keys},
                           {"002-3", &Tutorial::compute_queries},
                           {"002-4", &Tutorial::compute_values},
                           {"002-5", &Tutorial::compute_scores},
                           {"002-6", &Tutorial::softmax},
                           {"002-7", &Tutorial::rounded_weights},
                           {"002-8", &Tutorial::weighted_values},
                           {"002-9", &Tutorial::rounded_outputs},
                           {"002-10", &Tutorial::exact_outputs},
                           {"002-11", &Tutorial::scaled_outputs},
                           {"002-12", &Tutorial::figures},
                           {"002-13", &Tutorial::three_words},
                           {"002-14", &Tutorial::cross_attention},
                           {"C-7", &Tutorial::cross_attention},
                           {"002-15", &Tutorial::several_heads}});
}

}  // namespace notebooks
