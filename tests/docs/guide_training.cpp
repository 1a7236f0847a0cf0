// Examples of docs/guide/training.md, training_on_one_machine.md and fine_tuning.md.

#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <attentive/attentive.h>
#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/adamw.h>
#include <attentive/train/language_model.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/token_file.h>
#include <attentive/train/trainer.h>

#include "docs/examples.h"
#include "support/files.h"

using namespace attentive;

EXAMPLE(own_loop) {
  torch::nn::Sequential model;  // one statement a layer: a seed then gives the same weights everywhere
  model->push_back(MultiHeadAttention(32, 32, /*context_length=*/8, /*dropout=*/0.1, /*num_heads=*/4));
  model->push_back(torch::nn::Linear(32, 4));
  const auto x = at::randn({16, 8, 32}), answers = at::randint(4, {16 * 8}, at::kLong);
  AdamW optimizer(*model, {.learning_rate = 1e-2});  // or any of torch::optim
  at::Tensor first, loss;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(model->forward(x).flatten(0, 1), answers);
    loss.backward();
    optimizer.clip(1.0);
    optimizer.step();
    if (step == 0) first = loss.detach();
  }
  std::cout << "learned: " << (loss.item<float>() < 0.8 * first.item<float>()) << "\n";
}

EXAMPLE(dropout_bits) {
  MultiHeadAttention mha(32, 32, /*context_length=*/8, /*dropout=*/0.5, /*num_heads=*/4);
  const auto x = at::rand({2, 8, 32});
  at::manual_seed(5);
  const auto once = mha->forward(x);
  at::manual_seed(5);
  std::cout << "the same seed, the same bits: " << mha->forward(x).equal(once) << "\n";
  mha->eval();
  std::cout << "evaluation drops nothing: " << mha->forward(x).equal(mha->forward(x)) << "\n";

  mha->train();
  const DropoutStreamGuard python(DropoutStream::Aten);  // what nn.Dropout drops in Python for this seed
  at::manual_seed(5);
  mha->forward(x);
}

EXAMPLE(half_precision) {
  MultiHeadAttention mha(32, 32, /*context_length=*/8, /*dropout=*/0.0, /*num_heads=*/4);
  const auto x = at::rand({2, 8, 32});
  at::Tensor y;
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);  // weights stay float32
    y = mha->forward(x);
  }
  y.sum().backward();
  std::cout << y.scalar_type() << ", gradients " << mha->W_query->weight.grad().scalar_type() << "\n";
}

EXAMPLE(scaled_loss) {
  torch::nn::Linear layer(16, 1);
  AdamW optimizer(*layer, {.learning_rate = 1e-4});
  LossScaler scaler;
  const auto x = at::rand({8, 16});
  for (int update = 1; update <= 4; ++update) {
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU, at::kHalf);
      loss = (layer->forward(x).to(at::kFloat) - 3).square().mean();
    }
    std::cout << "scale " << static_cast<int>(scaler.factor());
    scaler.scale(loss).backward();
    const auto norm = optimizer.clip(1.0, scaler.factor()).item<double>();  // of the unscaled gradients
    const bool finite = scaler.update(norm);
    if (finite) optimizer.step();
    optimizer.zero_grad();
    std::cout << (finite ? ": done\n" : ": skipped\n");
  }
}

EXAMPLE(trainer) {
  std::string text;
  for (int n = 0; n < 100; ++n) text += "the cat sat on the mat. ";
  const auto tokenizer = CharTokenizer::train(text);
  const auto [training, validation] = tokenize(text, tokenizer);  // the last tenth validates

  const auto options = GPTOptions(tokenizer.vocab_size(), 16, 32, 2, 2).dropout(0.1).tied(true);
  GPT model(options);
  Trainer trainer(model.ptr(), language_model_loss(model), training, validation,
                  {.steps = 30, .block = 16, .warmup = 5});
  CheckpointFolder folder("run");
  trainer.run(folder, {.documents = language_model_documents(model, tokenizer)});

  auto language = load_language_model("run");  // in another program
  std::cout << "after " << language.step << " updates, "
            << generate(language.model, language.tokenizer->encode("the "), {.max_new_tokens = 9}).size()
            << " more letters\n";
}

EXAMPLE(streamed_text) {
  const BpeTokenizer tokenizer({});  // one token a byte: two for é, three for 漢
  const auto decoder = tokenizer.streaming_decoder(/*skip_special_tokens=*/true);
  std::string parts;
  for (const auto id : tokenizer.encode("né漢!")) parts += '[' + decoder->push(id) + ']';
  std::cout << parts << decoder->finish() << "\n";
}

constexpr const char* kLetters = "the cat sat on the mat. ";

static void write_base() {
  std::filesystem::copy(test::source_folder() + "/tests/models/data/llama", "base");
  std::ofstream("base/tokenizer.json") << CharTokenizer::train(kLetters).to_json();
  std::ofstream text("my_text.txt");
  for (int n = 0; n < 20; ++n) text << kLetters;
}

EXAMPLE_AFTER(fine_tuning, write_base) {
  auto language = load_language_model("base");  // config.json, weights, tokenizer.json
  const auto [training, validation] = tokenize(read_text("my_text.txt"), *language.tokenizer);
  Trainer trainer(language.model.ptr(), language_model_loss(language.model), training, validation,
                  {.steps = 20, .block = 16, .learning_rate = 3e-3, .warmup = 0});
  CheckpointFolder folder("tuned");
  trainer.run(folder, {.documents = language_model_documents(language)});
  save_language_model("tuned/model", language);  // Python's AutoModelForCausalLM loads it

  const auto again = load_language_model("tuned/model");
  const auto ids = language.tokenizer->encode("the cat ");
  std::cout << again.model.name() << ", the same next letters: "
            << (generate(again.model, ids, {.max_new_tokens = 4}) ==
                generate(language.model, ids, {.max_new_tokens = 4}))
            << "\n";
}

EXAMPLE(chunked_loss) {
  const auto hidden = at::randn({4, 100, 16}).requires_grad_(true);  // of a model's last norm
  const torch::nn::Linear head(16, 1000);
  auto targets = at::randint(1000, {4, 100}, at::kLong);
  targets.narrow(1, 0, 20).fill_(-100);  // the prompt of each row
  const auto loss = linear_cross_entropy(hidden, head->weight, targets, {.bias = head->bias, .z_loss = 1e-4});
  loss.backward();
  std::cout << "gradients: " << hidden.grad().sizes() << ", " << head->weight.grad().sizes() << "\n";
  const auto of_prompt = hidden.grad()[0].narrow(0, 0, 20);
  std::cout << "of a prompt, not 0: " << of_prompt.count_nonzero().item<int64_t>() << "\n";
}

EXAMPLE(checkpointed_blocks) {
  const auto ids = at::randint(100, {1, 32}, at::kLong);
  const auto gradient_of = [&](int64_t every) {
    at::manual_seed(1);
    GPT model(GPTOptions(100, 32, 24, 3, 6).dropout(0.1).checkpoint(every));
    model->loss(ids, ids.roll(-1, 1)).backward();
    return model->tok_emb->weight.grad();
  };
  std::cout << "the same bits: " << gradient_of(1).equal(gradient_of(0)) << "\n";
}

EXAMPLE(lora) {
  GPT model(GPTOptions(100, 32, 24, 3, 2).qkv_bias(true));
  auto lora = Lora({.rank = 4, .alpha = 8, .dropout = 0.1}).attach(model);  // c_attn, as peft chooses
  std::cout << lora.layers()[0] << ": A " << lora.parameters()[0].sizes() << ", B "
            << lora.parameters()[1].sizes() << "\n";
  AdamW optimizer(*model, {.learning_rate = 1e-2});  // finds only the adapters
  const auto ids = at::randint(100, {2, 32}, at::kLong);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    model->loss(ids, ids.roll(-1, 1)).backward();
    optimizer.step();
  }
  lora.save("adapter");  // PeftModel.from_pretrained(base, "adapter")
  model->eval();
  const auto logits = model->forward(ids);
  lora.detach();
  lora = load_lora("adapter", model);
  std::cout << "the same logits: " << model->forward(ids).equal(logits) << "\n";
  lora.merge();  // the weights hold it, and the adapters compute no more
}

EXAMPLE(token_file) {
  std::ofstream("verse.txt") << "To be, or not to be: that is the question.\n";
  const MappedText text("verse.txt");
  const auto tokenizer = BpeTokenizer::train(text.view(), 300);
  write_token_file("verse.tokens", "verse.txt", tokenizer);
  const auto [training, validation, info] = map_token_file("verse.tokens");
  std::cout << info.training << " tokens to learn, " << info.validation << " to validate\n";
  std::cout << "those of the text in memory: " << training.equal(tokenize(text.view(), tokenizer).training)
            << "\n";
  const auto mismatch = token_file_mismatch("verse.tokens", "verse.txt", CharTokenizer::train("other"));
  std::cout << mismatch.value_or("it fits") << "\n";
}

EXAMPLE(checkpointed_function) {
  FeedForward wide(FeedForwardOptions(16).hidden_dim(4096));
  const auto x = at::randn({8, 16}).requires_grad_(true);
  const auto y = activation_checkpoint([wide](const at::Tensor& in) { return wide.ptr()->forward(in); }, x,
                                       {.modules = {wide.ptr()}});
  y.sum().backward();  // runs the layer again
  std::cout << "gradients of x and of a weight: " << x.grad().defined() << " and "
            << wide->parameters()[0].grad().defined() << "\n";
}
