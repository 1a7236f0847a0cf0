#include "settings.h"

#include <algorithm>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

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
  take(trainer.shard_optimizer, s.shard_optimizer);
  if (s.autocast) {
    trainer.autocast = *s.autocast == "none"
                           ? std::nullopt
                           : std::optional(*s.autocast == "float16" ? at::kHalf : at::kBFloat16);
  }
  if (s.loss_scale) {
    using attentive::LossScalingMode;
    auto& scaling = trainer.loss_scaling;
    scaling.mode = *s.loss_scale == "off"       ? LossScalingMode::Off
                   : *s.loss_scale == "dynamic" ? LossScalingMode::Dynamic
                                                : LossScalingMode::Fixed;
    if (scaling.mode == LossScalingMode::Fixed) scaling.initial = std::stod(*s.loss_scale);
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

// The model options that flags set; nothing where a model has no single value.
struct Traits {
  int64_t layers, heads, kv_heads, width;
  std::optional<int64_t> window;
  double dropout;
  std::string positions;
  std::optional<bool> bias;
  bool tied;
};

Traits traits_of(const attentive::GPTOptions& model) {
  return {.layers = model.num_layers(),
          .heads = model.num_heads(),
          .kv_heads = model.num_kv_heads() > 0 ? model.num_kv_heads() : model.num_heads(),
          .width = model.emb_dim(),
          .window = model.window(),
          .dropout = model.dropout(),
          .positions = std::string(to_string(model.positions())),
          .bias = model.bias() == model.qkv_bias() ? std::optional(model.bias()) : std::nullopt,
          .tied = model.tied()};
}

Traits traits_of(const attentive::LlamaOptions& model) {
  auto windows = model.windows();
  windows.resize(static_cast<size_t>(model.num_layers()));
  const bool same_window = std::ranges::all_of(windows, [&](int64_t window) { return window == windows[0]; });
  const bool same_bias = model.qkv_bias() == model.out_bias() && model.out_bias() == model.ff_bias();
  return {.layers = model.num_layers(),
          .heads = model.num_heads(),
          .kv_heads = model.num_kv_heads() > 0 ? model.num_kv_heads() : model.num_heads(),
          .width = model.emb_dim(),
          .window = same_window ? std::optional(windows[0]) : std::nullopt,
          .dropout = model.dropout(),
          .positions = "rotary",
          .bias = same_bias ? std::optional(model.qkv_bias()) : std::nullopt,
          .tied = model.tied()};
}

attentive::TrainerOptions checked(attentive::TrainerOptions trainer) {
  TORCH_CHECK_VALUE(trainer.min_learning_rate <= trainer.learning_rate, "--lr: expected at least --min-lr, ",
                    fmt::format("{}, got {}", trainer.min_learning_rate, trainer.learning_rate));
  return trainer;
}

// Refuses models that this machine cannot hold, before an allocation fails during the run. Counts the weights
// in float32, without gradients and moments, and one number for each feature of a batch's tokens.
void check_memory(const attentive::GPTOptions& model, int64_t batch) {
  const auto memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const auto check = [&](const char* flags, const char* what, double numbers) {
    constexpr double kGiB = 1 << 30;
    const auto bytes = numbers * sizeof(float);
    TORCH_CHECK_VALUE(bytes <= memory, flags, ": expected ", what,
                      fmt::format(" of at most {:.1f} GiB, the memory of this machine, got {:.1f} GiB",
                                  memory / kGiB, bytes / kGiB));
  };
  const auto width = static_cast<double>(model.emb_dim()),
             tokens = static_cast<double>(model.context_length());
  // A lower bound: queries, output and two layers of 4 times the width; keys and values may be smaller.
  check("--layers and --width", "weights", 10 * width * width * static_cast<double>(model.num_layers()));
  check("--block and --width", "an embedding of positions",
        model.positions() == attentive::GPTPositions::Learned ? tokens * width : 0);
  check("--batch, --block and --width", "a batch", static_cast<double>(batch) * tokens * width);
}

}  // namespace

std::map<std::string, std::string> presets() {
  return {
      {"shakespeare-small", "4 layers, 4 heads, width 128, block 64, batch 12, 2,000 steps, no dropout"},
      {"shakespeare-large", "6 layers, 6 heads, width 384, block 256, batch 64, 5,000 steps, dropout 0.2"},
      {"finetune", "for --init-from: block 128, batch 8, 200 steps, --lr 5e-5, --weight-decay 0.01"}};
}

Plan plan_of(const Settings& s) {
  Plan plan;
  // nanoGPT's published settings for a text of one megabyte: a small one for a CPU, and a larger one.
  auto& trainer = plan.trainer;
  plan.model = attentive::GPTOptions(1, 64, 128, 4, 4);
  const auto preset = s.preset.value_or("shakespeare-small");
  TORCH_CHECK_VALUE(preset != "finetune", "expected --init-from FOLDER with --preset finetune");
  if (preset == "shakespeare-large") {
    plan.model = attentive::GPTOptions(1, 256, 384, 6, 6).dropout(0.2);
    trainer.block = 256;
    trainer.batch = 64;
    trainer.steps = 5000;
  } else {
    TORCH_CHECK_VALUE(preset == "shakespeare-small",
                      "expected a preset of shakespeare-small and "
                      "shakespeare-large, got ",
                      preset);
  }
  plan.model.bias(false).tied(true).init(attentive::GPTInit::Gpt2);
  apply(plan.model, s);
  apply(trainer, s);
  take(plan.tokenizer, s.tokenizer);
  take(plan.vocab, s.vocab);
  const auto width = plan.model.emb_dim(), heads = plan.model.num_heads();
  TORCH_CHECK_VALUE(width % heads == 0, "--heads: expected a divisor of --width, ", width, ", got ", heads);
  const auto kv_heads = plan.model.num_kv_heads();
  TORCH_CHECK_VALUE(kv_heads == 0 || heads % kv_heads == 0,
                    "--kv-heads: expected 0 or a divisor of --heads, ", heads, ", got ", kv_heads);
  checked(trainer);
  check_memory(plan.model, trainer.batch);
  return plan;
}

attentive::TrainerOptions finetuning(const attentive::AnyLanguageModel& model, const Settings& s) {
  TORCH_CHECK_VALUE(s.preset.value_or("finetune") == "finetune",
                    "expected --preset finetune with --init-from, got ", *s.preset);
  const auto context = model.context_length();
  attentive::TrainerOptions options{.steps = 200,
                                    .block = context > 0 ? std::min<int64_t>(128, context) : 128,
                                    .batch = 8,
                                    .learning_rate = 5e-5,
                                    .min_learning_rate = 0,
                                    .warmup = 10,
                                    .beta2 = 0.999,
                                    .weight_decay = 0.01,
                                    .evaluate_every = 50,
                                    .save_every = 100};
  apply(options, s);
  TORCH_CHECK_VALUE(context == 0 || options.block <= context, "expected --block of at most ", context,
                    ", the context of ", s.init_from, ", got ", options.block);
  return checked(options);
}

attentive::LoraOptions adapters_of(const Settings& s) {
  attentive::LoraOptions options{.targets = s.lora_targets, .base_model = s.init_from};
  take(options.rank, s.lora_rank);
  take(options.alpha, s.lora_alpha);
  take(options.dropout, s.lora_dropout);
  return options;
}

attentive::TrainerOptions resumed(attentive::TrainerOptions options, const Settings& settings) {
  apply(options, settings);
  return checked(options);
}

void check_same_model(const attentive::AnyLanguageModel& model, const Settings& settings,
                      const std::string& source) {
  const auto has = model.visit([](const auto& holder) { return traits_of(holder->options); });
  const auto same = [&](const char* name, const auto& was, const auto& given) {
    TORCH_CHECK_VALUE(!given || was == *given, "expected ", name, ' ', fmt::format("{}", was), " as in ",
                      source, ", got ", fmt::format("{}", given.value_or(was)));
  };
  const auto same_or_none = [&](const char* name, const auto& was, const auto& given) {
    TORCH_CHECK_VALUE(!given || was, "expected no ", name, ": ", source, " has no single value of it");
    if (was) same(name, *was, given);
  };
  auto kv_heads = settings.kv_heads;
  if (kv_heads == 0) kv_heads = has.heads;
  same("--layers", has.layers, settings.layers);
  same("--heads", has.heads, settings.heads);
  same("--kv-heads", has.kv_heads, kv_heads);
  same("--width", has.width, settings.width);
  same_or_none("--window", has.window, settings.window);
  same("--dropout", has.dropout, settings.dropout);
  same("--positions", has.positions, settings.positions);
  same_or_none("--bias", has.bias, settings.bias);
  same("--tied", has.tied, settings.tied);
  TORCH_CHECK_VALUE(!settings.tokenizer && !settings.vocab, "expected no --tokenizer or --vocab: ", source,
                    " has its tokenizer");
}
