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
#include <attentive/train/checkpoint.h>
#include <attentive/train/evaluate.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/training_group.h>
#include <attentive/train/training_log.h>

namespace attentive {

/// Options of a training run. The defaults are nanoGPT's small setting for a CPU.
///
/// A run depends on its options, not on the number of processes: an update always uses `accumulate` forward
/// passes of `batch` rows in total.
struct TrainerOptions {
  int64_t steps = 2000;    ///< total number of updates
  int64_t block = 64;      ///< tokens per row
  int64_t batch = 12;      ///< rows per forward pass
  int64_t accumulate = 1;  ///< forward passes per update
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  int64_t warmup = 100;     ///< updates until the full learning rate is reached
  int64_t decay_steps = 0;  ///< update at which the cosine schedule ends; 0: `steps`
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< maximum joint norm of the gradients; 0: no limit
  /// The dtype of the forward pass: bfloat16 or float16.
  std::optional<at::ScalarType> autocast = std::nullopt;
  /// How losses are multiplied before the backward pass, as by `LossScaler`. By default they are under
  /// float16 autocast, where gradients of activations below 6e-8 would become 0, and not otherwise.
  LossScaling loss_scaling = {};
  uint64_t seed = 1337;  ///< seeds the sampler
  at::Device device = at::kCPU;
  int64_t evaluate_every = 250;  ///< updates between two evaluations; 0: only at the end
  int64_t save_every = 500;      ///< updates between two checkpoints; 0: only at the end
  int64_t keep = 2;              ///< number of checkpoints kept; 0: all
  int64_t log_every = 10;        ///< updates between two rows of the log
  /// Whether each process keeps AdamW's moments only for its share of the parameters, as `ShardedAdamW` does.
  /// The run has the same bits either way.
  bool shard_optimizer = false;

  // The options that a checkpoint stores; it also stores autocast, by name.
  ATTENTIVE_OPTIONS(steps, block, batch, accumulate, learning_rate, min_learning_rate, warmup, decay_steps,
                    beta1, beta2, weight_decay, clip, loss_scaling, seed, evaluate_every, save_every, keep,
                    log_every, shard_optimizer);
};

/// The options as JSON, without the device, stored in a checkpoint as "trainer.json".
std::string to_json(const TrainerOptions& options);
/// Parses the options. Throws c10::ValueError naming a member that is missing or has another type.
TrainerOptions parse_trainer_options(const std::string& json);

/// Trains a language model on a token stream. A run can be interrupted anywhere and continues bit for bit.
///
/// `loss` maps a batch (x, y), both (batch, block) int64 on `options.device`, to its mean loss. Dropout draws
/// from the default generators, whose states are part of a checkpoint; the sampler has its own generator. On
/// the CPU, with the same number of threads, N + M updates give the same bits as N updates, a checkpoint, and
/// M updates in another process.
///
/// With a scaled loss (`TrainerOptions::loss_scaling`), an update whose gradients overflow is skipped:
/// parameters and moments stay as they are, the scale becomes smaller, and the update counts as one of
/// `steps`, also for the learning rate. The scale is the same in every process and part of a checkpoint.
///
///   attentive::Trainer trainer(model.ptr(), loss_of_batch, train_tokens, validation_tokens, {.steps = 500});
///   attentive::CheckpointFolder folder("run");
///   trainer.run(folder, {.documents = {{"tokenizer.json", tokenizer.to_json()}}});
///
/// **In a group of W processes**, each has a trainer with the same options and tokens, and all make the same
/// calls; those marked "collective" wait for each other. If W divides `accumulate`, rank r computes the
/// passes r, r + W, … of every update; otherwise, if W divides `batch`, it computes batch / W rows of each
/// pass. The loss must be a mean over rows. Gradients are averaged. All ranks report the same losses and
/// norms, and after the same update they stop, or throw for a loss that is not finite.
///
/// Without dropout, two processes with `accumulate` = 2 compute and report the same bits as one process. In
/// larger groups, the sum of the gradients is rounded in another order; the parameters are still
/// bit-identical in all processes of the group.
///
/// Dropout needs different bits on every rank: the constructor seeds the default generators of rank r > 0
/// from their current seed and r. The generators of rank 0 are unchanged.
class Trainer {
 public:
  /// tokens: (N) integers on the CPU; the validation text may be undefined or empty, which means none. The
  /// model must already be on `options.device`.
  /// group: the processes that train together; null: this process alone.
  ///
  /// Throws c10::ValueError for texts that are too short and for invalid options, also if the number of
  /// processes divides neither accumulate nor batch.
  /// Collective: the parameters and buffers of rank 0 are copied to the others. Throws c10::ValueError in all
  /// processes if their options or tokens differ, or the options that the modules of their models print.
  Trainer(std::shared_ptr<torch::nn::Module> model, BatchLoss loss, at::Tensor training,
          at::Tensor validation, TrainerOptions options = {}, std::shared_ptr<TrainingGroup> group = nullptr);

  /// Does one update; collective. Throws c10::ValueError, before any parameter changes, if the loss is not
  /// finite, or if the gradients are not and no smaller scale of the loss may help.
  LogRow step();
  /// The mean loss over the whole validation text; nullopt if there is no such text. Collective.
  std::optional<double> validate();
  /// The number of updates done so far, including those before the latest resume.
  int64_t steps_done() const { return steps_done_; }

  /// Everything needed to continue: the caller's documents in addition to the trainer's "state.json" and
  /// "trainer.json". Collective: the checkpoint holds the generator states and the moments of every process,
  /// and is the same in all processes.
  Checkpoint checkpoint(std::map<std::string, std::string> documents = {}) const;
  /// Returns to the state in which a checkpoint was made. Throws c10::ValueError if the model, an option that
  /// affects the result, or the text differs from the checkpoint's, and then changes nothing. Returns
  /// remarks, such as a different number of threads.
  ///
  /// Collective: throws in all processes if their checkpoints differ. A checkpoint may come from another
  /// number of processes; a remark then says that dropout continues with other bits. Ranks that the
  /// checkpoint does not have are seeded from `options.seed`, its step and their rank.
  std::vector<std::string> restore(const Checkpoint& checkpoint);

  struct RunOptions {
    std::map<std::string, std::string> documents = {};     ///< added to every checkpoint
    std::string log = "log.csv";                           ///< in the folder; ".jsonl" writes JSON lines
    std::string title = {};                                ///< of the picture of losses, loss.svg
    std::function<void(const LogRow&)> on_step = {};       ///< called after every update
    std::function<void(const std::string&)> on_note = {};  ///< called with what was saved, and where
    std::function<bool()> stop = {};                       ///< returning true saves and ends the run
  };
  /// Trains until `options.steps` or until `stop` returns true. Evaluates, logs, draws the loss curve and
  /// saves as the options say, and always saves at the end. Returns true if all steps are done. If they were
  /// already done when the folder's latest checkpoint was restored, writes nothing.
  ///
  /// Collective. In a group, `stop` is called on every rank during every update, and if it returns true on
  /// any rank, all stop after that update. Rank 0 writes files and calls `on_note`; every rank calls
  /// `on_step`. An error on rank 0, such as a full disk, is thrown only there; the others learn of it from
  /// the group when rank 0 ends.
  bool run(CheckpointFolder& folder, const RunOptions& run_options);

  const TrainerOptions& options() const { return options_; }

 private:
  struct Update {
    LogRow row = {};
    bool stop = false;  // whether any process requested it
  };
  Checkpoint make_checkpoint(std::map<std::string, std::string> documents, bool wanted) const;
  Update update(const std::function<bool()>& stop);
  bool nothing_left(const CheckpointFolder& folder) const;
  std::pair<at::Tensor, at::Tensor> next_rows();
  at::Tensor forward();

  std::shared_ptr<torch::nn::Module> model_;
  BatchLoss loss_;
  at::Tensor training_, validation_;
  std::string training_hash_, validation_hash_;  // stored in checkpoints to identify the texts
  TrainerOptions options_;
  std::shared_ptr<TrainingGroup> group_;
  BlockSampler sampler_;
  std::unique_ptr<GradientAverage> gradients_;
  std::unique_ptr<AdamWBase> optimizer_;
  LossScaler scaler_;
  int64_t steps_done_ = 0;
  std::string restored_;  // state.json of the restored checkpoint; empty after an update
};

}  // namespace attentive
