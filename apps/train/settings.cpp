#include "settings.h"

#include <algorithm>
#include <type_traits>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace {

template <class T, class U>
void take(T& target, const std::optional<U>& given) {
  if (given) target = *given;
}

void apply(attentive::TrainerOptions& trainer, const Settings& s) {
  take(trainer.block, s.block);
  for (const auto& set : s.training) set(trainer);
}

void apply(attentive::GPTOptions& model, const ModelFlags& given) {
  take(model.num_layers(), given.layers);
  take(model.num_heads(), given.heads);
  take(model.num_kv_heads(), given.kv_heads);
  take(model.emb_dim(), given.width);
  take(model.window(), given.window);
  take(model.dropout(), given.dropout);
  take(model.tied(), given.tied);
  if (given.bias) model.bias(*given.bias).qkv_bias(*given.bias);
  if (given.positions) {
    model.positions(*given.positions == "rotary" ? attentive::GPTPositions::Rotary
                                                 : attentive::GPTPositions::Learned);
  }
}

template <class Options>
ModelFlags flags_of(const Options& model) {
  ModelFlags flags{.layers = model.num_layers(),
                   .heads = model.num_heads(),
                   .kv_heads = model.num_kv_heads() > 0 ? model.num_kv_heads() : model.num_heads(),
                   .width = model.emb_dim(),
                   .dropout = model.dropout(),
                   .positions = "rotary",
                   .tied = model.tied()};
  bool same_bias = false;
  if constexpr (std::is_same_v<Options, attentive::GPTOptions>) {
    flags.window = model.window();
    flags.positions = to_string(model.positions());
    same_bias = model.bias() == model.qkv_bias();
  } else {
    auto windows = model.windows();
    windows.resize(static_cast<size_t>(model.num_layers()));
    const auto is_first = [&](int64_t window) { return window == windows[0]; };
    if (std::ranges::all_of(windows, is_first)) flags.window = windows[0];
    same_bias = model.qkv_bias() == model.out_bias() && model.out_bias() == model.ff_bias();
  }
  if (same_bias) flags.bias = model.qkv_bias();
  return flags;
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

void set_autocast(attentive::TrainerOptions& trainer, const std::string& text) {
  trainer.autocast =
      text == "none" ? std::nullopt : std::optional(text == "float16" ? at::kHalf : at::kBFloat16);
}

void set_loss_scale(attentive::TrainerOptions& trainer, const std::string& text) {
  using attentive::LossScalingMode;
  auto& scaling = trainer.loss_scaling;
  scaling.mode = text == "off"       ? LossScalingMode::Off
                 : text == "dynamic" ? LossScalingMode::Dynamic
                                     : LossScalingMode::Fixed;
  if (scaling.mode == LossScalingMode::Fixed) scaling.initial = std::stod(text);
}

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
  apply(plan.model, s.model);
  take(plan.model.context_length(), s.block);
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
  const auto has = model.visit([](const auto& holder) { return flags_of(holder->options); });
  auto given = settings.model;
  if (given.kv_heads == 0) given.kv_heads = has.heads;
  const auto same = [&](const char* name, auto member) {
    const auto &was = has.*member, &now = given.*member;
    TORCH_CHECK_VALUE(!now || was, "expected no ", name, ": ", source, " has no single value of it");
    TORCH_CHECK_VALUE(!now || was == now, "expected ", name, ' ', fmt::format("{}", *was), " as in ", source,
                      ", got ", fmt::format("{}", *now));
  };
  same("--layers", &ModelFlags::layers);
  same("--heads", &ModelFlags::heads);
  same("--kv-heads", &ModelFlags::kv_heads);
  same("--width", &ModelFlags::width);
  same("--window", &ModelFlags::window);
  same("--dropout", &ModelFlags::dropout);
  same("--positions", &ModelFlags::positions);
  same("--bias", &ModelFlags::bias);
  same("--tied", &ModelFlags::tied);
  TORCH_CHECK_VALUE(!settings.tokenizer && !settings.vocab, "expected no --tokenizer or --vocab: ", source,
                    " has its tokenizer");
}
