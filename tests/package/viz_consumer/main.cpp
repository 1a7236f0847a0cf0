// A user's program that shows the attention of a model.

#include <cstdio>

#include <ATen/ops/rand.h>

#include <attentive/modules/multi_head_attention.h>
#include <attentive/viz/write_page.h>

int main() {
  attentive::MultiHeadAttention mha(8, 8, 6, 0.0, 2);
  attentive::AttentionRecorder recorder(*mha);
  mha->forward(at::rand({1, 3, 8}));
  const auto views = attentive::attention_views(recorder, {.tokens = {"Your", " journey", " starts"}});
  const auto page = attentive::write_html("page.html", views);
  attentive::write_svg("head.svg", views[0], {.head = 1});
  std::printf("%d bytes, %d levels\n", static_cast<int>(page.bytes), page.levels);
  return page.levels == 255 ? 0 : 1;
}
