// Examples of docs/guide/start.md, docs/guide/from_python.md and docs/options.md.

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <attentive/attentive.h>

#include "docs/examples.h"

using namespace attentive;

EXAMPLE(attention_call) {
  // Eight query heads share two key heads. The second sequence has three keys, then padding.
  const auto q = at::rand({2, 8, 6, 64}), k = at::rand({2, 2, 6, 64}), v = at::rand({2, 2, 6, 64});
  const auto mask = Mask::key_lengths(at::tensor({6, 3}));
  const auto y = attention(q, k, v, {.causal = Causal::BottomRight, .window = {3, 0}, .softcap = 30.0}, mask);
  std::cout << y.sizes() << "\n";
}

// Writes the file that Python's half writes, on machines without Python: the same seed draws the same
// weights.
static void write_gpt() {
  at::manual_seed(123);
  const GPT model(GPTOptions(27, 16, 32, 4, 2));
  save_torch("gpt.pt", state_dict(*model));
}

EXAMPLE_AFTER(from_python, write_gpt) {
  GPT model(GPTOptions(/*vocab_size=*/27, /*context_length=*/16, /*emb_dim=*/32, /*num_heads=*/4,
                       /*num_layers=*/2));
  load_state_dict(*model, read_state_dict("gpt.pt"));  // a .safetensors file, shards or a checkpoint as well
  const auto logits = model->forward(at::tensor({1, 2, 3, 4}).view({1, 4}))[0][-1];
  for (int64_t n = 0; n < 3; ++n) std::cout << "logit " << logits[n].item<float>() << "\n";
  const auto next = generate(*model, {1, 2, 3, 4}, {.max_new_tokens = 6});  // with a key-value cache

  const auto x = at::tensor({1, 2, 3}).view({1, 3}), y = at::tensor({2, 3, 4}).view({1, 3});
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  model->loss(x, y).backward();
  optimizer.step();

  save_torch("trained.pt", state_dict(*model));  // or save_safetensors("trained.safetensors", …)
  std::cout << next.size() << " tokens; loss after a step " << model->loss(x, y).item<float>() << "\n";
}

EXAMPLE(asking) {
  const auto q = at::rand({1, 2, 16, 8}), k = q, v = q;
  std::cout << explain(q, k, v, {.softcap = 30.0});  // which backend, and why not the others

  const BackendGuard guard(Backend::Reference);  // prefer one, on this thread
  try {
    attention(q, k, v, {.softcap = 30.0, .backend = Backend::Torch});  // insist on one
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n";
  }
}
