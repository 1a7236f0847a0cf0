// Examples of docs/guide/from_python.md and docs/guide/caching.md.

#include <filesystem>

#include <ATen/ATen.h>

#include <attentive/attentive.h>

#include "docs/examples.h"
#include "support/files.h"

using namespace attentive;

static GPT small_gpt() {
  return GPT(GPTOptions(27, 16, 32, 4, 2).qkv_bias(true).tied(true));
}

static void write_gpt2() {
  auto state = to_python_names("gpt2", state_dict(*small_gpt()));
  state["lm_head.weight"] = state.at("transformer.wte.weight");
  save_safetensors("gpt2.safetensors", state);
}

EXAMPLE_AFTER(gpt2_names, write_gpt2) {
  // GPT-2 itself has GPTOptions(50257, 1024, 768, 12, 12).
  GPT model(GPTOptions(27, 16, 32, 4, 2).qkv_bias(true).tied(true));
  auto state = from_python_names("gpt2", read_state_dict("gpt2.safetensors"));
  state.erase("out_head.weight");  // the head is tied: a second copy of the embedding
  load_state_dict(*model, state);
  save_safetensors("again.safetensors", to_python_names("gpt2", state_dict(*model)));
  std::cout << read_state_dict("again.safetensors").size() << " tensors under GPT-2's names\n";
}

static void write_llama() {
  std::filesystem::copy(test::source_folder() + "/tests/models/data/llama", "llama");
}

EXAMPLE_AFTER(python_folder, write_llama) {
  auto folder = read_model_folder("llama");  // config.json, model.safetensors or its shards, tokenizer.json
  auto model = load_pretrained<Llama>(std::move(folder));  // the weights stay in the mapped files
  const auto next = generate(*model, {1, 5, 7}, {.max_new_tokens = 4, .sampling = {.temperature = 0}});
  save_model_folder("again", *model, {.config = folder.config});  // Python's AutoModel loads it
  std::cout << "first token " << next[0] << "; " << read_model_folder("again").weights.size()
            << " tensors saved\n";
}

static void write_checkpoint() {
  StateDict saved;
  for (const auto& [key, tensor] : state_dict(*MultiHeadAttention(32, 32, 16, 0.0, 4)))
    saved["module." + key] = tensor;
  FileValue::Dict model;
  for (const auto& [key, tensor] : saved) model.items.emplace_back(key, tensor);
  save_torch("checkpoint.pt", FileValue::Dict{{{"model", model}, {"epoch", 3}}});
}

EXAMPLE_AFTER(checkpoint, write_checkpoint) {
  MultiHeadAttention mha(32, 32, 16, 0.0, 4);
  const auto file = read_state_dict_file("checkpoint.pt");  // torch.save({"model": …, "epoch": 3}, …)
  load_state_dict(*mha, without_prefix(file.state, file.prefix));
  std::cout << "found in " << file.entry << ", prefix " << file.prefix << ", epoch "
            << file.values.at("epoch").as<int64_t>() << "\n";
}

EXAMPLE(misfit) {
  const auto state = state_dict(*MultiHeadAttention(32, 32, 16, 0.0, 4));
  GroupedQueryAttention grouped(32, 32, 16, 0.0, 4, 2);
  try {
    load_state_dict(*grouped, state);
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n";
  }
}

EXAMPLE(converted) {
  compat::MultiheadAttention theirs(
      compat::MultiheadAttentionOptions(32, 4));  // the names of torch.nn.MultiheadAttention
  MultiHeadAttention ours(
      MultiHeadAttentionOptions(32, 32, 0, 0.0, 4, /*qkv_bias=*/true));  // causal, as the book's
  load_state_dict(*ours, convert::torch_to_multi_head(state_dict(*theirs)));

  const auto x = at::rand({6, 32});
  const auto hidden = at::ones({6, 6}, at::kBool).triu(1);
  const auto y = std::get<0>(theirs->forward(x, x, x, {}, /*need_weights=*/false, hidden));
  std::cout << "the same: " << ours->forward(x).allclose(y, 1e-5, 1e-6) << "\n";
}

EXAMPLE(cached_gpt) {
  GPT model(GPTOptions(/*vocab_size=*/27, /*context_length=*/16, /*emb_dim=*/32, /*num_heads=*/4,
                       /*num_layers=*/2));
  model->eval();
  const at::NoGradGuard no_grad;
  const auto ids = at::arange(8).view({1, 8});
  const auto whole = model->forward(ids);

  auto cache = model->make_cache();
  auto logits = model->forward_cached(ids.slice(1, 0, 5), *cache);  // the prompt, in one pass
  for (int64_t t = 5; t < 8; ++t) logits = model->forward_cached(ids.slice(1, t, t + 1), *cache);
  std::cout << "position " << cache->position() << " of " << cache->slots() << ", " << cache->bytes()
            << " bytes\n";
  std::cout << "the last logits are those of the whole text: "
            << logits[0][-1].allclose(whole[0][-1], 1e-4, 1e-5) << "\n";
}

EXAMPLE(cache_rows) {
  GPT model(GPTOptions(27, 16, 32, 4, 2));
  model->eval();
  const at::NoGradGuard no_grad;
  auto cache = model->make_cache();
  model->forward_cached(at::arange(5).view({1, 5}), *cache);
  cache->reorder(at::tensor({0, 0, 0}));  // one prompt, three continuations
  model->forward_cached(at::tensor({7, 8, 9}).view({3, 1}), *cache);
  cache->reorder(at::tensor({2, 0}));  // two of them go on
  cache->truncate(5);                  // and take their last token back
  std::cout << cache->options().batch << " sequences of " << cache->position() << " tokens\n";
}

EXAMPLE(uneven_prompts) {
  GPT model(GPTOptions(27, 16, 32, 4, 2));
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6, 7}};
  const std::vector<GenerateOptions> options{{.max_new_tokens = 4, .seed = 1},
                                             {.max_new_tokens = 9, .seed = 2, .stop_tokens = {0}}};
  const auto texts = generate(*model, prompts, options);  // one list of new tokens for each prompt
  std::cout << "the second text is that of its prompt alone: "
            << (texts[1] == generate(*model, prompts[1], options[1])) << "\n";

  const auto ids = at::tensor({1, 2, 3, 4, 5, 6, 7, 0, 0, 0}).view({2, 5});
  const auto last = model->forward(ids, Logits::Last, {.lengths = at::tensor({5, 2})});
  const auto alone = model->forward(ids.slice(0, 1).slice(1, 0, 2), Logits::Last);
  std::cout << "and so are its logits: " << last[1].allclose(alone[0], 1e-4, 1e-5) << "\n";
}

EXAMPLE(ring) {
  // Four heads of eight features, each token sees itself and the 63 before it, for as long as you like.
  TransformerAttention layer(TransformerAttentionOptions(32, 4)
                                 .rotary(RotaryPositionsOptions(8))
                                 .attention({.causal = Causal::BottomRight, .window = {63, 0}}));
  layer->eval();
  const at::NoGradGuard no_grad;
  RingKVCache cache({.layers = 1, .num_kv_heads = 4, .head_dim = 8}, /*window=*/64);
  for (int token = 0; token < 1000; ++token) layer->forward_cached(at::rand({1, 1, 32}), cache, /*layer=*/0);
  std::cout << "seen " << cache.position() << ", memory for " << cache.slots() << "\n";
}

EXAMPLE(sampling) {
  GPT model(GPTOptions(27, 16, 32, 4, 2));
  int shown = 0;
  GenerateOptions options{.max_new_tokens = 8, .sampling = {.temperature = 0.8, .top_k = 5}, .seed = 1};
  options.on_token = [&](int64_t) { return ++shown < 6; };  // stops after the sixth
  const auto ids = generate(*model, {1, 2, 3}, options);
  options.use_cache = false;
  shown = 0;
  std::cout << ids.size()
            << " tokens; the same without a cache: " << (generate(*model, {1, 2, 3}, options) == ids) << "\n";
}
