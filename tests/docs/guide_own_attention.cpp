// Examples of docs/guide/own_attention.md.

#include <ATen/ATen.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

struct WindowedGQA : torch::nn::Module {
  WindowedGQA(int64_t dim, int64_t heads, int64_t kv_heads, int64_t window, double dropout)
      : heads(heads), kv_heads(kv_heads), window(window), dropout(dropout) {
    const int64_t head_dim = dim / heads;
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
    };
    q_proj = linear("q_proj", dim, dim);  // in Python's order, so that a seed draws the same weights
    k_proj = linear("k_proj", dim, kv_heads * head_dim);
    v_proj = linear("v_proj", dim, kv_heads * head_dim);
    o_proj = linear("o_proj", dim, dim);
    rotary = RotaryPositions(RotaryPositionsOptions(head_dim).pairing(RotaryPairing::Halves));
  }

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    const AttentionOptions options{.causal = Causal::BottomRight,
                                   .window = {window - 1, 0},  // the token itself is one of `window`
                                   .dropout_p = is_training() ? dropout : 0.0};
    const auto q = rotary->forward(split_heads(q_proj->forward(x), heads));
    const auto k = rotary->forward(split_heads(k_proj->forward(x), kv_heads));
    const auto v = split_heads(v_proj->forward(x), kv_heads);  // shared by groups of heads, not repeated
    const auto y = attention(q, k, v, options, {.mask = mask, .caller = this}).output;
    return o_proj->forward(merge_heads(y));
  }

  int64_t heads, kv_heads, window;
  double dropout;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  RotaryPositions rotary{nullptr};
};

// The file that Python writes, on machines without Python: the same seed draws the same weights.
static void write_windowed_gqa() {
  at::manual_seed(123);
  save_torch("windowed_gqa.pt", state_dict(WindowedGQA(64, 8, 2, 5, 0.1)));
}

EXAMPLE(own_attention) {
  at::manual_seed(123);
  WindowedGQA module(64, /*heads=*/8, /*kv_heads=*/2, /*window=*/5, /*dropout=*/0.1);
  module.eval();
  const auto y = module.forward(at::rand({1, 12, 64}));
  for (int64_t n = 0; n < 3; ++n) std::cout << y[0][-1][n].item<float>() << "\n";
}

EXAMPLE(own_attention_backend) {
  WindowedGQA module(64, 8, 2, 5, 0.1);
  const AttentionRecorder recorder(module);
  module.forward(at::rand({1, 12, 64}));  // in training, with dropout
  {
    const DropoutStreamGuard guard(DropoutStream::Aten);
    module.forward(at::rand({1, 12, 64}));
  }
  for (const auto& call : recorder.calls()) std::cout << to_string(*call.backend) << "\n";
}

EXAMPLE_AFTER(own_attention_renamed, write_windowed_gqa) {
  TransformerAttention layer(TransformerAttentionOptions(64, 8)
                                 .num_kv_heads(2)
                                 .out_bias(false)
                                 .dropout(0.1)
                                 .rotary(RotaryPositionsOptions(8).pairing(RotaryPairing::Halves))
                                 .attention({.causal = Causal::BottomRight, .window = {4, 0}}));
  const std::map<std::string, std::string> names = {{"q_proj.weight", "W_query.weight"},
                                                    {"k_proj.weight", "W_key.weight"},
                                                    {"v_proj.weight", "W_value.weight"},
                                                    {"o_proj.weight", "out_proj.weight"}};
  const auto python = read_state_dict("windowed_gqa.pt");
  StateDict here;
  for (const auto& [theirs, ours] : names) here[ours] = python.at(theirs);
  load_state_dict(*layer, here);

  // … and back: torch.load("trained.pt") has Python's names again.
  const auto trained = state_dict(*layer);
  StateDict back;
  for (const auto& [theirs, ours] : names) back[theirs] = trained.at(ours);
  save_torch("trained.pt", back);

  WindowedGQA module(64, 8, 2, 5, 0.1);
  load_state_dict(module, read_state_dict("trained.pt"));
  module.eval(), layer->eval();
  const auto x = at::rand({1, 12, 64});
  std::cout << "the same: " << layer->forward(x).allclose(module.forward(x), 1e-5, 1e-6) << "\n";
}
