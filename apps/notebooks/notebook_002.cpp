// Document 002: the worked Q/K/V numbers, three inputs of four features.

#include <torch/types.h>

#include <attentive/functional/attention.h>

#include "notebooks.h"

namespace notebooks {
namespace {

using attentive::attention;
using attentive::Weights;
using torch::Tensor;

}  // namespace

void query_key_value_numbers(Walkthrough& nb) {
  const std::vector<std::string> names = {"input 1", "input 2", "input 3"};
  Tensor x, w_key, w_query, w_value;
  Tensor keys, queries, values, scores, weights, rounded;

  // Whole numbers that can be checked with a pencil: three inputs of four features, and matrices that take
  // them to three.
  nb.cell("002-1", "Three inputs and three weight matrices", [&] {
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
  });

  // Every input times w_key: what it offers to be found by.
  nb.cell("002-2", "Keys", [&] {
    keys = torch::matmul(x, w_key);
    nb.check("keys", keys);
  });

  // Every input times w_query: what it looks for.
  nb.cell("002-3", "Queries", [&] {
    queries = torch::matmul(x, w_query);
    nb.check("querys", queries);
  });

  // Every input times w_value: what it hands over to those who attend to it.
  nb.cell("002-4", "Values", [&] {
    values = torch::matmul(x, w_value);
    nb.check("values", values);
  });

  // Each query times each key. The tutorial leaves out the division by sqrt(3), which 002-11 adds.
  nb.cell("002-5", "Scores, not scaled", [&] {
    scores = torch::matmul(queries, keys.t());
    nb.check("attn_scores", scores);
    nb.picture("attn_scores", scores, {.queries = names, .keys = names});
  });

  // Softmax sharpens: scores that differ by a few points become weights that differ by orders of magnitude.
  nb.cell("002-6", "Softmax", [&] {
    weights = torch::softmax(scores, -1);
    nb.check("attn_scores_softmax", weights);
    nb.picture("attn_scores_softmax", weights, {.queries = names, .keys = names});
  });

  // To keep the arithmetic short, the tutorial rounds the weights to one decimal.
  nb.cell("002-7", "Weights rounded by hand", [&] {
    rounded = torch::tensor({{0.0, 0.5, 0.5}, {0.0, 1.0, 0.0}, {0.0, 0.9, 0.1}}).to(nb.device());
    nb.check("attn_scores_softmax", rounded);
    nb.picture("attn_scores_softmax", rounded, {.queries = names, .keys = names});
  });

  // The contribution of each key to each query, with axes (key, query, feature).
  const auto per_key = [&](const Tensor& w) { return values.unsqueeze(1) * w.t().unsqueeze(2); };

  // Each value times the weight that each query gives to its key, before anything is added up.
  nb.cell("002-8", "Values weighted key by key, axes (key, query, feature)",
          [&] { nb.check("weighted_values", per_key(rounded)); });

  // For each query the sum of its weighted values: these are the outputs that the tutorial prints.
  nb.cell("002-9", "Outputs of the rounded weights", [&] {
    nb.say("Adding up over the keys is the matrix product weights @ values.");
    nb.check("outputs", per_key(rounded).sum(0));
  });

  // The exact outputs in one call. The tutorial does not scale its scores, so the call sets scale 1.
  nb.cell("002-10", "Outputs of the exact weights", [&] {
    const auto [output, clean, logsumexp] =
        attention(queries, keys, values, {.scale = 1.0}, {.weights = Weights::Clean});
    nb.check("outputs", output);
    nb.check("weighted_values", per_key(clean));
    nb.check("outputs in float64", attention(queries.to(torch::kDouble), keys.to(torch::kDouble),
                                             values.to(torch::kDouble), {.scale = 1.0}));
  });

  // Without options the scale is 1/sqrt(head_dim), here 1/sqrt(3): softer weights, other outputs.
  nb.cell("002-11", "Outputs of a scaled attention", [&] {
    const auto [output, clean, logsumexp] = attention(queries, keys, values, {}, {.weights = Weights::Clean});
    nb.check("weights", clean);
    nb.picture("weights", clean, {.queries = names, .keys = names});
    nb.check("outputs", output);
  });

  // The tutorial closes with drawings. What they show is computed in other cells.
  nb.cell("002-12", "Figures: input, output, masked attention, update, encoder and decoder",
          [&] { nb.say("Causal masks: 001-29 to 001-38. Cross-attention: 002-14. Several heads: 002-15."); });

  // Between words, attention computes the same; only the names of the rows are new.
  nb.cell("002-13", "Three words as an example", [&] {
    nb.say("The same weights as 002-6, with the words that the author planned as names of the rows:");
    for (int64_t row = 0; row < 3; ++row) {
      nb.say("{:.2f} {:.2f} {:.2f}  {}", weights[row][0].item<float>(), weights[row][1].item<float>(),
             weights[row][2].item<float>(), nb.labels()[static_cast<size_t>(row)]);
    }
    nb.picture("weights between words", weights, {.queries = nb.labels(), .keys = nb.labels()});
  });

  attentive::AttentionResult cross;

  // A decoder's two tokens ask, an encoder's four answer: q comes from the one, k and v from the other.
  nb.cell("002-14", "Encoder and decoder: where keys and values come from", [&] {
    const auto tokens = six_tokens().to(nb.device());
    const auto decoder = tokens.slice(0, 0, 2);
    const auto encoder = tokens.slice(0, 2, 6);
    cross = attention(decoder, encoder, encoder, {}, {.weights = Weights::Clean});
    nb.check("weights", cross.weights);
    nb.check("output", cross.output);
    nb.picture("weights", cross.weights,
               {.queries = {"Your", "journey"}, .keys = {"starts", "with", "one", "step"}});
  });

  // The result of 002-14 once more, as a concept of its own.
  nb.cell("C-7", "Cross-attention: queries rows 1-2, keys and values rows 3-6", [&] {
    nb.check("weights", cross.weights);
    nb.check("output", cross.output);
  });

  // Several heads attend in parallel, each with its own projections, and W^O mixes their outputs.
  nb.cell("002-15", "Multi-head attention: several heads, then W^O",
          [&] { nb.say("Run them with attentive-notebook-001 --cell 39 and --cell 40."); });
}

}  // namespace notebooks
