#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/core/option_list.h>
#include <attentive/train/adamw.h>
#include <attentive/train/block_sampler.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/evaluate.h>
#include <attentive/train/training_log.h>

namespace attentive {

/// How a model is trained. The defaults are nanoGPT's small setting for a CPU.
struct TrainerOptions {
  int64_t steps = 2000;    ///< updates in all
  int64_t block = 64;      ///< tokens a row
  int64_t batch = 12;      ///< rows a forward pass
  int64_t accumulate = 1;  ///< forward passes an update
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  int64_t warmup = 100;     ///< updates until the learning rate is reached
  int64_t decay_steps = 0;  ///< update at which the cosine ends; 0: `steps`
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< largest joint norm of the gradients; 0: no limit
  std::optional<at::ScalarType> autocast = std::nullopt;  ///< bfloat16 or float16 for the forward pass
  uint64_t seed = 1337;                                   ///< of the sampler
  int64_t rank = 0;                                       ///< which process this is, out of world_size
  int64_t world_size = 1;
  at::Device device = at::kCPU;
  int64_t evaluate_every = 250;  ///< updates between two looks at the validation text; 0: only at the end
  int64_t save_every = 500;      ///< updates between two checkpoints; 0: only at the end
  int64_t keep = 2;              ///< checkpoints that stay; 0: all
  int64_t log_every = 10;        ///< updates between two rows of the log

  // What a checkpoint keeps; it keeps autocast by name.
  ATTENTIVE_OPTIONS(steps, block, batch, accumulate, learning_rate, min_learning_rate, warmup, decay_steps,
                    beta1, beta2, weight_decay, clip, seed, evaluate_every, save_every, keep, log_every);
};

/// The options as JSON, without device, rank and world_size: what a checkpoint keeps as "trainer.json".
std::string to_json(const TrainerOptions& options);
/// Reads them back. Throws c10::ValueError that names a member which is missing or has another type.
TrainerOptions parse_trainer_options(const std::string& json);

/// Trains a language model on a token stream; a run can be cut anywhere and goes on bit for bit.
///
/// `loss` maps a batch (x, y), both (batch, block) int64 on `options.device`, to its mean loss. Dropout draws
/// from the default generators, whose states a checkpoint holds; batches come from the sampler's own. On the
/// CPU, with the same number of threads, N + M updates equal N updates, a checkpoint, and M updates of
/// another process, in every bit.
///
///   attentive::Trainer trainer(model.ptr(), loss_of_batch, train_tokens, validation_tokens, {.steps = 500});
///   attentive::CheckpointFolder folder("run");
///   trainer.run(folder, {.documents = {{"tokenizer.json", tokenizer.to_json()}}});
class Trainer {
 public:
  /// tokens: (N) integers on the CPU; the validation text may be undefined or empty: none. The model must
  /// already be on `options.device`. Throws c10::ValueError for texts too short and options without meaning.
  Trainer(std::shared_ptr<torch::nn::Module> model, BatchLoss loss, at::Tensor training,
          at::Tensor validation, TrainerOptions options = {});

  /// One update. Throws c10::ValueError, before any parameter changes, if the loss is not finite.
  LogRow step();
  /// Mean loss over the whole validation text; nullopt if there is none.
  std::optional<double> validate();
  /// Updates done so far, in earlier processes too.
  int64_t steps_done() const { return steps_done_; }

  /// Everything needed to go on, with the caller's documents beside its own "state.json" and "trainer.json".
  Checkpoint checkpoint(std::map<std::string, std::string> documents = {}) const;
  /// Goes to where a checkpoint was made. Throws c10::ValueError if the model, an option that decides the
  /// result or the text differ from the checkpoint's, and then changes nothing. Returns remarks, such as
  /// another number of threads.
  std::vector<std::string> restore(const Checkpoint& checkpoint);

  struct RunOptions {
    std::map<std::string, std::string> documents = {};     ///< for every checkpoint
    std::string log = "log.csv";                           ///< in the folder; ".jsonl" writes JSON lines
    std::string title = {};                                ///< of the loss picture, loss.svg
    std::function<void(const LogRow&)> on_step = {};       ///< after every update
    std::function<void(const std::string&)> on_note = {};  ///< what was saved where
    std::function<bool()> stop = {};                       ///< true: save and return
  };
  /// Trains up to `options.steps` or until `stop`; evaluates, logs, draws and saves as the options say, and
  /// saves at the end. Returns true if all steps are done.
  bool run(CheckpointFolder& folder, const RunOptions& run_options);

  const TrainerOptions& options() const { return options_; }

 private:
  std::shared_ptr<torch::nn::Module> model_;
  BatchLoss loss_;
  at::Tensor training_, validation_;
  std::string training_hash_, validation_hash_;  // a checkpoint says which texts it learned from
  TrainerOptions options_;
  AdamW optimizer_;
  BlockSampler sampler_;
  int64_t steps_done_ = 0;
};

}  // namespace attentive
