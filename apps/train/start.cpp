#include "start.h"

#include <array>

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "common/language.h"

namespace {

using namespace attentive;

void check_out(const Settings& settings) {
  const auto& out = settings.out;
  const bool has_run = !list_checkpoints(out).empty();
  TORCH_CHECK_VALUE(!settings.resume || has_run, "expected a checkpoint in --out ", out,
                    " for --resume, got none");
  TORCH_CHECK_VALUE(settings.resume || !has_run, "expected a new folder for --out, got ", out,
                    ", which holds a run: go on with --resume, or choose another one");
  const auto python = python_folder(settings);
  for (const auto& path : {std::filesystem::path(out), python}) {
    TORCH_CHECK_VALUE(settings.resume || !std::filesystem::exists(path / "config.json"),
                      "expected a new folder for --out, got ", out, ", and ", path.string(),
                      " holds a model");
  }
  const auto adapters = adapter_folder(settings);
  TORCH_CHECK_VALUE(settings.resume || !std::filesystem::exists(adapters / "adapter_config.json"),
                    "expected a new folder for --out, got ", out, ", and ", adapters.string(),
                    " holds adapters");
}

std::unique_ptr<Tokenizer> learn_tokenizer(const Plan& plan, std::string_view text) {
  if (plan.tokenizer == "bpe") return std::make_unique<BpeTokenizer>(BpeTokenizer::train(text, plan.vocab));
  return std::make_unique<CharTokenizer>(CharTokenizer::train(text));
}

Start from_nothing(const Settings& settings, std::string_view text) {
  auto plan = plan_of(settings);
  auto tokenizer = learn_tokenizer(plan, text);
  plan.model.vocab_size(tokenizer->vocab_size());
  at::manual_seed(plan.trainer.seed);
  return {.language = {.model = GPT(plan.model), .tokenizer = std::move(tokenizer)}, .trainer = plan.trainer};
}

Start from_folder(const Settings& settings) {
  const auto& folder = settings.init_from;
  auto language =
      apps::load_language(folder, at::kCPU, {.dtype = at::kFloat, .dropout = settings.model.dropout});
  TORCH_CHECK_VALUE(language.tokenizer, "no tokenizer for --text: ", language.why_no_tokenizer);
  check_same_model(language.model, settings, folder);
  const auto trainer = finetuning(language.model, settings);
  at::manual_seed(trainer.seed);
  if (settings.lora_rank) language.lora = Lora(adapters_of(settings)).attach(language.model);
  return {.language = std::move(language), .trainer = trainer};
}

Start from_checkpoint(const Settings& settings) {
  TORCH_CHECK_VALUE(settings.init_from.empty(),
                    "expected no --init-from with --resume: the checkpoint has its model");
  TORCH_CHECK_VALUE(!settings.lora_rank,
                    "expected no --lora-rank with --resume: the checkpoint has its adapters");
  auto checkpoint = load_checkpoint(settings.out);
  const auto options = checkpoint.documents.find("trainer.json");
  TORCH_CHECK_VALUE(options != checkpoint.documents.end(),
                    "expected a checkpoint of this program, got one without trainer.json");
  auto language = parse_language_documents(checkpoint.documents, apps::tokenizer_reader());
  check_same_model(language.model, settings, "the checkpoint");
  return {.language = std::move(language),
          .trainer = resumed(parse_trainer_options(options->second), settings),
          .checkpoint = std::move(checkpoint)};
}

}  // namespace

std::filesystem::path python_folder(const Settings& settings) {
  return std::filesystem::path(settings.out) / "model";
}

std::filesystem::path adapter_folder(const Settings& settings) {
  return std::filesystem::path(settings.out) / "adapter";
}

Settings after_failure(Settings settings, attentive::TrainingGroup* group) {
  // Only rank 0 looks: the folder may not exist for other ranks yet.
  bool has_run = (!group || group->rank() == 0) && !list_checkpoints(settings.out).empty();
  if (group) has_run = group->gather(at::full({1}, has_run, at::kByte))[0].item<bool>();
  if (!has_run) return settings;
  settings.resume = true;
  settings.init_from.clear();
  settings.tokenizer.reset();
  settings.vocab.reset();
  settings.lora_rank.reset();
  return settings;
}

void check_same_start(const Settings& settings, attentive::TrainingGroup& group) {
  const bool has_tokens = !settings.tokens.empty();
  const auto all = group.gather(at::tensor({settings.resume, has_tokens}, at::kByte));
  const auto is_there = [](bool given) { return given ? "is" : "is not"; };
  const std::array flags{"--resume", "--tokens"};
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t flag = 0; flag < flags.size(); ++flag) {
      const bool first = all[0][static_cast<int64_t>(flag)].item<bool>();
      TORCH_CHECK_VALUE(all[rank][static_cast<int64_t>(flag)].item<bool>() == first, "expected ", flags[flag],
                        " in every process or in none, but it ", is_there(first), " there on rank 0 and ",
                        is_there(!first), " on rank ", rank);
    }
  }
}

Start start_of(const Settings& settings, std::string_view text, bool writes) {
  TORCH_CHECK_VALUE(!settings.lora_rank || settings.resume || !settings.init_from.empty(),
                    "expected --init-from FOLDER with --lora-rank: adapters fine-tune a model");
  if (writes || settings.resume) check_out(settings);
  auto start = settings.resume              ? from_checkpoint(settings)
               : settings.init_from.empty() ? from_nothing(settings, text)
                                            : from_folder(settings);
  if (settings.checkpoint_blocks) {
    start.language.model.visit([](const auto& model) { model.ptr()->options.checkpoint(1); });
  }
  return start;
}
