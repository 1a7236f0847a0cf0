#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

void check_layer(const at::Tensor& matrix, const torch::nn::Linear& layer, const std::string& where) {
  want_close(layer->weight, matrix.t(), 1,
             "the weight of v2 is not the transpose of v1's matrix (" + where + ")");
  want(layer->weight.requires_grad(), 2, "the weight of v2 is no longer trained (" + where + ")");
  if (layer->bias.defined())
    want_close(layer->bias, at::zeros_like(layer->bias), 3,
               "v2 adds a bias that v1 does not have (" + where + ")");
}

void check(int64_t d_in, int64_t d_out, bool bias) {
  const auto where = with("d_in", d_in) + ", " + with("d_out", d_out) + (bias ? ", with biases" : "");
  attentive::SelfAttentionV1 v1(d_in, d_out);
  attentive::SelfAttentionV2 v2(d_in, d_out, bias);
  const auto query = v1->W_query.detach().clone();
  copy_projections(*v1, *v2);
  check_layer(v1->W_query, v2->W_query, "W_query, " + where);
  check_layer(v1->W_key, v2->W_key, "W_key, " + where);
  check_layer(v1->W_value, v2->W_value, "W_value, " + where);
  want_close(v1->W_query, query, 2, "v1 was changed (" + where + ")");

  const auto x = at::rand({2, 5, d_in});
  const auto before = v1->forward(x);
  want_close(v2->forward(x), before, 2, "the outputs of v2 (" + where + ")");
  {
    const at::NoGradGuard no_gradients;
    v1->W_value.zero_();
  }
  want_close(v2->forward(x), before, 2, "v2 changes when v1's matrices change (" + where + ")");
}

}  // namespace
}  // namespace exercises

EXERCISE(1) {
  exercises::check(3, 2, false);
  exercises::check(4, 4, false);
  exercises::check(2, 5, true);
}
