#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>

#include <attentive/files/state_dict.h>
#include <attentive/modules/convert.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

constexpr int64_t kIn = 6, kHeadDim = 3;

std::string where_of(int64_t heads, int64_t kv_heads) {
  return with("heads", heads) + ", " + with("kv_heads", kv_heads);
}

// Compares the values of one projection with the library's conversion of a whole module.
void check_numbers(int64_t heads, int64_t kv_heads) {
  const attentive::MultiHeadAttention mha(kIn, heads * kHeadDim, 0, 0.0, heads);
  const auto state = attentive::state_dict(*mha);
  const auto expected = attentive::convert::multi_head_to_grouped(state, heads, kv_heads);
  for (const std::string name : {"W_key.weight", "W_value.weight"}) {
    const auto got = grouped_weight(state.at(name), heads, kv_heads);
    const auto& right = expected.at(name);
    want(got.sizes() == right.sizes(), 2, "the weight has another shape (" + where_of(heads, kv_heads) + ")");
    want_close(got, right, kv_heads == 1 ? 1 : 2,
               name + " is not the mean over the heads of each group (" + where_of(heads, kv_heads) + ")");
  }
}

// If the heads of a group are equal, their mean equals each of them, and both modules give the same outputs.
void check_outputs(int64_t heads, int64_t kv_heads) {
  attentive::MultiHeadAttention mha(kIn, heads * kHeadDim, 0, 0.0, heads);
  attentive::GroupedQueryAttention gqa(
      attentive::GroupedQueryAttentionOptions(kIn, heads * kHeadDim, 0, 0.0, heads, kv_heads).out_bias(true));
  const at::NoGradGuard no_gradients;
  for (const auto& layer : {mha->W_key, mha->W_value}) {
    auto by_group = layer->weight.view({kv_heads, heads / kv_heads, kHeadDim, kIn});
    by_group.copy_(by_group.narrow(1, 0, 1).clone().expand_as(by_group));
  }
  auto state = attentive::state_dict(*mha);
  for (const std::string name : {"W_key.weight", "W_value.weight"})
    state[name] = grouped_weight(state.at(name), heads, kv_heads);
  attentive::load_state_dict(*gqa, state);
  const auto x = at::rand({2, 4, kIn});
  want_close(gqa->forward(x), mha->forward(x), 3,
             "a module whose heads are equal within each group changes its outputs (" +
                 where_of(heads, kv_heads) + ")");
}

}  // namespace
}  // namespace exercises

EXERCISE(5) {
  exercises::check_numbers(4, 1);
  exercises::check_numbers(4, 2);
  exercises::check_numbers(6, 3);
  exercises::check_numbers(6, 2);
  exercises::check_numbers(3, 3);
  exercises::check_outputs(6, 2);
}
