#include "settings.h"

#include <c10/util/Exception.h>

namespace {

template <class T, class U>
void take(T& target, const std::optional<U>& given) {
  if (given) target = *given;
}

void apply(attentive::TrainerOptions& trainer, const Settings& s) {
  take(trainer.steps, s.steps);
  take(trainer.block, s.block);
  take(trainer.batch, s.batch);
  take(trainer.accumulate, s.accumulate);
  take(trainer.warmup, s.warmup);
  take(trainer.decay_steps, s.decay_steps);
  take(trainer.learning_rate, s.lr);
  take(trainer.min_learning_rate, s.min_lr);
  take(trainer.beta1, s.beta1);
  take(trainer.beta2, s.beta2);
  take(trainer.weight_decay, s.weight_decay);
  take(trainer.clip, s.clip);
  take(trainer.seed, s.seed);
  take(trainer.evaluate_every, s.evaluate_every);
  take(trainer.save_every, s.save_every);
  take(trainer.keep, s.keep);
  take(trainer.log_every, s.log_every);
  if (s.autocast) {
    trainer.autocast = *s.autocast == "none"
                           ? std::nullopt
                           : std::optional(*s.autocast == "float16" ? at::kHalf : at::kBFloat16);
  }
}

void apply(attentive::GPTOptions& model, const Settings& s) {
  take(model.num_layers(), s.layers);
  take(model.num_heads(), s.heads);
  take(model.num_kv_heads(), s.kv_heads);
  take(model.emb_dim(), s.width);
  take(model.context_length(), s.block);
  take(model.window(), s.window);
  take(model.dropout(), s.dropout);
  take(model.tied(), s.tied);
  if (s.bias) model.bias(*s.bias).qkv_bias(*s.bias);
  if (s.positions) {
    model.positions(*s.positions == "rotary" ? attentive::GPTPositions::Rotary
                                             : attentive::GPTPositions::Learned);
  }
}

}  // namespace

std::map<std::string, std::string> presets() {
  return {
      {"shakespeare-small", "4 layers, 4 heads, width 128, block 64, batch 12, 2,000 steps, no dropout"},
      {"shakespeare-large", "6 layers, 6 heads, width 384, block 256, batch 64, 5,000 steps, dropout 0.2"}};
}

Plan plan_of(const Settings& s) {
  Plan plan;
  // The published settings of nanoGPT for a text of one megabyte: a small one for a CPU, a larger one.
  auto& trainer = plan.trainer;
  plan.model = attentive::GPTOptions(1, 64, 128, 4, 4);
  if (s.preset == "shakespeare-large") {
    plan.model = attentive::GPTOptions(1, 256, 384, 6, 6).dropout(0.2);
    trainer.block = 256;
    trainer.batch = 64;
    trainer.steps = 5000;
  } else {
    TORCH_CHECK_VALUE(s.preset == "shakespeare-small",
                      "expected a preset of shakespeare-small and "
                      "shakespeare-large, got ",
                      s.preset);
  }
  plan.model.bias(false).tied(true).init(attentive::GPTInit::Gpt2);
  apply(plan.model, s);
  apply(trainer, s);
  take(plan.tokenizer, s.tokenizer);
  take(plan.vocab, s.vocab);
  return plan;
}

attentive::TrainerOptions resumed(attentive::TrainerOptions options, const Settings& settings) {
  apply(options, settings);
  return options;
}

void check_same_model(const attentive::GPTOptions& saved, const Settings& settings) {
  auto wanted = saved;
  apply(wanted, settings);
  const auto same = [](const char* name, auto was, auto now) {
    TORCH_CHECK_VALUE(was == now, "expected ", name, " ", was, " as in the checkpoint, got ", now);
  };
  same("--layers", saved.num_layers(), wanted.num_layers());
  same("--heads", saved.num_heads(), wanted.num_heads());
  same("--kv-heads", saved.num_kv_heads(), wanted.num_kv_heads());
  same("--width", saved.emb_dim(), wanted.emb_dim());
  same("--block", saved.context_length(), wanted.context_length());
  same("--window", saved.window(), wanted.window());
  same("--dropout", saved.dropout(), wanted.dropout());
  same("--bias", saved.bias(), wanted.bias());
  same("--tied", saved.tied(), wanted.tied());
  same("--positions", static_cast<int>(saved.positions()), static_cast<int>(wanted.positions()));
  TORCH_CHECK_VALUE(!settings.tokenizer && !settings.vocab,
                    "expected no --tokenizer or --vocab with --resume: the checkpoint has its tokenizer");
}
