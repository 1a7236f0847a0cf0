#include <ATen/ops/rand.h>

#include <attentive/modules/multi_head_attention.h>
#include <attentive/viz.h>

int main() {
  attentive::MultiHeadAttention mha(8, 8, 6, 0.0, 2);
  attentive::AttentionRecorder recorder(*mha);
  mha->forward(at::rand({1, 3, 8}));
  return attentive::to_svg(attentive::attention_views(recorder)[0]).starts_with("<svg") ? 0 : 1;
}
